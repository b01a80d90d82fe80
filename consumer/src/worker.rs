//! A worker: units in, target transactions out, on one session, in bursts.
//!
//! One task owns both halves of the connection and never waits for an answer before it sends what
//! it was given: units are written one behind the other, each `BEGIN`, its statements, `progress`
//! (where it ends), `COMMIT`, and a Flush makes the server answer.
//!
//! Invariants:
//! - Bursts are separated by Flush. Sync is sent only when no answer is due, or after an
//!   ErrorResponse; nothing is sent behind it until its ReadyForQuery is read. Two Syncs in flight
//!   would be a hole: after a COMMIT that failed, the second burst would run and commit (tried).
//! - Nothing stands between COMMIT and BEGIN: it would be swallowed into the next block (tried).
//! - COMMIT of a unit is in the burst only where nothing depends on its row counts
//!   (`Commit::InBurst`); else the counts are reported and the engine says when.
//! - After an error: Sync, ReadyForQuery, ROLLBACK if the block stands, and the origin's setup is
//!   reset, because the session would still carry the LSN into its next commit (tried). All that
//!   was sent behind the unit that failed was skipped by the server and is dropped here.
//! - A lost session ends the worker: what became of its last COMMIT is the engine's to find out.
//!
//! Stories:
//! 1. *The server waits for us to read, we wait for it to read.* Every send reads meanwhile
//!    (`send_reading`), so neither waits for ever.
//! 2. *An error while the next units are being written.* Answers are looked at between pieces of a
//!    burst; the rest of the burst is not written. What was written is skipped by the server up to
//!    the Sync.
//! 3. *A change of which no statement can be made* (`Build`): what is in flight before it is
//!    answered first, then this unit alone is rolled back.
//! 4. *Never a Sync under steady load.* The server reports its statistics (and so lets autovacuum
//!    know of dead rows) only at ReadyForQuery; so once a second the pipeline is drained for one.
//! 5. *A session that dies while it has nothing to do*, because a gateway forgot the connection:
//!    nothing is sent, so nobody notices. After half a minute without work a Sync asks; that it is
//!    not answered in time means that the session is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use walbraid_apply::binding::Builder;
use walbraid_apply::coordinator::{Commit, OnMissing};
use walbraid_apply::event::{CommitTag, Event};
use walbraid_apply::failure::Failure as UnitFailure;
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::{Ending, Extension, Unit, UnitId};
use walbraid_schemas::notice::StopKind;
use walbraid_wire::{BackendMessage, Command, CommandTag};

use crate::flight::{Due, Flight, Step};
use crate::flusher::in_time;
use crate::loss::Loss;
use crate::mending::Mend;
use crate::metrics::LaneMetrics;
use crate::policy::Failure;
use crate::prepared::PreparedStatements;
use crate::session::Session;

/// Quiet time after which Sync is sent.
const SYNC_IDLE_MS: u64 = 20;

/// Time without work after which a Sync asks whether the server is still there.
const SYNC_ALIVE_MS: u64 = 30_000;

/// Time after which the pipeline is drained for a Sync.
const SYNC_LATEST_MS: u64 = 1_000;

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Order {
    Run {
        run: u64,
        unit: Arc<Unit>,
        commit: Commit,
    },
    Extend {
        run: u64,
        unit: UnitId,
        extension: Extension,
    },
    Commit {
        run: u64,
    },
    Abandon {
        run: u64,
        unit: UnitId,
    },
}

impl Order {
    pub(crate) fn run(&self) -> u64 {
        match self {
            Self::Run { run, .. }
            | Self::Extend { run, .. }
            | Self::Commit { run }
            | Self::Abandon { run, .. } => *run,
        }
    }
}

/// What a worker is, besides its session.
pub(crate) struct WorkerConfig {
    pub(crate) id: WorkerId,
    pub(crate) stream: String,
    pub(crate) on_missing: OnMissing,
    pub(crate) truncate_cascade: bool,
    /// How long the subscriber may leave without an answer what takes it moments.
    pub(crate) answer_limit: Option<Duration>,
    pub(crate) metrics: LaneMetrics,
    pub(crate) loss: Loss,
    /// How many of the lane's workers have something in flight.
    pub(crate) busy: Arc<AtomicUsize>,
}

/// Where the unit that is being written stands.
#[derive(Debug)]
pub(crate) enum Writing {
    /// None: the next order may begin one.
    Nothing,
    /// Its end is still to come from the log.
    Open { commit: Commit, changes: usize },
    /// All is sent but where it ends and COMMIT.
    Held {
        unit: UnitId,
        run: u64,
        ending: Ending,
    },
}

