//! What one change touches.
//!
//! How the keys of a table play together:
//!
//! 1. Each change **reads its table's key**. TRUNCATE writes it, and so does a change of which too
//!    little is known: that is how one change excludes all others of its table.
//! 2. Each change **writes its row's key**, old and new: whoever finds the row waits.
//! 3. For each other unique index a change **writes the values** that it gives up and that it
//!    takes. A value that is given up and not known is a **free** of the index; whoever takes a
//!    value of the index **takes** from it too, and so waits for all that freed before. A taker
//!    need not wait for a taker, nor a free for a free: two rows never hold one value, so a taker
//!    has to wait for the free of its value, or there was nobody.
//! 4. A row that stays in its index with all columns as they were touches nothing of it.
//! 5. Where foreign keys are checked, a child **reads the referenced value** (a key beside the
//!    index's own, so that a parent's other columns may change) and the parent's table; the parent
//!    writes it when it comes, goes, or changes its key. A child that gives up a reference that is
//!    not known **frees** the references, and a parent that goes **takes** from them.

use walbraid_schemas::envelope::{Change, OldTuple};

use super::digest::Digest;
use super::firing::Operation;
use super::old::{NewRow, Old, OldValues};
use super::parts::{self, Held, Part, Unreadable};
use super::plan::{Index, Parent, Plan, Referenced, TableKey};
use super::reason::SerialReason;
use super::{Access, Footprint, Scope, SpaceId, Touch};
use crate::mapping::{Mapped, Target};

/// A table that the subscriber does not have.
const UNKNOWN: SpaceId = SpaceId(0);

/// What is used again for every row.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    new: Vec<Part>,
    old: Vec<Part>,
    text: Vec<u8>,
    asked: Vec<Option<u64>>,
    told: Vec<Option<u64>>,
}

/// Adds what the change touches.
pub(super) fn change(
    change: &Change,
    targets: &[Target],
    old: &mut dyn OldValues,
    footprint: &mut Footprint,
) {
    let mut scratch = std::mem::take(&mut footprint.scratch);
    let mut trace = Trace {
        footprint,
        old,
        scratch: &mut scratch,
    };
    trace.change(change, targets);
    footprint.scratch = scratch;
}

struct Trace<'a> {
    footprint: &'a mut Footprint,
    old: &'a mut dyn OldValues,
    scratch: &'a mut Scratch,
}

/// What is known of the row's wanted indexes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Unknown,
    Gone,
    Known,
}

