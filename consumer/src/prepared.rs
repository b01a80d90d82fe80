//! The statements prepared on one session, by their number, with a bound.
//!
//! A statement is prepared in the burst that uses it first, so nothing is known of it until its
//! ParseComplete has been read; after an error the session forgets what was not confirmed. When
//! there are too many, those not used for longest are closed, in the burst too.

use std::collections::HashMap;

use walbraid_apply::statement::Statement;
use walbraid_wire::Format;

/// Statements kept on a session.
const STATEMENTS_MAX: usize = 1_000;

/// A statement on the session.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) name: String,
    /// Empty when all parameters are text.
    pub(crate) formats: Vec<Format>,
    used: u64,
}

/// All statements of a session but those that frame a unit.
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements {
    by_id: HashMap<u64, Prepared>,
    clock: u64,
}

impl Prepared {
    pub(crate) fn new(name: String, statement: &Statement) -> Self {
        let formats = if statement.binary().contains(&true) {
            let format = |binary: &bool| {
                if *binary {
                    Format::Binary
                } else {
                    Format::Text
                }
            };
            statement.binary().iter().map(format).collect()
        } else {
            Vec::new()
        };
        Self {
            name,
            formats,
            used: 0,
        }
    }
}

impl PreparedStatements {
    /// The statement of that number, if it is prepared or about to be.
    pub(crate) fn get(&mut self, id: u64) -> Option<&Prepared> {
        self.clock += 1;
        let prepared = self.by_id.get_mut(&id)?;
        prepared.used = self.clock;
        Some(prepared)
    }

    /// Notes a statement whose Parse is being sent.
    pub(crate) fn insert(&mut self, statement: &Statement) -> &Prepared {
        self.clock += 1;
        let id = statement.id();
        let mut prepared = Prepared::new(name_of(id), statement);
        prepared.used = self.clock;
        self.by_id.entry(id).insert_entry(prepared).into_mut()
    }

    /// Forgets statements, those not used for longest first, until there is room; the numbers to
    /// close.
    pub(crate) fn make_room(&mut self) -> Vec<u64> {
        if self.by_id.len() < STATEMENTS_MAX {
            return Vec::new();
        }
        let mut ages: Vec<(u64, u64)> = self
            .by_id
            .iter()
            .map(|(id, prepared)| (prepared.used, *id))
            .collect();
        ages.sort_unstable();
        let oldest: Vec<u64> = ages
            .iter()
            .take(STATEMENTS_MAX / 8)
            .map(|(_, id)| *id)
            .collect();
        for id in &oldest {
            self.by_id.remove(id);
        }
        oldest
    }

    /// Forgets a statement whose Parse was not confirmed.
    pub(crate) fn forget(&mut self, id: u64) {
        self.by_id.remove(&id);
    }
}

/// The name of a statement on the session.
pub(crate) fn name_of(id: u64) -> String {
    format!("s{id}")
}
