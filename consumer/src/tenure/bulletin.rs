//! What a tenure tells others: the flusher, the lane's row, metrics, the group, the log.

use std::time::{Duration, Instant, SystemTime};

use walbraid_apply::action::Report;
use walbraid_apply::engine::Status;
use walbraid_apply::rule::Cause;
use walbraid_schemas::lsn::Lsn;

use super::Tenure;
use crate::explain::Explained;
use crate::flusher::Applied;
use crate::lane::Lane;
use crate::state::LaneState;

/// How often the row and the metrics are brought up to date.
pub(super) const STATUS_MS: u64 = 200;

/// A tenure that has read and applied for so long is a success.
const GOOD_MS: u64 = 2_000;

/// How often what transactions waited for is summed up.
const EXPLAIN_MS: u64 = 1_000;

/// How often an offset is committed.
const OFFSET_MS: u64 = 1_000;

impl Tenure {
    /// Brings row, metrics, flusher and offset up to date.
    pub(super) fn tell(&mut self, lane: &mut Lane) {
        if self.end.is_some() {
            // The engine has thrown away what it had: it would look drained.
            return;
        }
        let status = self.engine.status();
        if self.applied.borrow().lsn < status.applied_lsn {
            self.tell_applied(status.applied_lsn);
        }
        if self.status_at.elapsed() >= Duration::from_millis(STATUS_MS) {
            self.status_at = Instant::now();
            self.tell_status(lane, &status);
            self.recorder.look(&mut self.engine, lane.now_ms());
            if self.reading.is_some() && self.began.elapsed() >= Duration::from_millis(GOOD_MS) {
                lane.retry.worked();
            }
            self.watch_workers();
        }
        if self.explained_at.elapsed() >= Duration::from_millis(EXPLAIN_MS) {
            self.explain(lane);
        }
        if self.offset_committed_at.elapsed() >= Duration::from_millis(OFFSET_MS) {
            self.offset_committed_at = Instant::now();
            self.commit_offset(lane);
        }
    }

    /// Sums up what transactions waited for.
    pub(super) fn explain(&mut self, lane: &mut Lane) {
        self.explained_at = Instant::now();
        lane.dependence.count(self.engine.tally());
        let explained = Explained::of(&self.engine, lane.config.apply.resolver);
        self.explained.send_if_modified(|told| {
            let is_news = *told != explained;
            *told = explained;
            is_news
        });
    }

    pub(super) fn tell_applied(&self, lsn: Lsn) {
        if let Some(origin) = self.pool.origin(self.last_worker) {
            self.applied.send_replace(Applied { origin, lsn });
        }
    }

    fn tell_status(&mut self, lane: &Lane, status: &Status) {
        let metrics = &lane.metrics;
        metrics.applied_lsn.set(status.applied_lsn.0);
        metrics.flushed_lsn.set(status.flushed_lsn.0);
        metrics
            .buffer_bytes
            .set(i64::try_from(status.buffered_bytes).unwrap_or(i64::MAX));
        let behind = status.quiet_until_lsn.bytes_since(status.applied_lsn);
        let is_behind = status.units + status.window_transactions > 0;
        metrics.lag_bytes.set(if is_behind {
            i64::try_from(behind).unwrap_or(i64::MAX)
        } else {
            0
        });
        metrics
            .workers
            .set(i64::try_from(status.workers).unwrap_or(i64::MAX));
        metrics.lag_ms.set(match status.applied_commit_time_us {
            Some(commit_us) if is_behind => (unix_us() - commit_us).max(0) / 1_000,
            _ => 0,
        });
        for (cause, (now, before)) in Cause::ALL
            .iter()
            .zip(status.retries.iter().zip(&mut self.retries))
        {
            metrics.retried_times(cause.name(), now.saturating_sub(*before));
            *before = *now;
        }
        let unknown = status.old_values.unknown;
        let before = std::mem::replace(&mut self.unknown_old_values, unknown);
        metrics.old_values_unknown.inc_by(unknown - before);
        let waiting = status
            .waiting
            .as_ref()
            .map(|waiting| waiting.message.clone());
        let trouble = waiting
            .or_else(|| self.kafka.reason().map(str::to_owned))
            .or_else(|| self.resolving.reason());
        let state = match (trouble, &status.notice) {
            (Some(reason), _) => LaneState::Retrying { reason },
            (None, Some(notice)) => LaneState::ProducerStopped(notice.clone()),
            (None, None) => LaneState::Running,
        };
        self.fill_row(lane, status, Some(state));
    }

    /// A worker ends with a report, or it was a panic: then nobody reports.
    fn watch_workers(&mut self) {
        if self.pool.has_ended() && self.events.is_empty() {
            let end = self.session_lost("a worker ended without a report");
            self.end.get_or_insert(end);
        }
    }

    pub(super) fn fill_row(&self, lane: &Lane, status: &Status, state: Option<LaneState>) {
        let before = lane.transactions_before.unwrap_or_default();
        let stopped = matches!(state, Some(LaneState::Stopped(_)));
        let drained = status.is_drained && !stopped;
        let applied = i64::try_from(status.transactions_applied).unwrap_or(i64::MAX);
        self.row.send_modify(|row| {
            row.applied_lsn = status.applied_lsn;
            row.applied_commit_time_us = status.applied_commit_time_us;
            row.quiet_until_lsn = drained.then_some(status.quiet_until_lsn);
            row.transactions_applied = before.saturating_add(applied);
            if let Some(state) = state {
                row.enter(state);
            }
        });
    }

    fn commit_offset(&mut self, lane: &mut Lane) {
        let Some(offset) = self.offset.take() else {
            return;
        };
        match lane.group.commit(lane.partition(), offset) {
            Ok(()) => {
                lane.offset = Some(offset);
                lane.metrics.committed_offset.set(offset);
            }
            Err(error) => tracing::debug!(%error, offset, "offset commit was not taken"),
        }
    }
}

fn unix_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn log_report(report: &Report) {
    match report {
        Report::Retrying {
            cause,
            xid,
            commit_lsn,
            message,
            pause_ms,
        } => {
            let cause = cause.name();
            tracing::warn!(
                cause, xid, %commit_lsn, pause_ms, "a target transaction is tried again: {message}"
            );
        }
        Report::Recovered {
            cause,
            attempts,
            for_ms,
        } => {
            let cause = cause.name();
            tracing::info!(
                cause,
                attempts,
                for_ms,
                "a target transaction went through at last"
            );
        }
    }
}
