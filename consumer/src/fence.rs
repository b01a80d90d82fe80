//! The fence: one owner a lane, by an epoch and an advisory lock on the subscriber.
//!
//! Kafka's group says who should own a lane; the fence makes it true. A member that the group gave
//! up may still be running (stopped and continued, cut off and back) with sessions in mid-flight.
//!
//! A lane's row holds an epoch and a random owner id; it is owned only if both are equal to one's
//! own. Every session that writes holds a shared advisory lock of its lane and looks at the row
//! after it has the lock. A new owner
//!
//! 1. raises the epoch to the greater of the stored one and its own last one, plus 1 (a subscriber
//!    that was restored may have forgotten epochs), with a synchronous commit;
//! 2. ends the sessions that hold the lock, again and again, until it holds it exclusively;
//! 3. looks at the row again: whoever raised it meanwhile is the owner;
//! 4. reads the lane's progress: nobody writes now, so it is the truth; and makes it durable;
//! 5. keeps a shared lock, lets the exclusive one go, and starts its own sessions.
//!
//! Stories:
//! 1. *Two owners at once.* A raises to 5, B raises to 6, A gets the lock first: step 3 tells A
//!    that it lost. B ends A's session and goes on.
//! 2. *A zombie reconnects.* It takes the shared lock, which waits while an owner is between 2 and
//!    5, then finds another's epoch and writes nothing.
//! 3. *A zombie in its COMMIT.* Ending its session lets the commit stand or fall; the lock is free
//!    only after that, so step 4 sees it if it stood.
//! 4. *A session was ended, but its client has not heard.* Its next statement fails with 57P01 or a
//!    closed socket; it comes back as story 2.
//! 5. *The side session is the zombie's.* It holds the shared lock too, and writes the lane's row
//!    only `WHERE epoch = … AND owner = …`.
//! 6. *The zombie holds the row.* It was stopped between writing its position into the lane's row
//!    and its COMMIT, so step 1 waits for it. The wait is bounded; when it is over, the sessions of
//!    step 2 are ended first, and step 1 tried again.
//!
//! Advisory locks are per database, so the fence looks at this database's locks only.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::PgLsn;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use walbraid_schemas::envelope::NO_CLAIM;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::origin::LaneOrigins;
use crate::policy::{Cause, Failure};

/// First half of every lane's advisory lock ("walb"); the second is the lane row's id.
pub const LOCK_CLASS: i32 = 0x7761_6c62;

/// Pause between two rounds of ending the sessions of the previous owner.
const ROUND_MS: u64 = 50;

/// Rounds after which the log says who does not end.
const ROUNDS_BEFORE_WARNING: u32 = 100;

/// That this process owns a lane, as every one of its sessions must show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ownership {
    /// The lane row's id: second half of the advisory lock.
    pub lane_id: i32,
    /// The epoch this owner raised.
    pub epoch: i64,
    /// This process's random id.
    pub owner: Uuid,
}

/// A lane that was taken: who owns it, and where it stands.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What sessions have to show.
    pub ownership: Ownership,
    /// End LSN of the newest transaction applied; the stream's start where none is.
    pub applied_lsn: Lsn,
    /// Offset of the newest claim as of that transaction, −1 where none was read.
    pub claim_offset: i64,
    /// Hash of that claim's options, where it is known.
    pub options_hash: Option<i64>,
    /// Transactions applied since the stream was set up.
    pub transactions_applied: i64,
}

/// Takes the lane: when this returns, no session but ours can write to it.
pub async fn take(
    client: &Client,
    origins: &LaneOrigins,
    row: &LaneKey<'_>,
    owner: Uuid,
    last_epoch: i64,
    stop: &CancellationToken,
) -> Result<Taken, Failure> {
    let ownership = loop {
        if stop.is_cancelled() {
            return Err(Failure::Shutdown);
        }
        match raise(client, row, owner, last_epoch).await {
            Err(Failure::Transient(wait)) if wait.cause == Cause::Lock => {
                let id = lane_id(client, row).await?;
                end_holders(client, id).await?;
            }
            raised => break raised?,
        }
    };
    lock_exclusively(client, row, &ownership, stop).await?;
    let taken = read(client, origins, row, &ownership).await?;
    flush(client, &ownership).await?;
    release_exclusive(client, &ownership).await?;
    Ok(taken)
}

