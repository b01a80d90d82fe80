//! What a failure means, and what is done about it.
//!
//! The cases, in the order in which they are looked at:
//!
//! 1. It says nothing about the unit (deadlock, shutdown, disk full…): again, after a pause; a unit
//!    that is not the head waits for its turn anyway.
//! 2. It is not a fact (rule 0): again, as the head.
//! 3. It may come from a changed table: the catalogue is read again first, once.
//! 4. The unit has several transactions: again, one by one, so that those before the failing one
//!    commit and the stop names one xid.
//! 5. It is a stop.

use std::sync::Arc;

use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::StopKind;

use super::Engine;
use super::outcome::Fallen;
use crate::action::{Action, Report, TakeOver};
use crate::binding::BuildError;
use crate::failure::{Failure, locate};
use crate::mapping::MappingError;
use crate::rule::{self, Cause, Verdict};
use crate::scheduler::WorkerId;
use crate::unit::{Ending, Transaction, UnitId};

/// A unit that is repeated, known by its oldest transaction.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    commit_lsn: Lsn,
    pub(super) cause: Cause,
    pub(super) since_ms: u64,
    pub(super) message: String,
    attempts: u32,
    not_before_ms: u64,
}

impl Engine {
    pub(super) fn failed(
        &mut self,
        now_ms: u64,
        (worker, run, unit): (WorkerId, u64, UnitId),
        failure: &Failure,
        actions: &mut Vec<Action>,
    ) {
        if self.pending.is_stale(worker, run) {
            return;
        }
        let Some(fallen) = self.pending.failed(worker, unit) else {
            return;
        };
        let Some(first) = fallen.unit.transactions.first() else {
            return;
        };
        let read_again = fallen.must_read_again;
        match verdict(failure) {
            Verdict::Desynchronized => self.take_over(TakeOver::OutcomeUnknown, actions),
            Verdict::Transient(cause) if !fallen.is_head => {
                self.count_retry(cause);
                self.read_again_if(read_again, actions);
            }
            Verdict::Transient(cause) => {
                if matches!(cause, Cause::LockTimeout | Cause::Deadlock) {
                    // Whose lock it was, nobody said in time: perhaps a later unit's.
                    self.clear_the_way(actions);
                }
                self.retry(now_ms, first, cause, failure.message(), actions);
                self.read_again_if(read_again, actions);
            }
            _ if !fallen.is_fact => {
                self.count_retry(Cause::NotHead);
                self.read_again_if(read_again, actions);
            }
            Verdict::Shape if self.shape_read_for != Some(first.commit_lsn) => {
                self.shape_read_for = Some(first.commit_lsn);
                self.count_retry(Cause::Shape);
                self.take_over(TakeOver::ShapeChanged, actions);
            }
            _ if fallen.unit.transactions.len() > 1 => self.pending.split_head(),
            Verdict::Shape => self.refuse(&fallen, failure, StopKind::SubscriberShape, actions),
            Verdict::Definite(kind) => self.refuse(&fallen, failure, kind, actions),
        }
    }

    fn read_again_if(&mut self, must: bool, actions: &mut Vec<Action>) {
        if must {
            self.take_over(TakeOver::ReadAgain, actions);
        }
    }

    fn refuse(
        &mut self,
        fallen: &Fallen,
        failure: &Failure,
        kind: StopKind,
        actions: &mut Vec<Action>,
    ) {
        let Some(transaction) = fallen.unit.transactions.first() else {
            return;
        };
        let stop = failure.stop(kind, &self.config.stream, transaction);
        self.stop(stop, actions);
    }

    /// The head cannot be mapped: read the catalogue again, then stop.
    pub(super) fn unmapped(
        &mut self,
        commit_lsn: Lsn,
        error: &Arc<MappingError>,
        actions: &mut Vec<Action>,
    ) {
        if self.shape_read_for != Some(commit_lsn) {
            self.shape_read_for = Some(commit_lsn);
            self.count_retry(Cause::Shape);
            self.take_over(TakeOver::ShapeChanged, actions);
            return;
        }
        let stop = match self
            .pending
            .head()
            .and_then(|(unit, _)| unit.transactions.first())
        {
            Some(transaction) => locate(error.stop(), &self.config.stream, transaction),
            None => error.stop(),
        };
        self.stop(stop, actions);
    }

    fn retry(
        &mut self,
        now_ms: u64,
        first: &Transaction,
        cause: Cause,
        message: String,
        actions: &mut Vec<Action>,
    ) {
        self.count_retry(cause);
        let before = self
            .retry
            .take()
            .filter(|retry| retry.commit_lsn == first.commit_lsn);
        let attempts = before.as_ref().map_or(0, |retry| retry.attempts) + 1;
        let pause_ms = self.config.back_off.pause_ms(attempts);
        if before.is_none() {
            actions.push(Action::Report(Report::Retrying {
                cause,
                xid: first.xid,
                commit_lsn: first.commit_lsn,
                message: message.clone(),
                pause_ms,
            }));
        }
        self.retry = Some(Retry {
            commit_lsn: first.commit_lsn,
            cause,
            since_ms: before.map_or(now_ms, |retry| retry.since_ms),
            message,
            attempts,
            not_before_ms: now_ms.saturating_add(pause_ms),
        });
    }

    pub(super) fn count_retry(&mut self, cause: Cause) {
        self.count_retries(cause, 1);
    }

    pub(super) fn count_retries(&mut self, cause: Cause, times: usize) {
        self.retries[cause as usize] += times as u64;
    }

    /// When a head that starts with that commit may be sent, if that is not yet.
    pub(super) fn retry_pause(&self, commit_lsn: Lsn, now_ms: u64) -> Option<u64> {
        let retry = self
            .retry
            .as_ref()
            .filter(|retry| retry.commit_lsn == commit_lsn)?;
        Some(retry.not_before_ms).filter(|not_before_ms| *not_before_ms > now_ms)
    }

    pub(super) fn recovered(&mut self, now_ms: u64, ending: &Ending, actions: &mut Vec<Action>) {
        let over = |retry: &mut Retry| retry.commit_lsn < ending.end_lsn;
        if let Some(retry) = self.retry.take_if(over) {
            actions.push(Action::Report(Report::Recovered {
                cause: retry.cause,
                attempts: retry.attempts,
                for_ms: now_ms.saturating_sub(retry.since_ms),
            }));
        }
    }
}

fn verdict(failure: &Failure) -> Verdict {
    match failure {
        Failure::Server { error, .. } => rule::verdict(&error.sqlstate),
        Failure::Missing { .. } => Verdict::Definite(StopKind::Conflict),
        Failure::Build {
            error: BuildError::Mapping(_),
            ..
        } => Verdict::Shape,
        Failure::Build { error, .. } => Verdict::Definite(error.stop().kind),
    }
}
