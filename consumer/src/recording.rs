//! Recordings of a lane's next transactions: asked for and read by `walbraid dag`, made by the
//! consumer that has the lane.
//!
//! They meet in `walbraid.recordings`, one row a lane. Who asks writes what is wanted and until
//! when; the consumer, which looks once a second, notes that it began, and answers once when all
//! that was wanted is committed, or when the time is over, or when it ends. The newest request
//! counts. What the answer holds is bounded by the engine; no value of a row is in it.

pub(crate) mod desk;

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use uuid::Uuid;
use walbraid_apply::engine;
use walbraid_apply::engine::AttemptEnd;
pub use walbraid_apply::engine::TRANSACTIONS_MAX;
use walbraid_apply::unit::UnitId;
use walbraid_schemas::lsn::Lsn;

use crate::policy::Failure;

/// It takes a consumer a second to see a request, so nothing is asked for a shorter time.
const LEAST_MS: u64 = 2_000;

/// What became of some transactions. Times are milliseconds since the recording began.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Recording {
    /// How long it was recorded.
    pub duration_ms: u64,
    /// The units, in the order of the log.
    pub units: Vec<Unit>,
}

/// What became one target transaction, or was to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Unit {
    /// Its number, from 1 on.
    pub unit: usize,
    /// Its transactions.
    pub transactions: Vec<Transaction>,
    /// `schema.table` of what it changes.
    pub tables: Vec<String>,
    /// How many changes it has.
    pub changes: usize,
    /// What was found of it; `IN_ORDER` where one connection keeps the order.
    pub dependence: String,
    /// What it depends on.
    pub edges: Vec<Edge>,
    /// Edges that are not told.
    pub edges_left_out: usize,
    /// When it was formed.
    pub formed_ms: u64,
    /// How often it was sent.
    pub attempts: Vec<Attempt>,
    /// It failed as a whole; its transactions follow one by one.
    pub split: bool,
}

/// A transaction of the publisher.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Transaction {
    /// Its xid.
    pub xid: u32,
    /// LSN of its commit record.
    pub commit_lsn: Lsn,
}

/// An edge to an earlier unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Edge {
    /// Its number; none where it was formed before the recording began.
    pub unit: Option<usize>,
    /// The key that both touch; none where one of them has to be alone, or in order.
    pub key: Option<String>,
}

/// An attempt to apply a unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Attempt {
    /// The worker.
    pub worker: usize,
    /// When it was sent.
    pub sent_ms: u64,
    /// When its statements were through, if that was waited for.
    pub counted_ms: Option<u64>,
    /// When its COMMIT was sent, if not with the statements.
    pub turn_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How: `open`, `committed`, `failed`, `swept`, `called_back`, `withdrawn`.
    pub end: String,
    /// Why it failed (an SQLSTATE) or was called back.
    pub cause: Option<String>,
}

impl Recording {
    /// What the engine recorded, up to now.
    pub(crate) fn of(recorded: &engine::Recording, now_ms: u64) -> Self {
        let began_ms = recorded.began_ms;
        let since = |ms: u64| ms.saturating_sub(began_ms);
        let mut units: Vec<&engine::RecordedUnit> = recorded.units.iter().collect();
        units.sort_by_key(|unit| unit.id);
        let ids = units.iter().map(|unit| unit.id);
        let numbers: HashMap<UnitId, usize> = ids.zip(1..).collect();
        let units = units.into_iter().zip(1..);
        Self {
            duration_ms: since(now_ms),
            units: units
                .map(|(unit, number)| Unit::of(unit, number, &numbers, &since))
                .collect(),
        }
    }
}

impl Unit {
    fn of(
        recorded: &engine::RecordedUnit,
        number: usize,
        numbers: &HashMap<UnitId, usize>,
        since: &impl Fn(u64) -> u64,
    ) -> Self {
        let transactions = recorded.transactions.iter();
        let tables = recorded.tables.iter();
        let edges = recorded.edges.iter();
        let attempts = recorded.attempts.iter();
        let dependence = recorded.dependence.map(|dependence| dependence.name());
        Self {
            unit: number,
            transactions: transactions
                .map(|&(xid, commit_lsn)| Transaction { xid, commit_lsn })
                .collect(),
            tables: tables.map(|name| name.to_string()).collect(),
            changes: recorded.changes,
            dependence: dependence.unwrap_or("IN_ORDER").to_owned(),
            edges: edges
                .map(|edge| Edge {
                    unit: numbers.get(&edge.unit).copied(),
                    key: edge.key.as_deref().map(str::to_owned),
                })
                .collect(),
            edges_left_out: recorded.edges_left_out,
            formed_ms: since(recorded.formed_ms),
            attempts: attempts
                .map(|attempt| Attempt::of(attempt, since))
                .collect(),
            split: recorded.is_split,
        }
    }
}

