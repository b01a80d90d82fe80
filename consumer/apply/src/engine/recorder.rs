//! What becomes of the next transactions, recorded on request: what `walbraid dag` shows.
//!
//! Off by default, and then nothing is kept. While it is on it looks at what goes into the engine
//! and what comes out of it, and decides nothing. It ends by itself: once so many transactions are
//! in units it takes up no further ones, and it is complete when all of those are committed. What
//! it keeps is bounded by that number and by the limits below.
//!
//! Transactions are known by xid and commit LSN, keys by table and index: no value of a row is in a
//! recording. Times are those of the engine's clock.

use std::sync::Arc;

use walbraid_schemas::lsn::Lsn;

use super::Engine;
use crate::action::Action;
use crate::conflict::{Dependence, Edge};
use crate::event::{CommitTag, Event};
use crate::failure::Failure;
use crate::footprint;
use crate::rule::Cause;
use crate::scheduler::WorkerId;
use crate::unit::{Transaction, Unit, UnitId};

/// So many transactions may be asked for.
pub const TRANSACTIONS_MAX: usize = 1_000;

/// So many edges of a unit are kept, and so many names of its tables.
const NAMES_MAX: usize = 32;

/// So many attempts of a unit are kept.
const ATTEMPTS_MAX: usize = 32;

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// When it began.
    pub began_ms: u64,
    /// The units, in the order in which they were formed.
    pub units: Vec<RecordedUnit>,
    transactions_max: usize,
    transactions: usize,
    /// Attempts so far: they are numbered in the order in which they were sent.
    attempts: u64,
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedUnit {
    /// Its number.
    pub id: UnitId,
    /// Its transactions: xid and LSN of the commit record.
    pub transactions: Vec<(u32, Lsn)>,
    /// Names of the tables that it changes, each once.
    pub tables: Vec<Arc<str>>,
    /// How many changes it has, so far.
    pub changes: usize,
    /// What was found of it; none where one connection keeps the order.
    pub dependence: Option<Dependence>,
    /// Unfinished units that it depends on.
    pub edges: Vec<RecordedEdge>,
    /// Edges that are not kept.
    pub edges_left_out: usize,
    /// When it was formed.
    pub formed_ms: u64,
    /// How often it was sent, in order; the first ones.
    pub attempts: Vec<RecordedAttempt>,
    /// It failed as a whole, and its transactions run one by one, as units of their own.
    pub is_split: bool,
}

/// An edge to an earlier unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEdge {
    /// The earlier unit; it may have been formed before the recording began.
    pub unit: UnitId,
    /// The key that both touch; none where one of them has to be alone, or in order.
    pub key: Option<Arc<str>>,
}

/// An attempt to apply a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// The worker it was sent to.
    pub worker: WorkerId,
    /// When.
    pub sent_ms: u64,
    /// When its statements were through, if that was waited for.
    pub counted_ms: Option<u64>,
    /// When its COMMIT was sent, if not with the statements.
    pub turn_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: AttemptEnd,
    run: u64,
    number: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It has not.
    Open,
    /// It committed.
    Committed,
    /// It failed: with this SQLSTATE, or for what has none.
    Failed(Arc<str>),
    /// It was behind one that failed.
    Swept,
    /// It was rolled back, to run again for this reason.
    CalledBack(Cause),
    /// Its transaction did not arrive any further.
    Withdrawn,
}

impl RecordedUnit {
    fn of(unit: &Unit, dependence: Option<Dependence>, formed_ms: u64) -> Self {
        let known = |transaction: &Transaction| (transaction.xid, transaction.commit_lsn);
        let mut tables: Vec<Arc<str>> = Vec::new();
        for plan in unit.transactions.iter().flat_map(footprint::plans) {
            if let Some(name) = plan.name(plan.table())
                && tables.len() < NAMES_MAX
                && !tables.contains(name)
            {
                tables.push(Arc::clone(name));
            }
        }
        Self {
            id: unit.id,
            transactions: unit.transactions.iter().map(known).collect(),
            tables,
            changes: unit.change_count(),
            dependence,
            edges: Vec::new(),
            edges_left_out: 0,
            formed_ms,
            attempts: Vec::new(),
            is_split: false,
        }
    }

