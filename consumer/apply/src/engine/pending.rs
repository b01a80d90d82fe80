//! Units that are not committed, in the order of the log.
//!
//! Keeps each unit's state, its place in the graph, and the attempt that runs. Every change of
//! state goes through [`State::after`]. A unit that failed takes away everything sent behind it on
//! its worker; the graph is then made anew, since units may have been split.

use std::collections::VecDeque;
use std::sync::Arc;

use walbraid_schemas::lsn::Lsn;

use super::Config;
use crate::action::Action;
use crate::conflict::{ConflictHash, Dependence};
use crate::coordinator::{self, Commit, OnMissing, Progress};
use crate::dag::Dag;
use crate::mapping::MappingError;
use crate::scheduler::{Scheduler, WorkerId};
use crate::state::{State, Step};
use crate::unit::{Ending, Extension, Unit, UnitId};
use crate::window::{GroupLimits, Window};

/// An attempt to apply a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) worker: WorkerId,
    /// It was sent as the head: its predecessor's COMMIT had returned.
    pub(super) as_head: bool,
    commit_sent: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) unit: Arc<Unit>,
    state: State,
    pub(super) attempt: Option<Attempt>,
    /// Pieces were sent that are not kept: the unit cannot be sent again as it is.
    pub(super) extended: bool,
    /// The ending that came with an extension.
    ending: Option<Ending>,
    size_bytes: usize,
    /// Bytes of extensions that the worker still holds.
    extension_bytes: usize,
}

impl Entry {
    fn is_open(&self) -> bool {
        self.unit.is_open() && self.ending.is_none()
    }

    fn enter(&mut self, step: Step) -> bool {
        match self.state.after(step) {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }
}

/// The next unit that is not sent.
#[derive(Clone, Debug)]
pub(super) struct Unsent {
    pub(super) place: usize,
    pub(super) is_head: bool,
    pub(super) commit_lsn: Lsn,
    pub(super) mapping_error: Option<Arc<MappingError>>,
}

/// A unit that failed, and is now waiting to run again.
#[derive(Debug)]
pub(super) struct Fallen {
    pub(super) unit: Arc<Unit>,
    /// What went wrong is a fact (rule 0).
    pub(super) is_fact: bool,
    /// It, or one behind it, cannot be sent again from memory.
    pub(super) must_read_again: bool,
}

#[derive(Debug)]
pub(super) struct Pending {
    units: VecDeque<Entry>,
    hash: ConflictHash,
    dag: Dag,
    scheduler: Scheduler,
    workers: usize,
    next_id: u64,
    /// Worker of the newest commit.
    last_worker: Option<WorkerId>,
}

impl Pending {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            units: VecDeque::new(),
            hash: ConflictHash::default(),
            dag: Dag::default(),
            scheduler: Scheduler::new(config.workers, config.in_flight),
            workers: config.workers,
            next_id: 0,
            last_worker: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.units.clear();
        self.hash.clear();
        self.dag.clear();
        self.scheduler.clear();
        self.last_worker = None;
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
        self.units
            .iter()
            .filter(|entry| entry.attempt.is_some())
            .count()
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
        self.units
            .iter()
            .filter(|entry| which(entry))
            .map(|entry| entry.size_bytes)
            .sum()
    }

    /// A worker holds an extension no longer.
    pub(super) fn consumed(&mut self, unit: UnitId, size_bytes: usize) {
        if let Some(entry) = self.units.iter_mut().find(|entry| entry.unit.id == unit) {
            entry.extension_bytes = entry.extension_bytes.saturating_sub(size_bytes);
        }
    }

    /// True if a report is about a run that was swept away already.
    pub(super) fn is_stale(&mut self, worker: WorkerId, run: u64) -> bool {
        self.scheduler
            .worker(worker)
            .is_none_or(|worker| worker.run != run)
    }

    fn position(&self, unit: UnitId) -> Option<usize> {
        self.units.iter().position(|entry| entry.unit.id == unit)
    }

