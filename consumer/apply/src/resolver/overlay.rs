//! What rows hold, as far as it is known: what was read from the subscriber, and over it what the
//! changes in flight make of it.
//!
//! Places in the log are commit LSNs. A transaction has **returned** when the subscriber's progress
//! is beyond its place. The overlay is asked and told in the order of the log; an answer is what
//! the row holds just before the transaction that asks. Why it is:
//!
//! 1. Commits are in order, so what a read sees is the subscriber after some transaction p of the
//!    log: p is not before the last one that had returned when the read was begun, and not behind
//!    the last one that was sent. Every transaction up to p was analysed before.
//! 2. What a transaction makes of a row is entered when it is analysed, over anything else, and a
//!    value that was read never replaces it. So where there is such an entry, it is the newest.
//! 3. An entry goes no sooner than its transaction has returned. So a row without one is read by a
//!    read that sees all that was made of it and is analysed by then.
//! 4. The answer counts only if the row has waited for this very read ever since: whatever was
//!    entered meanwhile has ended that, and so has its going again, after which the row is read
//!    anew. So no read outlives an entry that it may not have seen.
//! 5. Whatever may change rows without telling which ([`OldValues::forget`], a unit of which
//!    nothing is told) empties the overlay, so that no row waits for a read under way. Until it has
//!    returned nothing is read, and what its own transaction tells is not believed.
//!
//! A unit that is rolled back and runs again changes nothing of this: it returns before any unit
//! behind it. What others write to the subscriber is not seen: then an answer is wrong, a unit that
//! is not the head may fail or wait for it, and rule 0 has it run again in order.
//!
//! **Memory.** An entry goes when its transaction has returned, or it was read, and no waiting
//! transaction wants the row any more. There are at most `rows_max`: beyond, all is forgotten.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use walbraid_schemas::lsn::Lsn;

use crate::conflict::AsItIs;
use crate::footprint::{NewRow, Old, OldValues, SpaceId};

/// Number of a read.
pub type ReadId = u64;

/// What a row holds in the indexes that ask for it; mostly that is one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hashes {
    One([Option<u64>; 1]),
    Many(Box<[Option<u64>]>),
}

impl Hashes {
    fn of(hashes: &[Option<u64>]) -> Self {
        match hashes {
            [hash] => Self::One([*hash]),
            hashes => Self::Many(hashes.into()),
        }
    }

    fn as_slice(&self) -> &[Option<u64>] {
        match self {
            Self::One(hash) => hash,
            Self::Many(hashes) => hashes,
        }
    }
}

/// What is known of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// It is to be read.
    Wanted,
    /// It is being read.
    Asked(ReadId),
    /// Nothing, and nobody waits for it.
    Unknown,
    /// There is no such row.
    Gone,
    Held(Hashes),
}

#[derive(Debug)]
struct Row {
    known: Known,
    /// The place of the transaction that made it so; none if it was read, or that has returned.
    written: Option<Lsn>,
    /// Waiting transactions that want it, each time they do.
    interest: u32,
}

/// Rows of tables whose old values are not on the wire.
#[derive(Debug)]
pub struct Overlay {
    rows: HashMap<u64, Row, BuildHasherDefault<AsItIs>>,
    /// Entries of transactions, in order.
    written: VecDeque<(Lsn, u64)>,
    /// End of what has returned.
    applied: Lsn,
    /// The place of the last one that may have changed any row, until it has returned.
    blind: Option<Lsn>,
    /// The place of the transaction that asks and tells.
    place: Lsn,
    rows_max: usize,
    forgot: bool,
    unknown: u64,
}

impl Overlay {
    /// Nothing is known yet; everything up to `applied` has returned.
    pub fn new(applied: Lsn, rows_max: usize) -> Self {
        Self {
            rows: HashMap::default(),
            written: VecDeque::new(),
            applied,
            blind: None,
            place: Lsn::INVALID,
            rows_max,
            forgot: false,
            unknown: 0,
        }
    }

    /// Begins anew, where everything up to `applied` has returned and nothing is in flight.
    pub fn restart(&mut self, applied: Lsn) {
        self.clear();
        self.applied = applied;
        self.blind = None;
        self.forgot = false;
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.written.clear();
    }

    /// A waiting transaction wants the row. True if the row is to be read for it.
    pub fn want(&mut self, key: u64) -> bool {
        let applied = self.applied;
        let row = self.rows.entry(key).or_insert(Row {
            known: Known::Unknown,
            written: None,
            interest: 0,
        });
        row.interest += 1;
        let first = row.interest == 1 && row.written.is_none();
        let returned = row.written.is_some_and(|place| place < applied);
        let wanted = row.known == Known::Unknown && (first || returned);
        if wanted {
            row.known = Known::Wanted;
            row.written = None;
        }
        wanted
    }

