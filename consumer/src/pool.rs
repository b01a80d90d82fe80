//! The worker pool of a tenure: sessions that apply, and a task for each.
//!
//! The first sessions are opened before anything is applied, as many as the subscriber has origins
//! for; further ones join while work goes on, one at a time, in a task of their own, so that the
//! lane does not wait for them. A worker's number is its place here, and part of the name of its
//! origin.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use walbraid_apply::coordinator::OnMissing;
use walbraid_apply::event::Event;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::resolver::ReadId;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_wire::ConnectOptions;

use crate::fence::Ownership;
use crate::flusher::in_time;
use crate::lane::{Lane, application_name};
use crate::locks::Locks;
use crate::loss::Loss;
use crate::metrics::LaneMetrics;
use crate::old_values::OldValues;
use crate::origin::LaneOrigins;
use crate::policy::Failure;
use crate::session::{Session, SessionConfig};
use crate::stream;
use crate::worker::{Order, Worker, WorkerConfig};

/// What every worker of a lane is made with.
#[derive(Clone)]
struct Plan {
    stream: String,
    lane: u32,
    subscriber: ConnectOptions,
    statement_timeout_ms: u64,
    lock_timeout_ms: u64,
    open_limit: Option<Duration>,
    answer_limit: Option<Duration>,
    ownership: Ownership,
    origins: LaneOrigins,
    on_missing: OnMissing,
    truncate_cascade: bool,
    metrics: LaneMetrics,
    /// How many workers have something in flight.
    busy: Arc<AtomicUsize>,
}

/// A worker that runs.
struct Member {
    orders: mpsc::UnboundedSender<Order>,
    process_id: i32,
    task: JoinHandle<()>,
}

/// The workers of a tenure.
pub(crate) struct Pool {
    plan: Plan,
    members: Vec<Member>,
    /// By worker; they outlive the members.
    origins: Vec<Arc<str>>,
    joining: Option<JoinHandle<Result<Session, Failure>>>,
    /// The last session that was asked for could not be had.
    short_of: Option<StopKind>,
    events: mpsc::UnboundedSender<Event>,
    loss: Loss,
    locks: Locks,
    old_values: OldValues,
}