    /// Makes one unit of what waits, if there is room for one.
    pub(super) fn form(&mut self, window: &mut Window, limits: GroupLimits) -> bool {
        let room = self.scheduler.room(self.units.len());
        let waiting = self
            .units
            .iter()
            .filter(|entry| entry.attempt.is_none())
            .count();
        let full = room == 0 || waiting >= self.workers.max(1);
        if full || window.is_empty() || self.units.back().is_some_and(Entry::is_open) {
            return false;
        }
        let transactions = window.take(limits, room);
        let unit = Unit {
            id: self.next_id(),
            transactions,
        };
        let entry = self.analyze(Arc::new(unit));
        self.units.push_back(entry);
        true
    }

    fn next_id(&mut self) -> UnitId {
        self.next_id += 1;
        UnitId(self.next_id)
    }

    fn analyze(&mut self, unit: Arc<Unit>) -> Entry {
        let analysis = self.hash.analyze(&unit);
        self.dag.add(unit.id, &analysis.predecessors);
        let mut entry = Entry {
            size_bytes: unit.size_bytes(),
            unit,
            state: State::Analyzing,
            attempt: None,
            extended: false,
            ending: None,
            extension_bytes: 0,
        };
        if analysis.dependence == Dependence::Unknown {
            entry.enter(Step::NothingKnown);
            entry.enter(Step::MadeSerial);
        } else {
            entry.enter(Step::Analyzed);
        }
        entry
    }

    /// Makes the graph anew from the units as they are now.
    fn analyze_again(&mut self) {
        self.hash.clear();
        self.dag.clear();
        for entry in &self.units {
            let analysis = self.hash.analyze(&entry.unit);
            self.dag.add(entry.unit.id, &analysis.predecessors);
        }
    }

    /// The oldest unit that is not sent.
    pub(super) fn unsent(&self) -> Option<Unsent> {
        let place = self
            .units
            .iter()
            .position(|entry| entry.attempt.is_none())?;
        let entry = self.units.get(place)?;
        let first = entry.unit.transactions.first()?;
        let mapping_error = first.mapping_error().cloned();
        Some(Unsent {
            place,
            is_head: place == 0,
            commit_lsn: first.commit_lsn,
            mapping_error,
        })
    }

