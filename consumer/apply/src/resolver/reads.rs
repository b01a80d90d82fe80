//! Reads of old values: what gathers for each table, and what is under way.
//!
//! One read of a table is under way at a time; what gathers meanwhile goes with the next one, so
//! that reads grow with what waits. A read that fails is not tried again for a moment, and one that
//! takes too long is not waited for: its table's rows are not known until it has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::overlay::{Overlay, ReadId};
use super::{Cost, OldRow};
use crate::action::Action;
use crate::footprint::Old;
use crate::mapping::Mapped;

/// Most keys of one read.
const KEYS_MAX: usize = 1_024;

/// How long a table is left alone after a read of it failed.
const PAUSE_MS: u64 = 5_000;

/// The reads of all tables, each by the number of its mapping.
#[derive(Debug, Default)]
pub(super) struct Reads {
    tables: BTreeMap<u64, Table>,
    last: ReadId,
    pub(super) cost: Cost,
}

#[derive(Debug)]
struct Table {
    mapped: Arc<Mapped>,
    gathered: Vec<Gathered>,
    reading: Option<Reading>,
    not_before_ms: u64,
}

#[derive(Debug)]
struct Gathered {
    row: u64,
    texts: Vec<String>,
}

#[derive(Debug)]
struct Reading {
    read: ReadId,
    rows: Vec<u64>,
    /// Nobody waits for it any more.
    late: bool,
}

impl Reads {
    /// False while rows of the table cannot be read.
    pub(super) fn may_gather(&self, mapped: &Mapped, now_ms: u64) -> bool {
        self.tables.get(&mapped.id()).is_none_or(|table| {
            let late = table.reading.as_ref().is_some_and(|reading| reading.late);
            !late && table.not_before_ms <= now_ms
        })
    }

    /// A row to be read.
    pub(super) fn gather(&mut self, mapped: &Arc<Mapped>, row: u64, texts: Vec<String>) {
        let table = self.tables.entry(mapped.id()).or_insert_with(|| Table {
            mapped: Arc::clone(mapped),
            gathered: Vec::new(),
            reading: None,
            not_before_ms: 0,
        });
        table.gathered.push(Gathered { row, texts });
    }

    /// Sends what has gathered of tables that are not being read.
    pub(super) fn send(&mut self, overlay: &mut Overlay, actions: &mut Vec<Action>) {
        for table in self.tables.values_mut() {
            if table.reading.is_some() || table.gathered.is_empty() {
                continue;
            }
            let read = self.last + 1;
            let most = table.gathered.len().min(KEYS_MAX);
            let mut rows = Vec::with_capacity(most);
            let columns = table.mapped.lookup().columns().len();
            let mut keys = vec![Vec::with_capacity(most); columns];
            for gathered in table.gathered.drain(..most) {
                // It may have been written meanwhile, or nobody wants it any more.
                if overlay.ask(read, gathered.row) {
                    rows.push(gathered.row);
                    for (keys, text) in keys.iter_mut().zip(gathered.texts) {
                        keys.push(text);
                    }
                }
            }
            if rows.is_empty() {
                continue;
            }
            self.last = read;
            self.cost.reads += 1;
            self.cost.rows += rows.len() as u64;
            actions.push(Action::ReadOldValues {
                read,
                table: Arc::clone(&table.mapped),
                keys,
            });
            let late = false;
            table.reading = Some(Reading { read, rows, late });
        }
    }

    /// The answer to a read; none if it failed.
    pub(super) fn answered(
        &mut self,
        now_ms: u64,
        read: ReadId,
        (answer, took_us): (Option<&[OldRow]>, u64),
        overlay: &mut Overlay,
    ) {
        let Some(table) = self.tables.values_mut().find(|table| {
            let reading = table.reading.as_ref();
            reading.is_some_and(|reading| reading.read == read)
        }) else {
            return;
        };
        let Some(Reading { rows, .. }) = table.reading.take() else {
            return;
        };
        self.cost.time_us += took_us;
        match answer {
            Some(found) => tell(read, &rows, found, overlay),
            None => {
                self.cost.failed += 1;
                table.not_before_ms = now_ms + PAUSE_MS;
                let gathered = table.gathered.drain(..).map(|gathered| gathered.row);
                for row in rows.into_iter().chain(gathered) {
                    overlay.give_up(row);
                }
            }
        }
        if answer.is_some() && table.gathered.is_empty() {
            let id = table.mapped.id();
            self.tables.remove(&id);
        }
    }

    /// What has gathered need not be read; what is under way is not waited for.
    pub(super) fn give_up(&mut self) {
        for table in self.tables.values_mut() {
            table.gathered.clear();
            if let Some(reading) = &mut table.reading {
                self.cost.late += u64::from(!reading.late);
                reading.late = true;
            }
        }
    }

    /// What has gathered need not be read.
    pub(super) fn drop_gathered(&mut self) {
        for table in self.tables.values_mut() {
            table.gathered.clear();
        }
    }

    /// Nothing is under way any more.
    pub(super) fn clear(&mut self) {
        self.tables.clear();
    }
}

fn tell(read: ReadId, rows: &[u64], found: &[OldRow], overlay: &mut Overlay) {
    let mut gone = vec![true; rows.len()];
    for OldRow { place, hashes } in found {
        let (Some(row), Some(gone)) = (rows.get(*place), gone.get_mut(*place)) else {
            continue;
        };
        *gone = false;
        let old = hashes.as_deref().map_or(Old::Unknown, Old::Hashes);
        overlay.answer(read, *row, old);
    }
    for (row, _) in rows.iter().zip(gone).filter(|(_, gone)| *gone) {
        overlay.answer(read, *row, Old::Gone);
    }
}
