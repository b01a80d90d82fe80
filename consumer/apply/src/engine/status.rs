//! What can be told of a lane.

use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::Notice;

use super::{Engine, Phase, Tally};
use crate::resolver::Cost;
use crate::rule::Cause;
use crate::state::State;

/// A lane, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// End LSN of the newest committed transaction.
    pub applied_lsn: Lsn,
    /// End LSN of the newest transaction whose commit the subscriber has flushed.
    pub flushed_lsn: Lsn,
    /// Up to here the log holds nothing that was not read: a heartbeat said so, or a transaction.
    pub quiet_until_lsn: Lsn,
    /// Everything that was read is committed and flushed.
    pub is_drained: bool,
    /// Commit time, on the publisher, of the newest committed transaction of this run.
    pub applied_commit_time_us: Option<i64>,
    /// Transactions committed since the engine was made.
    pub transactions_applied: u64,
    /// Transactions that wait to become units.
    pub window_transactions: usize,
    /// Bytes read and not committed.
    pub buffered_bytes: usize,
    /// Units not committed.
    pub units: usize,
    /// Units that are with a worker.
    pub units_in_flight: usize,
    /// Workers that are given units.
    pub workers: usize,
    /// Time that a transaction keeps its connection busy, microseconds, averaged.
    pub transaction_us: Option<u64>,
    /// What reading old values has cost.
    pub old_values: Cost,
    /// State of the head.
    pub head: Option<State>,
    /// Why the producer stopped, as far as the log says so.
    pub notice: Option<Notice>,
    /// Why the head is repeated, if it is.
    pub waiting: Option<Waiting>,
    /// Repetitions by cause, in the order of [`Cause::ALL`].
    pub retries: [u64; Cause::ALL.len()],
}

/// A head that is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Why.
    pub cause: Cause,
    /// Since when, on the clock of `now_ms`.
    pub since_ms: u64,
    /// What the subscriber said.
    pub message: String,
}

impl Engine {
    /// What the analyzer said so far.
    pub fn tally(&self) -> &Tally {
        &self.pending.tally
    }

    /// The lane as it is now.
    pub fn status(&self) -> Status {
        let waiting = self.retry.as_ref().map(|retry| Waiting {
            cause: retry.cause,
            since_ms: retry.since_ms,
            message: retry.message.clone(),
        });
        let buffered_bytes = self.buffer.size_bytes()
            + self.window.size_bytes()
            + self.pending.stuck_bytes()
            + self.pending.loose_bytes();
        let is_drained = self.phase == Phase::Applying
            && self.window.is_empty()
            && self.pending.len() == 0
            && self.buffer.first_offset().is_none()
            && self.frontier.is_durable();
        Status {
            applied_lsn: self.frontier.applied(),
            flushed_lsn: self.frontier.durable(),
            quiet_until_lsn: self.buffer.quiet_until(),
            is_drained,
            applied_commit_time_us: self.frontier.applied_commit_time_us(),
            transactions_applied: self.transactions_before + self.frontier.transactions_applied(),
            window_transactions: self.window.len(),
            buffered_bytes,
            units: self.pending.len(),
            units_in_flight: self.pending.in_flight(),
            workers: self.pending.scheduler.effective(),
            transaction_us: self.pace.transaction_us(),
            old_values: self.pending.resolver.cost(),
            head: self.pending.head().map(|(_, state)| state),
            notice: self.buffer.notice().cloned(),
            waiting,
            retries: self.retries,
        }
    }
}
