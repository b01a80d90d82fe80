//! One tenure of a lane: the lane is taken over, everything that applies it is started, the engine is
//! fed and its actions are done, and everything is ended and awaited.
//!
//! The picture, top to bottom: fence → position → workers and flusher → seek → reader → resolver →
//! engine → workers. All that runs is owned here. The loop itself waits for nothing but events:
//! database work is the workers' and the flusher's, waiting for registry and catalogue the
//! resolver's.
//!
//! How it ends:
//! - *Told to stop*: no more units are given out; workers finish what they have, the flusher flushes
//!   once more, the offset behind that is committed.
//! - *A stop of the engine*: the same, and the lane's row says why.
//! - *A session was lost*: all sessions are dropped; what became of them the next take-over sees.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_apply::action::{Action, Report, TakeOver};
use walbraid_apply::engine::{Engine, Status};
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::chain::{self, Position};
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::Stop;
use walbraid_wire::Sql;

use crate::fence::{self, LaneKey, Taken};
use crate::fetch::Reader;
use crate::flusher::{self, Applied, Flusher};
use crate::lane::{Lane, application_name};
use crate::policy::{Failure, Retry};
use crate::resolve::{BATCHES_MAX, Resolved, Resolver};
use crate::seek::{Search, Start};
use crate::session::{Session, SessionConfig};
use crate::state::{LaneRow, LaneState};
use crate::stream;
use crate::worker::{Order, Worker, WorkerConfig};

/// How often the row and the metrics are brought up to date.
const STATUS_MS: u64 = 200;

/// How often an offset is committed.
const OFFSET_MS: u64 = 1_000;

/// How long the last flush and the last offset commit may take.
const LAST_MS: u64 = 10_000;

/// How long the group is asked for its offset.
const HINT_MS: u64 = 5_000;

