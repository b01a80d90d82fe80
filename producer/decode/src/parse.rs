//! Bytes into messages: the parsers of [`crate::message`]'s forms.
//!
//! Invariants: a parser consumes every byte or refuses, naming the field; it takes no form that the
//! server does not write (an unknown flag is a refusal, not a guess); it allocates nothing.

use walbraid_schemas::Lsn;

use crate::cursor::Cursor;
use crate::message::{
    Abort, ColumnBody, EPOCH_OFFSET_US, Framing, Malformed, Message, Oids, Prepare, RelationBody,
};
use crate::tuple::{OldTuple, Tuple};

impl<'a> Message<'a> {
    /// Parses one message, to its last byte.
    pub fn parse(bytes: &'a [u8], framing: Framing) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let message = body(&mut cursor, framing)?;
        cursor.end()?;
        Ok(message)
    }
}

#[inline]
fn body<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    match cursor.u8("kind of message")? {
        b'I' => insert(cursor, framing),
        b'U' => update(cursor, framing),
        b'D' => delete(cursor, framing),
        b'B' => Ok(Message::Begin {
            commit_lsn: lsn(cursor, "commit LSN")?,
            commit_time_us: time(cursor, "commit time")?,
            xid: cursor.u32("xid")?,
        }),
        b'C' => {
            no_flags(cursor)?;
            Ok(Message::Commit {
                commit_lsn: lsn(cursor, "commit LSN")?,
                end_lsn: lsn(cursor, "end LSN")?,
                commit_time_us: time(cursor, "commit time")?,
            })
        }
        b'O' => Ok(Message::Origin {
            commit_lsn: lsn(cursor, "origin commit LSN")?,
            name: cursor.string("origin name")?,
        }),
        b'R' => {
            let xid = stream_xid(cursor, framing)?;
            Ok(Message::Relation(RelationBody::parse(cursor, xid)?))
        }
        b'Y' => Ok(Message::Type {
            xid: stream_xid(cursor, framing)?,
            oid: cursor.u32("type")?,
            schema: cursor.string("schema")?,
            name: cursor.string("type name")?,
        }),
        b'T' => truncate(cursor, framing),
        b'M' => logical(cursor, framing),
        tag => stream_or_two_phase(tag, cursor, framing),
    }
}

fn stream_or_two_phase<'a>(
    tag: u8,
    cursor: &mut Cursor<'a>,
    framing: Framing,
) -> Result<Message<'a>, Malformed> {
    match tag {
        b'S' => Ok(Message::StreamStart {
            xid: cursor.u32("xid")?,
            first_segment: match cursor.u8("first segment")? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::new("first segment", "is neither 0 nor 1")),
            },
        }),
        b'E' => Ok(Message::StreamStop),
        b'c' => {
            let xid = cursor.u32("xid")?;
            no_flags(cursor)?;
            Ok(Message::StreamCommit {
                xid,
                commit_lsn: lsn(cursor, "commit LSN")?,
                end_lsn: lsn(cursor, "end LSN")?,
                commit_time_us: time(cursor, "commit time")?,
            })
        }
        b'A' => Ok(Message::StreamAbort {
            xid: cursor.u32("xid")?,
            subxid: cursor.u32("subtransaction xid")?,
            abort: if framing.parallel {
                Some(Abort {
                    lsn: lsn(cursor, "abort LSN")?,
                    time_us: time(cursor, "abort time")?,
                })
            } else {
                None
            },
        }),
        b'b' => Ok(Message::BeginPrepare(prepare(cursor)?)),
        b'P' => {
            no_flags(cursor)?;
            Ok(Message::Prepare(prepare(cursor)?))
        }
        b'p' => {
            no_flags(cursor)?;
            Ok(Message::StreamPrepare(prepare(cursor)?))
        }
        b'K' => {
            no_flags(cursor)?;
            Ok(Message::CommitPrepared {
                commit_lsn: lsn(cursor, "commit LSN")?,
                end_lsn: lsn(cursor, "end LSN")?,
                commit_time_us: time(cursor, "commit time")?,
                xid: cursor.u32("xid")?,
                gid: cursor.string("gid")?,
            })
        }
        b'r' => {
            no_flags(cursor)?;
            Ok(Message::RollbackPrepared {
                prepare_end_lsn: lsn(cursor, "prepare end LSN")?,
                rollback_end_lsn: lsn(cursor, "rollback end LSN")?,
                prepare_time_us: time(cursor, "prepare time")?,
                rollback_time_us: time(cursor, "rollback time")?,
                xid: cursor.u32("xid")?,
                gid: cursor.string("gid")?,
            })
        }
        _ => Err(Malformed::new("kind of message", "is unknown")),
    }
}

fn insert<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    let xid = stream_xid(cursor, framing)?;
    let relation = cursor.u32("relation")?;
    new_tuple_tag(cursor.u8("kind of tuple")?)?;
    Ok(Message::Insert {
        xid,
        relation,
        new: Tuple::parse(cursor)?,
    })
}

