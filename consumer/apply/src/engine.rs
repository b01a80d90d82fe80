//! The engine of a lane: events in, actions out.
//!
//! It owns every decision about order: which transactions become a unit, which worker runs it and
//! when, when it may commit, what a failure means, how far the lane is, and which offset may be
//! committed. It owns no connection and no clock; `now_ms` is any clock that does not go back.
//!
//! **What the shell promises.** It executes the actions of one [`Engine::step`] in order, before it
//! calls the next one. After [`Action::SeekBack`] and [`Action::TakeOver`] it discards the records
//! it has fetched already. A worker executes what it is given in the order in which it was given.
//! A unit that failed takes with it everything that was sent behind it on its connection: the
//! worker drops those runs, the engine counts them as undone. A run sent before the failure was
//! known carries a number that the worker drops (see [`Action::Run`]).
//!
//! **What the engine promises.** At any time the committed units are a prefix of the log. An offset
//! to commit never passes the first record of anything that is not durable. A failure is a stop
//! only if it is a fact ([`crate::rule`]), and everything before it is committed by then.
//!
//! **Memory.** What is read and not yet committed is bounded by `buffer_bytes_max`, above which
//! fetching pauses. A transaction larger than `transaction_memory_bytes` becomes an open unit while
//! it still arrives: its worker applies what is there and gets the rest piece by piece; the pieces
//! are not kept, so should it have to run again, it is read from the log again. What cannot be
//! bounded is a single row: its fragments are put together before it can be applied.

mod failed;
mod outcome;
mod patience;
mod pending;
mod recorder;
mod status;
mod tally;

use walbraid_schemas::chain::Position;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Stop, StopKind};

pub use self::recorder::{
    AttemptEnd, RecordedAttempt, RecordedEdge, RecordedUnit, Recording, TRANSACTIONS_MAX,
};
pub use self::status::{Status, Waiting};
pub use self::tally::{KeyTally, Named, SerialTally, TableTally, Tally};

use self::failed::Retry;
use self::outcome::Counts;
use self::patience::Patience;
use self::pending::Pending;
use crate::action::{Action, TakeOver};
use crate::buffer::{Buffer, Buffered};
use crate::coordinator::OnMissing;
use crate::event::{CommitTag, Event, Record};
use crate::frontier::Frontier;
use crate::pace::{Pace, Workers};
use crate::rule::{BackOff, Cause};
use crate::scheduler::{InFlightLimits, WorkerId};
use crate::unit::UnitId;
use crate::window::{GroupLimits, Window};

/// How long no further session is asked for after one was refused.
const CONNECT_AGAIN_MS: u64 = 10_000;

/// What an engine is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the stream, for messages.
    pub stream: String,
    /// Connections that apply.
    pub workers: Workers,
    /// Touches of keys by unfinished units; a unit that would pass it runs alone.
    pub conflict_keys_max: usize,
    /// Old values that are not on the wire are read from the subscriber, while several workers
    /// apply.
    pub resolver: bool,
    /// What is done about a row that is not found.
    pub on_missing: OnMissing,
    /// How large a unit may grow when the lane is behind.
    pub group: GroupLimits,
    /// How much a worker may have before it.
    pub in_flight: InFlightLimits,
    /// A transaction larger than this is applied while it arrives.
    pub transaction_memory_bytes: usize,
    /// Fetching pauses above this.
    pub buffer_bytes_max: usize,
    /// A transaction that is applied while it arrives and has not grown for this long is rolled
    /// back on the subscriber.
    pub run_idle_timeout_ms: u64,
    /// Pauses between attempts of a unit.
    pub back_off: BackOff,
}

impl Default for Config {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            stream: String::new(),
            workers: Workers::Fixed(1),
            conflict_keys_max: 1 << 20,
            resolver: true,
            on_missing: OnMissing::Skip,
            group: GroupLimits {
                transactions_max: 256,
                bytes_max: MIB,
            },
            in_flight: InFlightLimits {
                units_max: 8,
                bytes_max: 8 * MIB,
            },
            transaction_memory_bytes: 16 * MIB,
            buffer_bytes_max: 64 * MIB,
            run_idle_timeout_ms: 60_000,
            back_off: BackOff {
                first_ms: 20,
                max_ms: 10_000,
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Applying,
    TakingOver,
    Stopped,
}

/// The engine of a lane.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    phase: Phase,
    buffer: Buffer,
    window: Window,
    pending: Pending,
    pace: Pace,
    patience: Patience,
    /// A session was asked for and is not there yet.
    connecting: bool,
    /// When one may be asked for again.
    connect_at_ms: u64,
    frontier: Frontier,
    log_stop: Option<Stop>,
    retry: Option<Retry>,
    /// Commit LSN of the transaction for whose sake the catalogue was read again last.
    shape_read_for: Option<Lsn>,
    retries: [u64; Cause::ALL.len()],
    transactions_before: u64,
    paused: bool,
    offset: Option<i64>,
    wake_at_ms: Option<u64>,
    buffered: Vec<Buffered>,
}

