//! What the subscriber's tables tell of a stream's lanes: for `status` and `wait`.
//!
//! Read only. What is durable is told as of the lane's last row, which a running consumer writes
//! about once a second and when it stops.

use std::time::{Duration, SystemTime};

use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Row};
use walbraid_schemas::lsn::Lsn;

use crate::policy::Failure;
use crate::reason::Reason;

/// A lane as its row shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneStatus {
    /// The lane's number.
    pub lane: u32,
    /// The state's name: see `state`.
    pub state: String,
    /// Since when it is in that state.
    pub since: SystemTime,
    /// Why, for a state that has a reason.
    pub reason: Option<Reason>,
    /// Name of the `StopKind`, when it stopped.
    pub stop_kind: Option<String>,
    /// End LSN of the newest transaction applied.
    pub applied_lsn: Lsn,
    /// End LSN of the newest transaction that is durable on the subscriber.
    pub flushed_lsn: Lsn,
    /// Nothing of the lane ended on the publisher between `flushed_lsn` and this.
    pub quiet_until_lsn: Lsn,
    /// When the newest applied transaction committed on the publisher.
    pub applied_commit_time: Option<SystemTime>,
    /// Transactions applied since setup.
    pub transactions_applied: i64,
    /// The consumer that owns the lane: host and process id.
    pub member: Option<String>,
    /// How old the row is, by the subscriber's clock.
    pub age: Duration,
}

impl LaneStatus {
    /// Everything that the publisher committed up to here is durable on the subscriber.
    pub fn reached_lsn(&self) -> Lsn {
        self.flushed_lsn.max(self.quiet_until_lsn)
    }
}

/// The lanes of a stream, in the order of their numbers.
pub async fn read(client: &Client, stream: &str) -> Result<Vec<LaneStatus>, Failure> {
    let sql = "SELECT l.lane, l.state, l.since, l.reason, l.stop_kind, \
                      coalesce(l.applied_lsn, s.start_lsn), \
                      coalesce(l.flushed_lsn, s.start_lsn), \
                      coalesce(l.quiet_until_lsn, l.flushed_lsn, s.start_lsn), \
                      l.applied_commit_time, l.transactions_applied, l.member, \
                      extract(epoch FROM pg_catalog.clock_timestamp() - l.updated_at)::float8 \
               FROM walbraid.lanes l JOIN walbraid.streams s USING (stream) \
               WHERE l.stream = $1 ORDER BY l.lane";
    client
        .query(sql, &[&stream])
        .await?
        .iter()
        .map(lane_status)
        .collect()
}

fn lane_status(row: &Row) -> Result<LaneStatus, Failure> {
    let lsn = |index: usize| Ok::<_, Failure>(Lsn(row.try_get::<_, PgLsn>(index)?.into()));
    Ok(LaneStatus {
        lane: row.try_get::<_, i32>(0)?.try_into().unwrap_or_default(),
        state: row.try_get(1)?,
        since: row.try_get(2)?,
        reason: row.try_get::<_, Option<&str>>(3)?.map(Reason::parse),
        stop_kind: row.try_get(4)?,
        applied_lsn: lsn(5)?,
        flushed_lsn: lsn(6)?,
        quiet_until_lsn: lsn(7)?,
        applied_commit_time: row.try_get(8)?,
        transactions_applied: row.try_get(9)?,
        member: row.try_get(10)?,
        age: Duration::from_secs_f64(row.try_get::<_, f64>(11)?.max(0.0)),
    })
}