impl Pool {
    /// Opens that many sessions, or as many as there are origins for, then starts their workers; on
    /// failure none is left.
    pub(crate) async fn open(
        lane: &Lane,
        ownership: Ownership,
        workers: usize,
        (events, loss): (mpsc::UnboundedSender<Event>, Loss),
    ) -> Result<Self, Failure> {
        let subscriber = &lane.config.subscriber;
        let name = |of| application_name(&lane.config.stream, lane.number, of);
        let reports = (events.clone(), lane.metrics.clone());
        let answer_limit = subscriber.answer_limit();
        let mut pool = Self {
            plan: Plan {
                stream: lane.config.stream.clone(),
                lane: lane.number,
                subscriber: subscriber.connect.clone(),
                statement_timeout_ms: subscriber.statement_timeout_ms,
                lock_timeout_ms: subscriber.lock_timeout_ms,
                open_limit: subscriber.open_limit(),
                answer_limit,
                ownership,
                origins: stream::origins(lane.database_oid, &lane.stream, lane.number),
                on_missing: lane.config.apply.on_missing,
                truncate_cascade: lane.config.apply.truncate_cascade,
                metrics: lane.metrics.clone(),
                busy: Arc::default(),
            },
            members: Vec::new(),
            origins: Vec::new(),
            joining: None,
            short_of: None,
            locks: Locks::new(
                subscriber.side(),
                name("locks"),
                answer_limit,
                events.clone(),
            ),
            old_values: OldValues::new(
                subscriber.side(),
                name("old values"),
                answer_limit,
                reports,
            ),
            events,
            loss,
        };
        let mut sessions = Vec::new();
        for number in 0..workers {
            match pool.plan.clone().session(number).await {
                Ok(session) => sessions.push(session),
                Err(failure) if number > 0 && failure.is_for_want_of_origins() => {
                    pool.refused(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        for session in sessions {
            pool.add(session);
        }
        Ok(pool)
    }

    fn add(&mut self, session: Session) -> WorkerId {
        let plan = &self.plan;
        let id = WorkerId(self.members.len());
        let (orders, taken_orders) = mpsc::unbounded_channel();
        let config = WorkerConfig {
            id,
            stream: plan.stream.clone(),
            on_missing: plan.on_missing,
            truncate_cascade: plan.truncate_cascade,
            answer_limit: plan.answer_limit,
            metrics: plan.metrics.clone(),
            loss: self.loss.clone(),
            busy: Arc::clone(&plan.busy),
        };
        let process_id = session.process_id;
        let worker = Worker::new(config, session, taken_orders, self.events.clone());
        self.members.push(Member {
            orders,
            process_id,
            task: tokio::spawn(worker.run()),
        });
        self.origins.push(plan.origin(id.0).into());
        id
    }

    /// Begins to open one more session.
    pub(crate) fn connect(&mut self) {
        let session = self.plan.clone().session(self.members.len());
        self.joining.get_or_insert_with(|| tokio::spawn(session));
    }

    /// One more session could not be had: what is there goes on. Said once for each reason, until
    /// one can.
    pub(crate) fn refused(&mut self, failure: Failure) {
        let lane = self.plan.lane;
        let Stop {
            kind,
            message,
            hint,
            ..
        } = failure.into_stop();
        if self.short_of.replace(kind) == Some(kind) {
            tracing::debug!(lane, "no further worker can join: {message}");
        } else {
            let hint = hint.unwrap_or_default();
            tracing::warn!(lane, hint, "no further worker can join: {message}");
        }
    }

    /// How many workers there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The worker of the session that is being opened, once it is; never, if none is.
    pub(crate) async fn joined(&mut self) -> Result<WorkerId, Failure> {
        let Some(joining) = &mut self.joining else {
            return std::future::pending().await;
        };
        let opened = joining.await;
        self.joining = None;
        match opened {
            Ok(session) => {
                let worker = self.add(session?);
                self.short_of = None;
                Ok(worker)
            }
            Err(error) => {
                let message = format!("the task that opens a worker's session failed: {error}");
                Err(Failure::definite(StopKind::Internal, message))
            }
        }
    }

    /// Gives a worker something to do.
    pub(crate) fn order(&self, worker: WorkerId, order: Order) {
        // A worker that is gone has reported its session lost, or the tenure is ending.
        if let Some(member) = self.members.get(worker.0) {
            let _ = member.orders.send(order);
        }
    }

    /// The origin that a worker holds.
    pub(crate) fn origin(&self, worker: WorkerId) -> Option<Arc<str>> {
        self.origins.get(worker.0).map(Arc::clone)
    }

    /// Has the subscriber asked which of the workers wait for locks of others.
    pub(crate) fn ask_blocked(&mut self) {
        let processes = self.members.iter().map(|member| member.process_id);
        self.locks.ask(processes.collect());
    }

    /// Has old values of rows read.
    pub(crate) fn read_old_values(
        &mut self,
        read: ReadId,
        table: Arc<Mapped>,
        keys: Vec<Vec<String>>,
    ) {
        self.old_values.read(read, table, keys);
    }

    /// True if some worker ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.members.iter().any(|member| member.task.is_finished())
    }

    /// Gives out nothing any more, and waits until what was given out is done, so long at most for
    /// all of it. False if a worker had to be ended.
    pub(crate) async fn finish(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        self.stop_joining().await;
        self.locks.end().await;
        self.old_values.end().await;
        let mut all = true;
        let mut tasks = Vec::new();
        for member in self.members.drain(..) {
            drop(member.orders);
            tasks.push(member.task);
        }
        for mut task in tasks {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                all = false;
                task.abort();
                let _ = task.await;
            }
        }
        all
    }

    /// Drops all sessions.
    pub(crate) async fn abort(&mut self) {
        self.stop_joining().await;
        self.locks.end().await;
        self.old_values.end().await;
        for member in &self.members {
            member.task.abort();
        }
        for member in self.members.drain(..) {
            let _ = member.task.await;
        }
    }

    async fn stop_joining(&mut self) {
        if let Some(joining) = self.joining.take() {
            joining.abort();
            let _ = joining.await;
        }
    }
}

impl Plan {
    fn origin(&self, number: usize) -> String {
        self.origins
            .worker(u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// Opens the session of a worker.
    async fn session(self, number: usize) -> Result<Session, Failure> {
        let name = format!("worker {number}");
        let config = SessionConfig {
            options: self.subscriber.clone(),
            application_name: application_name(&self.stream, self.lane, &name),
            statement_timeout_ms: self.statement_timeout_ms,
            lock_timeout_ms: self.lock_timeout_ms,
        };
        let origin = self.origin(number);
        let opening = Session::open(&config, &self.ownership, &origin);
        in_time(self.open_limit, opening).await
    }
}