impl Engine {
    /// An engine at the subscriber's progress: the end LSN it has flushed, and the claim of that
    /// link.
    pub fn new(config: Config, position: Position) -> Self {
        let pending = Pending::new(&config, position.end_lsn);
        Self {
            phase: Phase::Applying,
            buffer: Buffer::new(position, config.transaction_memory_bytes),
            window: Window::default(),
            pending,
            pace: Pace::new(config.workers),
            patience: Patience::default(),
            connecting: false,
            connect_at_ms: 0,
            frontier: Frontier::new(&position),
            log_stop: None,
            retry: None,
            shape_read_for: None,
            retries: [0; Cause::ALL.len()],
            transactions_before: 0,
            paused: false,
            offset: None,
            wake_at_ms: None,
            buffered: Vec::new(),
            config,
        }
    }

    /// Goes on after a take-over, at the progress that was found then. What was read and not seen
    /// to commit is forgotten, whoever wanted the take-over: it is read again, or was committed.
    pub fn resume(&mut self, position: Position) {
        self.clear();
        self.pending.resolver.restart(position.end_lsn);
        self.pending.recorder.end();
        self.transactions_before += self.frontier.transactions_applied();
        self.frontier = Frontier::new(&position);
        self.buffer = Buffer::new(position, self.config.transaction_memory_bytes);
        self.log_stop = None;
        self.paused = false;
        self.offset = None;
        self.phase = Phase::Applying;
    }

    /// Not all sessions that are to be there from the start could be opened, but so many. The
    /// others are asked for later.
    pub fn begin_with(&mut self, now_ms: u64, workers: usize) {
        self.pending.scheduler.open(workers);
        self.connect_at_ms = now_ms.saturating_add(CONNECT_AGAIN_MS);
    }

    /// Takes in one event; appends what is to be done.
    pub fn step(&mut self, now_ms: u64, event: Event, actions: &mut Vec<Action>) {
        if self.phase != Phase::Applying {
            return;
        }
        let before = actions.len();
        self.pending.recorder.comes(now_ms, &event);
        self.take(now_ms, event, actions);
        self.advance(now_ms, actions);
        if self.pending.recorder.is_on() {
            let new = actions.get(before..).unwrap_or_default();
            self.pending.recorder.goes(new);
        }
    }

    fn take(&mut self, now_ms: u64, event: Event, actions: &mut Vec<Action>) {
        // An alarm that has gone off is none any more.
        self.wake_at_ms.take_if(|at_ms| *at_ms <= now_ms);
        match event {
            Event::Record(record) => self.record(now_ms, *record, actions),
            Event::ReadFrom(start) => {
                if self.buffer.restart(start) {
                    self.drop_open(actions);
                }
            }
            Event::LogStop(stop) => {
                self.log_stop.get_or_insert(stop);
            }
            Event::Committed {
                worker,
                run,
                unit,
                tag,
                busy_us,
            } => {
                self.committed(now_ms, (worker, run, unit), (tag, busy_us), actions);
            }
            Event::Counted {
                worker,
                run,
                unit,
                missing,
            } => self.counted((worker, run, unit), missing, actions),
            Event::Failed {
                worker,
                run,
                unit,
                failure,
            } => {
                self.failed(now_ms, (worker, run, unit), &failure, actions);
            }
            Event::Abandoned { worker, run, unit } => self.pending.abandoned(worker, run, unit),
            Event::Consumed { unit, size_bytes } => self.pending.consumed(unit, size_bytes),
            Event::SessionLost { .. } => {
                self.count_retry(Cause::Connection);
                self.take_over(TakeOver::SessionLost, actions);
            }
            Event::Blocked { waits } => {
                self.patience.answered();
                let rolled_back = self.pending.blocked(&waits, actions);
                self.count_retries(Cause::Blocked, rolled_back);
            }
            Event::OldValues {
                read,
                rows,
                took_us,
            } => {
                let resolver = &mut self.pending.resolver;
                resolver.answered(now_ms, read, rows.as_deref(), took_us);
            }
            Event::Joined { worker } => {
                self.connecting = false;
                if let Some(worker) = self.pending.scheduler.worker(worker) {
                    worker.joined = true;
                }
            }
            Event::Refused => {
                self.connecting = false;
                self.connect_at_ms = now_ms.saturating_add(CONNECT_AGAIN_MS);
            }
            Event::Flushed { lsn } => self.frontier.flushed(lsn),
            Event::Tick => {}
        }
    }

