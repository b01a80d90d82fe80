//! Units that are not committed, in the order of the log.
//!
//! Keeps each unit's state, its place in the graph, and the attempt that runs; here they are formed
//! and sent, in [`super::outcome`] is what becomes of them. Every change of state goes through
//! [`State::after`].
//!
//! Units are numbered in the order of the log with room between two numbers, so that a unit that is
//! split keeps its place.

use std::collections::VecDeque;
use std::sync::Arc;

use walbraid_schemas::lsn::Lsn;

use super::Config;
use super::recorder::Recorder;
use super::tally::Tally;
use crate::action::Action;
use crate::conflict::{Analysis, ConflictHash, Dependence, Edge, LANE};
use crate::coordinator::{self, Commit, OnMissing};
use crate::dag::Dag;
use crate::footprint::{self, Footprint, Scope, Touch};
use crate::mapping::MappingError;
use crate::resolver::Resolver;
use crate::scheduler::{Bound, Scheduler, WorkerId};
use crate::state::{State, Step};
use crate::unit::{Ending, Extension, Unit, UnitId};
use crate::window::{GroupLimits, Window};

/// Numbers left free behind each unit, for what it is split into.
const ID_STRIDE: u64 = 1 << 20;

/// An attempt to apply a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) worker: WorkerId,
    /// When it was sent, everything unfinished before it was on the same worker with its COMMIT on
    /// the way, or there was nothing: what it finds is a fact once it is the head.
    pub(super) in_order: bool,
    pub(super) commit_sent: bool,
}

/// What a unit touches, kept in case the graph has to be made anew.
#[derive(Clone, Debug)]
struct Touches {
    scope: Scope,
    keys: Arc<[Touch]>,
}

impl Touches {
    /// Of a unit that runs alone: its keys say nothing more.
    fn everything() -> Self {
        Self {
            scope: Scope::Barrier,
            keys: Arc::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) unit: Arc<Unit>,
    pub(super) state: State,
    pub(super) dependence: Dependence,
    /// Runs only in order: nothing is known of it, or an attempt went wrong.
    is_serial: bool,
    touches: Touches,
    pub(super) attempt: Option<Attempt>,
    /// Pieces were sent that are not kept: the unit cannot be sent again as it is.
    pub(super) extended: bool,
    /// The ending that came with an extension.
    pub(super) ending: Option<Ending>,
    pub(super) size_bytes: usize,
    /// Bytes of extensions that the worker still holds.
    extension_bytes: usize,
}

impl Entry {
    /// A unit that was analysed.
    fn new(unit: Arc<Unit>, touches: Touches, dependence: Dependence) -> Self {
        let mut entry = Self {
            size_bytes: unit.size_bytes(),
            unit,
            state: State::Analyzing,
            dependence,
            is_serial: false,
            touches,
            attempt: None,
            extended: false,
            ending: None,
            extension_bytes: 0,
        };
        if dependence == Dependence::Unknown {
            entry.enter(Step::NothingKnown);
            entry.enter(Step::MadeSerial);
        } else {
            entry.enter(Step::Analyzed);
        }
        entry
    }

    pub(super) fn is_open(&self) -> bool {
        self.unit.is_open() && self.ending.is_none()
    }

    pub(super) fn enter(&mut self, step: Step) -> bool {
        self.is_serial |= step == Step::MadeSerial;
        match self.state.after(step) {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }

    /// Must find nothing unfinished before it but on its own connection.
    fn is_alone(&self) -> bool {
        self.is_serial || self.dependence == Dependence::Barrier
    }
}

/// Where everything before a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// There is nothing.
    Nothing,
    /// All on one worker, their COMMITs on the way.
    On(WorkerId),
    /// Elsewhere, or not sent.
    Scattered,
}

impl Before {
    fn and(self, attempt: Option<Attempt>) -> Self {
        match (self, attempt) {
            (Self::Nothing, Some(attempt)) if attempt.commit_sent => Self::On(attempt.worker),
            (Self::On(worker), Some(attempt))
                if attempt.commit_sent && attempt.worker == worker =>
            {
                self
            }
            _ => Self::Scattered,
        }
    }

