//! How a tenure begins: the lane is taken, sessions are opened, what runs is started.
//!
//! Sessions are opened before any worker starts, so that a tenure either stands or leaves nothing
//! behind but the epoch it raised. One is enough: those that the subscriber has no origins for
//! join later.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use walbraid_apply::engine::Engine;
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::chain::Position;
use walbraid_schemas::lsn::Lsn;
use walbraid_wire::Sql;

use super::Tenure;
use crate::explain::{Explained, Explainer};
use crate::fence::{self, LaneKey, Taken};
use crate::fetch::Reader;
use crate::flusher::{Applied, Flusher};
use crate::lane::Lane;
use crate::loss::Loss;
use crate::policy::{Failure, Retry};
use crate::pool::Pool;
use crate::recording;
use crate::resolve::Resolver;
use crate::state::{LaneRow, LaneState};
use crate::stream;

/// Takes the lane over.
pub(super) async fn take(
    lane: &Lane,
    sql: &Sql,
    stop: &CancellationToken,
) -> Result<Taken, Failure> {
    let origins = stream::origins(lane.database_oid, &lane.stream, lane.number);
    let key = LaneKey {
        stream: &lane.stream.name,
        lane: lane.number,
        start_lsn: lane.stream.start_lsn,
    };
    let taken = fence::take(sql, &origins, &key, lane.owner, lane.epoch, stop).await?;
    let most = lane.config.apply.workers.most();
    origins.drop_beyond(sql, most).await?;
    let (epoch, position) = (taken.ownership.epoch, taken.applied_lsn);
    tracing::info!(stream = key.stream, lane = key.lane, epoch, %position, "lane taken");
    Ok(taken)
}

/// Leaves word in the lane's row why the tenure could not start.
pub(super) async fn tell_row(lane: &Lane, taken: &Taken, failure: &Failure, sql: Sql) {
    if let Failure::Definite(stop) = failure {
        let mut row = new_row(lane, taken);
        row.enter(LaneState::Stopped(stop.clone()));
        // The stop itself is told by whoever ends the process.
        let _ = row.write(&sql, &taken.ownership, taken.applied_lsn).await;
    }
    let _ = sql.close().await;
}

fn new_row(lane: &Lane, taken: &Taken) -> LaneRow {
    LaneRow {
        state: LaneState::Running,
        since: SystemTime::now(),
        applied_lsn: taken.applied_lsn,
        applied_commit_time_us: None,
        quiet_until_lsn: None,
        transactions_applied: taken.transactions_applied,
        member: lane.member.clone(),
    }
}

fn position(lane: &Lane, taken: &Taken) -> Position {
    Position {
        incarnation: lane.stream.incarnation,
        end_lsn: taken.applied_lsn,
        claim_offset: taken.claim_offset,
        options_hash: taken.options_hash,
    }
}

impl Tenure {
    /// Starts the workers and the flusher. On failure the side session is given back.
    pub(super) async fn start(
        lane: &mut Lane,
        sql: Sql,
        taken: &Taken,
    ) -> Result<Self, (Failure, Box<Sql>)> {
        let (tell, events) = mpsc::unbounded_channel();
        let loss = Loss::default();
        let opened = open(lane, taken, (tell.clone(), loss.clone())).await;
        let (pool, reader) = match opened {
            Ok(opened) => opened,
            Err(failure) => return Err((failure, Box::new(sql))),
        };
        let first = Applied {
            origin: pool.origin(WorkerId(0)).unwrap_or_else(|| "".into()),
            lsn: taken.applied_lsn,
        };
        let (applied, applied_seen) = watch::channel(first);
        let (row, row_seen) = watch::channel(new_row(lane, taken));
        let (explained, explained_seen) = watch::channel(Explained::default());
        let (recorder, desk) = recording::desk::open();
        let flusher = Flusher {
            desk,
            explainer: Explainer::new(explained_seen, lane.since),
            sql,
            ownership: taken.ownership,
            ack: lane.config.apply.ack,
            interval: Duration::from_millis(lane.config.apply.flush_interval_ms),
            answer_limit: lane.config.subscriber.answer_limit(),
            flushed: taken.applied_lsn,
            applied: applied_seen,
            row: row_seen,
            events: tell,
            loss: loss.clone(),
            swept: Lsn::INVALID,
            swept_at: Instant::now(),
        };
        let position = position(lane, taken);
        let mut engine = match lane.engine.take() {
            Some(mut engine) => {
                engine.resume(position);
                engine
            }
            None => Engine::new(lane.config.engine(), position),
        };
        if pool.len() < lane.config.apply.workers.initial() {
            engine.begin_with(lane.now_ms(), pool.len());
        }
        lane.transactions_before
            .get_or_insert(taken.transactions_applied);
        lane.metrics.running.set(1);
        let unknown_old_values = engine.status().old_values.unknown;
        Ok(Self {
            unknown_old_values,
            began: Instant::now(),
            engine,
            position,
            pool,
            events,
            loss,
            applied,
            row,
            explained,
            explained_at: Instant::now(),
            recorder,
            flusher: tokio::spawn(flusher.run()),
            reader: Arc::new(reader),
            reading: None,
            actions: Vec::new(),
            paused: false,
            wake_at_ms: None,
            seeks: 0,
            seek_back: false,
            last_worker: WorkerId(0),
            offset: None,
            offset_committed_at: Instant::now(),
            status_at: Instant::now(),
            kafka: Retry::new("reading from Kafka"),
            resolving: lane
                .resolver
                .as_ref()
                .map(Resolver::trouble)
                .unwrap_or_default(),
            retries: lane.retries,
            forget_relations: false,
            end: None,
        })
    }
}

/// Opens the reader, and the sessions of the workers that are there from the start.
async fn open(
    lane: &Lane,
    taken: &Taken,
    report: (mpsc::UnboundedSender<Event>, Loss),
) -> Result<(Pool, Reader), Failure> {
    let reader = Reader::open(&lane.clients, &lane.config.kafka.topic, lane.partition())?;
    let workers = lane.config.apply.workers.initial();
    let pool = Pool::open(lane, taken.ownership, workers, report).await?;
    Ok((pool, reader))
}