    fn record(&mut self, now_ms: u64, record: Record, actions: &mut Vec<Action>) {
        if self.log_stop.is_some() {
            return;
        }
        let mut buffered = std::mem::take(&mut self.buffered);
        self.buffer.record(now_ms, record, &mut buffered);
        for step in buffered.drain(..) {
            self.take_in(step, actions);
        }
        self.buffered = buffered;
    }

    fn take_in(&mut self, step: Buffered, actions: &mut Vec<Action>) {
        if self.phase != Phase::Applying {
            return;
        }
        match step {
            Buffered::Transaction(transaction) => self.window.push(*transaction),
            Buffered::Extension(extension) => {
                if self.window.ends_open() {
                    self.window.extend(extension);
                } else if self.pending.extend(extension, actions).is_none() {
                    self.invariant(
                        "a piece of a transaction that is not open".to_owned(),
                        actions,
                    );
                }
            }
            Buffered::Void => self.drop_open(actions),
            Buffered::SeekBack => actions.push(Action::SeekBack),
            Buffered::ReadAgain => self.take_over(TakeOver::ReadAgain, actions),
            Buffered::Stop(stop) => {
                self.log_stop.get_or_insert(*stop);
            }
        }
    }

    /// The transaction that was being applied while it arrived will not arrive any further.
    fn drop_open(&mut self, actions: &mut Vec<Action>) {
        if self.window.ends_open() {
            self.window.drop_open();
        } else {
            self.pending.drop_open(actions);
        }
    }

    fn committed(
        &mut self,
        now_ms: u64,
        (worker, run, unit): (WorkerId, u64, UnitId),
        (tag, busy_us): (CommitTag, u64),
        actions: &mut Vec<Action>,
    ) {
        if self.pending.is_stale(worker, run) {
            return;
        }
        if tag == CommitTag::RollBack {
            self.take_over(TakeOver::OutcomeUnknown, actions);
            return;
        }
        let Some((unit, ending)) = self.pending.committed(worker, unit) else {
            self.invariant(format!("unit {} committed out of turn", unit.0), actions);
            return;
        };
        self.frontier.committed(&unit, &ending);
        self.pending.resolver.applied(ending.end_lsn);
        self.pending.tally.busy_us += busy_us;
        let behind = !self.window.is_empty();
        let transactions = unit.transactions.len();
        self.pace
            .worked(transactions, unit.change_count(), busy_us, behind);
        self.recovered(now_ms, &ending, actions);
    }

    fn counted(
        &mut self,
        attempt: (WorkerId, u64, UnitId),
        missing: bool,
        actions: &mut Vec<Action>,
    ) {
        match self.pending.counted(attempt, missing, actions) {
            Counts::Taken => {}
            Counts::NotAFact => self.count_retry(Cause::NotFound),
            Counts::OutOfTurn => {
                let UnitId(unit) = attempt.2;
                self.invariant(format!("counts of unit {unit} out of turn"), actions);
            }
        }
    }

    /// Does whatever can be done now.
    fn advance(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.paused {
            self.buffer.not_idle(now_ms);
        }
        if self.phase == Phase::Applying
            && self.buffer.park(now_ms, self.config.run_idle_timeout_ms)
        {
            self.drop_open(actions);
        }
        if self.phase == Phase::Applying {
            self.set_workers(now_ms, actions);
        }
        while self.phase == Phase::Applying {
            let mut group = self.config.group;
            let workers = self.pending.scheduler.effective();
            group.transactions_max = self.pace.group(workers, group.transactions_max);
            let formed = self.pending.form(now_ms, &mut self.window, group, actions);
            let sent = self.dispatch(now_ms, actions);
            let turned = self.phase == Phase::Applying && self.pending.commit_turns(actions);
            if !formed && !sent && !turned {
                break;
            }
        }
        if self.phase != Phase::Applying {
            return;
        }
        self.ask_blocked(now_ms, actions);
        self.stop_at_the_end(actions);
        self.commit_offset(actions);
        self.hold_back(actions);
        self.wake(now_ms, actions);
    }

