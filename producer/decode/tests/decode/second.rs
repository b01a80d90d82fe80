//! Against a second decoder: pg_walstream, over what servers sent and over what we build.

use pg_walstream::{ColumnData, LogicalReplicationMessage as Other, TupleData};
use pg_walstream::{LogicalReplicationParser, StreamingReplicationMessage};
use walbraid_decode::message::{Abort, ColumnBody, Message, Oids, Prepare, RelationBody};
use walbraid_decode::{Datum, Decoder, OldTuple, Tuple};
use walbraid_schemas::Lsn;

use crate::describe::describe;
use crate::golden::captures;

const EPOCH_US: i64 = 946_684_800_000_000;

/// What the other decoder read, as the line that ours gives for the same message.
pub(crate) fn describe_other(read: &StreamingReplicationMessage) -> String {
    let xid_before = read.xid;
    match &read.message {
        Other::Relation {
            relation_id,
            namespace,
            relation_name,
            replica_identity,
            columns,
        } => {
            let columns: Vec<ColumnBody<'_>> = columns
                .iter()
                .map(|column| ColumnBody {
                    key: column.is_key(),
                    name: &column.name,
                    type_oid: column.type_id,
                    type_modifier: column.type_modifier,
                })
                .collect();
            let bytes = RelationBody::build_columns(&columns);
            let body = RelationBody::new(
                xid_before,
                *relation_id,
                namespace,
                relation_name,
                *replica_identity,
            );
            let body = body
                .with_columns(u16::try_from(columns.len()).unwrap(), &bytes)
                .unwrap();
            describe(&Message::Relation(body))
        }
        Other::Insert { relation_id, tuple } => {
            let new = Row::new(tuple);
            let new = new.tuple();
            describe(&Message::Insert {
                xid: xid_before,
                relation: *relation_id,
                new,
            })
        }
        Other::Update {
            relation_id,
            old_tuple,
            new_tuple,
            key_type,
        } => {
            let (old, new) = (old_tuple.as_ref().map(Row::new), Row::new(new_tuple));
            let old = old.as_ref().map(|row| old_row(key_type.unwrap(), row));
            let (relation, new) = (*relation_id, new.tuple());
            describe(&Message::Update {
                xid: xid_before,
                relation,
                old,
                new,
            })
        }
        Other::Delete {
            relation_id,
            old_tuple,
            key_type,
        } => {
            let old = Row::new(old_tuple);
            let old = old_row(*key_type, &old);
            describe(&Message::Delete {
                xid: xid_before,
                relation: *relation_id,
                old,
            })
        }
        Other::Truncate {
            relation_ids,
            flags,
        } => {
            let oids: Vec<u8> = relation_ids
                .iter()
                .flat_map(|oid| oid.to_be_bytes())
                .collect();
            describe(&Message::Truncate {
                xid: xid_before,
                cascade: flags & 1 != 0,
                restart_identity: flags & 2 != 0,
                relations: Oids::from_bytes(&oids),
            })
        }
        Other::Type {
            type_id,
            namespace,
            type_name,
        } => describe(&Message::Type {
            xid: xid_before,
            oid: *type_id,
            schema: namespace,
            name: type_name,
        }),
        Other::Message {
            flags,
            lsn,
            prefix,
            content,
        } => describe(&Message::Logical {
            xid: xid_before,
            transactional: flags & 1 != 0,
            lsn: Lsn(*lsn),
            prefix,
            content,
        }),
        other => describe(&frame(other)),
    }
}