    /// A transaction that wanted the row does not wait any more.
    pub fn unwant(&mut self, key: u64) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.interest = row.interest.saturating_sub(1);
            if row.interest == 0 && row.written.is_none() {
                self.rows.remove(&key);
            }
        }
    }

    /// The row is not going to be read.
    pub fn give_up(&mut self, key: u64) {
        if let Some(row) = self.rows.get_mut(&key)
            && matches!(row.known, Known::Wanted | Known::Asked(_))
        {
            row.known = Known::Unknown;
        }
    }

    /// No row is going to be read.
    pub fn give_up_all(&mut self) {
        for row in self.rows.values_mut() {
            if matches!(row.known, Known::Wanted | Known::Asked(_)) {
                row.known = Known::Unknown;
            }
        }
    }

    /// True if no answer is waited for.
    pub fn is_settled(&self, key: u64) -> bool {
        let waits = |row: &Row| matches!(row.known, Known::Wanted | Known::Asked(_));
        !self.rows.get(&key).is_some_and(waits)
    }

    /// True if a read would be in vain: any row may be changed by what has not returned.
    pub fn is_blind(&self) -> bool {
        self.blind.is_some()
    }

    /// The row is read by a read that is sent now. False if it need not be read any more.
    pub fn ask(&mut self, read: ReadId, key: u64) -> bool {
        debug_assert!(!self.is_blind(), "a read that says nothing");
        match self.rows.get_mut(&key) {
            Some(row) if row.known == Known::Wanted => {
                row.known = Known::Asked(read);
                true
            }
            _ => false,
        }
    }

    /// What a read says of a row.
    pub fn answer(&mut self, read: ReadId, key: u64, old: Old<'_>) {
        if let Some(row) = self.rows.get_mut(&key)
            && row.known == Known::Asked(read)
        {
            row.known = match old {
                Old::Unknown => Known::Unknown,
                Old::Gone => Known::Gone,
                Old::Hashes(hashes) => Known::Held(Hashes::of(hashes)),
            };
        }
    }

    /// Everything up to that end has returned.
    pub fn applied(&mut self, applied: Lsn) {
        self.applied = applied;
        self.blind.take_if(|blind| *blind < applied);
        while let Some((place, key)) = self.written.pop_front_if(|(place, _)| *place < applied) {
            if let Some(row) = self.rows.get_mut(&key)
                && row.written == Some(place)
            {
                row.written = None;
                if row.interest == 0 {
                    self.rows.remove(&key);
                }
            }
        }
    }

    /// A transaction that ends its log's part at that place is not told of, row by row.
    pub fn pass(&mut self, place: Lsn) {
        self.place = place;
        self.forget();
    }

    /// The overlay as the transaction at that place asks and tells it.
    pub fn at(&mut self, place: Lsn) -> &mut Self {
        self.place = place;
        self
    }

    /// True if everything was forgotten since this was asked: rows are to be wanted anew.
    pub fn has_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.forgot)
    }

    /// How often a value was asked for that was not known.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Rows of which something is kept.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl OldValues for Overlay {
    fn old(&mut self, _: SpaceId, row_key: u64) -> Old<'_> {
        match self.rows.get(&row_key).map(|row| &row.known) {
            Some(Known::Gone) => Old::Gone,
            Some(Known::Held(hashes)) => Old::Hashes(hashes.as_slice()),
            Some(Known::Wanted | Known::Asked(_) | Known::Unknown) | None => {
                self.unknown += 1;
                Old::Unknown
            }
        }
    }

    fn write(&mut self, _: SpaceId, row_key: u64, new: NewRow<'_>) {
        if self.blind == Some(self.place) {
            return;
        }
        if self.rows.len() >= self.rows_max && !self.rows.contains_key(&row_key) {
            return self.forget();
        }
        let known = match new {
            NewRow::Unknown => Known::Unknown,
            NewRow::Gone => Known::Gone,
            NewRow::Hashes(hashes) => Known::Held(Hashes::of(hashes)),
        };
        let row = self.rows.entry(row_key).or_insert(Row {
            known: Known::Unknown,
            written: None,
            interest: 0,
        });
        row.known = known;
        if row.written.replace(self.place) != Some(self.place) {
            self.written.push_back((self.place, row_key));
        }
    }

    fn forget(&mut self) {
        self.clear();
        self.blind = Some(self.place).filter(|place| *place >= self.applied);
        self.forgot = true;
    }
}