    fn is_in_order_for(self, worker: WorkerId) -> bool {
        match self {
            Self::Nothing => true,
            Self::On(other) => other == worker,
            Self::Scattered => false,
        }
    }
}

/// The next unit that is not sent.
#[derive(Clone, Debug)]
pub(super) struct Unsent {
    pub(super) is_head: bool,
    pub(super) commit_lsn: Lsn,
    pub(super) mapping_error: Option<Arc<MappingError>>,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) units: VecDeque<Entry>,
    pub(super) hash: ConflictHash,
    pub(super) dag: Dag,
    pub(super) scheduler: Scheduler,
    pub(super) tally: Tally,
    pub(super) recorder: Recorder,
    next_id: u64,
    footprint: Footprint,
    pub(super) resolver: Resolver,
    /// A unit larger than this runs alone.
    unit_bytes_max: usize,
}

impl Pending {
    pub(super) fn new(config: &Config, applied: Lsn) -> Self {
        let (rows_max, bytes_max) = (config.conflict_keys_max, config.in_flight.bytes_max);
        let mut resolver = Resolver::new(config.resolver, rows_max, bytes_max);
        resolver.restart(applied);
        Self {
            resolver,
            units: VecDeque::new(),
            hash: ConflictHash::new(config.conflict_keys_max),
            dag: Dag::default(),
            scheduler: Scheduler::new(config.workers, config.in_flight),
            tally: Tally::default(),
            recorder: Recorder::default(),
            next_id: 0,
            footprint: Footprint::default(),
            unit_bytes_max: config.in_flight.bytes_max,
        }
    }