    /// Nothing more will become of it.
    fn is_finished(&self) -> bool {
        let committed = |attempt: &RecordedAttempt| attempt.end == AttemptEnd::Committed;
        self.is_split || self.attempts.iter().any(committed)
    }
}

impl Recording {
    fn is_complete(&self) -> bool {
        let finished = || self.units.iter().all(RecordedUnit::is_finished);
        self.transactions >= self.transactions_max && finished()
    }

    fn unit(&mut self, id: UnitId) -> Option<&mut RecordedUnit> {
        self.units.iter_mut().rfind(|unit| unit.id == id)
    }

    /// The open attempt that a report is about.
    fn attempt(
        &mut self,
        worker: WorkerId,
        run: u64,
        unit: UnitId,
    ) -> Option<&mut RecordedAttempt> {
        let mut attempts = self.unit(unit)?.attempts.iter_mut();
        attempts.rfind(|attempt| {
            let is_open = attempt.end == AttemptEnd::Open;
            is_open && attempt.worker == worker && attempt.run == run
        })
    }

    fn ended(
        &mut self,
        now_ms: u64,
        (worker, run, unit): (WorkerId, u64, UnitId),
        end: AttemptEnd,
    ) -> Option<u64> {
        let attempt = self.attempt(worker, run, unit)?;
        attempt.ended_ms = Some(now_ms);
        attempt.end = end;
        Some(attempt.number)
    }

    fn formed(
        &mut self,
        now_ms: u64,
        unit: &Unit,
        dependence: Option<Dependence>,
        predecessors: &[Edge],
    ) {
        if self.transactions >= self.transactions_max {
            return;
        }
        self.transactions += unit.transactions.len();
        let mut recorded = RecordedUnit::of(unit, dependence, now_ms);
        for edge in predecessors.iter().take(NAMES_MAX) {
            let mut transactions = unit.transactions.iter();
            recorded.edges.push(RecordedEdge {
                unit: edge.unit,
                key: transactions.find_map(|one| footprint::space_name(edge.space, one)),
            });
        }
        recorded.edges_left_out = predecessors.len() - recorded.edges.len();
        self.units.push(recorded);
    }

    /// A unit that is not known, of a transaction that is, is part of one that was split.
    fn split(&mut self, now_ms: u64, unit: &Unit) {
        let commit_lsn = unit.transactions.first().map(|first| first.commit_lsn);
        let holds = |whole: &&mut RecordedUnit| {
            let mut lsns = whole.transactions.iter().map(|(_, lsn)| Some(*lsn));
            lsns.any(|lsn| lsn == commit_lsn)
        };
        if let Some(whole) = self.units.iter_mut().find(holds) {
            whole.is_split = true;
            let part = RecordedUnit::of(unit, whole.dependence, now_ms);
            self.units.push(part);
        }
    }

    fn sent(&mut self, now_ms: u64, worker: WorkerId, run: u64, unit: &Unit) {
        if self.unit(unit.id).is_none() {
            self.split(now_ms, unit);
        }
        self.attempts += 1;
        let number = self.attempts;
        if let Some(recorded) = self.unit(unit.id)
            && recorded.attempts.len() < ATTEMPTS_MAX
        {
            recorded.attempts.push(RecordedAttempt {
                worker,
                sent_ms: now_ms,
                counted_ms: None,
                turn_ms: None,
                ended_ms: None,
                end: AttemptEnd::Open,
                run,
                number,
            });
        }
    }

    /// A worker undid an attempt and all that was sent behind it.
    fn failed(&mut self, now_ms: u64, attempt: (WorkerId, u64, UnitId), failure: &Failure) {
        let code = match failure {
            Failure::Server { error, .. } => error.sqlstate.as_str().into(),
            Failure::Missing { .. } => "not_found".into(),
            Failure::Build { .. } => "unmapped".into(),
        };
        let Some(number) = self.ended(now_ms, attempt, AttemptEnd::Failed(code)) else {
            return;
        };
        let attempts = self.units.iter_mut().flat_map(|unit| &mut unit.attempts);
        for behind in attempts {
            let is_open = behind.end == AttemptEnd::Open;
            if is_open && behind.worker == attempt.0 && behind.number > number {
                behind.ended_ms = Some(now_ms);
                behind.end = AttemptEnd::Swept;
            }
        }
    }