impl Attempt {
    fn of(recorded: &engine::RecordedAttempt, since: &impl Fn(u64) -> u64) -> Self {
        let (end, cause) = match &recorded.end {
            AttemptEnd::Open => ("open", None),
            AttemptEnd::Committed => ("committed", None),
            AttemptEnd::Failed(code) => ("failed", Some(code.to_string())),
            AttemptEnd::Swept => ("swept", None),
            AttemptEnd::CalledBack(cause) => ("called_back", Some(cause.name().to_owned())),
            AttemptEnd::Withdrawn => ("withdrawn", None),
        };
        Self {
            worker: recorded.worker.0,
            sent_ms: since(recorded.sent_ms),
            counted_ms: recorded.counted_ms.map(since),
            turn_ms: recorded.turn_ms.map(since),
            ended_ms: recorded.ended_ms.map(since),
            end: end.to_owned(),
            cause,
        }
    }
}

/// A recording that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    lane_id: i32,
    /// The lane's number.
    pub lane: u32,
    id: Uuid,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// No consumer has seen it.
    Unseen,
    /// It is recorded.
    Recording,
    /// It was answered.
    Recorded(Recording),
    /// Somebody else asked meanwhile, or the lane is gone.
    Lost,
}

/// Asks for a recording of so many of each lane's next transactions, for so long.
pub async fn ask(
    client: &Client,
    stream: &str,
    transactions: usize,
    time: Duration,
) -> Result<Vec<Request>, Failure> {
    let id = Uuid::new_v4();
    let transactions = i32::try_from(transactions).unwrap_or(i32::MAX);
    let sql = "INSERT INTO walbraid.recordings AS r (lane_id, request, transactions, until)
               SELECT id, $2, $3,
                      pg_catalog.clock_timestamp() + $4 * interval '1 second'
               FROM walbraid.lanes WHERE stream = $1 ORDER BY id
               ON CONFLICT (lane_id) DO UPDATE
               SET request = excluded.request, transactions = excluded.transactions,
                   until = excluded.until, began_at = NULL, recording = NULL
               RETURNING lane_id, (SELECT lane FROM walbraid.lanes l WHERE l.id = r.lane_id)";
    let seconds = time.max(Duration::from_millis(LEAST_MS)).as_secs_f64();
    let rows = client
        .query(sql, &[&stream, &id, &transactions, &seconds])
        .await?;
    let mut requests = Vec::with_capacity(rows.len());
    for row in &rows {
        requests.push(Request {
            lane_id: row.try_get(0)?,
            lane: row.try_get::<_, i32>(1)?.try_into().unwrap_or_default(),
            id,
        });
    }
    requests.sort_by_key(|request| request.lane);
    Ok(requests)
}

/// Looks for the answer.
pub async fn answer(client: &Client, request: &Request) -> Result<Answer, Failure> {
    let sql = "SELECT began_at IS NOT NULL, recording::text FROM walbraid.recordings \
               WHERE lane_id = $1 AND request = $2";
    let Some(row) = client
        .query_opt(sql, &[&request.lane_id, &request.id])
        .await?
    else {
        return Ok(Answer::Lost);
    };
    let recording: Option<String> = row.try_get(1)?;
    Ok(match recording.map(|text| serde_json::from_str(&text)) {
        Some(Ok(recording)) => Answer::Recorded(recording),
        // Another version's consumer answered.
        Some(Err(_)) => Answer::Lost,
        None if row.try_get(0)? => Answer::Recording,
        None => Answer::Unseen,
    })
}

/// Takes the request back; its answer too.
pub async fn withdraw(client: &Client, request: &Request) -> Result<(), Failure> {
    let sql = "DELETE FROM walbraid.recordings WHERE lane_id = $1 AND request = $2";
    client
        .execute(sql, &[&request.lane_id, &request.id])
        .await?;
    Ok(())
}