fn update<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    let xid = stream_xid(cursor, framing)?;
    let relation = cursor.u32("relation")?;
    let mut tag = cursor.u8("kind of tuple")?;
    let mut old = None;
    if matches!(tag, b'K' | b'O') {
        old = Some(old_tuple(tag, cursor)?);
        tag = cursor.u8("kind of tuple")?;
    }
    new_tuple_tag(tag)?;
    Ok(Message::Update {
        xid,
        relation,
        old,
        new: Tuple::parse(cursor)?,
    })
}

fn delete<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    let xid = stream_xid(cursor, framing)?;
    let relation = cursor.u32("relation")?;
    let tag = cursor.u8("kind of tuple")?;
    Ok(Message::Delete {
        xid,
        relation,
        old: old_tuple(tag, cursor)?,
    })
}

fn truncate<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    let xid = stream_xid(cursor, framing)?;
    let count = cursor.length("number of relations")?;
    let flags = cursor.u8("truncate flags")?;
    if flags & !3 != 0 {
        return Err(Malformed::new("truncate flags", "has an unknown bit"));
    }
    let length = count
        .checked_mul(4)
        .ok_or(Malformed::new("number of relations", "is too large"))?;
    Ok(Message::Truncate {
        xid,
        cascade: flags & 1 != 0,
        restart_identity: flags & 2 != 0,
        relations: Oids::from_bytes(cursor.bytes("relations", length)?),
    })
}

fn logical<'a>(cursor: &mut Cursor<'a>, framing: Framing) -> Result<Message<'a>, Malformed> {
    let xid = stream_xid(cursor, framing)?;
    let flags = cursor.u8("message flags")?;
    if flags & !1 != 0 {
        return Err(Malformed::new("message flags", "has an unknown bit"));
    }
    let lsn = lsn(cursor, "message LSN")?;
    let prefix = cursor.string("prefix")?;
    let length = cursor.length("length of content")?;
    let content = cursor.bytes("content", length)?;
    Ok(Message::Logical {
        xid,
        transactional: flags == 1,
        lsn,
        prefix,
        content,
    })
}

fn prepare<'a>(cursor: &mut Cursor<'a>) -> Result<Prepare<'a>, Malformed> {
    Ok(Prepare {
        prepare_lsn: lsn(cursor, "prepare LSN")?,
        end_lsn: lsn(cursor, "end LSN")?,
        prepare_time_us: time(cursor, "prepare time")?,
        xid: cursor.u32("xid")?,
        gid: cursor.string("gid")?,
    })
}

fn old_tuple<'a>(tag: u8, cursor: &mut Cursor<'a>) -> Result<OldTuple<'a>, Malformed> {
    match tag {
        b'K' => Ok(OldTuple::Key(Tuple::parse(cursor)?)),
        b'O' => Ok(OldTuple::Full(Tuple::parse(cursor)?)),
        _ => Err(Malformed::new("kind of tuple", "is neither K nor O")),
    }
}

fn new_tuple_tag(tag: u8) -> Result<(), Malformed> {
    match tag {
        b'N' => Ok(()),
        _ => Err(Malformed::new("kind of tuple", "is not N")),
    }
}

#[inline]
fn stream_xid(cursor: &mut Cursor<'_>, framing: Framing) -> Result<Option<u32>, Malformed> {
    if framing.in_stream {
        cursor.u32("xid").map(Some)
    } else {
        Ok(None)
    }
}

fn no_flags(cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
    match cursor.u8("flags")? {
        0 => Ok(()),
        _ => Err(Malformed::new("flags", "has an unknown bit")),
    }
}

fn lsn(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Lsn, Malformed> {
    cursor.u64(field).map(Lsn)
}

fn time(cursor: &mut Cursor<'_>, field: &'static str) -> Result<i64, Malformed> {
    cursor
        .i64(field)?
        .checked_add(EPOCH_OFFSET_US)
        .ok_or(Malformed::new(field, "is out of range"))
}

impl<'a> RelationBody<'a> {
    fn parse(cursor: &mut Cursor<'a>, xid: Option<u32>) -> Result<Self, Malformed> {
        let oid = cursor.u32("relation")?;
        let schema = cursor.string("schema")?;
        let name = cursor.string("relation name")?;
        let identity = cursor.u8("replica identity")?;
        if !matches!(identity, b'd' | b'n' | b'f' | b'i') {
            return Err(Malformed::new(
                "replica identity",
                "is none of d, n, f and i",
            ));
        }
        let columns = cursor.u16("number of columns")?;
        let whole = cursor.rest();
        for _ in 0..columns {
            column(cursor)?;
        }
        let length = whole.len() - cursor.rest().len();
        let column_bytes = whole.get(..length).unwrap_or_default();
        Ok(Self {
            xid,
            oid,
            schema,
            name,
            identity,
            columns,
            column_bytes,
        })
    }
}

/// Takes a column of a relation off the cursor.
pub(crate) fn column<'a>(cursor: &mut Cursor<'a>) -> Result<ColumnBody<'a>, Malformed> {
    let key = match cursor.u8("column flags")? {
        0 => false,
        1 => true,
        _ => return Err(Malformed::new("column flags", "has an unknown bit")),
    };
    Ok(ColumnBody {
        key,
        name: cursor.string("column name")?,
        type_oid: cursor.u32("column type")?,
        type_modifier: cursor.i32("column type modifier")?,
    })
}
