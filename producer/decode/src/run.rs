//! The run of parts that one link becomes while it is written.
//!
//! Owns: where one part ends and the next begins, and the cutting of a change that is larger than
//! a record. Does not own what a change holds ([`crate::encoder`]).
//!
//! A part stays open until the next change does not fit or the link ends, so that the last part
//! can say that it is the last. Sizes are upper bounds, never measured by encoding; the property
//! test of the encoder holds them against the encoded records. Invariants: parts are numbered from
//! 0 without a gap; a part with a fragment has no changes; only the last part has the end LSN; the
//! part with a change's last fragment has the tables that the change names.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_schemas::{Change, Fragment, LinkKind, Lsn, Origin, Part, TableRef, envelope};

use crate::error::Undecodable;
use crate::relation::Relation;

/// A part, and the end LSN its envelope has to carry: zero for all but the last of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPart {
    /// LSN behind the link, in the last part only.
    pub end_lsn: Lsn,
    /// The part.
    pub part: Part,
}

/// What every part of a run says about its link.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) kind: LinkKind,
    pub(crate) xid: u32,
    pub(crate) commit_lsn: Lsn,
    pub(crate) commit_time_us: i64,
    pub(crate) origin: Option<Origin>,
}

/// The tables of a stream that the registry knows, and which of them the open part holds.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_shape: Vec<Option<Registered>>,
    /// Number of the part being filled, over all runs; 0 is none.
    part: u64,
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    reference: TableRef,
    /// The part that `index` belongs to.
    part: u64,
    index: u32,
}

impl Tables {
    pub(crate) fn register(&mut self, relation: &Relation, reference: TableRef) {
        let shape = relation.shape as usize;
        if self.by_shape.len() <= shape {
            self.by_shape.resize(shape + 1, None);
        }
        if let Some(slot) = self.by_shape.get_mut(shape) {
            *slot = Some(Registered {
                reference,
                part: 0,
                index: 0,
            });
        }
    }

    fn get(&mut self, relation: &Relation) -> Option<&mut Registered> {
        self.by_shape.get_mut(relation.shape as usize)?.as_mut()
    }
}

/// The part that is being filled.
#[derive(Debug, Default)]
struct Filling {
    tables: Vec<TableRef>,
    changes: Vec<Change>,
    fragment: Option<Fragment>,
    size_bytes: usize,
}

impl Filling {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.fragment.is_none()
    }
}

/// A link being written.
#[derive(Debug)]
pub(crate) struct Run {
    head: Head,
    number: u32,
    filling: Filling,
    /// Bytes of a record that tables and changes, or a fragment, may take.
    room_bytes: usize,
    record_bytes_max: usize,
}

/// Upper bound of an encoded envelope and part around their tables and changes.
const FRAME_BYTES: usize = 320;
/// Upper bound of an encoded table reference.
const TABLE_BYTES: usize = 16;
/// Upper bound of an encoded change around its rows, its prefix and its content.
pub(crate) const CHANGE_BYTES: usize = 40;
/// Upper bound of an encoded index of a table.
pub(crate) const INDEX_BYTES: usize = 5;

impl Run {
    pub(crate) fn new(head: Head, record_bytes_max: usize, tables: &mut Tables) -> Self {
        let origin_bytes = head.origin.as_ref().map_or(0, |origin| origin.name.len());
        let room_bytes = record_bytes_max.saturating_sub(FRAME_BYTES + origin_bytes);
        tables.part += 1;
        Self {
            head,
            number: 0,
            filling: Filling::default(),
            room_bytes,
            record_bytes_max,
        }
    }