/// What an idle worker was woken by.
enum Woken {
    Answer,
    Order(Option<Order>),
    Quiet,
}

pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) session: Session,
    orders: mpsc::UnboundedReceiver<Order>,
    events: mpsc::UnboundedSender<Event>,
    pub(crate) builder: Builder,
    pub(crate) prepared: PreparedStatements,
    pub(crate) due: Due,
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) writing: Writing,
    pub(crate) waiting: VecDeque<Order>,
    /// Set while nothing more may be written until what is due is answered.
    pub(crate) mending: Option<Mend>,
    /// The open unit that is called back, and its run.
    pub(crate) called_back: Option<(UnitId, u64)>,
    /// Orders of runs up to this one are dropped: what they built on was swept away.
    pub(crate) swept: Option<u64>,
    /// Since when answers came without a ReadyForQuery.
    unsynced_since: Option<Instant>,
    /// Counted among those that have something in flight.
    is_busy: bool,
    /// When the session was through with the statements of the unit before.
    pub(crate) free_since: Instant,
}

impl Worker {
    pub(crate) fn new(
        config: WorkerConfig,
        session: Session,
        orders: mpsc::UnboundedReceiver<Order>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let builder = Builder::new(config.truncate_cascade);
        Self {
            config,
            session,
            orders,
            events,
            builder,
            prepared: PreparedStatements::default(),
            due: Due::default(),
            flights: VecDeque::new(),
            writing: Writing::Nothing,
            waiting: VecDeque::new(),
            mending: None,
            called_back: None,
            swept: None,
            unsynced_since: None,
            is_busy: false,
            free_since: Instant::now(),
        }
    }

    /// Works until the orders end (answers that are due are read first) or the session is lost.
    pub(crate) async fn run(mut self) {
        match self.work().await {
            Ok(()) => {
                let Session { sender, .. } = self.session;
                // Whoever ends the session first, it is over.
                let _ = sender.close().await;
            }
            Err(failure) => {
                self.config.loss.tell(failure);
                self.tell(Event::SessionLost {
                    worker: self.config.id,
                });
            }
        }
    }

    async fn work(&mut self) -> Result<(), Failure> {
        loop {
            self.write_orders().await?;
            self.read_answers()?;
            self.tell_busy();
            if self.mend().await? {
                continue;
            }
            self.cancel_called_back().await;
            if self.nothing_due() && self.drains() {
                self.sync().await?;
                continue;
            }
            match self.wait().await? {
                Woken::Answer => {}
                Woken::Order(Some(order)) => self.accept(order),
                // What is due is read, whatever became of those who wait for it.
                Woken::Order(None) if !self.due.is_empty() => {
                    self.session.receiver.fill().await?;
                }
                Woken::Order(None) => return Ok(()),
                // Nothing stands before it: it is answered in moments.
                Woken::Quiet => {
                    let limit = self.config.answer_limit;
                    in_time(limit, self.sync()).await?;
                }
            }
        }
    }

