//! The window: transactions that are whole and wait to become units.
//!
//! It is a batching unit, not a wall: transactions leave it as soon as a worker has room, in the
//! order of the log. How many make one unit depends on how far the lane is behind: while all that
//! waits fits into the free places, each transaction is a unit of its own; behind, a unit takes as
//! many as count and bytes allow. Barriers, transactions that cannot be mapped, and links other
//! than transactions and messages stand alone.
//!
//! The last one may still be open (larger than the memory limit for a transaction); it grows here
//! until it is given to a worker.

use std::collections::VecDeque;

use walbraid_schemas::envelope::LinkKind;

use crate::state::{State, Step};
use crate::unit::{Extension, Transaction};

/// How large a unit may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Transactions in a unit; 1 keeps every commit of the publisher.
    pub transactions_max: usize,
    /// A unit takes no further transaction beyond this.
    pub bytes_max: usize,
}

/// Transactions waiting to become units.
#[derive(Debug, Default)]
pub struct Window {
    transactions: VecDeque<Waiting>,
    size_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    transaction: Transaction,
    state: State,
    alone: bool,
    size_bytes: usize,
}

impl Window {
    /// Adds the next transaction of the log. Only the last one may be open.
    pub fn push(&mut self, transaction: Transaction) {
        debug_assert!(!self.ends_open(), "a transaction behind an open one");
        let receiving = State::Receiving;
        let whole = transaction.ending.is_some();
        let state = if whole {
            receiving.after(Step::Whole)
        } else {
            Some(receiving)
        };
        let alone = stands_alone(&transaction);
        let size_bytes = transaction.size_bytes();
        self.size_bytes += size_bytes;
        let state = state.unwrap_or(receiving);
        self.transactions.push_back(Waiting {
            transaction,
            state,
            alone,
            size_bytes,
        });
    }

    /// True if the last transaction is still arriving.
    pub fn ends_open(&self) -> bool {
        self.transactions
            .back()
            .is_some_and(|last| last.state == State::Receiving)
    }

    /// Adds a piece to the open transaction.
    pub fn extend(&mut self, extension: Extension) {
        let Some(last) = self.transactions.back_mut() else {
            return;
        };
        debug_assert!(
            last.state == State::Receiving,
            "a piece for a whole transaction"
        );
        last.size_bytes += extension.piece.size_bytes();
        self.size_bytes += extension.piece.size_bytes();
        last.transaction.pieces.push(extension.piece);
        if extension.ending.is_some() {
            last.transaction.ending = extension.ending;
            last.state = last.state.after(Step::Whole).unwrap_or(State::Buffered);
        }
    }

    /// Takes the open transaction away: its run is void.
    pub fn drop_open(&mut self) {
        if self.ends_open()
            && let Some(last) = self.transactions.pop_back()
        {
            self.size_bytes -= last.size_bytes;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.transactions.clear();
        self.size_bytes = 0;
    }

    /// How many transactions wait.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Memory held.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Memory that the next unit would hold at least.
    pub fn next_bytes(&self) -> Option<usize> {
        self.transactions.front().map(|first| first.size_bytes)
    }

    /// First record of what waits.
    pub fn first_offset(&self) -> Option<i64> {
        self.transactions
            .front()
            .map(|first| first.transaction.first_offset)
    }

    /// The transaction at that place, the next one at 0.
    pub fn get(&self, place: usize) -> Option<&Transaction> {
        self.transactions.get(place).map(|one| &one.transaction)
    }

    /// The transactions of the next unit, of the first `ready`; `room` is how many more units may
    /// be unfinished.
    pub fn take(&mut self, limits: GroupLimits, room: usize, ready: usize) -> Vec<Transaction> {
        let behind = self.transactions.len() > room;
        let most = if behind {
            limits.transactions_max.clamp(1, ready.max(1))
        } else {
            1
        };
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < most
            && let Some(next) = self.transactions.front()
        {
            let fits = !next.alone && bytes + next.size_bytes <= limits.bytes_max;
            if !taken.is_empty() && !fits {
                break;
            }
            let alone = next.alone;
            let Some(next) = self.transactions.pop_front() else {
                break;
            };
            bytes += next.size_bytes;
            taken.push(next.transaction);
            if alone {
                break;
            }
        }
        self.size_bytes -= bytes;
        taken
    }
}

fn stands_alone(transaction: &Transaction) -> bool {
    let ordinary = matches!(transaction.kind, LinkKind::Transaction | LinkKind::Message);
    !ordinary
        || transaction.ending.is_none()
        || transaction.is_barrier()
        || transaction.mapping_error().is_some()
}
