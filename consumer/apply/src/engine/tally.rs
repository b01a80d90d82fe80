//! Counts of what the analyzer said and why: what `explain` shows.

use std::collections::HashMap;

use super::Engine;
use crate::conflict::{Dependence, Edge};
use crate::footprint::{Footprint, Scope, SerialReason, SpaceId};
use crate::unit::Unit;

/// Counts since the engine was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transactions by the dependence of their unit, in the order of [`Dependence::ALL`].
    pub transactions: [u64; Dependence::ALL.len()],
    /// Units that waited for another one because of a key, by the key.
    pub waits: HashMap<SpaceId, u64>,
    /// Units that ran alone, or had to be in order for a whole table, by why.
    pub serial: HashMap<(SpaceId, SerialReason), u64>,
}

impl Engine {
    /// Touches of keys by units that are not committed; bounded by `conflict_keys_max`, and one for
    /// each unit that runs alone because of it.
    pub fn conflict_touches(&self) -> usize {
        self.pending.hash.touches()
    }
}

impl Tally {
    /// It was found what a unit touches.
    pub(super) fn analyzed(&mut self, footprint: &Footprint) {
        for (space, reason) in &footprint.serial {
            *self.serial.entry((*space, reason.clone())).or_default() += 1;
        }
        if let Scope::Lane(reason) = &footprint.scope {
            let key = (SpaceId(0), reason.clone());
            *self.serial.entry(key).or_default() += 1;
        }
    }

    /// It was found whom a unit depends on.
    pub(super) fn depends(&mut self, unit: &Unit, dependence: Dependence, predecessors: &[Edge]) {
        self.transactions[dependence as usize] += unit.transactions.len() as u64;
        for edge in predecessors {
            *self.waits.entry(edge.space).or_default() += 1;
        }
    }
}