    /// Adds a change that names `relations` and takes at most `size_bytes`. `make` is given the
    /// index of each relation in its part's tables.
    pub(crate) fn add(
        &mut self,
        lsn: Lsn,
        relations: &[Arc<Relation>],
        size_bytes: usize,
        tables: &mut Tables,
        make: impl FnOnce(&[u32]) -> Change,
        out: &mut Vec<LinkPart>,
    ) -> Result<(), Undecodable> {
        let mut new = 0;
        for relation in relations {
            let part = tables.part;
            let registered = tables
                .get(relation)
                .ok_or_else(|| Undecodable::NotRegistered {
                    lsn,
                    relation: relation.qualified_name(),
                })?;
            new += usize::from(registered.part != part);
        }
        let open_bytes = self.filling.size_bytes;
        let fits = open_bytes + new * TABLE_BYTES + size_bytes <= self.room_bytes;
        if self.filling.fragment.is_some() || (!fits && !self.filling.is_empty()) {
            self.close_part(tables, out);
        }
        let alone_bytes = relations.len() * TABLE_BYTES + size_bytes;
        if alone_bytes > self.room_bytes {
            return self.add_fragments(lsn, relations, tables, make, out);
        }
        let change = self.index(relations, tables, make);
        self.filling.size_bytes += size_bytes;
        self.filling.changes.push(change);
        Ok(())
    }

    /// Ends the link.
    pub(crate) fn finish(mut self, end_lsn: Lsn, out: &mut Vec<LinkPart>) {
        let part = self.take_part(true);
        out.push(LinkPart { end_lsn, part });
    }

    fn add_fragments(
        &mut self,
        lsn: Lsn,
        relations: &[Arc<Relation>],
        tables: &mut Tables,
        make: impl FnOnce(&[u32]) -> Change,
        out: &mut Vec<LinkPart>,
    ) -> Result<(), Undecodable> {
        let table_bytes = relations.len() * TABLE_BYTES;
        let fragment_bytes = self.room_bytes.saturating_sub(table_bytes);
        if fragment_bytes == 0 {
            return Err(Undecodable::TooLarge {
                lsn,
                what: "the list of truncated relations",
                needed: table_bytes,
                limit: self.record_bytes_max,
            });
        }
        let change = self.index(relations, tables, make);
        let tables_of_change = std::mem::take(&mut self.filling.tables);
        let mut datum = Vec::new();
        envelope::encode_change(&change, &mut datum)
            .map_err(|error| Undecodable::NotEncoded { lsn, error })?;
        let mut rest = Bytes::from(datum);
        while rest.len() > fragment_bytes {
            let bytes = rest.split_to(fragment_bytes);
            self.filling.fragment = Some(Fragment { bytes, last: false });
            self.close_part(tables, out);
        }
        self.filling.tables = tables_of_change;
        self.filling.fragment = Some(Fragment {
            bytes: rest,
            last: true,
        });
        Ok(())
    }

    /// Gives each relation its index in the tables of the open part.
    fn index(
        &mut self,
        relations: &[Arc<Relation>],
        tables: &mut Tables,
        make: impl FnOnce(&[u32]) -> Change,
    ) -> Change {
        let part = tables.part;
        let filling = &mut self.filling;
        let mut index_of = |relation: &Relation| {
            // Every relation was found registered before.
            let Some(registered) = tables.get(relation) else {
                return 0;
            };
            if registered.part != part {
                registered.part = part;
                registered.index = u32::try_from(filling.tables.len()).unwrap_or(u32::MAX);
                filling.tables.push(registered.reference);
                filling.size_bytes += TABLE_BYTES;
            }
            registered.index
        };
        match relations {
            [] => make(&[]),
            [one] => make(&[index_of(one)]),
            many => make(
                &many
                    .iter()
                    .map(|relation| index_of(relation))
                    .collect::<Vec<_>>(),
            ),
        }
    }

    fn close_part(&mut self, tables: &mut Tables, out: &mut Vec<LinkPart>) {
        let part = self.take_part(false);
        out.push(LinkPart {
            end_lsn: Lsn(0),
            part,
        });
        self.number += 1;
        tables.part += 1;
    }

    fn take_part(&mut self, last: bool) -> Part {
        let filling = std::mem::take(&mut self.filling);
        let head = &self.head;
        Part {
            kind: head.kind,
            xid: head.xid,
            commit_lsn: head.commit_lsn,
            commit_time_us: head.commit_time_us,
            prepare_end_lsn: Lsn(0),
            gid: None,
            origin: head.origin.clone(),
            number: self.number,
            last,
            tables: filling.tables,
            changes: filling.changes,
            fragment: filling.fragment,
        }
    }
}
