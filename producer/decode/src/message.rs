//! The messages of pgoutput, proto_version 1 to 4, as they lie in the replication stream.
//!
//! Owns: the form of each message, parsed here and built in [`Message::write`]. Does not own their
//! order or meaning ([`crate::decoder`], [`crate::assembler`]).
//!
//! Invariants: a parser consumes every byte or refuses; it allocates nothing; what it returns
//! borrows the message. Inside a stream block (between Stream Start and Stream Stop) most messages
//! carry the xid of the subtransaction they belong to, and nothing in the message says so: the
//! caller does ([`Framing`]).

use walbraid_schemas::Lsn;

use crate::cursor::Cursor;
use crate::tuple::{OldTuple, Tuple};

/// The seconds between the epochs of Unix and PostgreSQL, in microseconds.
pub(crate) const EPOCH_OFFSET_US: i64 = 946_684_800_000_000;

/// What a field of a message is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field.
    pub field: &'static str,
    /// What it is or has that it may not.
    pub problem: &'static str,
}

impl Malformed {
    pub(crate) const fn new(field: &'static str, problem: &'static str) -> Self {
        Self { field, problem }
    }
}

/// What the stream so far says about the form of the next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Inside a stream block: row, relation, type and logical messages carry an xid.
    pub in_stream: bool,
    /// `streaming 'parallel'` was asked for: Stream Abort carries an LSN and a time.
    pub parallel: bool,
}

/// One message of pgoutput. Times are microseconds since the Unix epoch; `xid` is that of the
/// subtransaction and present inside a stream block only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// `B`: a plain transaction begins.
    Begin {
        /// LSN of its commit record.
        commit_lsn: Lsn,
        /// Time of its commit.
        commit_time_us: i64,
        /// Its top-level xid.
        xid: u32,
    },
    /// `C`: it ends.
    Commit {
        /// LSN of its commit record, as in Begin.
        commit_lsn: Lsn,
        /// LSN behind its commit record.
        end_lsn: Lsn,
        /// Time of its commit, as in Begin.
        commit_time_us: i64,
    },
    /// `O`: the transaction was replicated to the publisher from elsewhere.
    Origin {
        /// LSN of its commit on the origin.
        commit_lsn: Lsn,
        /// Name of the origin on the publisher.
        name: &'a str,
    },
    /// `R`: the shape of a relation, before its first row and after each change of it.
    Relation(RelationBody<'a>),
    /// `Y`: the name of a type that is not built in, before the relation that uses it.
    Type {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The type's oid; that of a domain, whose base type the names give.
        oid: u32,
        /// Schema of the type; empty for pg_catalog.
        schema: &'a str,
        /// Name of the type.
        name: &'a str,
    },
    /// `I`: a row is inserted.
    Insert {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The new row.
        new: Tuple<'a>,
    },
    /// `U`: a row is updated.
    Update {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The old key or row, where the replica identity had it logged.
        old: Option<OldTuple<'a>>,
        /// The new row.
        new: Tuple<'a>,
    },
    /// `D`: a row is deleted.
    Delete {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The old key or row.
        old: OldTuple<'a>,
    },
    /// `T`: relations are truncated.
    Truncate {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
        /// The relations' oids.
        relations: Oids<'a>,
    },
    /// `M`: pg_logical_emit_message.
    Logical {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// Part of the transaction, or sent on its own.
        transactional: bool,
        /// LSN of the message.
        lsn: Lsn,
        /// Its prefix.
        prefix: &'a str,
        /// Its content.
        content: &'a [u8],
    },
    /// `S`: a block of a streamed transaction opens.
    StreamStart {
        /// Its top-level xid.
        xid: u32,
        /// Whether it is the first block of that transaction.
        first_segment: bool,
    },
    /// `E`: the block closes.
    StreamStop,
    /// `c`: a streamed transaction commits.
    StreamCommit {
        /// Its top-level xid.
        xid: u32,
        /// LSN of its commit record.
        commit_lsn: Lsn,
        /// LSN behind its commit record.
        end_lsn: Lsn,
        /// Time of its commit.
        commit_time_us: i64,
    },
    /// `A`: a streamed transaction, or one subtransaction of it, aborts.
    StreamAbort {
        /// Its top-level xid.
        xid: u32,
        /// The subtransaction; equal to `xid` for the whole transaction.
        subxid: u32,
        /// Where and when, with `streaming 'parallel'`.
        abort: Option<Abort>,
    },
    /// `b`: a transaction that will be prepared begins.
    BeginPrepare(Prepare<'a>),
    /// `P`: it is prepared.
    Prepare(Prepare<'a>),
    /// `p`: a streamed transaction is prepared.
    StreamPrepare(Prepare<'a>),
    /// `K`: a prepared transaction commits.
    CommitPrepared {
        /// LSN of the commit record.
        commit_lsn: Lsn,
        /// LSN behind it.
        end_lsn: Lsn,
        /// Time of the commit.
        commit_time_us: i64,
        /// Xid of the prepared transaction.
        xid: u32,
        /// Its gid.
        gid: &'a str,
    },
    /// `r`: a prepared transaction rolls back.
    RollbackPrepared {
        /// LSN behind the record of the PREPARE.
        prepare_end_lsn: Lsn,
        /// LSN behind the record of the rollback.
        rollback_end_lsn: Lsn,
        /// Time of the PREPARE.
        prepare_time_us: i64,
        /// Time of the rollback.
        rollback_time_us: i64,
        /// Xid of the prepared transaction.
        xid: u32,
        /// Its gid.
        gid: &'a str,
    },
}

/// Where and when a streamed transaction aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// LSN of the abort.
    pub lsn: Lsn,
    /// Time of the abort, microseconds since the Unix epoch.
    pub time_us: i64,
}

/// What Begin Prepare, Prepare and Stream Prepare have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// LSN of the record of the PREPARE.
    pub prepare_lsn: Lsn,
    /// LSN behind it.
    pub end_lsn: Lsn,
    /// Time of the PREPARE, microseconds since the Unix epoch.
    pub prepare_time_us: i64,
    /// The transaction's xid.
    pub xid: u32,
    /// Its gid.
    pub gid: &'a str,
}

/// A Relation message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationBody<'a> {
    /// Subtransaction, in a stream block.
    pub xid: Option<u32>,
    /// The relation's oid.
    pub oid: u32,
    /// Its schema; empty for pg_catalog.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `relreplident`: `d`, `n`, `f` or `i`.
    pub identity: u8,
    pub(crate) columns: u16,
    pub(crate) column_bytes: &'a [u8],
}

