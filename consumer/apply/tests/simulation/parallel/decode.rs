//! From the changes of the log back to values.

use walbraid_apply::mapping::Target;
use walbraid_schemas::envelope::Change;
use walbraid_schemas::row::{Reader, Value};
use walbraid_schemas::table::Table;

use super::schema::{Row, table_of};
use super::world::Op;

pub fn decode(change: &Change, targets: &[Target]) -> Op {
    let mapped = |table: &u32| targets[*table as usize].as_ref().unwrap();
    let place = |table: &u32| table_of(mapped(table).relation().oid);
    match change {
        Change::Insert { table, new } => Op::Insert {
            table: place(table),
            new: row(mapped(table).table(), new),
        },
        Change::Update { table, old, new } => {
            let new = row(mapped(table).table(), new);
            let old = old.as_ref().map(|old| row(mapped(table).table(), &old.row));
            Op::Update {
                table: place(table),
                old: old.unwrap_or(new),
                new,
            }
        }
        Change::Delete { table, old } => Op::Delete {
            table: place(table),
            old: row(mapped(table).table(), &old.row),
        },
        Change::Truncate { tables, .. } => Op::Truncate {
            tables: tables.iter().map(place).collect(),
        },
        Change::Message { .. } => Op::Message,
    }
}

fn row(table: &Table, datum: &[u8]) -> Row {
    let mut row = [None; 3];
    for (place, value) in Reader::new(table, datum).enumerate() {
        row[place] = match value.unwrap() {
            Value::Int(value) => Some(value as i32),
            Value::Null | Value::NotSent => None,
            other => panic!("not a value of the simulation: {other:?}"),
        };
    }
    row
}
