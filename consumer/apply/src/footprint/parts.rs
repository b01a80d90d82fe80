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

impl Part {
    /// What a value is to a slot.
    #[inline]
    pub(super) fn of(value: Value<'_>, slot: &Slot, text: &mut Vec<u8>) -> Self {
        match (value, &slot.kind) {
            (Value::Null, _) => Self::Null,
            (Value::Unchanged, _) => Self::Same,
            (Value::NotSent, _) => Self::Unknown,
            (_, None) => Self::Known(0),
            (value, Some(kind)) => match kind.digest(value, text) {
                Some(hash) => Self::Known(hash),
                None => Self::Unknown,
            },
        }
    }
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
            parts.push(Part::of(value, slot, text));
        }
    }
    match parts.len() == slots.len() {
        true => Ok(()),
        false => Err(Unreadable),
    }
}