fn frame(message: &Other) -> Message<'_> {
    let prepare = |prepare_lsn: &u64, end_lsn: &u64, timestamp: &i64, xid: &u32, gid| Prepare {
        prepare_lsn: Lsn(*prepare_lsn),
        end_lsn: Lsn(*end_lsn),
        prepare_time_us: timestamp + EPOCH_US,
        xid: *xid,
        gid,
    };
    match message {
        Other::Begin {
            final_lsn,
            timestamp,
            xid,
        } => Message::Begin {
            commit_lsn: Lsn(*final_lsn),
            commit_time_us: timestamp + EPOCH_US,
            xid: *xid,
        },
        Other::Commit {
            commit_lsn,
            end_lsn,
            timestamp,
            ..
        } => Message::Commit {
            commit_lsn: Lsn(*commit_lsn),
            end_lsn: Lsn(*end_lsn),
            commit_time_us: timestamp + EPOCH_US,
        },
        Other::Origin {
            origin_lsn,
            origin_name,
        } => Message::Origin {
            commit_lsn: Lsn(*origin_lsn),
            name: origin_name,
        },
        Other::StreamStart { xid, first_segment } => Message::StreamStart {
            xid: *xid,
            first_segment: *first_segment,
        },
        Other::StreamCommit {
            xid,
            commit_lsn,
            end_lsn,
            timestamp,
            ..
        } => Message::StreamCommit {
            xid: *xid,
            commit_lsn: Lsn(*commit_lsn),
            end_lsn: Lsn(*end_lsn),
            commit_time_us: timestamp + EPOCH_US,
        },
        Other::StreamAbort {
            xid,
            subtransaction_xid,
            abort_lsn,
            abort_timestamp,
        } => {
            let abort = abort_lsn.zip(*abort_timestamp);
            let abort = abort.map(|(lsn, time)| Abort {
                lsn: Lsn(lsn),
                time_us: time + EPOCH_US,
            });
            Message::StreamAbort {
                xid: *xid,
                subxid: *subtransaction_xid,
                abort,
            }
        }
        Other::BeginPrepare {
            prepare_lsn,
            end_lsn,
            timestamp,
            xid,
            gid,
        } => Message::BeginPrepare(prepare(prepare_lsn, end_lsn, timestamp, xid, gid)),
        Other::Prepare {
            prepare_lsn,
            end_lsn,
            timestamp,
            xid,
            gid,
            ..
        } => Message::Prepare(prepare(prepare_lsn, end_lsn, timestamp, xid, gid)),
        Other::StreamPrepare {
            prepare_lsn,
            end_lsn,
            timestamp,
            xid,
            gid,
            ..
        } => Message::StreamPrepare(prepare(prepare_lsn, end_lsn, timestamp, xid, gid)),
        Other::CommitPrepared {
            commit_lsn,
            end_lsn,
            timestamp,
            xid,
            gid,
            ..
        } => Message::CommitPrepared {
            commit_lsn: Lsn(*commit_lsn),
            end_lsn: Lsn(*end_lsn),
            commit_time_us: timestamp + EPOCH_US,
            xid: *xid,
            gid,
        },
        Other::RollbackPrepared {
            prepare_end_lsn,
            rollback_end_lsn,
            prepare_timestamp,
            rollback_timestamp,
            xid,
            gid,
            ..
        } => Message::RollbackPrepared {
            prepare_end_lsn: Lsn(*prepare_end_lsn),
            rollback_end_lsn: Lsn(*rollback_end_lsn),
            prepare_time_us: prepare_timestamp + EPOCH_US,
            rollback_time_us: rollback_timestamp + EPOCH_US,
            xid: *xid,
            gid,
        },
        _ => Message::StreamStop,
    }
}

/// A row of the other decoder in the bytes of ours.
struct Row(Vec<u8>);

impl Row {
    fn new(tuple: &TupleData) -> Self {
        let datums: Vec<Datum<'_>> = tuple.columns.iter().map(datum).collect();
        Self(Tuple::build(&datums))
    }

    fn tuple(&self) -> Tuple<'_> {
        Tuple::from_bytes(&self.0).unwrap()
    }
}

fn datum(column: &ColumnData) -> Datum<'_> {
    match column.data_type {
        b'n' => Datum::Null,
        b'u' => Datum::Unchanged,
        b't' => Datum::Text(column.as_bytes()),
        _ => Datum::Binary(column.as_bytes()),
    }
}

fn old_row(kind: char, row: &Row) -> OldTuple<'_> {
    match kind {
        'K' => OldTuple::Key(row.tuple()),
        _ => OldTuple::Full(row.tuple()),
    }
}

#[test]
fn both_read_the_same_in_what_servers_sent() {
    for capture in captures() {
        let protocol = capture.protocol();
        let mut ours = Decoder::new(protocol);
        let mut other =
            LogicalReplicationParser::with_protocol_version(u32::from(protocol.version));
        for (lsn, bytes) in &capture.messages {
            let message = ours.decode(*lsn, bytes).unwrap();
            let read = other.parse_wal_message(bytes).unwrap();
            assert_eq!(
                describe(&message),
                describe_other(&read),
                "{} at {lsn}",
                capture.name
            );
        }
    }
}
