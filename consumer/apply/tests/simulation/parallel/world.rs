//! Tables changed by one session, one transaction after the other: the publisher itself, and what
//! the subscriber must hold after each prefix of its history.
//!
//! Written apart from the model subscriber, which has locks and versions, so that each checks the
//! other.

use walbraid_schemas::notice::StopKind;

use super::schema::{HOT, Row, STAMPED, Schema, TABLES, Unique};

/// A change, in values.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Insert {
        table: usize,
        new: Row,
    },
    /// Of `old` only what the table is found by counts.
    Update {
        table: usize,
        old: Row,
        new: Row,
    },
    Delete {
        table: usize,
        old: Row,
    },
    Truncate {
        tables: Vec<usize>,
    },
    Message,
}

/// Whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Publisher,
    /// A row not found is skipped.
    Lenient,
    /// It is an error.
    Strict,
}

/// Hashes of the tables' contents, row order aside.
pub type Hashes = [u64; TABLES];

#[derive(Clone, Debug)]
pub struct World {
    pub tables: Vec<Vec<Row>>,
}

impl World {
    pub fn empty() -> Self {
        Self {
            tables: vec![Vec::new(); TABLES],
        }
    }

    /// Applies a transaction, or says why it cannot be. Rows that are not found are looked at when
    /// all statements are through, and before the checks that are left to the commit.
    pub fn transact(&mut self, schema: &Schema, side: Side, ops: &[Op]) -> Result<(), StopKind> {
        let mut missing = false;
        for op in ops {
            missing |= !self.apply(schema, side, op)?;
        }
        if missing && side != Side::Lenient {
            return Err(StopKind::Conflict);
        }
        self.check_deferred(schema)
    }

    /// Applies one statement; false if its row is not there. What breaks a constraint is refused.
    pub fn apply(&mut self, schema: &Schema, side: Side, op: &Op) -> Result<bool, StopKind> {
        match *op {
            Op::Insert { table, mut new } => {
                if table == STAMPED && schema.stamps && side != Side::Publisher {
                    new[1] = stamp(&self.tables[HOT]);
                }
                self.tables[table].push(new);
                self.check(schema, side, table, None, Some(new))
            }
            Op::Update { table, old, new } => match self.find(schema, table, old) {
                Some(place) => {
                    let old = std::mem::replace(&mut self.tables[table][place], new);
                    self.check(schema, side, table, Some(old), Some(new))
                }
                None => Ok(false),
            },
            Op::Delete { table, old } => match self.find(schema, table, old) {
                Some(place) => {
                    let old = self.tables[table].remove(place);
                    self.check(schema, side, table, Some(old), None)
                }
                None => Ok(false),
            },
            Op::Truncate { ref tables } => {
                for &table in tables {
                    self.tables[table].clear();
                }
                Ok(true)
            }
            Op::Message => Ok(true),
        }
    }

    fn find(&self, schema: &Schema, table: usize, old: Row) -> Option<usize> {
        let keyed = schema.tables[table].keyed;
        let is = |row: &Row| if keyed { row[0] == old[0] } else { *row == old };
        self.tables[table].iter().position(is)
    }

    fn check(
        &self,
        schema: &Schema,
        side: Side,
        table: usize,
        old: Option<Row>,
        new: Option<Row>,
    ) -> Result<bool, StopKind> {
        let spec = &schema.tables[table];
        let mut unique = spec.uniques.iter().filter(|unique| !unique.deferred);
        if new.is_some() && !unique.all(|unique| self.is_unique(table, unique)) {
            return Err(StopKind::RowRefused);
        }
        let checked = |spec: &super::schema::Spec| spec.enforced || side == Side::Publisher;
        if let Some(parent) = spec.parent.filter(|_| checked(spec))
            && let Some(reference @ Some(_)) = new.map(|new| new[1])
            && old.is_none_or(|old| old[1] != reference)
            && !self.tables[parent].iter().any(|row| row[0] == reference)
        {
            return Err(StopKind::RowRefused);
        }
        let Some(key) = old.map(|old| old[0]) else {
            return Ok(true);
        };
        let gone = !self.tables[table].iter().any(|row| row[0] == key);
        for (child, spec) in schema.tables.iter().enumerate() {
            let refers = |row: &Row| row[1] == key;
            if gone
                && spec.parent == Some(table)
                && checked(spec)
                && self.tables[child].iter().any(refers)
            {
                return Err(StopKind::RowRefused);
            }
        }
        Ok(true)
    }

    fn is_unique(&self, table: usize, unique: &Unique) -> bool {
        let rows = &self.tables[table];
        let value = |row: &Row| row[unique.column];
        rows.iter().enumerate().all(|(place, row)| {
            let exempt = unique.nulls_distinct && value(row).is_none();
            exempt || !rows[..place].iter().any(|other| value(other) == value(row))
        })
    }

    pub fn check_deferred(&self, schema: &Schema) -> Result<(), StopKind> {
        for (table, spec) in schema.tables.iter().enumerate() {
            let mut deferred = spec.uniques.iter().filter(|unique| unique.deferred);
            if !deferred.all(|unique| self.is_unique(table, unique)) {
                return Err(StopKind::RowRefused);
            }
        }
        Ok(())
    }

    pub fn hashes(&self) -> Hashes {
        let mut hashes = [0; TABLES];
        for (table, rows) in self.tables.iter().enumerate() {
            for row in rows {
                add(&mut hashes, table, row);
            }
        }
        hashes
    }
}

/// What the trigger of `stamped` reads.
pub fn stamp(hot: &[Row]) -> Option<i32> {
    let first = hot.iter().find(|row| row[0] == Some(1));
    first.and_then(|row| row[2])
}

/// A row comes into a table.
pub fn add(hashes: &mut Hashes, table: usize, row: &Row) {
    hashes[table] = hashes[table].wrapping_add(hash(row));
}

/// A row goes.
pub fn take(hashes: &mut Hashes, table: usize, row: &Row) {
    hashes[table] = hashes[table].wrapping_sub(hash(row));
}

fn hash(row: &Row) -> u64 {
    row.iter().fold(0x9e37_79b9_7f4a_7c15, |hash: u64, value| {
        let word = value.map_or(1 << 40, |value| value as u64);
        let mixed = (hash ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    })
}
