//! Messages into bytes: the other half of [`crate::message`]'s parsers.
//!
//! The producer never sends these; tests, and tools that play a walsender, do. Each form here is
//! the mirror of one parser, and the round trip of every message holds the pair together.

use walbraid_schemas::Lsn;

use crate::message::{ColumnBody, EPOCH_OFFSET_US, Framing, Message, Prepare, RelationBody};
use crate::tuple::{Datum, OldTuple, Tuple};

impl Message<'_> {
    /// Appends the message to `out`, in the form that `framing` asks for: an xid is written inside
    /// a stream block only (0 where the message has none), and an abort's LSN and time with
    /// parallel streaming only.
    pub fn write(&self, framing: Framing, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Begin {
                commit_lsn,
                commit_time_us,
                xid,
            } => {
                lsn(out, *commit_lsn);
                time(out, *commit_time_us);
                int(out, *xid);
            }
            Self::Commit {
                commit_lsn,
                end_lsn,
                commit_time_us,
            } => {
                out.push(0);
                lsn(out, *commit_lsn);
                lsn(out, *end_lsn);
                time(out, *commit_time_us);
            }
            Self::Origin { commit_lsn, name } => {
                lsn(out, *commit_lsn);
                string(out, name);
            }
            Self::Relation(relation) => {
                stream_xid(out, relation.xid, framing);
                relation.write(out);
            }
            Self::Type {
                xid,
                oid,
                schema,
                name,
            } => {
                stream_xid(out, *xid, framing);
                int(out, *oid);
                string(out, schema);
                string(out, name);
            }
            Self::Insert { xid, relation, new } => {
                stream_xid(out, *xid, framing);
                int(out, *relation);
                tuple(out, b'N', *new);
            }
            Self::Update {
                xid,
                relation,
                old,
                new,
            } => {
                stream_xid(out, *xid, framing);
                int(out, *relation);
                if let Some(old) = old {
                    old_tuple(out, *old);
                }
                tuple(out, b'N', *new);
            }
            Self::Delete { xid, relation, old } => {
                stream_xid(out, *xid, framing);
                int(out, *relation);
                old_tuple(out, *old);
            }
            Self::Truncate {
                xid,
                cascade,
                restart_identity,
                relations,
            } => {
                stream_xid(out, *xid, framing);
                length(out, relations.iter().count());
                out.push(u8::from(*cascade) | u8::from(*restart_identity) << 1);
                relations.iter().for_each(|oid| int(out, oid));
            }
            Self::Logical {
                xid,
                transactional,
                lsn: at,
                prefix,
                content,
            } => {
                stream_xid(out, *xid, framing);
                out.push(u8::from(*transactional));
                lsn(out, *at);
                string(out, prefix);
                length(out, content.len());
                out.extend_from_slice(content);
            }
            other => other.write_stream_or_two_phase(framing, out),
        }
    }

    fn write_stream_or_two_phase(&self, framing: Framing, out: &mut Vec<u8>) {
        match self {
            Self::StreamStart { xid, first_segment } => {
                int(out, *xid);
                out.push(u8::from(*first_segment));
            }
            Self::StreamCommit {
                xid,
                commit_lsn,
                end_lsn,
                commit_time_us,
            } => {
                int(out, *xid);
                out.push(0);
                lsn(out, *commit_lsn);
                lsn(out, *end_lsn);
                time(out, *commit_time_us);
            }
            Self::StreamAbort { xid, subxid, abort } => {
                int(out, *xid);
                int(out, *subxid);
                if framing.parallel {
                    lsn(out, abort.map_or(Lsn(0), |abort| abort.lsn));
                    time(out, abort.map_or(EPOCH_OFFSET_US, |abort| abort.time_us));
                }
            }
            Self::BeginPrepare(body) => prepare(out, body),
            Self::Prepare(body) | Self::StreamPrepare(body) => {
                out.push(0);
                prepare(out, body);
            }
            Self::CommitPrepared {
                commit_lsn,
                end_lsn,
                commit_time_us,
                xid,
                gid,
            } => {
                out.push(0);
                lsn(out, *commit_lsn);
                lsn(out, *end_lsn);
                time(out, *commit_time_us);
                int(out, *xid);
                string(out, gid);
            }
            Self::RollbackPrepared {
                prepare_end_lsn,
                rollback_end_lsn,
                prepare_time_us,
                rollback_time_us,
                xid,
                gid,
            } => {
                out.push(0);
                lsn(out, *prepare_end_lsn);
                lsn(out, *rollback_end_lsn);
                time(out, *prepare_time_us);
                time(out, *rollback_time_us);
                int(out, *xid);
                string(out, gid);
            }
            // Stream Stop is its tag alone; all others were written by the caller.
            _ => {}
        }
    }
}

impl RelationBody<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        int(out, self.oid);
        string(out, self.schema);
        string(out, self.name);
        out.push(self.identity);
        out.extend_from_slice(&self.columns.to_be_bytes());
        out.extend_from_slice(self.column_bytes);
    }

    /// The bytes of columns, for [`RelationBody::with_columns`].
    pub fn build_columns(columns: &[ColumnBody<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for column in columns {
            out.push(u8::from(column.key));
            string(&mut out, column.name);
            int(&mut out, column.type_oid);
            out.extend_from_slice(&column.type_modifier.to_be_bytes());
        }
        out
    }
}

impl Tuple<'_> {
    /// The bytes of a tuple, for [`Tuple::from_bytes`].
    pub fn build(columns: &[Datum<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(
            &u16::try_from(columns.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        for column in columns.iter().take(usize::from(u16::MAX)) {
            match column {
                Datum::Null => out.push(b'n'),
                Datum::Unchanged => out.push(b'u'),
                Datum::Text(text) => sized(&mut out, b't', text),
                Datum::Binary(bytes) => sized(&mut out, b'b', bytes),
            }
        }
        out
    }
}

fn sized(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn tuple(out: &mut Vec<u8>, tag: u8, tuple: Tuple<'_>) {
    out.push(tag);
    out.extend_from_slice(&u16::try_from(tuple.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(tuple.as_bytes());
}

fn old_tuple(out: &mut Vec<u8>, old: OldTuple<'_>) {
    match old {
        OldTuple::Key(key) => tuple(out, b'K', key),
        OldTuple::Full(row) => tuple(out, b'O', row),
    }
}

fn prepare(out: &mut Vec<u8>, body: &Prepare<'_>) {
    lsn(out, body.prepare_lsn);
    lsn(out, body.end_lsn);
    time(out, body.prepare_time_us);
    int(out, body.xid);
    string(out, body.gid);
}

fn stream_xid(out: &mut Vec<u8>, xid: Option<u32>, framing: Framing) {
    if framing.in_stream {
        int(out, xid.unwrap_or(0));
    }
}

fn lsn(out: &mut Vec<u8>, lsn: Lsn) {
    out.extend_from_slice(&lsn.0.to_be_bytes());
}

fn time(out: &mut Vec<u8>, unix_us: i64) {
    out.extend_from_slice(&unix_us.wrapping_sub(EPOCH_OFFSET_US).to_be_bytes());
}

fn int(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn length(out: &mut Vec<u8>, value: usize) {
    int(out, u32::try_from(value).unwrap_or(u32::MAX));
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}
