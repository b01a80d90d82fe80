//! A publisher: its WAL, and the slot.
//!
//! The WAL holds things that end transactions; each is seen in some views (publication and
//! options) and not in others. The slot has one holder; its confirmed LSN moves with the holder's
//! confirmations and can fall back to an older one when the server crashes.

use walbraid_schemas::Lsn;

use crate::random::Random;

pub(crate) const VIEWS: u64 = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) commit: Lsn,
    pub(crate) end: Lsn,
    pub(crate) rows: usize,
    views: u64,
}

impl Event {
    pub(crate) fn is_in(&self, view: u64) -> bool {
        self.views & (1 << view) != 0
    }
}

#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) start: Lsn,
    pub(crate) wal: Vec<Event>,
    pub(crate) wal_end: Lsn,
    pub(crate) holder: Option<usize>,
    pub(crate) confirmed: Lsn,
    confirmed_before: Vec<Lsn>,
}

impl Publisher {
    pub(crate) fn new() -> Publisher {
        let start = Lsn(0x100);
        Publisher {
            start,
            wal: Vec::new(),
            wal_end: start,
            holder: None,
            confirmed: start,
            confirmed_before: Vec::new(),
        }
    }

    pub(crate) fn grow(&mut self, random: &mut Random) {
        let commit = Lsn(self.wal_end.0 + random.below(3) * 8);
        let end = Lsn(commit.0 + 1 + random.below(16));
        let views = if random.chance(60) {
            u64::MAX
        } else {
            random.next()
        };
        self.wal.push(Event {
            commit,
            end,
            rows: 1 + random.index(5),
            views,
        });
        self.wal_end = Lsn(end.0 + random.below(2) * 8);
    }

    pub(crate) fn confirm(&mut self, lsn: Lsn) {
        if lsn > self.confirmed {
            self.confirmed_before.push(self.confirmed);
            self.confirmed = lsn;
        }
    }

    /// The server crashes: walsenders end, and the slot is as it was last written to disk.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        self.holder = None;
        for _ in 0..random.below(3) {
            self.confirmed = self.confirmed_before.pop().unwrap_or(self.confirmed);
        }
    }

    /// What ended in `(from, to]` in a view.
    pub(crate) fn seen(&self, view: u64, from: Lsn, to: Lsn) -> Vec<Event> {
        let seen = self
            .wal
            .iter()
            .filter(|event| event.end > from && event.end <= to);
        seen.filter(|event| event.is_in(view)).copied().collect()
    }
}