    /// Others see whether anything is in flight here.
    pub(crate) fn tell_busy(&mut self) {
        let is_busy = !self.flights.is_empty();
        if is_busy == self.is_busy {
            return;
        }
        self.is_busy = is_busy;
        if is_busy {
            self.config.busy.fetch_add(1, Ordering::Relaxed);
        } else {
            self.config.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if another worker has something in flight, which may wait for a COMMIT of this one.
    pub(crate) fn others_are_busy(&self) -> bool {
        self.config.busy.load(Ordering::Relaxed) > usize::from(self.is_busy)
    }

    /// Waits for an answer, an order, or quiet.
    async fn wait(&mut self) -> Result<Woken, Failure> {
        let takes_orders = self.takes_orders();
        let quiet = match self.unsynced_since {
            Some(_) => Duration::from_millis(SYNC_IDLE_MS),
            None => Duration::from_millis(SYNC_ALIVE_MS),
        };
        let answered = self.nothing_due();
        tokio::select! {
            biased;
            filled = self.session.receiver.fill() => {
                filled?;
                Ok(Woken::Answer)
            }
            order = self.orders.recv(), if takes_orders => Ok(Woken::Order(order)),
            () = tokio::time::sleep(quiet), if answered => Ok(Woken::Quiet),
        }
    }

    pub(crate) async fn sync(&mut self) -> Result<(), Failure> {
        self.session.sync().await?;
        self.unsynced_since = None;
        Ok(())
    }

    pub(crate) fn unsynced(&mut self) {
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    fn takes_orders(&self) -> bool {
        self.mending.is_none() && !self.drains()
    }

    fn nothing_due(&self) -> bool {
        self.due.is_empty() && self.flights.is_empty()
    }

    /// True while no new unit is begun, so that a Sync can be sent once nothing is due.
    fn drains(&self) -> bool {
        let latest = Duration::from_millis(SYNC_LATEST_MS);
        matches!(self.writing, Writing::Nothing)
            && self
                .unsynced_since
                .is_some_and(|since| since.elapsed() > latest)
    }

    /// Keeps an order until it is written; not one of a run that was swept away.
    fn accept(&mut self, order: Order) {
        if self.swept.is_none_or(|swept| order.run() > swept) {
            self.waiting.push_back(order);
        }
    }

    /// Writes all orders that may be written, and sends them as one burst.
    async fn write_orders(&mut self) -> Result<(), Failure> {
        let mut wrote = false;
        while self.takes_orders()
            && let Some(order) = self.next_order()
        {
            wrote = true;
            self.write_order(order).await?;
        }
        if wrote {
            self.session.sender.flush_request();
            self.send().await?;
        }
        Ok(())
    }

    /// The next order that may be written now. While a COMMIT is held, only it may, or the call
    /// back of its unit.
    fn next_order(&mut self) -> Option<Order> {
        while let Ok(order) = self.orders.try_recv() {
            self.accept(order);
        }
        match self.writing {
            Writing::Held { .. } => {
                let ends =
                    |order: &Order| matches!(order, Order::Commit { .. } | Order::Abandon { .. });
                let place = self.waiting.iter().position(ends)?;
                self.waiting.remove(place)
            }
            _ => self.waiting.pop_front(),
        }
    }

    async fn write_order(&mut self, order: Order) -> Result<(), Failure> {
        match order {
            Order::Run { run, unit, commit } => self.write_unit(run, &unit, commit).await,
            Order::Extend {
                run,
                unit,
                extension,
            } => self.write_extension(run, unit, extension).await,
            Order::Commit { .. } => {
                if let Writing::Held { ending, .. } =
                    std::mem::replace(&mut self.writing, Writing::Nothing)
                {
                    self.write_commit(&ending);
                }
                Ok(())
            }
            Order::Abandon { run, unit } => {
                self.called_back = Some((unit, run));
                self.mending = Some(Mend::Abandon { cancelled: false });
                Ok(())
            }
        }
    }

    /// Cancels the unit that is called back, once it is the one that runs: what it waits for,
    /// perhaps a lock of a unit whose turn comes later, is not waited for. The server has taken the
    /// request before anything else is sent, so it cannot end what comes next; if one that was not
    /// answered in time does, what it ended is run again.
    async fn cancel_called_back(&mut self) {
        let Some(Mend::Abandon { cancelled: false }) = self.mending else {
            return;
        };
        let runs = self.called_back.is_some_and(|(unit, _)| {
            let first = self.flights.front();
            first.is_some_and(|flight| flight.unit == unit) && !self.due.is_empty()
        });
        if runs {
            self.mending = Some(Mend::Abandon { cancelled: true });
            // Where the request cannot be made, the statement's own end is waited for.
            let cancel = async { Ok(self.session.cancel.cancel().await?) };
            if let Err(failure) = in_time(self.config.answer_limit, cancel).await {
                let (stream, message) = (&self.config.stream, failure.into_stop().message);
                tracing::debug!(stream, message, "cancel request failed");
            }
        }
    }
    pub(crate) async fn send(&mut self) -> Result<(), Failure> {
        self.session
            .sender
            .send_reading(&mut self.session.receiver)
            .await?;
        Ok(())
    }

    /// Takes in all answers that have been read.
    pub(crate) fn read_answers(&mut self) -> Result<(), Failure> {
        while let Some(message) = self.session.receiver.try_next()? {
            self.answer(message)?;
        }
        Ok(())
    }

    fn answer(&mut self, message: BackendMessage) -> Result<(), Failure> {
        match message {
            BackendMessage::CommandComplete(tag) => self.completed(&tag),
            BackendMessage::ParseComplete | BackendMessage::CloseComplete => match self.due.pop() {
                Some(Step::Parsed(_) | Step::ParsedUnnamed | Step::Closed(_)) => Ok(()),
                _ => Err(self.out_of_step("ParseComplete")),
            },
            BackendMessage::ErrorResponse(error) => {
                if error.ends_session() {
                    return Err(walbraid_wire::Error::Server(error).into());
                }
                // What is behind it is skipped up to the Sync that mends the session.
                self.mending = Some(Mend::Error(error));
                Ok(())
            }
            BackendMessage::ReadyForQuery(_) => Err(self.out_of_step("ReadyForQuery")),
            _ => Ok(()),
        }
    }

    fn completed(&mut self, tag: &CommandTag) -> Result<(), Failure> {
        let Some(flight) = self.flights.front_mut() else {
            return Err(self.out_of_step("CommandComplete"));
        };
        match self.due.pop() {
            Some(Step::Begin | Step::Progress) => {}
            Some(Step::Change {
                place,
                operation,
                expect,
                mapped,
            }) => {
                let rows = tag.rows.unwrap_or_default();
                flight.changed(operation, expect, mapped.as_deref(), place, rows);
            }
            Some(Step::Commit) => self.committed(tag),
            _ => return Err(self.out_of_step("CommandComplete")),
        }
        let is_open = matches!(self.writing, Writing::Open { .. });
        if is_open
            && self.due.is_empty()
            && let Some(flight) = self.flights.front_mut()
        {
            flight.rests(Instant::now());
        }
        self.count_held();
        Ok(())
    }

    /// Reports the counts of a unit whose COMMIT is held, once all its answers are there.
    pub(crate) fn count_held(&mut self) {
        let Writing::Held { unit, run, .. } = self.writing else {
            return;
        };
        if !self.due.is_empty() || self.mending.is_some() {
            return;
        }
        let Some(flight) = self.flights.front_mut().filter(|one| one.unit == unit) else {
            return;
        };
        if flight.busy_us.is_some() {
            return;
        }
        flight.through(&mut self.free_since, Instant::now());
        let missing = flight.missing.first();
        let any_missing = flight.missing_count() > 0;
        match (self.config.on_missing, missing) {
            (OnMissing::Error, Some((missing, place))) => {
                let (missing, place) = (missing.clone(), *place);
                self.mending = Some(Mend::Unit(Box::new(UnitFailure::Missing {
                    missing,
                    place,
                })));
            }
            _ => self.tell(Event::Counted {
                worker: self.config.id,
                run,
                unit,
                missing: any_missing,
            }),
        }
    }

    fn committed(&mut self, tag: &CommandTag) {
        let Some(mut flight) = self.flights.pop_front() else {
            return;
        };
        let now = Instant::now();
        let busy_us = flight.through(&mut self.free_since, now);
        self.free_since = now;
        let tag = match tag.command {
            Command::Commit => CommitTag::Commit,
            _ => CommitTag::RollBack,
        };
        if tag == CommitTag::Commit {
            self.count(&flight);
        }
        let (worker, Flight { run, unit, .. }) = (self.config.id, flight);
        self.tell(Event::Committed {
            worker,
            run,
            unit,
            tag,
            busy_us,
        });
    }

    fn count(&self, flight: &Flight) {
        let (metrics, counts) = (&self.config.metrics, &flight.counts);
        metrics.units.inc();
        metrics
            .transactions
            .inc_by(flight.transactions.len() as u64);
        metrics.group_size.observe(flight.transactions.len() as f64);
        metrics.inserts.inc_by(counts.inserts);
        metrics.updates.inc_by(counts.updates);
        metrics.deletes.inc_by(counts.deletes);
        metrics.truncates.inc_by(counts.truncates);
        metrics.missing_updates.inc_by(counts.missing_updates);
        metrics.missing_deletes.inc_by(counts.missing_deletes);
        let version = self.session.version.number();
        for (missing, place) in &flight.missing {
            let (xid, commit_lsn) = flight
                .transactions
                .get(place.transaction)
                .copied()
                .unwrap_or_default();
            let (message, detail) = (missing.message(version), missing.detail());
            let stream = self.config.stream.as_str();
            tracing::warn!(stream, xid, %commit_lsn, detail, "{message}");
        }
        let more = flight
            .missing_count()
            .saturating_sub(flight.missing.len() as u64);
        if more > 0 {
            let stream = self.config.stream.as_str();
            tracing::warn!(
                stream,
                "{more} more rows were not found in the same target transaction"
            );
        }
    }

    /// Reports; nobody listens any more when the lane is ending.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    fn out_of_step(&self, what: &str) -> Failure {
        let due = self.due.front();
        Failure::definite(
            StopKind::Internal,
            format!("{what} from the subscriber while {due:?} was due"),
        )
    }
}