    /// Sends that unit if a worker may take it.
    pub(super) fn send(
        &mut self,
        place: usize,
        on_missing: OnMissing,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(entry) = self.units.get(place) else {
            return false;
        };
        let as_head = place == 0;
        if entry.state == State::Serial && !as_head {
            return false;
        }
        let size_bytes = entry.size_bytes;
        let id = entry.unit.id;
        let sent_to = self.dag.predecessors(id).iter().map(|predecessor| {
            let before = self
                .units
                .iter()
                .find(|entry| entry.unit.id == *predecessor)?;
            before.attempt.map(|attempt| attempt.worker)
        });
        let Some(worker) = self.scheduler.place(sent_to, size_bytes) else {
            return false;
        };
        let commit = coordinator::mode(self.workers, on_missing);
        let Some(pool) = self.scheduler.worker(worker) else {
            return false;
        };
        let Some(entry) = self.units.get_mut(place) else {
            return false;
        };
        if !entry.enter(Step::Sent) {
            return false;
        }
        pool.units.push(id);
        pool.size_bytes += size_bytes;
        entry.attempt = Some(Attempt {
            worker,
            as_head,
            commit_sent: commit == Commit::InBurst,
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

    /// Takes the open unit away, calling it back from its worker.
    pub(super) fn drop_open(&mut self, actions: &mut Vec<Action>) {
        let Some(entry) = self.units.pop_back_if(|entry| entry.is_open()) else {
            return;
        };
        if let Some(attempt) = entry.attempt
            && let Some(worker) = self.scheduler.worker(attempt.worker)
        {
            let unit = entry.unit.id;
            worker.units.retain(|id| *id != unit);
            worker.size_bytes -= entry.size_bytes;
            worker.abandoning = Some(unit);
            let run = worker.run;
            actions.push(Action::Abandon {
                worker: attempt.worker,
                run,
                unit,
            });
        }
        self.analyze_again();
    }

    /// The worker rolled an open unit back.
    pub(super) fn abandoned(&mut self, worker: WorkerId, run: u64, unit: UnitId) {
        if let Some(worker) = self.scheduler.worker(worker)
            && worker.run == run
            && worker.abandoning == Some(unit)
        {
            worker.abandoning = None;
        }
    }

    /// The unit's statements are through. False if that cannot be.
    pub(super) fn counted(&mut self, worker: WorkerId, run: u64, unit: UnitId) -> bool {
        if self.is_stale(worker, run) || self.is_abandoned(worker, unit) {
            return true;
        }
        let Some(place) = self.position(unit) else {
            return false;
        };
        self.units
            .get_mut(place)
            .is_some_and(|entry| entry.enter(Step::Executed))
    }

    fn is_abandoned(&mut self, worker: WorkerId, unit: UnitId) -> bool {
        self.scheduler
            .worker(worker)
            .is_some_and(|worker| worker.abandoning == Some(unit))
    }

    /// Lets those commit whose turn it is.
    pub(super) fn commit_turns(&mut self, actions: &mut Vec<Action>) {
        let mut before = None;
        for entry in &mut self.units {
            if let Some(attempt) = &mut entry.attempt
                && entry.state == State::CommitWait
                && !attempt.commit_sent
                && coordinator::may_commit(attempt.worker, before)
                && let Some(worker) = self.scheduler.worker(attempt.worker)
            {
                attempt.commit_sent = true;
                let (run, unit) = (worker.run, entry.unit.id);
                actions.push(Action::Commit {
                    worker: attempt.worker,
                    run,
                    unit,
                });
            }
            before = Some(entry.attempt.map(|attempt| Progress {
                worker: attempt.worker,
                commit_sent: attempt.commit_sent,
            }));
        }
    }

    /// The head committed. None if it was not the head, or not whole, or not sent.
    pub(super) fn committed(
        &mut self,
        worker: WorkerId,
        unit: UnitId,
    ) -> Option<(Arc<Unit>, Ending)> {
        let head = self.units.front_mut().filter(|head| head.unit.id == unit)?;
        let attempt = head.attempt.filter(|attempt| attempt.worker == worker)?;
        let ending = head.ending.as_ref().or(head.unit.ending()).cloned()?;
        if !attempt.commit_sent || !head.enter(Step::Committed) {
            return None;
        }
        let head = self.units.pop_front()?;
        let pool = self.scheduler.worker(worker)?;
        pool.units.retain(|id| *id != unit);
        pool.size_bytes -= head.size_bytes;
        self.hash.committed(unit);
        self.dag.committed(unit);
        self.last_worker = Some(worker);
        Some((head.unit, ending))
    }

    /// A unit failed on its worker: it and all behind it there are undone. None if the report is
    /// about nothing that is pending (a unit called back).
    pub(super) fn failed(&mut self, worker: WorkerId, unit: UnitId) -> Option<Fallen> {
        let last_worker = self.last_worker;
        let pool = self.scheduler.worker(worker)?;
        pool.run += 1;
        pool.abandoning = None;
        let from = pool.units.iter().position(|id| *id == unit);
        let swept = pool.units.split_off(from.unwrap_or(pool.units.len()));
        let mut must_read_again = false;
        for entry in &mut self.units {
            if !swept.contains(&entry.unit.id) {
                continue;
            }
            pool.size_bytes -= entry.size_bytes;
            must_read_again |= entry.extended;
            let step = if entry.unit.id == unit {
                Step::MadeSerial
            } else {
                Step::Swept
            };
            entry.enter(step);
            if entry.unit.id != unit {
                entry.attempt = None;
            }
        }
        let place = self.position(unit)?;
        let entry = self.units.get_mut(place)?;
        let attempt = entry.attempt.take()?;
        let is_fact = place == 0 && (attempt.as_head || last_worker == Some(worker));
        Some(Fallen {
            unit: Arc::clone(&entry.unit),
            is_fact,
            must_read_again,
        })
    }

    /// Makes one unit of each transaction of the head, which is not sent.
    pub(super) fn split_head(&mut self) {
        let Some(head) = self.units.pop_front() else {
            return;
        };
        for transaction in head.unit.transactions.iter().rev() {
            let id = self.next_id();
            let unit = Arc::new(Unit {
                id,
                transactions: vec![transaction.clone()],
            });
            let entry = self.analyze(unit);
            self.units.push_front(entry);
        }
        self.analyze_again();
    }
}
