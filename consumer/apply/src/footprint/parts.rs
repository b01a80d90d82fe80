//! The values of a row that keys are made of: one pass over the row.

use walbraid_schemas::row::{Reader, Value};
use walbraid_schemas::table::Table;

use super::plan::Slot;

/// The value of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its hash.
    Known(u64),
    /// NULL.
    Null,
    /// It did not change, and is not on the wire.
    Same,
    /// It may be anything.
    Unknown,
}

/// The value that a row has in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Its key.
    Hash(u64),
    /// None that could collide with another's.
    Nothing,
    /// It may be any.
    Unknown,
}

/// The row is not one of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Fills `parts` with the values of the slots, which stand in the order of the row.
#[inline]
pub(super) fn read(
    table: &Table,
    slots: &[Slot],
    row: &[u8],
    parts: &mut Vec<Part>,
    text: &mut Vec<u8>,
) -> Result<(), Unreadable> {
    parts.clear();
    let mut wanted = slots.iter().peekable();
    for (place, value) in Reader::new(table, row).enumerate() {
        if wanted.peek().is_none() {
            return Ok(());
        }
        let value = value.map_err(|_| Unreadable)?;
        while let Some(slot) = wanted.next_if(|slot| slot.source == place) {
            parts.push(match (value, &slot.kind) {
                (Value::Null, _) => Part::Null,
                (Value::Unchanged, _) => Part::Same,
                (Value::NotSent, _) => Part::Unknown,
                (_, None) => Part::Known(0),
                (value, Some(kind)) => match kind.digest(value, text) {
                    Some(hash) => Part::Known(hash),
                    None => Part::Unknown,
                },
            });
        }
    }
    match parts.len() == slots.len() {
        true => Ok(()),
        false => Err(Unreadable),
    }
}