impl Trace<'_> {
    fn change(&mut self, change: &Change, targets: &[Target]) {
        let (operation, table) = match change {
            Change::Insert { table, .. } => (Operation::Insert, *table),
            Change::Update { table, .. } => (Operation::Update, *table),
            Change::Delete { table, .. } => (Operation::Delete, *table),
            Change::Truncate { tables, .. } => return self.truncate(tables, targets),
            Change::Message { .. } => return,
        };
        let Some(Ok(mapped)) = targets.get(table as usize) else {
            return self.alone(UNKNOWN, SerialReason::Unmapped);
        };
        let plan = mapped.conflict();
        self.shape(mapped);
        if let Some(reason) = &plan.lane[operation as usize] {
            self.alone(plan.table.space, reason.clone());
        }
        let traced = match change {
            Change::Insert { new, .. } => self.insert(mapped, new),
            Change::Update { old, new, .. } => self.update(mapped, old.as_ref(), new),
            Change::Delete { old, .. } => self.delete(mapped, old),
            Change::Truncate { .. } | Change::Message { .. } => Ok(()),
        };
        if traced.is_err() {
            self.alone(plan.table.space, SerialReason::Undecodable);
        }
        self.read_table(plan.table);
    }

    /// Nothing can be said, and whatever was read before may be wrong.
    fn alone(&mut self, table: SpaceId, reason: SerialReason) {
        self.footprint.scope = Scope::Lane(reason);
        self.footprint.alone = table;
        self.old.forget();
    }

    /// The first change under another shape of a table waits for those under the shape before.
    fn shape(&mut self, mapped: &Mapped) {
        if self.footprint.last_mapped == mapped.id() {
            return;
        }
        self.footprint.last_mapped = mapped.id();
        let plan = mapped.conflict();
        for (shape, signature) in plan.signatures {
            let before = self.footprint.shapes.insert(shape, signature);
            if before.is_some_and(|before| before != signature) {
                self.write_table(plan.table, SerialReason::ShapeChanged);
                self.old.forget();
            }
        }
    }

    fn truncate(&mut self, tables: &[u32], targets: &[Target]) {
        self.old.forget();
        for &table in tables {
            let Some(Ok(mapped)) = targets.get(table as usize) else {
                self.alone(UNKNOWN, SerialReason::Unmapped);
                continue;
            };
            self.shape(mapped);
            let plan = mapped.conflict();
            if let Some(reason) = &plan.lane[Operation::Truncate as usize] {
                self.alone(plan.table.space, reason.clone());
            }
            for table in std::iter::once(&plan.table).chain(&plan.truncates) {
                self.touch(table.key, Access::Write, table.space);
            }
        }
    }

    fn insert(&mut self, mapped: &Mapped, new: &[u8]) -> Result<(), Unreadable> {
        let plan = mapped.conflict();
        let Scratch {
            new: parts, text, ..
        } = &mut *self.scratch;
        parts::read(mapped.table(), &plan.slots, new, parts, text)?;
        self.scratch.told.clear();
        let mut told = true;
        for index in &plan.indexes {
            self.report(index);
            let held = index.held(&self.scratch.new, &plan.slots);
            self.take(plan, index, held);
            if let Some(referenced) = &index.referenced {
                let held = referenced.value.held(&self.scratch.new, &plan.slots);
                self.referenced_new(plan, referenced, held);
            }
            told &= self.tell(index, held);
        }
        for parent in &plan.parents {
            let held = parent.value.held(&self.scratch.new, &plan.slots);
            self.link(parent, held);
        }
        if let Some(row) = plan.row() {
            let held = row.held(&self.scratch.new, &plan.slots);
            self.told(plan, Held::Nothing, held, told);
        }
        Ok(())
    }

    fn delete(&mut self, mapped: &Mapped, old: &OldTuple) -> Result<(), Unreadable> {
        let plan = mapped.conflict();
        self.read_old(mapped, Some(old))?;
        let row = plan
            .row()
            .map(|row| row.held(&self.scratch.old, &plan.slots));
        let asked = self.ask(plan, row);
        let mut place = 0;
        for index in &plan.indexes {
            self.report(index);
            let held = self.old_held(plan, index, asked, &mut place);
            self.release(plan, index, held);
            if let Some(referenced) = &index.referenced {
                let held = referenced.value.held(&self.scratch.old, &plan.slots);
                self.referenced_old(plan, referenced, held);
            }
        }
        for parent in &plan.parents {
            let held = parent.value.held(&self.scratch.old, &plan.slots);
            self.unlink(parent, held);
        }
        if let Some(row) = row {
            self.told(plan, row, Held::Nothing, true);
        }
        Ok(())
    }

    fn update(
        &mut self,
        mapped: &Mapped,
        old: Option<&OldTuple>,
        new: &[u8],
    ) -> Result<(), Unreadable> {
        let plan = mapped.conflict();
        let Scratch {
            new: parts, text, ..
        } = &mut *self.scratch;
        parts::read(mapped.table(), &plan.slots, new, parts, text)?;
        self.read_old(mapped, old)?;
        let Scratch {
            new, old: before, ..
        } = &mut *self.scratch;
        for (new, before) in new.iter_mut().zip(before.iter()) {
            if *new == Part::Same && matches!(before, Part::Known(_) | Part::Null) {
                *new = *before;
            }
        }
        let held = |row: &Index, parts| row.held(parts, &plan.slots);
        let row_old = plan.row().map(|row| held(row, &self.scratch.old));
        let row_new = plan.row().map(|row| held(row, &self.scratch.new));
        let asked = self.ask(plan, row_old);
        self.scratch.told.clear();
        let (mut told, mut place) = (true, 0);
        for index in &plan.indexes {
            self.report(index);
            let before = self.old_held(plan, index, asked, &mut place);
            let unchanged = index.plain && self.unchanged(plan, index, old.is_none());
            let mut after = index.held(&self.scratch.new, &plan.slots);
            if after == Held::Unknown && (unchanged || self.same(index)) {
                after = before;
            }
            told &= self.tell(index, after);
            let stays = unchanged || index.exact && known(before) && before == after;
            if index.row || !stays {
                self.release(plan, index, before);
                if !(index.row && before == after) {
                    self.take(plan, index, after);
                }
            }
            if let Some(referenced) = &index.referenced
                && !unchanged
            {
                let before = referenced.value.held(&self.scratch.old, &plan.slots);
                let after = referenced.value.held(&self.scratch.new, &plan.slots);
                self.referenced_old(plan, referenced, before);
                self.referenced_new(plan, referenced, after);
            }
        }
        for parent in &plan.parents {
            if !self.unchanged(plan, &parent.value, old.is_none()) {
                let before = parent.value.held(&self.scratch.old, &plan.slots);
                let after = parent.value.held(&self.scratch.new, &plan.slots);
                self.unlink(parent, before);
                self.link(parent, after);
            }
        }
        if let (Some(before), Some(after)) = (row_old, row_new) {
            self.told(plan, before, after, told);
        }
        Ok(())
    }

    /// The old values: of an UPDATE without an old tuple those of the identity, which did not
    /// change. A tuple of the key says nothing of other columns.
    fn read_old(&mut self, mapped: &Mapped, old: Option<&OldTuple>) -> Result<(), Unreadable> {
        let slots = &mapped.conflict().slots;
        let Scratch {
            new,
            old: parts,
            text,
            ..
        } = &mut *self.scratch;
        match old {
            Some(old) => {
                parts::read(mapped.table(), slots, &old.row, parts, text)?;
                for part in parts {
                    if *part == Part::Same {
                        *part = Part::Unknown;
                    }
                }
            }
            None => {
                parts.clear();
                let known = |(slot, part): (&super::plan::Slot, &Part)| match (slot.key, *part) {
                    (true, Part::Known(_) | Part::Null) => *part,
                    _ => Part::Unknown,
                };
                parts.extend(slots.iter().zip(new.iter()).map(known));
            }
        }
        Ok(())
    }

    /// Asks for the old values that are not on the wire.
    fn ask(&mut self, plan: &Plan, row: Option<Held>) -> Asked {
        let (Some(index), Some(Held::Hash(key))) = (plan.row(), row) else {
            return Asked::Unknown;
        };
        if !plan.asks {
            return Asked::Unknown;
        }
        match self.old.old(index.space, key) {
            Old::Unknown => Asked::Unknown,
            Old::Gone => Asked::Gone,
            Old::Hashes(hashes) => {
                self.scratch.asked.clear();
                self.scratch.asked.extend_from_slice(hashes);
                Asked::Known
            }
        }
    }

    /// The old value in an index, from the wire or from elsewhere. `place` counts the wanted ones.
    fn old_held(&self, plan: &Plan, index: &Index, asked: Asked, place: &mut usize) -> Held {
        let number = *place;
        *place += usize::from(index.wanted);
        let held = index.held(&self.scratch.old, &plan.slots);
        if held != Held::Unknown || !index.wanted {
            return held;
        }
        match asked {
            Asked::Unknown => Held::Unknown,
            Asked::Gone => Held::Nothing,
            Asked::Known => match self.scratch.asked.get(number) {
                Some(Some(hash)) => Held::Hash(*hash),
                Some(None) => Held::Nothing,
                None => Held::Unknown,
            },
        }
    }

    /// All columns of the index are toasted and did not change.
    fn same(&self, index: &Index) -> bool {
        let same = |&slot: &usize| self.scratch.new[slot] == Part::Same;
        index.slots.iter().all(same)
    }

    /// No column of the index changed; `kept`: the identity did not.
    fn unchanged(&self, plan: &Plan, index: &Index, kept: bool) -> bool {
        index.slots.iter().all(|&slot| {
            let exact = || {
                plan.slots[slot]
                    .kind
                    .as_ref()
                    .is_some_and(|kind| kind.exact())
            };
            match (self.scratch.new[slot], self.scratch.old[slot]) {
                (Part::Same, _) | (Part::Null, Part::Null) => true,
                (Part::Known(new), Part::Known(old)) => {
                    kept && plan.slots[slot].key || new == old && exact()
                }
                _ => false,
            }
        })
    }

    /// What others are to know of the row's value in a wanted index; false if it cannot be said.
    fn tell(&mut self, index: &Index, held: Held) -> bool {
        if index.wanted {
            self.scratch.told.push(match held {
                Held::Hash(hash) => Some(hash),
                Held::Nothing => None,
                Held::Unknown => return false,
            });
        }
        true
    }

    /// Tells what became of the row.
    fn told(&mut self, plan: &Plan, before: Held, after: Held, told: bool) {
        let Some(index) = plan.row().filter(|_| plan.asks) else {
            return;
        };
        if before == Held::Unknown || after == Held::Unknown {
            // It may have been any row.
            self.old.forget();
        }
        if let Held::Hash(key) = before
            && before != after
        {
            self.old.write(index.space, key, NewRow::Gone);
        }
        if let Held::Hash(key) = after {
            let row = match told {
                true => NewRow::Hashes(&self.scratch.told),
                false => NewRow::Unknown,
            };
            self.old.write(index.space, key, row);
        }
    }

    /// The row gives up a value.
    fn release(&mut self, plan: &Plan, index: &Index, held: Held) {
        let unknown = SerialReason::UnknownOldValue {
            readable: index.wanted,
        };
        match held {
            Held::Hash(key) => self.touch(key, Access::Write, index.space),
            Held::Nothing => {}
            Held::Unknown if index.row || index.referenced.is_some() => {
                self.write_table(plan.table, unknown);
            }
            Held::Unknown => {
                self.touch(index.freed, Access::Free, index.space);
                self.serial(index.space, &unknown);
            }
        }
    }

    /// The row takes a value.
    fn take(&mut self, plan: &Plan, index: &Index, held: Held) {
        match held {
            Held::Hash(key) => {
                self.touch(key, Access::Write, index.space);
                // What finds rows is never freed, nor is what has one value only.
                if !index.row && index.hashed {
                    self.touch(index.freed, Access::Take, index.space);
                }
            }
            Held::Nothing => {}
            Held::Unknown => self.write_table(plan.table, SerialReason::UnknownNewValue),
        }
    }

    /// A row that foreign keys may reference comes.
    fn referenced_new(&mut self, plan: &Plan, referenced: &Referenced, held: Held) {
        match held {
            Held::Hash(value) if referenced.comparable => {
                let key = mix(referenced.seed, value);
                self.touch(key, Access::Write, referenced.space);
            }
            Held::Nothing => {}
            Held::Hash(_) | Held::Unknown => {
                self.write_table(plan.table, referenced.reason.clone());
            }
        }
    }

    /// A row that foreign keys may reference goes.
    fn referenced_old(&mut self, plan: &Plan, referenced: &Referenced, held: Held) {
        self.referenced_new(plan, referenced, held);
        if held == Held::Nothing {
            return;
        }
        self.touch(referenced.released, Access::Take, referenced.space);
        if !referenced.cascades.is_empty() {
            self.old.forget();
        }
        for &table in &referenced.cascades {
            self.write_table(table, referenced.cascade_reason.clone());
        }
    }

    /// A row comes to reference a value.
    fn link(&mut self, parent: &Parent, held: Held) {
        match held {
            Held::Nothing => return,
            Held::Hash(value) if parent.comparable => {
                self.touch(mix(parent.seed, value), Access::Read, parent.space);
            }
            Held::Hash(_) | Held::Unknown => {
                return self.write_table(parent.table, parent.reason.clone());
            }
        }
        self.read_table(parent.table);
    }

    /// A row no longer references a value.
    fn unlink(&mut self, parent: &Parent, held: Held) {
        match held {
            Held::Unknown if parent.comparable => {
                self.touch(parent.released, Access::Free, parent.space);
                self.read_table(parent.table);
            }
            held => self.link(parent, held),
        }
    }

    /// Reports an index of which one key stands for all values.
    fn report(&mut self, index: &Index) {
        if let Some(reason) = &index.serial {
            self.serial(index.space, reason);
        }
    }

    fn serial(&mut self, space: SpaceId, reason: &SerialReason) {
        let from = self.footprint.serial_from;
        let mut known = self.footprint.serial.iter().skip(from);
        if !known.any(|known| known.0 == space && known.1 == *reason) {
            self.footprint.serial.push((space, reason.clone()));
        }
    }

    fn write_table(&mut self, table: TableKey, reason: SerialReason) {
        self.touch(table.key, Access::Write, table.space);
        self.serial(table.space, &reason);
    }

    fn read_table(&mut self, table: TableKey) {
        if self.footprint.last_table != Some(table.key) {
            self.footprint.last_table = Some(table.key);
            self.touch(table.key, Access::Read, table.space);
        }
    }

    #[inline]
    fn touch(&mut self, key: u64, access: Access, space: SpaceId) {
        self.footprint.touches.push(Touch { key, access, space });
    }
}

fn known(held: Held) -> bool {
    held != Held::Unknown
}

fn mix(seed: u64, value: u64) -> u64 {
    let mut digest = Digest::new(seed);
    digest.word(value);
    digest.finish()
}
