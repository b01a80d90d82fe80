//! Counts of what the analyzer said and why: what `explain` shows.
//!
//! Counted once for each unit when it is formed, for each of its transactions and each table that
//! it changes, and never for a row. Names are looked up when something is counted for the first
//! time. What one connection applies in order is not looked at, and is counted apart.
//!
//! What is read again after a take-over is counted again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Engine;
use crate::conflict::{Dependence, Edge, LANE};
use crate::footprint::{self, Footprint, Scope, SerialReason, SpaceId};
use crate::unit::Unit;

/// So many tables, keys, and reasons are counted each; what comes beyond is in the sums only.
const SPACES_MAX: usize = 4_096;

/// Counts since the engine was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Units formed.
    pub units: u64,
    /// Transactions that one connection applied in order: nobody looked what they touch.
    pub in_order: u64,
    /// Transactions by the dependence of their unit, in the order of [`Dependence::ALL`].
    pub transactions: [u64; Dependence::ALL.len()],
    /// Those of them that ran alone, or touched what one key stands for as a whole.
    pub serial_transactions: u64,
    /// Transactions that waited for one that ran alone.
    pub behind_alone: u64,
    /// How long connections were busy with what is committed, microseconds.
    pub busy_us: u64,
    /// Transactions that were looked at.
    looked_at: u64,
    tables: HashMap<SpaceId, TableTally>,
    keys: HashMap<SpaceId, KeyTally>,
    serial: HashMap<(SpaceId, SerialReason), SerialTally>,
}

/// The transactions that change a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTally {
    /// `schema.table`.
    pub name: Arc<str>,
    /// By the dependence of their unit, in the order of [`Dependence::ALL`].
    pub transactions: [u64; Dependence::ALL.len()],
    /// The newest of them: several pieces of a transaction may name the table.
    newest: u64,
}

/// The name of a key, and the table it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `schema.table`, or `schema.table (index)`.
    pub name: Arc<str>,
    /// The table.
    pub table: SpaceId,
    /// `schema.table`.
    pub table_name: Arc<str>,
}

/// The transactions that waited because of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTally {
    /// The key.
    pub key: Named,
    /// How many they are.
    pub transactions: u64,
}

/// The transactions that ran alone, or touched a table or index as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialTally {
    /// What of; none where it is because of no table of the subscriber.
    pub of: Option<Named>,
    /// How many they are.
    pub transactions: u64,
}

impl Engine {
    /// Touches of keys by units that are not committed; bounded by `conflict_keys_max`, and one for
    /// each unit that runs alone because of it.
    pub fn conflict_touches(&self) -> usize {
        self.pending.hash.touches()
    }
}

impl Tally {
    /// Tables that were changed.
    pub fn tables(&self) -> impl Iterator<Item = (SpaceId, &TableTally)> {
        self.tables.iter().map(|(space, tally)| (*space, tally))
    }

    /// Keys that were waited for.
    pub fn keys(&self) -> impl Iterator<Item = (SpaceId, &KeyTally)> {
        self.keys.iter().map(|(space, tally)| (*space, tally))
    }

    /// What was serial, and why.
    pub fn serial(&self) -> impl Iterator<Item = (SpaceId, &SerialReason, &SerialTally)> {
        let entries = self.serial.iter();
        entries.map(|((space, reason), tally)| (*space, reason, tally))
    }

    /// One connection applies the unit behind those before it.
    pub(super) fn in_order(&mut self, unit: &Unit) {
        self.units += 1;
        self.in_order += unit.transactions.len() as u64;
    }

    /// It was found what a unit touches, and whom it depends on. One that finds nothing unfinished
    /// (`finds_nothing`) runs at once whatever is known of it, so it is not serial; nor were old
    /// values read for it. Who has to wait for it is counted with what they wait for.
    pub(super) fn analyzed(
        &mut self,
        unit: &Unit,
        footprint: &Footprint,
        dependence: Dependence,
        predecessors: &[Edge],
        finds_nothing: bool,
    ) {
        let transactions = unit.transactions.len() as u64;
        self.units += 1;
        self.transactions[dependence as usize] += transactions;
        self.changed(unit, dependence);
        if !finds_nothing {
            for (space, reason) in &footprint.serial {
                self.was_serial(unit, *space, reason, 1);
            }
        }
        match dependence {
            Dependence::NoConflict if finds_nothing => {}
            Dependence::NoConflict | Dependence::Conflict => {
                self.serial_transactions += footprint.serial_transactions;
                self.waited(unit, predecessors);
            }
            Dependence::Unknown | Dependence::Barrier => {
                self.serial_transactions += transactions;
                match &footprint.scope {
                    Scope::Lane(reason) => {
                        self.was_serial(unit, footprint.alone, reason, transactions);
                    }
                    Scope::Barrier => {
                        self.was_serial(unit, LANE.space, &SerialReason::Large, transactions);
                    }
                    Scope::Keys => {
                        self.was_serial(unit, LANE.space, &SerialReason::KeysLimit, transactions);
                    }
                }
            }
        }
    }

    fn changed(&mut self, unit: &Unit, dependence: Dependence) {
        for transaction in &unit.transactions {
            self.looked_at += 1;
            for plan in footprint::plans(transaction) {
                let table = plan.table();
                let is_full = self.tables.len() >= SPACES_MAX;
                let tally = match self.tables.entry(table) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(_) if is_full => continue,
                    Entry::Vacant(new) => new.insert(TableTally {
                        name: plan.name(table).cloned().unwrap_or_default(),
                        transactions: Default::default(),
                        newest: 0,
                    }),
                };
                if tally.newest != self.looked_at {
                    tally.newest = self.looked_at;
                    tally.transactions[dependence as usize] += 1;
                }
            }
        }
    }

    fn waited(&mut self, unit: &Unit, predecessors: &[Edge]) {
        let transactions = unit.transactions.len() as u64;
        for (place, Edge { space, .. }) in predecessors.iter().enumerate() {
            let mut before = predecessors.iter().take(place);
            if before.any(|before| before.space == *space) {
                continue;
            }
            if *space == LANE.space {
                self.behind_alone += transactions;
                continue;
            }
            let is_full = self.keys.len() >= SPACES_MAX;
            let tally = match self.keys.entry(*space) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if is_full => continue,
                Entry::Vacant(new) => {
                    let Some(key) = named(unit, *space) else {
                        continue;
                    };
                    let transactions = 0;
                    new.insert(KeyTally { key, transactions })
                }
            };
            tally.transactions += transactions;
        }
    }

    fn was_serial(
        &mut self,
        unit: &Unit,
        space: SpaceId,
        reason: &SerialReason,
        transactions: u64,
    ) {
        let is_full = self.serial.len() >= SPACES_MAX;
        let tally = match self.serial.entry((space, reason.clone())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(new) => new.insert(SerialTally {
                of: named(unit, space),
                transactions: 0,
            }),
        };
        tally.transactions += transactions;
    }
}

/// The name of what some table of the unit touches.
fn named(unit: &Unit, space: SpaceId) -> Option<Named> {
    let mut plans = unit.transactions.iter().flat_map(footprint::plans);
    plans.find_map(|plan| {
        let (name, table) = (plan.name(space)?, plan.table_of(space));
        Some(Named {
            name: Arc::clone(name),
            table,
            table_name: Arc::clone(plan.name(table).unwrap_or(name)),
        })
    })
}