/// A column of a Relation message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnBody<'a> {
    /// Part of the replica identity.
    pub key: bool,
    /// Its name.
    pub name: &'a str,
    /// Oid of its type.
    pub type_oid: u32,
    /// Its type modifier, -1 for none.
    pub type_modifier: i32,
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

    /// A relation with the columns that [`RelationBody::build_columns`] wrote; refused like a
    /// message whose columns are not what it says.
    pub fn with_columns(self, count: u16, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        for _ in 0..count {
            column(&mut cursor)?;
        }
        cursor.end()?;
        Ok(Self {
            columns: count,
            column_bytes: bytes,
            ..self
        })
    }

    /// A relation without columns.
    pub fn new(xid: Option<u32>, oid: u32, schema: &'a str, name: &'a str, identity: u8) -> Self {
        Self {
            xid,
            oid,
            schema,
            name,
            identity,
            columns: 0,
            column_bytes: &[],
        }
    }

    /// The columns from left to right. Dropped columns, generated ones that are not published, and
    /// columns outside the publication's column list are not among them.
    pub fn columns(&self) -> impl Iterator<Item = ColumnBody<'a>> + use<'a> {
        let mut cursor = Cursor::new(self.column_bytes);
        // The columns were walked when the message was parsed: a failure cannot come.
        (0..self.columns).map_while(move |_| column(&mut cursor).ok())
    }
}

fn column<'a>(cursor: &mut Cursor<'a>) -> Result<ColumnBody<'a>, Malformed> {
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

/// The relations of a Truncate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a> {
    bytes: &'a [u8],
}

impl<'a> Oids<'a> {
    /// Oids as they lie in a message: four bytes each; a remainder is no oid and not part of it.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.as_chunks::<4>().0.as_flattened(),
        }
    }

    /// The oids, in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|oid| u32::from_be_bytes(*oid))
    }
}

impl<'a> Message<'a> {
    /// Parses one message, to its last byte.
    pub fn parse(bytes: &'a [u8], framing: Framing) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let message = body(&mut cursor, framing)?;
        cursor.end()?;
        Ok(message)
    }

    /// The name of the message in PostgreSQL's documentation.
    pub fn kind(&self) -> &'static str {
        kind_name(self.tag())
    }

    /// The first byte of the message.
    pub fn tag(&self) -> u8 {
        match self {
            Self::Begin { .. } => b'B',
            Self::Commit { .. } => b'C',
            Self::Origin { .. } => b'O',
            Self::Relation(_) => b'R',
            Self::Type { .. } => b'Y',
            Self::Insert { .. } => b'I',
            Self::Update { .. } => b'U',
            Self::Delete { .. } => b'D',
            Self::Truncate { .. } => b'T',
            Self::Logical { .. } => b'M',
            Self::StreamStart { .. } => b'S',
            Self::StreamStop => b'E',
            Self::StreamCommit { .. } => b'c',
            Self::StreamAbort { .. } => b'A',
            Self::BeginPrepare(_) => b'b',
            Self::Prepare(_) => b'P',
            Self::StreamPrepare(_) => b'p',
            Self::CommitPrepared { .. } => b'K',
            Self::RollbackPrepared { .. } => b'r',
        }
    }
}

/// The name in PostgreSQL's documentation of the message that starts with `tag`.
pub fn kind_name(tag: u8) -> &'static str {
    match tag {
        b'B' => "Begin",
        b'C' => "Commit",
        b'O' => "Origin",
        b'R' => "Relation",
        b'Y' => "Type",
        b'I' => "Insert",
        b'U' => "Update",
        b'D' => "Delete",
        b'T' => "Truncate",
        b'M' => "Message",
        b'S' => "Stream Start",
        b'E' => "Stream Stop",
        b'c' => "Stream Commit",
        b'A' => "Stream Abort",
        b'b' => "Begin Prepare",
        b'P' => "Prepare",
        b'p' => "Stream Prepare",
        b'K' => "Commit Prepared",
        b'r' => "Rollback Prepared",
        _ => "unknown",
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
        relations: Oids {
            bytes: cursor.bytes("relations", length)?,
        },
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