/// Names a lane's row.
#[derive(Clone, Copy, Debug)]
pub struct LaneKey<'a> {
    /// The stream's name.
    pub stream: &'a str,
    /// The lane's number: its Kafka partition.
    pub lane: u32,
    /// The stream's start, which is its progress while no origin has any.
    pub start_lsn: Lsn,
}

impl LaneKey<'_> {
    fn number(&self) -> i32 {
        i32::try_from(self.lane).unwrap_or(i32::MAX)
    }

    fn missing(&self) -> Failure {
        let Self { stream, lane, .. } = self;
        let stop = Stop::new(
            StopKind::NotSetUp,
            format!("lane {lane} of stream \"{stream}\" is not set up on the subscriber"),
        );
        Failure::Definite(stop.hint("Run walbraid setup."))
    }
}

async fn raise(
    client: &Client,
    row: &LaneKey<'_>,
    owner: Uuid,
    last_epoch: i64,
) -> Result<Ownership, Failure> {
    let sql = "UPDATE walbraid.lanes SET epoch = greatest(epoch, $3) + 1, owner = $4 \
               WHERE stream = $1 AND lane = $2 RETURNING id, epoch";
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let raised = client
        .query_opt(sql, &[&row.stream, &row.number(), &last_epoch, &owner])
        .await;
    let end = if raised.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await?;
    let raised = raised?.ok_or_else(|| row.missing())?;
    Ok(Ownership {
        lane_id: raised.try_get(0)?,
        epoch: raised.try_get(1)?,
        owner,
    })
}

async fn lane_id(client: &Client, row: &LaneKey<'_>) -> Result<i32, Failure> {
    let sql = "SELECT id FROM walbraid.lanes WHERE stream = $1 AND lane = $2";
    let found = client.query_opt(sql, &[&row.stream, &row.number()]).await?;
    Ok(found.ok_or_else(|| row.missing())?.try_get(0)?)
}

/// Ends the sessions that hold the lane's lock; their pids.
async fn end_holders(client: &Client, lane_id: i32) -> Result<Vec<i32>, Failure> {
    let sql = "SELECT pid, pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_locks \
               WHERE locktype = 'advisory' AND classid::bigint = $1 AND objid::bigint = $2 \
                 AND objsubid = 2 AND granted AND pid <> pg_catalog.pg_backend_pid() \
                 AND database = (SELECT oid FROM pg_catalog.pg_database \
                                 WHERE datname = pg_catalog.current_database())";
    let rows = client
        .query(sql, &[&i64::from(LOCK_CLASS), &i64::from(lane_id)])
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

async fn lock_exclusively(
    client: &Client,
    row: &LaneKey<'_>,
    ownership: &Ownership,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let lock = "SELECT pg_catalog.pg_try_advisory_lock($1, $2)";
    for round in 1_u32.. {
        let held = end_holders(client, ownership.lane_id).await?;
        let locked = client
            .query_one(lock, &[&LOCK_CLASS, &ownership.lane_id])
            .await?;
        if locked.try_get(0)? {
            break;
        }
        if round % ROUNDS_BEFORE_WARNING == 0 {
            let (stream, lane) = (row.stream, row.lane);
            tracing::warn!(stream, lane, pids = ?held, "sessions of the previous owner do not end");
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ROUND_MS)) => {}
            () = stop.cancelled() => return Err(Failure::Shutdown),
        }
    }
    Ok(())
}