    fn event(&mut self, now_ms: u64, event: &Event) {
        match event {
            Event::Counted {
                worker, run, unit, ..
            } => {
                if let Some(attempt) = self.attempt(*worker, *run, *unit) {
                    attempt.counted_ms = Some(now_ms);
                }
            }
            Event::Committed {
                worker,
                run,
                unit,
                tag: CommitTag::Commit,
                ..
            } => {
                self.ended(now_ms, (*worker, *run, *unit), AttemptEnd::Committed);
            }
            Event::Failed {
                worker,
                run,
                unit,
                failure,
            } => self.failed(now_ms, (*worker, *run, *unit), failure),
            _ => {}
        }
    }

    fn action(&mut self, now_ms: u64, action: &Action, back: &AttemptEnd) {
        match action {
            Action::Run {
                worker, run, unit, ..
            } => self.sent(now_ms, *worker, *run, unit),
            Action::Extend {
                unit, extension, ..
            } => {
                if let Some(unit) = self.unit(*unit) {
                    unit.changes += extension.piece.changes().len();
                }
            }
            Action::Commit { worker, run, unit } => {
                if let Some(attempt) = self.attempt(*worker, *run, *unit) {
                    attempt.turn_ms = Some(now_ms);
                }
            }
            Action::Abandon { worker, run, unit } => {
                self.ended(now_ms, (*worker, *run, *unit), back.clone());
            }
            _ => {}
        }
    }
}

/// A recording that may be on.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    on: Option<Box<Recording>>,
    now_ms: u64,
    /// Why an attempt is called back, if one is, on what comes in now.
    back: Option<AttemptEnd>,
}

impl Recorder {
    pub(super) fn begin(&mut self, now_ms: u64, transactions: usize) {
        self.on = Some(Box::new(Recording {
            began_ms: now_ms,
            units: Vec::new(),
            transactions_max: transactions.clamp(1, TRANSACTIONS_MAX),
            transactions: 0,
            attempts: 0,
        }));
    }

    pub(super) fn end(&mut self) -> Option<Recording> {
        self.on.take().map(|recording| *recording)
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Something comes in.
    pub(super) fn comes(&mut self, now_ms: u64, event: &Event) {
        let Some(recording) = &mut self.on else {
            return;
        };
        self.now_ms = now_ms;
        self.back = Some(match event {
            Event::Counted { .. } => AttemptEnd::CalledBack(Cause::NotFound),
            Event::Blocked { .. } => AttemptEnd::CalledBack(Cause::Blocked),
            Event::ReadFrom(_) | Event::Record(_) => AttemptEnd::Withdrawn,
            _ => AttemptEnd::CalledBack(Cause::MadeWay),
        });
        recording.event(now_ms, event);
    }

    /// A unit was formed, and it was found what it depends on.
    pub(super) fn formed(
        &mut self,
        unit: &Unit,
        dependence: Option<Dependence>,
        predecessors: &[Edge],
    ) {
        if let Some(recording) = &mut self.on {
            recording.formed(self.now_ms, unit, dependence, predecessors);
        }
    }

    /// That comes out.
    pub(super) fn goes(&mut self, actions: &[Action]) {
        if let (Some(recording), Some(back)) = (&mut self.on, self.back.take()) {
            for action in actions {
                recording.action(self.now_ms, action, &back);
            }
        }
    }
}

impl Engine {
    /// Records what becomes of the next transactions, so many of them and never more than
    /// [`TRANSACTIONS_MAX`]. A recording before is forgotten; so is this one by a take-over.
    pub fn begin_recording(&mut self, now_ms: u64, transactions: usize) {
        self.pending.recorder.begin(now_ms, transactions);
    }

    /// True if all that was to be recorded is committed.
    pub fn recording_is_complete(&self) -> bool {
        let recording = self.pending.recorder.on.as_ref();
        recording.is_some_and(|recording| recording.is_complete())
    }

    /// Ends the recording; none if there is none.
    pub fn end_recording(&mut self) -> Option<Recording> {
        self.pending.recorder.end()
    }
}
