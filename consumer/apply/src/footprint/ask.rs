//! What is asked of the subscriber where old values are not on the wire, and what its answer says.
//!
//! A row is named by the hash of its key, as everywhere here ([`super::OldValues`]), and read by
//! the text of its key. What comes back is text too, written by the subscriber under the settings
//! that the log's text has, and hashed as the log's values are: the same value is the same number.

use walbraid_schemas::envelope::Change;
use walbraid_schemas::row::{Reader, Value};

use super::firing::Operation;
use super::kind;
use super::parts::{Held, Part};
use super::plan::Plan;
use crate::mapping::{Mapped, Target};

/// What is used again for every row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    parts: Vec<Part>,
    text: Vec<u8>,
}

/// The table of a change that gives up values, and the tuple that names its row.
fn tuple(change: &Change) -> Option<(u32, &[u8])> {
    match change {
        Change::Update { table, old, new } => {
            let tuple = old.as_ref().map_or(new, |old| &old.row);
            Some((*table, tuple))
        }
        Change::Delete { table, old } => Some((*table, &old.row)),
        Change::Insert { .. } | Change::Truncate { .. } | Change::Message { .. } => None,
    }
}

/// The mapping of a change whose old values are asked for, and the tuple that names its row.
pub(crate) fn asked<'a>(
    change: &'a Change,
    targets: &'a [Target],
) -> Option<(&'a std::sync::Arc<Mapped>, &'a [u8])> {
    let (table, tuple) = tuple(change)?;
    let mapped = targets.get(table as usize)?.as_ref().ok()?;
    mapped.conflict().asks.then_some((mapped, tuple))
}

/// True if the change makes worthless whatever was read before it, as far as its table tells.
pub(crate) fn forgets(change: &Change, targets: &[Target]) -> bool {
    let (operation, table) = match change {
        Change::Insert { table, .. } => (Operation::Insert, *table),
        Change::Update { table, .. } => (Operation::Update, *table),
        Change::Delete { table, .. } => (Operation::Delete, *table),
        Change::Truncate { .. } => return true,
        Change::Message { .. } => return false,
    };
    match targets.get(table as usize) {
        Some(Ok(mapped)) => mapped.conflict().lane[operation as usize].is_some(),
        _ => true,
    }
}

/// The hash of the key by which a row is found; none if it is not known.
pub(crate) fn row_key(mapped: &Mapped, tuple: &[u8], scratch: &mut Scratch) -> Option<u64> {
    let plan = mapped.conflict();
    let row = plan.row()?;
    let Scratch { parts, text } = scratch;
    parts.clear();
    parts.resize(plan.slots.len(), Part::Unknown);
    let mut left = row.slots.len();
    for (place, value) in Reader::new(mapped.table(), tuple).enumerate() {
        if left == 0 {
            break;
        }
        let value = value.ok()?;
        for &slot in &row.slots {
            if plan.slots[slot].source == place {
                parts[slot] = Part::of(value, &plan.slots[slot], text);
                left -= 1;
            }
        }
    }
    match row.held(parts, &plan.slots) {
        Held::Hash(key) => Some(key),
        Held::Nothing | Held::Unknown => None,
    }
}

/// The texts of the columns by which a row is found, in the order of the lookup; none if one of
/// them has no value.
pub(crate) fn key_texts(
    mapped: &Mapped,
    tuple: &[u8],
    scratch: &mut Scratch,
) -> Option<Vec<String>> {
    let mut wanted = mapped.lookup().columns().iter().peekable();
    let mut texts = Vec::with_capacity(wanted.len());
    for (place, value) in Reader::new(mapped.table(), tuple).enumerate() {
        if wanted.peek().is_none() {
            break;
        }
        let value = value.ok()?;
        if wanted.next_if(|column| column.source == place).is_some() {
            kind::render(value, &mut scratch.text)?;
            texts.push(std::str::from_utf8(&scratch.text).ok()?.to_owned());
        }
    }
    wanted.peek().is_none().then_some(texts)
}

impl Plan {
    /// Places of the subscriber's columns whose old values are asked for, each once, ascending.
    pub(crate) fn old_columns(&self) -> Vec<usize> {
        let wanted = self.indexes.iter().filter(|index| index.wanted);
        let slots = wanted.flat_map(|index| &index.slots);
        let mut columns: Vec<usize> = slots.map(|&slot| self.slots[slot].column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// What a row of the subscriber holds in the indexes whose old values are asked for. `texts` are
/// those of the columns of [`crate::resolver::query`], NULL is none. None if one of them is not
/// known here.
pub fn old_row(mapped: &Mapped, texts: &[Option<&str>]) -> Option<Box<[Option<u64>]>> {
    let plan = mapped.conflict();
    let columns = plan.old_columns();
    let mut parts = vec![Part::Unknown; plan.slots.len()];
    let mut scratch = Vec::new();
    for (part, slot) in parts.iter_mut().zip(&plan.slots) {
        if let Ok(place) = columns.binary_search(&slot.column) {
            let value = texts.get(place)?.map_or(Value::Null, Value::Text);
            *part = Part::of(value, slot, &mut scratch);
        }
    }
    let wanted = plan.indexes.iter().filter(|index| index.wanted);
    let hashes = wanted.map(|index| match index.held(&parts, &plan.slots) {
        Held::Hash(hash) => Some(Some(hash)),
        Held::Nothing => Some(None),
        Held::Unknown => None,
    });
    hashes.collect()
}