async fn read(
    client: &Client,
    origins: &LaneOrigins,
    row: &LaneKey<'_>,
    ownership: &Ownership,
) -> Result<Taken, Failure> {
    let sql = "SELECT epoch, owner, flushed_lsn, transactions_applied \
               FROM walbraid.lanes WHERE id = $1";
    let found = client
        .query_opt(sql, &[&ownership.lane_id])
        .await?
        .ok_or_else(|| row.missing())?;
    let epoch: i64 = found.try_get(0)?;
    let owner: Option<Uuid> = found.try_get(1)?;
    if epoch != ownership.epoch || owner != Some(ownership.owner) {
        return Err(Failure::Fenced);
    }
    origins.require_anchor(client).await?;
    let mut taken = Taken {
        ownership: *ownership,
        applied_lsn: row.start_lsn,
        claim_offset: NO_CLAIM,
        options_hash: None,
        transactions_applied: found.try_get(3)?,
    };
    let sql = "SELECT end_lsn, claim_offset, options_hash FROM walbraid.progress \
               WHERE lane_id = $1 ORDER BY end_lsn DESC LIMIT 1";
    if let Some(newest) = client.query_opt(sql, &[&ownership.lane_id]).await? {
        taken.applied_lsn = Lsn(newest.try_get::<_, PgLsn>(0)?.into());
        taken.claim_offset = newest.try_get(1)?;
        taken.options_hash = newest.try_get(2)?;
    }
    let flushed: Option<PgLsn> = found.try_get(2)?;
    let flushed = flushed.map_or(row.start_lsn, |lsn| Lsn(lsn.into()));
    if taken.applied_lsn < flushed {
        return Err(Failure::Definite(went_back(
            row,
            taken.applied_lsn,
            flushed,
        )));
    }
    Ok(taken)
}

/// The lane's row was written after the flush it tells of, so progress below it was tampered with
/// or lost: applying from there would apply twice.
fn went_back(row: &LaneKey<'_>, applied_lsn: Lsn, flushed_lsn: Lsn) -> Stop {
    let LaneKey { stream, lane, .. } = row;
    Stop::new(
        StopKind::NotSetUp,
        format!("stream \"{stream}\" lane {lane} lost progress"),
    )
    .detail(format!(
        "walbraid.progress is at {applied_lsn}, but {flushed_lsn} was flushed here."
    ))
    .hint(
        "Rows of walbraid.progress were removed. Copy the tables anew and run teardown and \
             setup.",
    )
}

/// Makes what was read durable: the previous owner's newest commits may not have been flushed. A
/// commit that is waited for is flushed with all WAL before it; it needs something to write.
async fn flush(client: &Client, ownership: &Ownership) -> Result<(), Failure> {
    let Ownership {
        lane_id,
        epoch,
        owner,
    } = ownership;
    let sql = "UPDATE walbraid.lanes SET updated_at = pg_catalog.clock_timestamp() \
               WHERE id = $1 AND epoch = $2 AND owner = $3";
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let written = client.execute(sql, &[lane_id, epoch, owner]).await;
    client
        .batch_execute(if written.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        })
        .await?;
    if written? == 1 {
        Ok(())
    } else {
        Err(Failure::Fenced)
    }
}

async fn release_exclusive(client: &Client, ownership: &Ownership) -> Result<(), Failure> {
    let sql = "SELECT pg_catalog.pg_advisory_lock_shared($1, $2), \
                      pg_catalog.pg_advisory_unlock($1, $2)";
    client
        .query_one(sql, &[&LOCK_CLASS, &ownership.lane_id])
        .await?;
    Ok(())
}

/// The statement with which a session takes its share of the lane's lock.
pub fn share_sql(ownership: &Ownership) -> String {
    format!(
        "SELECT pg_catalog.pg_advisory_lock_shared({LOCK_CLASS}, {})",
        ownership.lane_id
    )
}

/// The statement that gives one row while the lane is still owned by this process, none otherwise.
pub fn owned_sql(ownership: &Ownership) -> String {
    let Ownership {
        lane_id,
        epoch,
        owner,
    } = ownership;
    format!(
        "SELECT 1 FROM walbraid.lanes WHERE id = {lane_id} AND epoch = {epoch} \
         AND owner = '{owner}'"
    )
}
