//! Conflict keys, the conflict hash, and the dependency analyzer.
//!
//! A conflict key is what two units may not touch at the same time. The hash knows the last
//! unfinished unit that touched each key; a unit that touches the key depends on that one. Entries
//! go when their unit commits, so that the hash holds no more than what is unfinished, and the
//! dependency frontier is the same hash carried on and on.
//!
//! There is one key so far, the lane itself, which every unit touches: each unit depends on the one
//! before it, and the lane's order is total. Finer keys only ever take edges away.

use std::collections::HashMap;

use crate::unit::{Unit, UnitId};

/// What two units may not touch at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKey {
    /// The whole lane.
    Lane,
}

/// What the analyzer says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// It depends on nothing unfinished.
    NoConflict,
    /// It depends on unfinished units.
    Conflict,
    /// Nothing can be said: it must run as the head.
    Unknown,
    /// It depends on everything before it, and everything behind depends on it.
    Barrier,
}

/// A unit's dependence and the unfinished units it depends on, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The kind of dependence.
    pub dependence: Dependence,
    /// What it waits for.
    pub predecessors: Vec<UnitId>,
}

/// The last unfinished unit that touched each key.
#[derive(Debug, Default)]
pub struct ConflictHash {
    last: HashMap<ConflictKey, UnitId>,
}

impl ConflictHash {
    /// Finds what the unit depends on and enters its keys. Units are analysed in log order.
    pub fn analyze(&mut self, unit: &Unit) -> Analysis {
        let mut predecessors = Vec::new();
        for key in keys(unit) {
            if let Some(last) = self.last.insert(key, unit.id)
                && last != unit.id
                && !predecessors.contains(&last)
            {
                predecessors.push(last);
            }
        }
        let barrier = unit
            .transactions
            .iter()
            .any(|transaction| transaction.is_barrier());
        let dependence = match (barrier, predecessors.is_empty()) {
            (true, _) => Dependence::Barrier,
            (false, true) => Dependence::NoConflict,
            (false, false) => Dependence::Conflict,
        };
        Analysis {
            dependence,
            predecessors,
        }
    }

    /// The unit committed: nothing depends on it any more.
    pub fn committed(&mut self, unit: UnitId) {
        self.last.retain(|_, last| *last != unit);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.last.clear();
    }
}

fn keys(_unit: &Unit) -> [ConflictKey; 1] {
    [ConflictKey::Lane]
}
