//! How a tenure begins: the lane is taken, sessions are opened, what runs is started.
//!
//! Sessions are all opened before any worker starts, so that a tenure either stands or leaves
//! nothing behind but the epoch it raised.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_apply::engine::Engine;
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::chain::Position;
use walbraid_schemas::lsn::Lsn;
use walbraid_wire::Sql;

use super::Tenure;
use crate::fence::{self, LaneKey, Taken};
use crate::fetch::Reader;
use crate::flusher::{Applied, Flusher};
use crate::lane::{Lane, application_name};
use crate::policy::{Failure, Retry};
use crate::session::{Session, SessionConfig};
use crate::state::{LaneRow, LaneState};
use crate::stream;
use crate::worker::{Order, Worker, WorkerConfig};

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
        let (opened, reader) = match open(lane, &sql, taken, &tell).await {
            Ok(opened) => opened,
            Err(failure) => return Err((failure, Box::new(sql))),
        };
        let Opened {
            workers,
            origins,
            tasks,
        } = opened;
        let first = Applied {
            origin: Arc::clone(&origins[0]),
            lsn: taken.applied_lsn,
        };
        let (applied, applied_seen) = watch::channel(first);
        let (row, row_seen) = watch::channel(new_row(lane, taken));
        let flusher = Flusher {
            sql,
            ownership: taken.ownership,
            ack: lane.config.apply.ack,
            interval: Duration::from_millis(lane.config.apply.flush_interval_ms),
            flushed: taken.applied_lsn,
            applied: applied_seen,
            row: row_seen,
            events: tell,
            swept: Lsn::INVALID,
            swept_at: Instant::now(),
        };
        let position = position(lane, taken);
        let engine = match lane.engine.take() {
            Some(mut engine) => {
                engine.resume(position);
                engine
            }
            None => Engine::new(lane.config.engine(), position),
        };
        lane.transactions_before
            .get_or_insert(taken.transactions_applied);
        lane.metrics.running.set(1);
        Ok(Self {
            began: Instant::now(),
            engine,
            position,
            workers,
            origins,
            worker_tasks: tasks,
            events,
            applied,
            row,
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
            retries: lane.retries,
            forget_relations: false,
            end: None,
        })
    }
}

/// What a tenure opens before it starts.
struct Opened {
    workers: Vec<mpsc::UnboundedSender<Order>>,
    origins: Vec<Arc<str>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Opens the reader and all workers' sessions, then starts the workers.
async fn open(
    lane: &Lane,
    sql: &Sql,
    taken: &Taken,
    tell: &mpsc::UnboundedSender<Event>,
) -> Result<(Opened, Reader), Failure> {
    let reader = Reader::open(&lane.clients, &lane.config.kafka.topic, lane.partition())?;
    let names = stream::origins(lane.database_oid, &lane.stream, lane.number);
    let mut sessions = Vec::new();
    for number in 0..u32::try_from(lane.config.apply.workers.max(1)).unwrap_or(1) {
        let origin = names.ensure_worker(sql, number).await?;
        let config = SessionConfig {
            options: lane.config.subscriber.connect.clone(),
            application_name: application_name(
                &lane.config.stream,
                lane.number,
                &format!("worker {number}"),
            ),
            statement_timeout_ms: lane.config.subscriber.statement_timeout_ms,
            lock_timeout_ms: lane.config.subscriber.lock_timeout_ms,
        };
        let session = Session::open(&config, &taken.ownership, &origin).await?;
        sessions.push((session, origin));
    }
    let mut opened = Opened {
        workers: Vec::new(),
        origins: Vec::new(),
        tasks: Vec::new(),
    };
    for (number, (session, origin)) in sessions.into_iter().enumerate() {
        let (orders, taken_orders) = mpsc::unbounded_channel();
        let config = WorkerConfig {
            id: WorkerId(number),
            stream: lane.config.stream.clone(),
            on_missing: lane.config.apply.on_missing,
            truncate_cascade: lane.config.apply.truncate_cascade,
            metrics: lane.metrics.clone(),
        };
        let worker = Worker::new(config, session, taken_orders, tell.clone());
        opened.tasks.push(tokio::spawn(worker.run()));
        opened.workers.push(orders);
        opened.origins.push(origin.into());
    }
    Ok((opened, reader))
}
