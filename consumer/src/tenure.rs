//! One tenure of a lane: the lane is taken over, everything that applies it is started, the engine
//! is fed and its actions are done, and everything is ended and awaited.
//!
//! The picture, top to bottom: fence → position → workers and flusher → seek → reader → resolver →
//! engine → workers. All that runs is owned here. The loop itself waits for nothing but events:
//! database work is the workers' and the flusher's, waiting for registry and catalogue the
//! resolver's.
//!
//! How it ends:
//! - *Told to stop*: no more units are given out; workers finish what they have, the flusher
//!   flushes once more, the offset behind that is committed.
//! - *A stop of the engine*: the same, and the lane's row says why.
//! - *A session was lost*: all sessions are dropped; what became of them the next take-over sees.

mod bulletin;
mod closing;
mod opening;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_apply::action::{Action, TakeOver};
use walbraid_apply::engine::Engine;
use walbraid_apply::event::Event;
use walbraid_apply::rule::Cause;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::chain::{self, Position};
use walbraid_schemas::notice::{Stop, StopKind};

use self::bulletin::STATUS_MS;
use crate::explain::Explained;
use crate::fetch::Reader;
use crate::flusher::{self, Applied};
use crate::lane::{Lane, application_name};
use crate::loss::{Loss, Lost};
use crate::policy::{Failure, Retry, Trouble};
use crate::pool::Pool;
use crate::recording::desk::Recorder;
use crate::resolve::{BATCHES_MAX, Resolved, Resolver};
use crate::seek::{Search, Start};
use crate::state::LaneRow;
use crate::worker::Order;

/// How often reading may have to start further back.
const SEEKS_MAX: u32 = 2;

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
    SessionLost(String),
    /// A person must act.
    Stopped(Stop),
}

/// Runs one tenure.
pub(crate) async fn run(lane: &mut Lane, stop: &CancellationToken) -> Result<TenureEnd, Failure> {
    let side = application_name(&lane.config.stream, lane.number, "side");
    let options = lane.config.subscriber.side();
    let connect = flusher::open(&options, &side);
    let sql = tokio::select! {
        sql = connect => sql?,
        () = stop.cancelled() => return Err(Failure::Shutdown),
    };
    // The subscriber's synchronous stand-by may be away, and then nothing commits. An epoch that
    // was raised by a take-over that is given up says nothing.
    let taken = tokio::select! {
        taken = opening::take(lane, &sql, stop) => taken?,
        () = stop.cancelled() => return Err(Failure::Shutdown),
    };
    lane.epoch = taken.ownership.epoch;
    // Sessions are opened one after the other, each of which may wait for a lock.
    let started = tokio::select! {
        started = Tenure::start(lane, sql, &taken) => started,
        () = stop.cancelled() => return Err(Failure::Shutdown),
    };
    let mut tenure = match started {
        Ok(tenure) => tenure,
        Err((failure, sql)) => {
            opening::tell_row(lane, &taken, &failure, *sql).await;
            return Err(failure);
        }
    };
    let started = tokio::select! {
        started = tenure.read_from(lane, None) => started,
        () = stop.cancelled() => Ok(()),
    };
    let end = match started {
        Ok(()) => tenure.work(lane, stop).await,
        Err(failure) => Err(failure),
    };
    tenure.finish(lane, end).await
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
    Joined(Result<WorkerId, Failure>),
    Resolved(Option<Resolved>),
    Time,
    Stop,
}

struct Tenure {
    began: Instant,
    engine: Engine,
    position: Position,
    pool: Pool,
    events: mpsc::UnboundedReceiver<Event>,
    loss: Loss,
    applied: watch::Sender<Applied>,
    row: watch::Sender<LaneRow>,
    explained: watch::Sender<Explained>,
    explained_at: Instant,
    recorder: Recorder,
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
    /// What the resolver waits for.
    resolving: Trouble,
    /// Repetitions by cause that were counted already.
    retries: [u64; Cause::ALL.len()],
    /// Old values not known that were counted already.
    unknown_old_values: u64,
    forget_relations: bool,
    end: Option<TenureEnd>,
}

