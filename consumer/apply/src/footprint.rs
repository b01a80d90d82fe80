//! What a transaction touches: its conflict keys, and how it uses each.
//!
//! A key is a number of 64 bits; equal keys may be the same thing, different keys are not. Keys are
//! made from the subscriber's catalogue ([`crate::keys`]) and the values of a change, in a form in
//! which values that are equal to the database are alike.
//!
//! Owned here: which keys there are and how they are used. Not owned: who waits for whom because
//! of it ([`crate::conflict`]), and the old values that the wire does not carry ([`OldValues`]).
//!
//! It is always right to hash more values alike, to say that a whole table is touched, or that
//! nothing can be said ([`Scope::Lane`]): each of them only makes units wait.

pub(crate) mod ask;
mod clock;
mod digest;
mod draft;
mod firing;
mod kind;
mod nested;
mod old;
mod parts;
mod plan;
mod reason;
mod scalar;
mod trace;

pub use ask::old_row;
pub use old::{NewRow, NoOldValues, Old, OldValues};
pub use plan::Plan;
pub use reason::SerialReason;

use std::collections::HashMap;
use std::sync::Arc;

use plan::Shape;
use trace::Scratch;

use crate::unit::Transaction;

/// How a unit uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Waits for the last writer, and for all that read or freed since.
    Write,
    /// Waits for the last writer only; writers wait for it.
    Read,
    /// Gives up a value of an index that is not known; waits for nobody. Whoever takes a value, or
    /// writes this key, waits for it.
    Free,
    /// Takes a value of an index: waits for all that freed before, and for the last writer; nobody
    /// waits for it through this key.
    Take,
}

/// Which key of which table: the oid of an index, or of a table. For people, and for
/// [`OldValues`]; it is part of the key's number already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// A key that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    /// The key.
    pub key: u64,
    /// How it is used.
    pub access: Access,
    /// What it is a key of.
    pub space: SpaceId,
}

/// How much the touches say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The touches are all there is.
    #[default]
    Keys,
    /// Nothing can be said: the unit runs alone, as the head.
    Lane(SerialReason),
    /// Everything before it commits first, and everything behind it waits.
    Barrier,
}

/// What a unit touches. Made once and used again for every unit of a lane, in the order of the log:
/// it remembers the shapes of the tables, so that the first change under another shape of a table
/// waits for those under the shape before.
#[derive(Debug, Default)]
pub struct Footprint {
    /// The keys; the same key may be there several times.
    pub touches: Vec<Touch>,
    /// How much they say.
    pub scope: Scope,
    /// The table because of which nothing can be said; 0 where it is not on the subscriber.
    pub alone: SpaceId,
    /// Tables and indexes of which one key stands for all values, and why: each once a transaction.
    pub serial: Vec<(SpaceId, SerialReason)>,
    /// Transactions that touch such a table or index.
    pub serial_transactions: u64,
    /// Where those of the present transaction begin.
    serial_from: usize,
    /// The table's key that was read last.
    last_table: Option<u64>,
    /// The mapping whose shape is known to be its table's.
    last_mapped: u64,
    /// The signature that each shape has now.
    shapes: HashMap<Shape, u64>,
    scratch: Scratch,
}

impl Footprint {
    /// Forgets the unit.
    pub fn clear(&mut self) {
        self.touches.clear();
        self.scope = Scope::Keys;
        self.serial.clear();
        self.serial_transactions = 0;
        self.last_table = None;
    }
}

/// Adds what the transaction touches.
pub fn add(transaction: &Transaction, old: &mut dyn OldValues, footprint: &mut Footprint) {
    footprint.serial_from = footprint.serial.len();
    for piece in &transaction.pieces {
        if piece.mapping_error().is_some() {
            footprint.scope = Scope::Lane(SerialReason::Unmapped);
            footprint.alone = SpaceId(0);
        }
        for change in piece.changes() {
            trace::change(change, piece.targets(), old, footprint);
        }
    }
    let is_serial = footprint.serial.len() > footprint.serial_from;
    footprint.serial_transactions += u64::from(is_serial);
}

/// The plans of the tables that the transaction changes; one for each of its pieces at least.
pub(crate) fn plans(transaction: &Transaction) -> impl Iterator<Item = &Plan> {
    let targets = transaction.pieces.iter().flat_map(|piece| piece.targets());
    let mapped = targets.filter_map(|target| target.as_ref().ok());
    mapped.map(|mapped| mapped.conflict())
}

/// `schema.table`, or `schema.table (index)`; none if no table of the transaction has it.
pub fn space_name(space: SpaceId, transaction: &Transaction) -> Option<Arc<str>> {
    plans(transaction).find_map(|plan| plan.name(space).cloned())
}
