//! The key resolver: old values of what waits in the window, read from the subscriber before the
//! conflict keys are made.
//!
//! Under REPLICA IDENTITY DEFAULT the wire does not tell which values of its other unique indexes a
//! row gives up, and whoever takes a value of such an index would have to wait for it. So while
//! several workers apply, the rows that waiting transactions change are read from the subscriber,
//! many at a time, and what the changes in flight make of them is laid over ([`overlay`], where it
//! is written down why an answer is right). A unit is formed of transactions whose rows were
//! answered. What cannot be known in time is unknown: right, and serial.
//!
//! Owned here: which rows are wanted, what is read when, and who waits for it. Not owned: what a
//! change touches ([`crate::footprint`]); the session that reads (the shell's).
//!
//! **Nobody waits in vain.** Nothing here runs while one worker applies, nor for a transaction that
//! is alone. A lane that is held by reads for `HOLD_MS` goes on without them, and so does the table
//! until they have ended. A read that failed is not waited for, nor tried again at once.
//!
//! **Walls.** Transactions are looked through in the order of the log, and no further than one that
//! will make worthless what was read (a TRUNCATE, a trigger) or that is not looked through (too
//! large): what stands behind is looked through when it has been analysed.
//!
//! **Memory.** At most `ROWS_AHEAD_MAX` rows are wanted ahead, but for those of one transaction.

mod overlay;
pub mod query;
mod reads;

use std::collections::VecDeque;

use walbraid_schemas::lsn::Lsn;

pub use overlay::{Overlay, ReadId};
pub use query::{Query, query};

use self::reads::Reads;
use crate::action::Action;
use crate::footprint::{NoOldValues, OldValues, ask};
use crate::unit::{Piece, Transaction, Unit};
use crate::window::Window;

/// Rows that are wanted at a time by transactions that wait.
const ROWS_AHEAD_MAX: usize = 8_192;

/// How long the lane waits for reads while it could go on without.
const HOLD_MS: u64 = 1_000;

/// A row that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldRow {
    /// Place of its key in the read.
    pub place: usize,
    /// What it holds ([`crate::footprint::old_row`]).
    pub hashes: Option<Box<[Option<u64>]>>,
}

/// What reading old values has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reads.
    pub reads: u64,
    /// Rows that were asked for.
    pub rows: u64,
    /// Reads that failed.
    pub failed: u64,
    /// Reads that were not waited for to their end.
    pub late: u64,
    /// Time that the subscriber took to answer, microseconds.
    pub time_us: u64,
    /// Changes whose old values were still not known.
    pub unknown: u64,
}

/// A waiting transaction and the rows it wants.
#[derive(Debug)]
struct Item {
    number: u64,
    rows: Vec<u64>,
}

/// The key resolver of a lane.
#[derive(Debug)]
pub struct Resolver {
    enabled: bool,
    /// A transaction larger than this is not looked through.
    transaction_bytes_max: usize,
    overlay: Overlay,
    reads: Reads,
    /// Waiting transactions that want rows, in order.
    items: VecDeque<Item>,
    /// Of the items, the first ones whose rows are all answered.
    settled: usize,
    /// Rows that the items want.
    rows: usize,
    /// Number of the window's first transaction.
    front: u64,
    /// Transactions of the window that were looked through.
    scanned: usize,
    /// What stands behind those is a wall.
    wall: bool,
    held_since_ms: Option<u64>,
    scratch: ask::Scratch,
    nothing: NoOldValues,
}

impl Resolver {
    /// A resolver that keeps at most that many rows.
    pub fn new(enabled: bool, rows_max: usize, transaction_bytes_max: usize) -> Self {
        Self {
            enabled,
            transaction_bytes_max,
            overlay: Overlay::new(Lsn::INVALID, rows_max),
            reads: Reads::default(),
            items: VecDeque::new(),
            settled: 0,
            rows: 0,
            front: 0,
            scanned: 0,
            wall: false,
            held_since_ms: None,
            scratch: ask::Scratch::default(),
            nothing: NoOldValues,
        }
    }

    /// Begins anew, where everything up to `applied` has returned and nothing is in flight.
    pub fn restart(&mut self, applied: Lsn) {
        self.overlay.restart(applied);
        self.reads.clear();
        self.start_over();
    }

    fn start_over(&mut self) {
        self.reads.drop_gathered();
        self.items.clear();
        (self.settled, self.rows, self.scanned) = (0, 0, 0);
        self.wall = false;
        self.held_since_ms = None;
    }

    /// Old values are resolved, where several workers apply.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Nobody wants anything: one worker applies.
    pub fn rest(&mut self) {
        if self.scanned > 0 || self.wall || !self.overlay.is_empty() {
            self.overlay.forget();
            self.overlay.has_forgotten();
            self.start_over();
        }
    }

