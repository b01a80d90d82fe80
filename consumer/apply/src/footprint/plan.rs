//! What is touched by changes of one mapped table, worked out once.
//!
//! A [`Plan`] belongs to one [`crate::mapping::Mapped`] and never changes. Its **slots** are the
//! published columns whose values are needed, each with the way it is compared; its **indexes**
//! name the slots that their keys are made of. The row key, by which the publisher's identity finds
//! a row, is one more index: the same one as the subscriber's unique index where there is one, so
//! that whoever finds a row and whoever takes its key touch the same key.
//!
//! Where a part of an index cannot be hashed, the index is hashed without it: more values are alike
//! than need be. Where nothing is left, all are, and the index is serial.

use std::fmt::Write;
use std::sync::Arc;

use walbraid_schemas::table::Table;

use super::digest::Digest;
use super::draft::Draft;
use super::kind::Kind;
use super::parts::{Held, Part};
use super::reason::SerialReason;
use super::{SpaceId, firing};
use crate::keys::{Keys, Root};
use crate::lookup::Lookup;
use crate::mapping::MappedColumn;
use crate::relation::Relation;

/// What a number is the digest of; seeds of different kinds never meet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sort {
    /// A table as a whole.
    Table = 1,
    /// A value of an index.
    Value,
    /// A row that no index finds.
    Row,
    /// That some value of an index was given up.
    Freed,
    /// A value of an index that foreign keys look at.
    Referenced,
    /// That some reference to an index was given up.
    Released,
}

pub(super) fn seed(sort: Sort, oid: u32) -> u64 {
    (sort as u64) << 32 | u64::from(oid)
}

/// A key that stands for all there is of its sort.
pub(super) fn whole(sort: Sort, oid: u32) -> u64 {
    Digest::new(seed(sort, oid)).finish()
}

/// The key of a table, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableKey {
    pub(super) key: u64,
    pub(super) space: SpaceId,
}

impl TableKey {
    pub(super) fn of(oid: u32) -> Self {
        Self {
            key: whole(Sort::Table, oid),
            space: SpaceId(oid),
        }
    }
}

/// A published column whose value is needed.
#[derive(Debug)]
pub(super) struct Slot {
    /// Place in the publisher's columns.
    pub(super) source: usize,
    /// Place in the subscriber's columns.
    pub(super) column: usize,
    /// How it is compared; none if all values are alike.
    pub(super) kind: Option<Kind>,
    /// Part of the publisher's identity: its old value is always known.
    pub(super) key: bool,
}

/// An index, or what finds a row where there is none.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) space: SpaceId,
    pub(super) seed: u64,
    pub(super) freed: u64,
    pub(super) slots: Vec<usize>,
    /// Some slot is hashed.
    pub(super) hashed: bool,
    /// Values with the same hash are equal, and nothing but the slots decides.
    pub(super) exact: bool,
    /// Nothing but the slots decides, though some may not be hashed: if none of them changes, the
    /// row keeps its value.
    pub(super) plain: bool,
    pub(super) nulls_distinct: bool,
    /// It finds the rows of the publisher's changes.
    pub(super) row: bool,
    /// Its old values are not on the wire: they are asked for.
    pub(super) wanted: bool,
    pub(super) serial: Option<SerialReason>,
    pub(super) referenced: Option<Referenced>,
}

/// What foreign keys that are checked do with an index.
#[derive(Debug)]
pub(super) struct Referenced {
    pub(super) space: SpaceId,
    pub(super) seed: u64,
    pub(super) released: u64,
    /// The value as both sides have it, whatever the publisher's types are.
    pub(super) value: Box<Index>,
    /// Both sides can tell which value is meant.
    pub(super) comparable: bool,
    pub(super) reason: SerialReason,
    /// Tables whose rows change with the key.
    pub(super) cascades: Vec<TableKey>,
    pub(super) cascade_reason: SerialReason,
}

/// A foreign key that is checked.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) space: SpaceId,
    pub(super) table: TableKey,
    /// The value as the referenced index has it.
    pub(super) value: Index,
    pub(super) seed: u64,
    pub(super) released: u64,
    pub(super) comparable: bool,
    pub(super) reason: SerialReason,
}

/// What a signature is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// The rows of a topmost table.
    Rows(u32),
    /// The keys of a relation.
    Keys(u32),
}

/// What is touched by changes of one mapped table.
#[derive(Debug)]
pub struct Plan {
    pub(super) table: TableKey,
    /// How rows are found and what is asked of them, by topmost table; how all keys are made, by
    /// the relation itself, for its siblings may have indexes of their own.
    pub(super) signatures: [(Shape, u64); 2],
    pub(super) slots: Vec<Slot>,
    /// The one that finds rows comes first.
    pub(super) indexes: Vec<Index>,
    pub(super) parents: Vec<Parent>,
    pub(super) truncates: Vec<TableKey>,
    /// Why nothing can be said of an INSERT, UPDATE, DELETE, TRUNCATE.
    pub(super) lane: [Option<SerialReason>; 4],
    /// Some old values are not on the wire.
    pub(super) asks: bool,
    names: Vec<(SpaceId, Arc<str>)>,
}

