//! The state of a lane, as its row on the subscriber tells it.

use std::time::{Duration, SystemTime};

use tokio_postgres::Client;
use tokio_postgres::types::PgLsn;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Notice, Stop};

use crate::fence::Ownership;
use crate::policy::Failure;
use crate::reason::Reason;

/// What a lane does.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LaneState {
    /// Nobody applies it: the consumer stopped in the ordinary way.
    #[default]
    Idle,
    /// It is applied.
    Running,
    /// The head is tried again and again.
    Retrying {
        /// What the subscriber said.
        reason: String,
    },
    /// It is applied, but the producer stopped and said why.
    ProducerStopped(Notice),
    /// The consumer stopped: a person must act.
    Stopped(Stop),
}

impl LaneState {
    /// The name in the row.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Retrying { .. } => "retrying",
            Self::ProducerStopped(_) => "producer-stopped",
            Self::Stopped(_) => "stopped",
        }
    }

    /// Why it is so.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Idle | Self::Running => None,
            Self::Retrying { reason } => Some(Reason::of(reason)),
            Self::ProducerStopped(notice) => Some(notice.into()),
            Self::Stopped(stop) => Some(stop.into()),
        }
    }

    /// Name of the stop's kind, when something stopped.
    pub fn stop_kind(&self) -> Option<&str> {
        match self {
            Self::Stopped(stop) => Some(stop.kind.name()),
            Self::ProducerStopped(notice) => Some(&notice.kind),
            _ => None,
        }
    }
}

/// What the lane's row says, but for what is durable, which the flusher knows.
#[derive(Clone, Debug)]
pub struct LaneRow {
    /// The state.
    pub state: LaneState,
    /// Since when.
    pub since: SystemTime,
    /// End LSN of the newest transaction applied.
    pub applied_lsn: Lsn,
    /// When that transaction committed on the publisher.
    pub applied_commit_time_us: Option<i64>,
    /// While everything that was read is applied: up to where the log holds nothing else.
    pub quiet_until_lsn: Option<Lsn>,
    /// Transactions applied since setup.
    pub transactions_applied: i64,
    /// Who owns the lane: host and process id.
    pub member: String,
}

impl LaneRow {
    /// Changes the state; `since` only if it is another one.
    pub fn enter(&mut self, state: LaneState) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now();
        }
    }

    /// Writes the row, if the lane is still this owner's.
    pub async fn write(
        &self,
        client: &Client,
        ownership: &Ownership,
        flushed_lsn: Lsn,
    ) -> Result<(), Failure> {
        // What is quiet is so only behind what is durable.
        let quiet = self
            .quiet_until_lsn
            .filter(|_| flushed_lsn >= self.applied_lsn);
        let commit_time = self.applied_commit_time_us.map(time_of);
        let written = client
            .execute(
                UPDATE,
                &[
                    &ownership.lane_id,
                    &ownership.epoch,
                    &ownership.owner,
                    &self.state.name(),
                    &self.since,
                    &self.state.reason().map(|reason| reason.text()),
                    &self.state.stop_kind(),
                    &PgLsn::from(self.applied_lsn.0),
                    &PgLsn::from(flushed_lsn.0),
                    &quiet.map(|lsn| PgLsn::from(lsn.0)),
                    &commit_time,
                    &self.transactions_applied,
                    &self.member,
                ],
            )
            .await?;
        if written == 1 {
            Ok(())
        } else {
            Err(Failure::Fenced)
        }
    }
}

const UPDATE: &str = "
UPDATE walbraid.lanes
SET state = $4, since = $5, reason = $6, stop_kind = $7, applied_lsn = $8, flushed_lsn = $9::pg_lsn,
    quiet_until_lsn = coalesce($10, $9::pg_lsn),
    applied_commit_time = coalesce($11, applied_commit_time),
    transactions_applied = $12, member = $13, updated_at = pg_catalog.clock_timestamp()
WHERE id = $1 AND epoch = $2 AND owner = $3";

fn time_of(unix_us: i64) -> SystemTime {
    let distance = Duration::from_micros(unix_us.unsigned_abs());
    if unix_us < 0 {
        SystemTime::UNIX_EPOCH - distance
    } else {
        SystemTime::UNIX_EPOCH + distance
    }
}

#[cfg(test)]
mod tests {
    use walbraid_schemas::notice::StopKind;

    use super::*;

    #[test]
    fn a_stop_is_told_with_its_kind_and_all_of_its_text() {
        let stop = Stop::new(StopKind::RowRefused, "stream \"shop\" stops at xid 7")
            .detail("Failing row was refused.")
            .hint("Mend it.");
        let state = LaneState::Stopped(stop);
        assert_eq!(state.name(), "stopped");
        assert_eq!(state.stop_kind(), Some("row-refused"));
        let reason = state.reason().unwrap();
        assert_eq!(
            reason.text(),
            "stream \"shop\" stops at xid 7\nDETAIL:  Failing row was refused.\nHINT:  Mend it."
        );
    }
}