    /// Looks through what waits, sends what is to be read, and says how many of the window's first
    /// transactions may be analysed now.
    pub fn ready(&mut self, now_ms: u64, window: &Window, actions: &mut Vec<Action>) -> usize {
        self.scan(now_ms, window);
        if !self.overlay.is_blind() {
            self.reads.send(&mut self.overlay, actions);
        }
        while let Some(item) = self.items.get(self.settled) {
            if !item.rows.iter().all(|&row| self.overlay.is_settled(row)) {
                break;
            }
            self.settled += 1;
        }
        let ready = match self.items.get(self.settled) {
            Some(item) => (item.number - self.front) as usize,
            None => self.scanned.max(usize::from(self.wall)),
        };
        if ready > 0 {
            self.held_since_ms = None;
        }
        ready
    }

    fn scan(&mut self, now_ms: u64, window: &Window) {
        while !self.wall
            && self.rows < ROWS_AHEAD_MAX
            && let Some(transaction) = window.get(self.scanned)
        {
            if self.is_wall(transaction) {
                self.wall = true;
                return;
            }
            let mut rows = Vec::new();
            for piece in &transaction.pieces {
                self.want(now_ms, piece, &mut rows);
            }
            if !rows.is_empty() {
                self.rows += rows.len();
                let number = self.front + self.scanned as u64;
                self.items.push_back(Item { number, rows });
            }
            self.scanned += 1;
        }
    }

    fn is_wall(&self, transaction: &Transaction) -> bool {
        transaction.ending.is_none()
            || transaction.is_barrier()
            || transaction.mapping_error().is_some()
            || transaction.size_bytes() > self.transaction_bytes_max
            || transaction.pieces.iter().any(|piece| forgets(piece))
    }

    /// The rows of a piece that are wanted.
    fn want(&mut self, now_ms: u64, piece: &Piece, rows: &mut Vec<u64>) {
        let mut mapped = piece.targets().iter().flatten();
        if !mapped.any(|mapped| mapped.conflict().asks()) {
            return;
        }
        for change in piece.changes() {
            let Some((mapped, tuple)) = ask::asked(change, piece.targets()) else {
                continue;
            };
            let Some(row) = ask::row_key(mapped, tuple, &mut self.scratch) else {
                continue;
            };
            rows.push(row);
            if !self.overlay.want(row) {
                continue;
            }
            let may = self.reads.may_gather(mapped, now_ms);
            let scratch = &mut self.scratch;
            match may
                .then(|| ask::key_texts(mapped, tuple, scratch))
                .flatten()
            {
                Some(texts) => self.reads.gather(mapped, row, texts),
                None => self.overlay.give_up(row),
            }
        }
    }

    /// The lane could go on, were it not for a read. True if it goes on without.
    pub fn hold(&mut self, now_ms: u64) -> bool {
        let since_ms = *self.held_since_ms.get_or_insert(now_ms);
        if now_ms < since_ms + HOLD_MS {
            return false;
        }
        self.held_since_ms = None;
        self.reads.give_up();
        self.overlay.give_up_all();
        true
    }

    /// Until when the lane waits for a read, if it does.
    pub fn until_ms(&self) -> Option<u64> {
        self.held_since_ms.map(|since_ms| since_ms + HOLD_MS)
    }

    /// What knows the old values of a transaction that is analysed.
    pub fn at(&mut self, transaction: &Transaction) -> &mut dyn OldValues {
        match self.enabled {
            true => self.overlay.at(transaction.commit_lsn),
            false => &mut self.nothing,
        }
    }

    /// A unit of which nothing is told.
    pub fn pass(&mut self, unit: &Unit) {
        if let Some(last) = unit.transactions.last() {
            self.overlay.pass(last.commit_lsn);
        }
    }

    /// So many of the window's transactions were analysed.
    pub fn taken(&mut self, transactions: usize) {
        self.held_since_ms = None;
        self.front += transactions as u64;
        self.scanned = self.scanned.saturating_sub(transactions);
        self.wall = false;
        while let Some(item) = self.items.pop_front_if(|item| item.number < self.front) {
            self.settled = self.settled.saturating_sub(1);
            self.rows -= item.rows.len();
            for row in item.rows {
                self.overlay.unwant(row);
            }
        }
        if self.overlay.has_forgotten() {
            self.start_over();
        }
    }

    /// The answer to a read; none if it failed.
    pub fn answered(&mut self, now_ms: u64, read: ReadId, answer: Option<&[OldRow]>, took_us: u64) {
        let answer = (answer, took_us);
        self.reads.answered(now_ms, read, answer, &mut self.overlay);
    }

    /// Everything up to that end has returned.
    pub fn applied(&mut self, applied: Lsn) {
        self.overlay.applied(applied);
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        Cost {
            unknown: self.overlay.unknown(),
            ..self.reads.cost
        }
    }
}

/// True if a change of the piece makes worthless what was read before.
fn forgets(piece: &Piece) -> bool {
    let mut mapped = piece.targets().iter().flatten();
    mapped.any(|mapped| mapped.conflict().alone().next().is_some())
        && piece
            .changes()
            .iter()
            .any(|change| ask::forgets(change, piece.targets()))
}