    /// Lets as many workers work as pay, and asks for those that are not there.
    fn set_workers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let lacking = self.pending.scheduler.set_effective(self.pace.workers());
        if lacking > 0 && !self.connecting && now_ms >= self.connect_at_ms {
            self.connecting = true;
            actions.push(Action::Connect);
        }
    }

    /// Sends the units that may be sent.
    fn dispatch(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let Some(next) = self.pending.unsent() else {
            return false;
        };
        let mut head_may = true;
        if next.is_head {
            head_may = self.retry_pause(next.commit_lsn, now_ms).is_none();
            if let Some(error) = next.mapping_error.filter(|_| head_may) {
                self.unmapped(next.commit_lsn, &error, actions);
                return false;
            }
        }
        let sent = self
            .pending
            .dispatch(head_may, self.config.on_missing, actions);
        if head_may && self.pending.make_way(actions) {
            self.count_retry(Cause::MadeWay);
        }
        sent
    }

    /// The log cannot be read on: stop once all that was read is committed.
    fn stop_at_the_end(&mut self, actions: &mut Vec<Action>) {
        let done = self.window.is_empty() && self.pending.is_empty_but_open();
        if done && let Some(stop) = self.log_stop.take() {
            self.stop(stop, actions);
        }
    }

    fn commit_offset(&mut self, actions: &mut Vec<Action>) {
        let open = [
            self.pending.first_offset(),
            self.window.first_offset(),
            self.buffer.first_offset(),
        ];
        let offset = self.frontier.offset(open.into_iter().flatten().min());
        if offset > self.offset
            && let Some(offset) = offset
        {
            self.offset = Some(offset);
            actions.push(Action::CommitOffset { offset });
        }
    }

    /// Pauses fetching when too much is held, as long as some of it will go without further
    /// records.
    fn hold_back(&mut self, actions: &mut Vec<Action>) {
        let limit = self.config.buffer_bytes_max;
        let stuck = self.buffer.size_bytes() + self.pending.stuck_bytes();
        let loose = self.window.size_bytes() + self.pending.loose_bytes();
        if !self.paused && stuck + loose > limit && loose > limit / 4 {
            self.paused = true;
            actions.push(Action::PauseFetch);
        } else if self.paused && (stuck + loose <= limit / 4 * 3 || loose <= limit / 8) {
            self.paused = false;
            actions.push(Action::ResumeFetch);
        }
    }

    fn wake(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let pause = self.pending.unsent().filter(|next| next.is_head);
        let retry = pause.and_then(|next| self.retry_pause(next.commit_lsn, now_ms));
        let idle = self.buffer.idle_at_ms(self.config.run_idle_timeout_ms);
        let patience = self.patience.until_ms();
        let reads = self.pending.resolver.until_ms();
        let alarms = [retry, idle, patience, reads].into_iter().flatten();
        // What is due is done; if not, it is looked at again soon, not at once and for ever.
        let at_ms = alarms.min().map(|at_ms| at_ms.max(now_ms + 1));
        if at_ms != self.wake_at_ms {
            self.wake_at_ms = at_ms;
            actions.extend(at_ms.map(|at_ms| Action::WakeAt { at_ms }));
        }
    }

    fn take_over(&mut self, reason: TakeOver, actions: &mut Vec<Action>) {
        self.phase = Phase::TakingOver;
        self.clear();
        actions.push(Action::TakeOver { reason });
    }

    fn clear(&mut self) {
        self.window.clear();
        self.pending.clear();
        self.connecting = false;
        self.patience = Patience::default();
        self.wake_at_ms = None;
    }

    fn stop(&mut self, stop: Stop, actions: &mut Vec<Action>) {
        self.phase = Phase::Stopped;
        actions.push(Action::Stop(Box::new(stop)));
    }

    /// Something that cannot be: the process ends, and starts again from what is durable.
    fn invariant(&mut self, what: String, actions: &mut Vec<Action>) {
        let message = format!("stream \"{}\": {what}", self.config.stream);
        let stop = Stop::new(StopKind::Internal, message)
            .detail("This is an error of walbraid. A restart goes on from what is durable.");
        self.stop(stop, actions);
    }
}