    pub(super) fn clear(&mut self) {
        self.units.clear();
        self.hash.clear();
        self.dag.clear();
        self.scheduler.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// True if all that is left is a unit that still arrives.
    pub(super) fn is_empty_but_open(&self) -> bool {
        self.units.iter().all(Entry::is_open)
    }

    pub(super) fn first_offset(&self) -> Option<i64> {
        self.units.front().map(|head| head.unit.first_offset())
    }

    pub(super) fn head(&self) -> Option<(&Unit, State)> {
        self.units.front().map(|head| (&*head.unit, head.state))
    }

    pub(super) fn in_flight(&self) -> usize {
        let sent = |entry: &&Entry| entry.attempt.is_some();
        self.units.iter().filter(sent).count()
    }

    /// Bytes that stay until further records come: an open unit's that is with its worker.
    pub(super) fn stuck_bytes(&self) -> usize {
        self.bytes(|entry| entry.is_open() && entry.attempt.is_some())
    }

    /// Bytes that go without further records.
    pub(super) fn loose_bytes(&self) -> usize {
        let extensions: usize = self.units.iter().map(|entry| entry.extension_bytes).sum();
        extensions + self.bytes(|entry| !entry.is_open() || entry.attempt.is_none())
    }

    fn bytes(&self, which: impl Fn(&Entry) -> bool) -> usize {
        let which = |entry: &&Entry| which(entry);
        self.units
            .iter()
            .filter(which)
            .map(|entry| entry.size_bytes)
            .sum()
    }

    /// A worker holds an extension no longer.
    pub(super) fn consumed(&mut self, unit: UnitId, size_bytes: usize) {
        if let Some(place) = self.position(unit)
            && let Some(entry) = self.units.get_mut(place)
        {
            entry.extension_bytes = entry.extension_bytes.saturating_sub(size_bytes);
        }
    }

    /// True if a report is about a run that was swept away already.
    pub(super) fn is_stale(&mut self, worker: WorkerId, run: u64) -> bool {
        self.scheduler
            .worker(worker)
            .is_none_or(|worker| worker.run != run)
    }

    pub(super) fn position(&self, unit: UnitId) -> Option<usize> {
        let place = self.units.partition_point(|entry| entry.unit.id < unit);
        let found = self.units.get(place)?;
        (found.unit.id == unit).then_some(place)
    }

    /// How many of the transactions that wait may be analysed: with several workers those whose old
    /// values are known, as far as they are going to be.
    fn ready(&mut self, now_ms: u64, window: &Window, actions: &mut Vec<Action>) -> usize {
        if !self.resolver.is_enabled() {
            return usize::MAX;
        }
        if self.scheduler.effective() == 1 {
            self.resolver.rest();
            return usize::MAX;
        }
        if self.units.is_empty() && window.len() == 1 {
            return usize::MAX;
        }
        self.resolver.ready(now_ms, window, actions)
    }

    /// Makes one unit of what waits, if there is room for one.
    pub(super) fn form(
        &mut self,
        now_ms: u64,
        window: &mut Window,
        limits: GroupLimits,
        actions: &mut Vec<Action>,
    ) -> bool {
        if window.is_empty() || self.units.back().is_some_and(Entry::is_open) {
            return false;
        }
        let ready = self.ready(now_ms, window, actions);
        let room = self.scheduler.room(self.units.len());
        // With several workers, one that depends on nothing is looked for among those ahead.
        let ahead = match self.scheduler.effective() {
            1 => 1,
            _ => usize::MAX,
        };
        let waiting = self.units.len() - self.in_flight();
        if room == 0 || waiting >= ahead {
            return false;
        }
        if ready == 0 {
            return self.resolver.hold(now_ms);
        }
        let transactions = window.take(limits, room, ready);
        let taken = transactions.len();
        self.next_id += ID_STRIDE;
        let unit = Unit {
            id: UnitId(self.next_id),
            transactions,
        };
        let entry = self.analyze(Arc::new(unit));
        self.resolver.taken(taken);
        self.units.push_back(entry);
        true
    }

    fn analyze(&mut self, unit: Arc<Unit>) -> Entry {
        let touches = self.touches(&unit);
        let (entry, predecessors) = self.entry(unit, touches);
        let (unit, dependence) = (&entry.unit, entry.dependence);
        let looked_at = self.scheduler.effective() > 1;
        if looked_at {
            let footprint = &self.footprint;
            let finds_nothing = self.units.is_empty();
            self.tally
                .analyzed(unit, footprint, dependence, &predecessors, finds_nothing);
        } else {
            self.tally.in_order(unit);
        }
        self.recorder
            .formed(unit, looked_at.then_some(dependence), &predecessors);
        entry
    }

    fn entry(&mut self, unit: Arc<Unit>, mut touches: Touches) -> (Entry, Vec<Edge>) {
        let Analysis {
            dependence,
            predecessors,
        } = self.hash.analyze(unit.id, &touches.scope, &touches.keys);
        self.dag.add(unit.id, &predecessors);
        if matches!(dependence, Dependence::Unknown | Dependence::Barrier) {
            touches = Touches::everything();
        }
        (Entry::new(unit, touches, dependence), predecessors)
    }

    /// What the unit touches. With one worker the connection keeps the order, and nobody need know
    /// more.
    fn touches(&mut self, unit: &Unit) -> Touches {
        let (footprint, resolver) = (&mut self.footprint, &mut self.resolver);
        footprint.clear();
        let whole = unit.ending().is_some() && unit.size_bytes() <= self.unit_bytes_max;
        if self.scheduler.effective() == 1 {
            footprint.touches.push(LANE);
            resolver.pass(unit);
        } else if whole {
            for transaction in &unit.transactions {
                footprint::add(transaction, resolver.at(transaction), footprint);
            }
        } else {
            footprint.scope = Scope::Barrier;
            resolver.pass(unit);
        }
        Touches {
            scope: footprint.scope.clone(),
            keys: footprint.touches.as_slice().into(),
        }
    }

    /// Makes the graph anew from the units as they are now.
    pub(super) fn analyze_again(&mut self) {
        self.hash.clear();
        self.dag.clear();
        for Entry { unit, touches, .. } in &self.units {
            let analysis = self.hash.analyze(unit.id, &touches.scope, &touches.keys);
            self.dag.add(unit.id, &analysis.predecessors);
        }
    }

    /// The oldest unit that is not sent.
    pub(super) fn unsent(&self) -> Option<Unsent> {
        let unsent = |entry: &Entry| entry.attempt.is_none();
        let place = self.units.iter().position(unsent)?;
        let unit = &self.units.get(place)?.unit;
        Some(Unsent {
            is_head: place == 0,
            commit_lsn: unit.transactions.first()?.commit_lsn,
            mapping_error: unit.mapping_error().cloned(),
        })
    }

    /// Sends what may be sent, oldest first; `head_may` is false while the head pauses.
    pub(super) fn dispatch(
        &mut self,
        head_may: bool,
        on_missing: OnMissing,
        actions: &mut Vec<Action>,
    ) -> bool {
        let mut sent = false;
        let mut before = Before::Nothing;
        for place in 0..self.units.len() {
            let Some(entry) = self.units.get(place) else {
                break;
            };
            if entry.attempt.is_none() {
                if before == Before::Scattered && self.scheduler.is_full() {
                    break;
                }
                let may = place > 0 || head_may;
                sent |= may && self.send(place, before, on_missing, actions);
            }
            before = before.and(self.units.get(place).and_then(|entry| entry.attempt));
        }
        sent
    }

    fn send(
        &mut self,
        place: usize,
        before: Before,
        on_missing: OnMissing,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(entry) = self.units.get(place) else {
            return false;
        };
        let (id, size_bytes) = (entry.unit.id, entry.size_bytes);
        let bound = match before {
            _ if entry.unit.mapping_error().is_some() => Bound::Nowhere,
            Before::Nothing => Bound::Free,
            Before::On(worker) if entry.is_alone() => Bound::To(worker),
            Before::Scattered if entry.is_alone() => Bound::Nowhere,
            _ => self.bound(id),
        };
        let Some(worker) = self.scheduler.place(bound, size_bytes) else {
            return false;
        };
        let in_order = before.is_in_order_for(worker);
        let commit = coordinator::mode(in_order, on_missing);
        let commit_sent = commit == Commit::InBurst;
        let (Some(pool), Some(entry)) = (self.scheduler.worker(worker), self.units.get_mut(place))
        else {
            return false;
        };
        if !entry.enter(Step::Sent) {
            return false;
        }
        pool.takes(id, size_bytes, commit_sent);
        entry.attempt = Some(Attempt {
            worker,
            in_order,
            commit_sent,
        });
        let unit = Arc::clone(&entry.unit);
        actions.push(Action::Run {
            worker,
            run: pool.run,
            unit,
            commit,
        });
        true
    }

    /// Where a unit's predecessors let it run.
    fn bound(&self, unit: UnitId) -> Bound {
        let mut bound = Bound::Free;
        for edge in self.dag.predecessors(unit) {
            let attempt = self
                .position(edge.unit)
                .and_then(|place| self.units.get(place))
                .and_then(|before| before.attempt)
                .filter(|attempt| attempt.commit_sent);
            let Some(attempt) = attempt else {
                return Bound::Nowhere;
            };
            match bound {
                Bound::Free => bound = Bound::To(attempt.worker),
                Bound::To(worker) if worker == attempt.worker => {}
                _ => return Bound::Nowhere,
            }
        }
        bound
    }

    /// Adds a piece to the open unit. None if no unit is open.
    pub(super) fn extend(&mut self, extension: Extension, actions: &mut Vec<Action>) -> Option<()> {
        let entry = self.units.back_mut().filter(|entry| entry.is_open())?;
        let size_bytes = extension.piece.size_bytes();
        let Some(attempt) = entry.attempt else {
            let unit = Arc::make_mut(&mut entry.unit);
            let transaction = unit.transactions.last_mut()?;
            transaction.pieces.push(extension.piece);
            transaction.ending = extension.ending;
            entry.size_bytes += size_bytes;
            return Some(());
        };
        let run = self.scheduler.worker(attempt.worker)?.run;
        entry.extended = true;
        entry.extension_bytes += size_bytes;
        entry.ending.clone_from(&extension.ending);
        let unit = entry.unit.id;
        actions.push(Action::Extend {
            worker: attempt.worker,
            run,
            unit,
            extension,
        });
        Some(())
    }

    /// Makes one unit of each transaction of the head, which is not sent.
    pub(super) fn split_head(&mut self) {
        let Some(head) = self.units.pop_front() else {
            return;
        };
        let UnitId(first) = head.unit.id;
        for (number, transaction) in head.unit.transactions.iter().enumerate().rev() {
            let id = UnitId(first + 1 + number as u64);
            let transactions = vec![transaction.clone()];
            let unit = Arc::new(Unit { id, transactions });
            // Each may touch what they touched together.
            let entry = Entry::new(unit, head.touches.clone(), head.dependence);
            self.units.push_front(entry);
        }
        self.analyze_again();
    }
}
