//! Random rows, writes, commits and reads against a model of the subscriber: the overlay may not
//! know, but it is never wrong.
//!
//! A read sees the subscriber after any transaction between the last one that had returned when it
//! was begun and the last one that was sent when it is answered.

use std::collections::{BTreeMap, VecDeque};

use walbraid_apply::footprint::{NewRow, Old, OldValues, SpaceId};
use walbraid_apply::resolver::Overlay;
use walbraid_schemas::Lsn;

const SPACE: SpaceId = SpaceId(7);
const SEEDS: u64 = 3_000;
const TRANSACTIONS: usize = 60;

/// Rows and what they hold; a row that is not there is gone.
type Rows = BTreeMap<u64, Option<u64>>;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

#[derive(Clone, Debug)]
enum Change {
    /// The row holds this; `told` unless it could not be said.
    Set(u64, Option<u64>, bool),
    Delete(u64),
    /// Rows are changed and nobody tells which; what the same transaction sets behind it may be
    /// changed too.
    Anything,
}

struct Read {
    read: u64,
    rows: Vec<u64>,
    returned: usize,
}

struct World {
    random: Random,
    log: Vec<Vec<Change>>,
    /// The subscriber after so many transactions.
    after: Vec<Rows>,
    overlay: Overlay,
    scanned: VecDeque<Vec<u64>>,
    wanted: Vec<u64>,
    reads: Vec<Read>,
    last_read: u64,
    /// Reads are answered so much more seldom.
    slow: usize,
    analysed: usize,
    sent: usize,
    returned: usize,
    known: u64,
    unknown: u64,
}

fn place(transaction: usize) -> Lsn {
    Lsn(1_000 + 10 * transaction as u64)
}

/// Where the first so many end.
fn end(transactions: usize) -> Lsn {
    Lsn(1_000 + 10 * transactions as u64 - 5)
}

fn some_value(random: &mut Random) -> Option<u64> {
    Some(random.below(5) as u64).filter(|value| *value > 0)
}

fn log(random: &mut Random) -> (Vec<Vec<Change>>, Vec<Rows>) {
    let rows = 1 + random.below(6);
    let forgetful = [usize::MAX, 25, 6][random.below(3)];
    let mut log = Vec::new();
    let mut after = vec![Rows::new()];
    for _ in 0..TRANSACTIONS {
        let mut now = after[after.len() - 1].clone();
        let mut changes = Vec::new();
        let mut believed = true;
        for _ in 0..1 + random.below(3) {
            let row = random.below(rows) as u64;
            if forgetful != usize::MAX && random.one_in(forgetful) {
                for _ in 0..random.below(3) {
                    now.insert(random.below(rows) as u64, some_value(random));
                }
                believed = false;
                changes.push(Change::Anything);
            } else if random.one_in(4) {
                now.remove(&row);
                changes.push(Change::Delete(row));
            } else {
                let value = some_value(random);
                let made = if believed { value } else { some_value(random) };
                now.insert(row, made);
                changes.push(Change::Set(row, value, !random.one_in(10)));
            }
        }
        log.push(changes);
        after.push(now);
    }
    (log, after)
}

