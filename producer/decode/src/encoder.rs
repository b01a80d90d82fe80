//! Events to the parts of the log.
//!
//! Owns: what a link and a change of the log are made of. How a row becomes bytes is
//! [`crate::rows`]'s, where a part ends is [`crate::run`]'s.
//!
//! One encoder serves one replication stream, as a decoder does: the numbers of shapes are the
//! decoder's. Every shape that an [`Event::Relation`] announces is registered
//! ([`Encoder::register`]) before the change behind it is pushed.
//!
//! Invariant: the parts of a link come out in order, each within `record_bytes_max`. A part comes
//! out as soon as the next change does not fit into it, so what is held is at most one record and
//! one row.
//!
//! A logical message outside of a transaction is a link of its own, `(lsn - 1, lsn]` for the
//! message's LSN: pgoutput gives the position *behind* the message's record. With an end one
//! further, the link would pass the start of a commit record that follows it directly; the reader
//! of the log would take that transaction for an older one, and the server, which sends nothing
//! whose commit record starts below the confirmed position, would never send it again.

use bytes::Bytes;
use walbraid_schemas::{
    Change as LogChange, LinkKind, Lsn, OldKind, OldTuple as LogOldTuple, TableRef,
};

use crate::assembler::{Begin, Change, ChangeKind, Event, LogicalMessage};
use crate::error::Undecodable;
use crate::relation::Relation;
use crate::rows::{Form, Rows};
pub use crate::run::LinkPart;
use crate::run::{CHANGE_BYTES, Head, INDEX_BYTES, Run, Tables};
use crate::tuple::OldTuple;

/// The smallest `record_bytes_max`: below it, names alone could fill a record.
pub const RECORD_BYTES_MIN: usize = 16 * 1024;

/// Writes the links of one replication stream as parts.
#[derive(Debug)]
pub struct Encoder {
    record_bytes_max: usize,
    tables: Tables,
    rows: Rows,
    run: Option<Run>,
}

impl Encoder {
    /// An encoder whose records, framed, are at most `record_bytes_max` long.
    ///
    /// # Panics
    ///
    /// Panics below [`RECORD_BYTES_MIN`]; configuration refuses that before.
    pub fn new(record_bytes_max: usize) -> Self {
        assert!(
            record_bytes_max >= RECORD_BYTES_MIN,
            "record_bytes_max is below its minimum"
        );
        Self {
            record_bytes_max,
            tables: Tables::default(),
            rows: Rows::default(),
            run: None,
        }
    }

    /// Says under which schema the rows of a shape travel.
    pub fn register(&mut self, relation: &Relation, table: TableRef) {
        self.tables.register(relation, table);
    }

    /// Takes the next event; parts that are complete are appended to `out`.
    pub fn push(&mut self, event: Event<'_>, out: &mut Vec<LinkPart>) -> Result<(), Undecodable> {
        match event {
            Event::Begin(begin) => {
                let head = transaction_head(begin);
                self.run = Some(Run::new(head, self.record_bytes_max, &mut self.tables));
                Ok(())
            }
            Event::Change(change) => {
                let mut run = self.run.take().ok_or(Undecodable::NoTransaction)?;
                self.change(&mut run, change, out)?;
                self.run = Some(run);
                Ok(())
            }
            Event::Commit(commit) => {
                let run = self.run.take().ok_or(Undecodable::NoTransaction)?;
                run.finish(commit.end_lsn, out);
                Ok(())
            }
            Event::Message(message) => {
                let head = message_head(&message);
                let mut run = Run::new(head, self.record_bytes_max, &mut self.tables);
                self.message(&mut run, &message, out)?;
                run.finish(message.lsn, out);
                Ok(())
            }
            Event::Relation(_) | Event::Empty(_) => Ok(()),
        }
    }

    fn change(
        &mut self,
        run: &mut Run,
        change: Change<'_>,
        out: &mut Vec<LinkPart>,
    ) -> Result<(), Undecodable> {
        let lsn = change.lsn;
        let tables = &mut self.tables;
        match change.kind {
            ChangeKind::Insert { relation, new } => {
                let new = self.rows.write(lsn, &relation, new, Form::Inserted)?;
                let size = CHANGE_BYTES + new.len();
                let make = |index: &[u32]| LogChange::Insert {
                    table: first(index),
                    new,
                };
                run.add(lsn, &[relation], size, tables, make, out)
            }
            ChangeKind::Update { relation, old, new } => {
                let old = old.map(|old| old_tuple(&mut self.rows, lsn, &relation, old));
                let old = old.transpose()?;
                let new = self.rows.write(lsn, &relation, new, Form::Whole)?;
                let old_bytes = old.as_ref().map_or(0, |old| old.row.len());
                let size = CHANGE_BYTES + old_bytes + new.len();
                let make = |index: &[u32]| LogChange::Update {
                    table: first(index),
                    old,
                    new,
                };
                run.add(lsn, &[relation], size, tables, make, out)
            }
            ChangeKind::Delete { relation, old } => {
                let old = old_tuple(&mut self.rows, lsn, &relation, old)?;
                let size = CHANGE_BYTES + old.row.len();
                let make = |index: &[u32]| LogChange::Delete {
                    table: first(index),
                    old,
                };
                run.add(lsn, &[relation], size, tables, make, out)
            }
            ChangeKind::Truncate {
                relations,
                cascade,
                restart_identity,
            } => {
                let size = CHANGE_BYTES + relations.len() * INDEX_BYTES;
                let make = |indexes: &[u32]| LogChange::Truncate {
                    tables: indexes.to_vec(),
                    cascade,
                    restart_identity,
                };
                run.add(lsn, &relations, size, tables, make, out)
            }
            ChangeKind::Message(message) => self.message(run, &message, out),
        }
    }

    fn message(
        &mut self,
        run: &mut Run,
        message: &LogicalMessage<'_>,
        out: &mut Vec<LinkPart>,
    ) -> Result<(), Undecodable> {
        let size = CHANGE_BYTES + message.prefix.len() + message.content.len();
        let make = |_: &[u32]| LogChange::Message {
            prefix: message.prefix.to_owned(),
            content: Bytes::copy_from_slice(message.content),
            lsn: message.lsn,
            transactional: message.transactional,
        };
        run.add(message.lsn, &[], size, &mut self.tables, make, out)
    }
}

fn old_tuple(
    rows: &mut Rows,
    lsn: Lsn,
    relation: &Relation,
    old: OldTuple<'_>,
) -> Result<LogOldTuple, Undecodable> {
    let (kind, tuple, form) = match old {
        OldTuple::Key(tuple) => (OldKind::Key, tuple, Form::Key),
        OldTuple::Full(tuple) => (OldKind::Full, tuple, Form::Whole),
    };
    Ok(LogOldTuple {
        kind,
        row: rows.write(lsn, relation, tuple, form)?,
    })
}

fn first(index: &[u32]) -> u32 {
    index.first().copied().unwrap_or(0)
}

fn transaction_head(begin: Begin) -> Head {
    Head {
        kind: LinkKind::Transaction,
        xid: begin.xid,
        commit_lsn: begin.commit_lsn,
        commit_time_us: begin.commit_time_us,
        origin: begin.origin,
    }
}

fn message_head(message: &LogicalMessage<'_>) -> Head {
    Head {
        kind: LinkKind::Message,
        xid: 0,
        // Inside of the message's record, where no commit record can start.
        commit_lsn: Lsn(message.lsn.0.saturating_sub(1)),
        commit_time_us: 0,
        origin: None,
    }
}
