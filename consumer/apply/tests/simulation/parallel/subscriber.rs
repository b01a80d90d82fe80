//! What the subscriber holds: its tables, and the commits that the lane made, the last of which may
//! not be flushed.

use walbraid_schemas::chain::Position;

use super::heap::{Heap, Undo};
use super::server::Server;
use super::world::World;
use crate::log::{INCARNATION, START};
use crate::random::Random;

struct Commitment {
    links: usize,
    position: Position,
    undo: Vec<Undo>,
}

/// What the subscriber holds.
pub struct Subscriber {
    pub server: Server,
    commits: Vec<Commitment>,
    flushed: usize,
    /// Transactions applied.
    pub applied: usize,
    /// Refused until somebody mends it: a transaction, and which of its changes.
    pub poison: Option<(u32, usize)>,
    pub strict: bool,
}

impl Subscriber {
    pub fn new(server: Server, strict: bool) -> Self {
        Self {
            server,
            commits: Vec::new(),
            flushed: 0,
            applied: 0,
            poison: None,
            strict,
        }
    }

    pub fn position(&self) -> Position {
        match self.commits.last() {
            None => Position::start(INCARNATION, START),
            Some(commit) => commit.position,
        }
    }

    pub fn durable(&self) -> Position {
        match self.flushed.checked_sub(1) {
            None => Position::start(INCARNATION, START),
            Some(last) => self.commits[last].position,
        }
    }

    /// A target transaction committed; it must be the next one.
    pub fn committed(&mut self, xids: &[u32], position: Position, undo: Vec<Undo>) {
        let wanted = (0..xids.len()).map(|next| 1_000 + (self.applied + next) as u32);
        assert!(wanted.eq(xids.iter().copied()), "out of order: {xids:?}");
        self.applied += xids.len();
        self.commits.push(Commitment {
            links: xids.len(),
            position,
            undo,
        });
    }

    pub fn flush(&mut self) {
        for commit in &mut self.commits[self.flushed..] {
            commit.undo.clear();
        }
        self.flushed = self.commits.len();
    }

    /// Stops at once: the newest commits that were not flushed are gone, as many as it likes.
    pub fn crash(&mut self, random: &mut Random) {
        self.server.end_all();
        let volatile = self.commits.len() - self.flushed;
        let kept = self.flushed + random.below(volatile + 1);
        for commit in self.commits.drain(kept..).rev() {
            self.applied -= commit.links;
            self.server.heap.take_back(commit.undo);
        }
        self.flush();
    }

    /// A person makes the tables what they should be.
    pub fn mend(&mut self, world: &World) {
        self.poison = None;
        self.flush();
        self.server.heap = Heap::new(world);
    }
}
