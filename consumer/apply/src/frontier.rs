//! How far the lane is: what is committed, what of it is durable, which offset may be committed.
//!
//! **Frontier**: the newest unit with nothing uncommitted before it. **Durable frontier**: the part
//! of it whose commits the subscriber has flushed. **Offset**: the last record of the newest
//! durable unit, or the first record of anything still open, whichever is lower. It is that record
//! itself and not the one behind it: a reader that starts anew must see that it did not start too
//! late.

use std::collections::VecDeque;

use walbraid_schemas::chain::Position;
use walbraid_schemas::lsn::Lsn;

use crate::unit::{Ending, Unit};

/// A unit that is committed and not known to be durable.
#[derive(Debug)]
struct Mark {
    end_lsn: Lsn,
    last_offset: i64,
}

/// The marks of a lane.
#[derive(Debug)]
pub struct Frontier {
    applied: Lsn,
    durable: Lsn,
    durable_offset: Option<i64>,
    committed: VecDeque<Mark>,
    applied_commit_time_us: Option<i64>,
    transactions_applied: u64,
}

impl Frontier {
    /// Starts at what the subscriber has flushed.
    pub fn new(position: &Position) -> Self {
        Self {
            applied: position.end_lsn,
            durable: position.end_lsn,
            durable_offset: None,
            committed: VecDeque::new(),
            applied_commit_time_us: None,
            transactions_applied: 0,
        }
    }

    /// The head committed.
    pub fn committed(&mut self, unit: &Unit, ending: &Ending) {
        debug_assert!(ending.end_lsn > self.applied, "commits out of order");
        self.applied = ending.end_lsn;
        self.applied_commit_time_us = Some(ending.commit_time_us).filter(|time| *time != 0);
        self.transactions_applied += unit.transactions.len() as u64;
        let Ending {
            end_lsn,
            last_offset,
            ..
        } = *ending;
        self.committed.push_back(Mark {
            end_lsn,
            last_offset,
        });
    }

    /// The subscriber has flushed the commits up to this end LSN. An answer that is older
    /// than the last one says nothing new.
    pub fn flushed(&mut self, lsn: Lsn) {
        while let Some(mark) = self.committed.pop_front_if(|mark| mark.end_lsn <= lsn) {
            self.durable = mark.end_lsn;
            self.durable_offset = Some(mark.last_offset);
        }
    }

    /// End LSN of the newest committed unit.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// End LSN of the newest durable unit.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// True if every commit is durable.
    pub fn is_durable(&self) -> bool {
        self.committed.is_empty()
    }

    /// Commit time, on the publisher, of the newest committed transaction.
    pub fn applied_commit_time_us(&self) -> Option<i64> {
        self.applied_commit_time_us
    }

    /// Transactions committed since the start.
    pub fn transactions_applied(&self) -> u64 {
        self.transactions_applied
    }

    /// The offset that may be committed; `open` is the first record of what is not committed.
    pub fn offset(&self, open: Option<i64>) -> Option<i64> {
        let durable = self.durable_offset?;
        Some(open.map_or(durable, |open| open.min(durable)))
    }
}