impl Plan {
    pub(crate) fn new(
        table: &Table,
        relation: &Relation,
        columns: &[MappedColumn],
        lookup: &Lookup,
    ) -> Self {
        let keys = &relation.keys;
        let root = keys.root.clone().unwrap_or_else(|| Root {
            oid: relation.oid,
            name: format!("{}.{}", relation.schema, relation.name).into(),
        });
        let mut draft = Draft::new(table, relation, columns, root);
        let indexes = draft.indexes(lookup);
        let parents = draft.parents();
        let mut plan = Self {
            table: TableKey::of(draft.root.oid),
            signatures: [(Shape::Rows(0), 0), (Shape::Keys(0), 0)],
            asks: indexes.iter().any(|index| index.wanted),
            slots: draft.slots,
            indexes,
            parents,
            truncates: keys
                .truncates
                .iter()
                .map(|root| TableKey::of(root.oid))
                .collect(),
            lane: firing::lane(keys, columns, matches!(lookup, Lookup::Nothing)),
            names: draft.names,
        };
        plan.names.push((SpaceId(draft.root.oid), draft.root.name));
        for root in others(keys) {
            plan.names.push((SpaceId(root.oid), Arc::clone(&root.name)));
        }
        plan.sort_slots();
        plan.signatures = [
            (
                Shape::Rows(plan.table.space.0),
                plan.sign(relation, |index| index.row || index.wanted),
            ),
            (Shape::Keys(relation.oid), plan.sign(relation, |_| true)),
        ];
        plan
    }

    /// Slots in the order of the row, so that one pass fills them.
    fn sort_slots(&mut self) {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|&slot| self.slots[slot].source);
        let mut place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        self.slots.sort_by_key(|slot| slot.source);
        let values = self.parents.iter_mut().map(|parent| &mut parent.value);
        for index in self.indexes.iter_mut().chain(values) {
            let referenced = index.referenced.iter_mut();
            let referenced = referenced.flat_map(|referenced| &mut referenced.value.slots);
            for slot in index.slots.iter_mut().chain(referenced) {
                *slot = place[*slot];
            }
        }
    }

    /// Two plans of a table with the same signature make the same keys of the same row.
    fn sign(&self, relation: &Relation, of: impl Fn(&Index) -> bool) -> u64 {
        let mut text = String::new();
        for index in self.indexes.iter().filter(|index| of(index)) {
            let _ = write!(text, " {:?} {}", index.space, index.row);
            for &slot in &index.slots {
                let slot = &self.slots[slot];
                let name = &relation.columns[slot.column].name;
                let _ = write!(text, " {name:?} {:?}", slot.kind);
            }
        }
        let mut digest = Digest::new(0);
        digest.bytes(text.as_bytes());
        digest.finish()
    }

    /// `schema.table` or `schema.table (index)`.
    pub fn name(&self, space: SpaceId) -> Option<&Arc<str>> {
        let named = self.names.iter().find(|(known, _)| *known == space);
        named.map(|(_, name)| name)
    }

    /// The table whose changes are planned.
    pub(crate) fn table(&self) -> SpaceId {
        self.table.space
    }

    /// The table that a space of this plan is of: the space itself, or the table of an index.
    pub(crate) fn table_of(&self, space: SpaceId) -> SpaceId {
        let own = self.indexes.iter().any(|index| index.space == space);
        let parent = || self.parents.iter().find(|parent| parent.space == space);
        match own {
            true => self.table.space,
            false => parent().map_or(space, |parent| parent.table.space),
        }
    }

    /// The index that finds rows.
    pub(super) fn row(&self) -> Option<&Index> {
        self.indexes.first().filter(|index| index.row)
    }

    /// True if old values of the table's rows are asked for.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// Why indexes of the table are serial, for all changes of it.
    pub fn serial(&self) -> impl Iterator<Item = (SpaceId, &SerialReason)> {
        let indexes = self.indexes.iter();
        indexes.filter_map(|index| Some((index.space, index.serial.as_ref()?)))
    }

    /// Why changes of the table run alone, if some do.
    pub fn alone(&self) -> impl Iterator<Item = &SerialReason> {
        self.lane.iter().flatten()
    }
}

fn others(keys: &Keys) -> impl Iterator<Item = &Root> {
    let cascades = keys.referenced.iter().flat_map(|other| &other.cascades);
    let parents = keys.foreign_keys.iter().map(|key| &key.parent);
    keys.truncates.iter().chain(cascades).chain(parents)
}

impl Index {
    /// The value that a row with these parts has in the index.
    #[inline]
    pub(super) fn held(&self, parts: &[Part], slots: &[Slot]) -> Held {
        if !self.hashed {
            let null = |&slot: &usize| matches!(parts[slot], Part::Null);
            if self.nulls_distinct && self.slots.iter().any(null) {
                return Held::Nothing;
            }
            return Held::Hash(Digest::new(self.seed).finish());
        }
        let mut digest = Digest::new(self.seed);
        let (mut same, mut known) = (false, true);
        for &slot in &self.slots {
            match parts[slot] {
                Part::Known(hash) if slots[slot].kind.is_some() => digest.word(hash),
                Part::Null if self.nulls_distinct => return Held::Nothing,
                Part::Null => digest.word(NULL),
                Part::Same if slots[slot].kind.is_some() => same = true,
                Part::Unknown if slots[slot].kind.is_some() => known = false,
                Part::Known(_) | Part::Same | Part::Unknown => {}
            }
        }
        match (known, same) {
            (true, false) => Held::Hash(digest.finish()),
            _ => Held::Unknown,
        }
    }
}

const NULL: u64 = 0x4e55_4c4c;