/// How a tenure ends.
#[derive(Debug)]
pub(crate) enum TenureEnd {
    /// It was told to.
    Finished,
    /// The lane is to be taken anew, for a reason that is no trouble.
    Again(&'static str),
    /// The lane is to be taken anew, because its sessions are lost or in doubt.
    SessionLost(&'static str),
    /// A person must act.
    Stopped(Stop),
}

/// Runs one tenure.
pub(crate) async fn run(lane: &mut Lane, stop: &CancellationToken) -> Result<TenureEnd, Failure> {
    let side = application_name(&lane.config.stream, lane.number, "side");
    let connect = flusher::open(&lane.config.subscriber.connect, &side);
    let sql = tokio::select! {
        sql = connect => sql?,
        () = stop.cancelled() => return Err(Failure::Shutdown),
    };
    let taken = take(lane, &sql, stop).await?;
    lane.epoch = taken.ownership.epoch;
    let mut tenure = match Tenure::start(lane, sql, &taken).await {
        Ok(tenure) => tenure,
        Err((failure, sql)) => {
            tell_row(lane, &taken, &failure, *sql).await;
            return Err(failure);
        }
    };
    let end = match tenure.read_from(lane, None).await {
        Ok(()) => tenure.work(lane, stop).await,
        Err(failure) => Err(failure),
    };
    tenure.finish(lane, end).await
}

async fn take(lane: &Lane, sql: &Sql, stop: &CancellationToken) -> Result<Taken, Failure> {
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
async fn tell_row(lane: &Lane, taken: &Taken, failure: &Failure, sql: Sql) {
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

/// What reads the log for this tenure.
struct Reading {
    resolved: mpsc::Receiver<Resolved>,
    task: JoinHandle<Resolver>,
    stop: CancellationToken,
}

/// What woke the loop.
enum Woken {
    Event(Event),
    Resolved(Option<Resolved>),
    Time,
    Stop,
}

struct Tenure {
    engine: Engine,
    position: Position,
    workers: Vec<mpsc::UnboundedSender<Order>>,
    origins: Vec<Arc<str>>,
    worker_tasks: Vec<JoinHandle<()>>,
    events: mpsc::UnboundedReceiver<Event>,
    applied: watch::Sender<Applied>,
    row: watch::Sender<LaneRow>,
    flusher: JoinHandle<()>,
    reader: Arc<Reader>,
    reading: Option<Reading>,
    actions: Vec<Action>,
    paused: bool,
    wake_at_ms: Option<u64>,
    seeks: u32,
    seek_back: bool,
    /// The worker whose COMMIT returned last.
    last_worker: WorkerId,
    offset: Option<i64>,
    offset_committed_at: Instant,
    status_at: Instant,
    kafka: Retry,
    forget_relations: bool,
    end: Option<TenureEnd>,
}

impl Tenure {
    /// Starts the workers and the flusher. On failure the side session is given back.
    async fn start(lane: &mut Lane, sql: Sql, taken: &Taken) -> Result<Self, (Failure, Box<Sql>)> {
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
            forget_relations: false,
            end: None,
        })
    }

    /// Starts reading: where the position is, or as far back as is right for sure.
    async fn read_from(&mut self, lane: &mut Lane, start: Option<Start>) -> Result<(), Failure> {
        self.stop_reading(lane).await;
        let reader = Arc::clone(&self.reader);
        let start = match start {
            Some(start) => start,
            None => {
                let wait = Duration::from_millis(HINT_MS);
                let hint = lane
                    .group
                    .committed(lane.partition(), wait)
                    .await
                    .unwrap_or_default();
                reader.seek(self.position, hint).await?
            }
        };
        let Start {
            offset,
            is_beginning,
        } = start;
        tracing::debug!(lane = lane.number, offset, is_beginning, "reading starts");
        lane.offset = lane.offset.or(Some(offset));
        let from = if is_beginning {
            chain::Start::LogStart
        } else {
            chain::Start::Offset
        };
        self.step(lane, Event::ReadFrom(from));
        let Some(resolver) = lane.resolver.take() else {
            return Ok(());
        };
        let run = reader.start(offset)?;
        let (sender, resolved) = mpsc::channel(BATCHES_MAX);
        let stop = CancellationToken::new();
        let task = tokio::spawn(resolver.run(run, sender, stop.clone()));
        self.reading = Some(Reading {
            resolved,
            task,
            stop,
        });
        self.paused = false;
        Ok(())
    }

    async fn stop_reading(&mut self, lane: &mut Lane) {
        let Some(Reading {
            resolved,
            task,
            stop,
        }) = self.reading.take()
        else {
            return;
        };
        stop.cancel();
        drop(resolved);
        lane.resolver = task.await.ok();
    }

    async fn work(
        &mut self,
        lane: &mut Lane,
        stop: &CancellationToken,
    ) -> Result<TenureEnd, Failure> {
        loop {
            if let Some(end) = self.end.take() {
                return Ok(end);
            }
            if std::mem::take(&mut self.seek_back) {
                self.seek_further_back(lane).await?;
                continue;
            }
            match self.wait(lane, stop).await {
                Woken::Stop => return Ok(TenureEnd::Finished),
                Woken::Event(event) => {
                    self.step(lane, event);
                    while self.end.is_none()
                        && let Ok(event) = self.events.try_recv()
                    {
                        self.step(lane, event);
                    }
                }
                Woken::Resolved(Some(resolved)) => self.take_in(lane, resolved).await?,
                // The resolver ended: what it had to say was said.
                Woken::Resolved(None) => self.stop_reading(lane).await,
                Woken::Time => {
                    let now_ms = lane.now_ms();
                    if self.wake_at_ms.take_if(|at_ms| *at_ms <= now_ms).is_some() {
                        self.step(lane, Event::Tick);
                    }
                }
            }
            self.tell(lane);
        }
    }

    async fn wait(&mut self, lane: &Lane, stop: &CancellationToken) -> Woken {
        let until_wake = self
            .wake_at_ms
            .map(|at_ms| at_ms.saturating_sub(lane.now_ms()));
        let pause = until_wake.unwrap_or(STATUS_MS).min(STATUS_MS);
        let (paused, reading) = (self.paused, &mut self.reading);
        let next = async {
            match reading {
                Some(reading) if !paused => reading.resolved.recv().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Woken::Stop,
            Some(event) = self.events.recv() => Woken::Event(event),
            resolved = next => Woken::Resolved(resolved),
            () = tokio::time::sleep(Duration::from_millis(pause)) => Woken::Time,
        }
    }

    async fn take_in(&mut self, lane: &mut Lane, resolved: Resolved) -> Result<(), Failure> {
        match resolved {
            Resolved::Records(records) => {
                self.kafka.worked();
                for record in records {
                    self.step(lane, Event::Record(record));
                    if self.end.is_some() || self.seek_back {
                        break;
                    }
                }
            }
            Resolved::OutOfRange => {
                tracing::info!(
                    lane = lane.number,
                    "the offset to read is not in the log any more"
                );
                self.end = Some(TenureEnd::Again("the offset to read is not in the log"));
            }
            Resolved::Trouble(Failure::Transient(transient)) => {
                lane.metrics.retried(transient.cause);
                // librdkafka goes on by itself; only the log has to hear of it.
                let _ = self.kafka.failed(&transient);
            }
            Resolved::Trouble(Failure::Definite(stop)) | Resolved::Stop(stop) => {
                self.step(lane, Event::LogStop(stop));
            }
            Resolved::Trouble(other) => return Err(other),
        }
        Ok(())
    }

    async fn seek_further_back(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        self.stop_reading(lane).await;
        let (beginning, _) = self.reader.ends().await?;
        self.seeks += 1;
        let floor = if self.seeks == 1 {
            self.position.claim_offset
        } else {
            beginning
        };
        let start = Search::back(floor, beginning);
        self.read_from(lane, Some(start)).await
    }

    /// Feeds one event, and does what the engine wants done.
    fn step(&mut self, lane: &Lane, event: Event) {
        if let Event::Committed { worker, .. } = &event {
            self.last_worker = *worker;
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.step(lane.now_ms(), event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Run {
                worker,
                run,
                unit,
                commit,
            } => {
                self.order(worker, Order::Run { run, unit, commit });
            }
            Action::Extend {
                worker,
                run,
                unit,
                extension,
            } => {
                self.order(
                    worker,
                    Order::Extend {
                        run,
                        unit,
                        extension,
                    },
                );
            }
            Action::Commit { worker, run, .. } => {
                self.order(worker, Order::Commit { run });
            }
            Action::Abandon { worker, run, unit } => {
                self.order(worker, Order::Abandon { run, unit });
            }
            Action::CommitOffset { offset } => self.offset = Some(offset),
            Action::SeekBack => self.seek_back = true,
            Action::PauseFetch => self.paused = true,
            Action::ResumeFetch => self.paused = false,
            Action::WakeAt { at_ms } => self.wake_at_ms = Some(at_ms),
            Action::TakeOver { reason } => {
                self.forget_relations = reason == TakeOver::ShapeChanged;
                self.end = Some(match reason {
                    TakeOver::ShapeChanged | TakeOver::ReadAgain => {
                        TenureEnd::Again(reason.reason())
                    }
                    TakeOver::SessionLost | TakeOver::OutcomeUnknown => {
                        TenureEnd::SessionLost(reason.reason())
                    }
                });
            }
            Action::Report(report) => log_report(&report),
            Action::Stop(stop) => self.end = Some(TenureEnd::Stopped(*stop)),
        }
    }

    fn order(&self, worker: WorkerId, order: Order) {
        // A worker that is gone has reported its session lost, or the tenure is ending.
        if let Some(orders) = self.workers.get(worker.0) {
            let _ = orders.send(order);
        }
    }

    /// Brings row, metrics, flusher and offset up to date.
    fn tell(&mut self, lane: &mut Lane) {
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
        }
        if self.offset_committed_at.elapsed() >= Duration::from_millis(OFFSET_MS) {
            self.offset_committed_at = Instant::now();
            self.commit_offset(lane);
        }
    }

    fn tell_applied(&self, lsn: Lsn) {
        let Some(origin) = self.origins.get(self.last_worker.0).map(Arc::clone) else {
            return;
        };
        self.applied.send_replace(Applied { origin, lsn });
    }

    fn tell_status(&self, lane: &Lane, status: &Status) {
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
        metrics.lag_ms.set(match status.applied_commit_time_us {
            Some(commit_us) if is_behind => (unix_us() - commit_us).max(0) / 1_000,
            _ => 0,
        });
        let state = match (&status.waiting, &status.notice) {
            (Some(waiting), _) => LaneState::Retrying {
                reason: waiting.message.clone(),
            },
            (None, Some(notice)) => LaneState::ProducerStopped(notice.clone()),
            (None, None) => LaneState::Running,
        };
        self.fill_row(lane, status, Some(state));
    }

    fn fill_row(&self, lane: &Lane, status: &Status, state: Option<LaneState>) {
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

    /// Ends and awaits everything.
    async fn finish(
        mut self,
        lane: &mut Lane,
        end: Result<TenureEnd, Failure>,
    ) -> Result<TenureEnd, Failure> {
        self.stop_reading(lane).await;
        if self.forget_relations
            && let Some(resolver) = &mut lane.resolver
        {
            resolver.forget_relations();
        }
        let state = match &end {
            Ok(TenureEnd::Finished) => Some(LaneState::Idle),
            Ok(TenureEnd::Stopped(stop)) | Err(Failure::Definite(stop)) => {
                Some(LaneState::Stopped(stop.clone()))
            }
            _ => None,
        };
        match state {
            Some(state) => self.finish_in_order(lane, state).await,
            None => self.drop_sessions().await,
        }
        lane.engine = Some(self.engine);
        if let Ok(reader) = Arc::try_unwrap(self.reader) {
            reader.close().await;
        }
        end
    }

    /// What is in flight is finished and flushed; the offset behind it is committed.
    async fn finish_in_order(&mut self, lane: &mut Lane, state: LaneState) {
        self.workers.clear();
        let limit = lane.config.shutdown_timeout();
        for mut task in self.worker_tasks.drain(..) {
            if tokio::time::timeout(limit, &mut task).await.is_err() {
                tracing::warn!(lane = lane.number, "what was in flight did not end in time");
                task.abort();
                let _ = task.await;
            }
        }
        self.drain_events(lane);
        let status = self.engine.status();
        self.fill_row(lane, &status, Some(state));
        self.tell_applied(status.applied_lsn);
        // The flusher ends once nobody tells it anything any more.
        let (idle, _) = watch::channel(self.applied.borrow().clone());
        drop(std::mem::replace(&mut self.applied, idle));
        self.end_flusher().await;
        self.drain_events(lane);
        if let Some(offset) = self.offset.take() {
            let commit = lane.group.commit_and_ask(lane.partition(), offset);
            match tokio::time::timeout(Duration::from_millis(LAST_MS), commit).await {
                Ok(Ok(())) => {
                    lane.metrics.committed_offset.set(offset);
                }
                Ok(Err(error)) => tracing::debug!(%error, offset, "last offset was not committed"),
                Err(_) => tracing::debug!(offset, "last offset was not committed in time"),
            }
        }
    }

    /// Takes in what is reported; what the engine wants run finds no worker.
    fn drain_events(&mut self, lane: &Lane) {
        while let Ok(event) = self.events.try_recv() {
            self.step(lane, event);
        }
    }

    async fn end_flusher(&mut self) {
        let limit = Duration::from_millis(LAST_MS);
        if tokio::time::timeout(limit, &mut self.flusher)
            .await
            .is_err()
        {
            self.flusher.abort();
            let _ = (&mut self.flusher).await;
        }
    }

    async fn drop_sessions(&mut self) {
        self.flusher.abort();
        for task in &self.worker_tasks {
            task.abort();
        }
        for task in self.worker_tasks.drain(..) {
            let _ = task.await;
        }
        let _ = (&mut self.flusher).await;
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

fn unix_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn log_report(report: &Report) {
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