fn with(mut rows: Rows, row: u64, held: Option<Option<u64>>) -> Rows {
    match held {
        Some(value) => rows.insert(row, value),
        None => rows.remove(&row),
    };
    rows
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (log, after) = log(&mut random);
        let slow = 1 + random.below(6);
        Self {
            slow,
            random,
            log,
            after,
            overlay: Overlay::new(end(0), 1_000),
            scanned: VecDeque::new(),
            wanted: Vec::new(),
            reads: Vec::new(),
            last_read: 0,
            analysed: 0,
            sent: 0,
            returned: 0,
            known: 0,
            unknown: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=3 => self.scan(),
            4..=5 => self.begin(),
            6..=7 if self.random.one_in(self.slow) => self.answer(),
            8..=10 => self.analyse(),
            11..=12 => self.sent = self.analysed.min(self.sent + 1 + self.random.below(2)),
            13..=14 if self.returned < self.sent => {
                self.returned += 1;
                self.overlay.applied(end(self.returned));
            }
            15 if self.random.one_in(30) => self.overlay.give_up_all(),
            15 if self.random.one_in(60) => self.take_over(),
            _ => {}
        }
    }

    fn scan(&mut self) {
        let Some(changes) = self.log.get(self.analysed + self.scanned.len()) else {
            return;
        };
        let mut rows = Vec::new();
        for change in changes {
            if let Change::Set(row, ..) | Change::Delete(row) = change {
                rows.push(*row);
                if self.overlay.want(*row) {
                    self.wanted.push(*row);
                }
            }
        }
        self.scanned.push_back(rows);
    }

    fn begin(&mut self) {
        if self.overlay.is_blind() {
            return;
        }
        let read = self.last_read + 1;
        let count = self.random.below(self.wanted.len() + 1);
        let rows = self.wanted.drain(..count);
        let rows: Vec<u64> = rows.filter(|row| self.overlay.ask(read, *row)).collect();
        if rows.is_empty() {
            return;
        }
        self.last_read = read;
        let returned = self.returned;
        self.reads.push(Read {
            read,
            rows,
            returned,
        });
    }

    fn answer(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let number = self.random.below(self.reads.len());
        let read = self.reads.remove(number);
        let seen = read.returned + self.random.below(self.sent - read.returned + 1);
        if !self.random.one_in(10) {
            for row in read.rows {
                let held = self.after[seen].get(&row).map(|value| [*value]);
                let old = held.as_ref().map_or(Old::Gone, |value| Old::Hashes(value));
                self.overlay.answer(read.read, row, old);
            }
        }
    }

    fn analyse(&mut self) {
        let Some(rows) = self.scanned.pop_front() else {
            return;
        };
        let place = place(self.analysed);
        let mut now = Some(self.after[self.analysed].clone());
        for change in self.log[self.analysed].clone() {
            match change {
                Change::Set(row, value, told) => {
                    self.check(place, row, now.as_ref());
                    now = now.map(|now| with(now, row, Some(value)));
                    let value = [value];
                    let new = match told {
                        true => NewRow::Hashes(&value),
                        false => NewRow::Unknown,
                    };
                    self.overlay.at(place).write(SPACE, row, new);
                }
                Change::Delete(row) => {
                    self.check(place, row, now.as_ref());
                    now = now.map(|now| with(now, row, None));
                    self.overlay.at(place).write(SPACE, row, NewRow::Gone);
                }
                Change::Anything => {
                    self.overlay.at(place).forget();
                    now = None;
                }
            }
        }
        for row in rows {
            self.overlay.unwant(row);
        }
        self.analysed += 1;
        if self.overlay.has_forgotten() {
            self.scanned.clear();
            self.wanted.clear();
        }
    }

    /// `now` is the rows before the change, as far as that can be told.
    fn check(&mut self, place: Lsn, row: u64, now: Option<&Rows>) {
        let Some(now) = now else {
            assert_eq!(self.overlay.at(place).old(SPACE, row), Old::Unknown);
            return;
        };
        let held = now.get(&row).map(|value| [*value]);
        match self.overlay.at(place).old(SPACE, row) {
            Old::Unknown => self.unknown += 1,
            Old::Gone => {
                self.known += 1;
                assert_eq!(held, None, "row {row} at {place:?}");
            }
            Old::Hashes(hashes) => {
                self.known += 1;
                let held = held.as_ref().map(|held| &held[..]);
                assert_eq!(held, Some(hashes), "row {row} at {place:?}");
            }
        }
    }

    /// What was sent and not seen to return may or may not have committed.
    fn take_over(&mut self) {
        let unseen = self.sent - self.returned;
        self.returned += self.random.below(unseen + 1);
        (self.sent, self.analysed) = (self.returned, self.returned);
        self.overlay.restart(end(self.returned));
        self.scanned.clear();
        self.wanted.clear();
        self.reads.clear();
    }

    fn finish(&mut self) {
        while self.analysed < TRANSACTIONS {
            self.scan();
            self.analyse();
        }
        self.overlay.applied(end(TRANSACTIONS));
        assert!(
            self.overlay.is_empty(),
            "{} rows are kept",
            self.overlay.len()
        );
    }
}

#[test]
fn the_overlay_is_never_wrong() {
    let (mut known, mut unknown) = (0, 0);
    for seed in 1..=SEEDS {
        let story = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new(seed);
            while world.analysed < TRANSACTIONS {
                world.step();
            }
            world.finish();
            (world.known, world.unknown)
        });
        match std::panic::catch_unwind(story) {
            Ok(counts) => {
                known += counts.0;
                unknown += counts.1;
            }
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(known > unknown, "{known} known, {unknown} unknown");
}