impl Tenure {
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
        let run = reader.start(offset)?;
        let resolver = lane.resolver.take().ok_or_else(lost_resolver)?;
        let (sender, resolved) = mpsc::channel(BATCHES_MAX);
        let stop = CancellationToken::new();
        let task = tokio::spawn(resolver.run(run, sender, stop.clone()));
        self.reading = Some(Reading {
            resolved,
            task,
            stop,
        });
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
                // What Kafka is asked for there may take long.
                tokio::select! {
                    sought = self.seek_further_back(lane) => sought?,
                    () = stop.cancelled() => return Ok(TenureEnd::Finished),
                }
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
                Woken::Joined(joined) => self.join(lane, joined),
                Woken::Resolved(Some(resolved)) => self.take_in(lane, resolved).await?,
                // The resolver ended: what it had to say was said, unless it failed.
                Woken::Resolved(None) => {
                    self.stop_reading(lane).await;
                    if lane.resolver.is_none() {
                        return Err(lost_resolver());
                    }
                }
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
            joined = self.pool.joined() => Woken::Joined(joined),
            resolved = next => Woken::Resolved(resolved),
            () = tokio::time::sleep(Duration::from_millis(pause)) => Woken::Time,
        }
    }

    /// Another worker is there, or could not be had: what is there goes on.
    fn join(&mut self, lane: &Lane, joined: Result<WorkerId, Failure>) {
        match joined {
            Ok(worker) => self.step(lane, Event::Joined { worker }),
            Err(failure) => {
                self.pool.refused(failure);
                self.step(lane, Event::Refused);
            }
        }
    }

    async fn take_in(&mut self, lane: &mut Lane, resolved: Resolved) -> Result<(), Failure> {
        match resolved {
            Resolved::Records(records) => {
                self.kafka.worked();
                for record in records {
                    self.step(lane, Event::Record(Box::new(record)));
                    if self.end.is_some() || self.seek_back {
                        break;
                    }
                }
            }
            Resolved::Answered => self.kafka.worked(),
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

    /// To the claim of the position, then to the log's beginning; behind that there is nothing.
    async fn seek_further_back(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        self.stop_reading(lane).await;
        if self.seeks == SEEKS_MAX {
            self.step(lane, Event::LogStop(truncated(&self.position)));
            return Ok(());
        }
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
                self.pool.order(worker, Order::Run { run, unit, commit });
            }
            Action::Extend {
                worker,
                run,
                unit,
                extension,
            } => {
                self.pool.order(
                    worker,
                    Order::Extend {
                        run,
                        unit,
                        extension,
                    },
                );
            }
            Action::Commit { worker, run, .. } => {
                self.pool.order(worker, Order::Commit { run });
            }
            Action::Abandon { worker, run, unit } => {
                self.pool.order(worker, Order::Abandon { run, unit });
            }
            Action::AskBlocked => self.pool.ask_blocked(),
            Action::ReadOldValues { read, table, keys } => {
                self.pool.read_old_values(read, table, keys);
            }
            Action::Connect => self.pool.connect(),
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
                    TakeOver::SessionLost => self.session_lost(reason.reason()),
                    TakeOver::OutcomeUnknown => TenureEnd::SessionLost(reason.reason().to_owned()),
                });
            }
            Action::Report(report) => bulletin::log_report(&report),
            Action::Stop(stop) => self.end = Some(TenureEnd::Stopped(*stop)),
        }
    }

    /// How the tenure ends whose session was lost, for the reason it was lost for.
    fn session_lost(&self, otherwise: &str) -> TenureEnd {
        match self.loss.judge(otherwise) {
            Lost::Session(reason) => TenureEnd::SessionLost(reason),
            Lost::Broken(stop) => TenureEnd::Stopped(stop),
        }
    }
}

fn truncated(position: &Position) -> Stop {
    let end_lsn = position.end_lsn;
    let message = format!("the log does not reach back to {end_lsn}, where the lane stands");
    Stop::new(StopKind::LogTruncated, message)
        .detail("What the log begins with cannot be joined to what is applied.")
        .hint("Bring the subscriber's tables up to date, and set the stream up anew.")
}

/// Nothing would be read any more, and nobody would be told.
fn lost_resolver() -> Failure {
    let message = "the task that resolves the lane's records failed".to_owned();
    Failure::definite(StopKind::Internal, message)
}
