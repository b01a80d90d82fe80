//! What becomes of a unit that was sent: counted, committed, failed, called back.
//!
//! A unit that failed takes away everything sent behind it on its worker. A unit is called back
//! when it cannot go on (the rest of it will not arrive), when what it found is not a fact, or when
//! an earlier one waits for it.

use std::sync::Arc;

use super::pending::{Entry, Pending};
use crate::action::Action;
use crate::coordinator::{self, Progress};
use crate::scheduler::WorkerId;
use crate::state::{State, Step};
use crate::unit::{Ending, Unit, UnitId};

/// A unit that failed, and is now waiting to run again.
#[derive(Debug)]
pub(super) struct Fallen {
    pub(super) unit: Arc<Unit>,
    pub(super) is_head: bool,
    /// What went wrong is a fact (rule 0).
    pub(super) is_fact: bool,
    /// It, or one behind it, cannot be sent again from memory.
    pub(super) must_read_again: bool,
}

/// What the counts of a unit are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// It waits for its turn to commit, or was called back meanwhile.
    Taken,
    /// Rows were missing, and that is not a fact: it runs again.
    NotAFact,
    /// There is no such unit.
    OutOfTurn,
}

impl Pending {
    /// Takes the open unit away, calling it back from its worker.
    pub(super) fn drop_open(&mut self, actions: &mut Vec<Action>) {
        if !self.units.back().is_some_and(Entry::is_open) {
            return;
        }
        self.call_back(self.units.len() - 1, actions);
        self.units.pop_back();
        self.analyze_again();
    }

    /// Takes a unit from its worker, which rolls it back; the last that the worker has.
    fn call_back(&mut self, place: usize, actions: &mut Vec<Action>) {
        let Some(entry) = self.units.get_mut(place) else {
            return;
        };
        let unit = entry.unit.id;
        if let Some(attempt) = entry.attempt.take()
            && let Some(worker) = self.scheduler.worker(attempt.worker)
        {
            worker.gives_up(unit, entry.size_bytes);
            worker.abandoning = Some(unit);
            actions.push(Action::Abandon {
                worker: attempt.worker,
                run: worker.run,
                unit,
            });
        }
    }

    /// Rolls a unit back, to run again: as the head, or when a worker is free for it. False if that
    /// cannot be: its COMMIT is on the way, or it is not with a worker.
    fn roll_back(&mut self, place: usize, step: Step, actions: &mut Vec<Action>) -> bool {
        let held = |entry: &Entry| entry.attempt.is_some_and(|attempt| !attempt.commit_sent);
        let can = self.units.get(place).is_some_and(held);
        if can {
            self.call_back(place, actions);
            if let Some(entry) = self.units.get_mut(place) {
                entry.enter(step);
            }
        }
        can
    }

    /// The worker rolled a unit back that was called back.
    pub(super) fn abandoned(&mut self, worker: WorkerId, run: u64, unit: UnitId) {
        if let Some(worker) = self.scheduler.worker(worker)
            && worker.run == run
        {
            worker.abandoning.take_if(|called| *called == unit);
        }
    }

    /// The unit's statements are through.
    pub(super) fn counted(
        &mut self,
        (worker, run, unit): (WorkerId, u64, UnitId),
        missing: bool,
        actions: &mut Vec<Action>,
    ) -> Counts {
        if self.is_stale(worker, run) || self.is_abandoned(worker, unit) {
            return Counts::Taken;
        }
        let Some(place) = self.position(unit) else {
            return Counts::OutOfTurn;
        };
        let Some(entry) = self.units.get_mut(place) else {
            return Counts::OutOfTurn;
        };
        if missing && !is_fact(place, entry) {
            self.roll_back(place, Step::MadeSerial, actions);
            return Counts::NotAFact;
        }
        if entry.enter(Step::Executed) {
            Counts::Taken
        } else {
            Counts::OutOfTurn
        }
    }

    fn is_abandoned(&mut self, worker: WorkerId, unit: UnitId) -> bool {
        self.scheduler
            .worker(worker)
            .is_some_and(|worker| worker.abandoning == Some(unit))
    }

    /// Lets those commit whose turn it is.
    pub(super) fn commit_turns(&mut self, actions: &mut Vec<Action>) -> bool {
        let mut before = None;
        let mut sent = false;
        for entry in &mut self.units {
            let Some(attempt) = &mut entry.attempt else {
                break;
            };
            if !attempt.commit_sent {
                let turn = entry.state == State::CommitWait
                    && coordinator::may_commit(attempt.worker, before);
                let (true, Some(worker)) = (turn, self.scheduler.worker(attempt.worker)) else {
                    break;
                };
                attempt.commit_sent = true;
                worker.holds = None;
                sent = true;
                actions.push(Action::Commit {
                    worker: attempt.worker,
                    run: worker.run,
                    unit: entry.unit.id,
                });
            }
            before = Some(Some(Progress {
                worker: attempt.worker,
                commit_sent: attempt.commit_sent,
            }));
        }
        sent
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
        self.scheduler
            .worker(worker)?
            .gives_up(unit, head.size_bytes);
        self.hash.committed(unit);
        self.dag.committed(unit);
        Some((head.unit, ending))
    }

    /// A unit failed on its worker: it and all behind it there are undone. None if the report is
    /// about nothing that is pending (a unit called back).
    pub(super) fn failed(&mut self, worker: WorkerId, unit: UnitId) -> Option<Fallen> {
        let pool = self.scheduler.worker(worker)?;
        pool.run += 1;
        pool.abandoning = None;
        let from = pool.units.iter().position(|id| *id == unit)?;
        let swept = pool.units.split_off(from);
        pool.holds.take_if(|held| swept.contains(held));
        let mut must_read_again = false;
        for entry in &mut self.units {
            if !swept.contains(&entry.unit.id) {
                continue;
            }
            pool.size_bytes -= entry.size_bytes;
            must_read_again |= entry.extended;
            if entry.unit.id != unit {
                entry.enter(Step::Swept);
                entry.attempt = None;
            }
        }
        let place = self.position(unit)?;
        let entry = self.units.get_mut(place)?;
        let is_fact = is_fact(place, entry);
        entry.enter(Step::MadeSerial);
        entry.attempt = None;
        Some(Fallen {
            unit: Arc::clone(&entry.unit),
            is_head: place == 0,
            is_fact,
            must_read_again,
        })
    }

    /// Earlier units wait for what later ones hold: the later ones run again. How many.
    pub(super) fn blocked(
        &mut self,
        waits: &[(WorkerId, WorkerId)],
        actions: &mut Vec<Action>,
    ) -> usize {
        let mut rolled_back = 0;
        for (waiting, holding) in waits {
            let (Some(waiting), Some(holding)) = (self.running(*waiting), self.running(*holding))
            else {
                continue;
            };
            if waiting < holding && self.roll_back(holding, Step::MadeSerial, actions) {
                rolled_back += 1;
            }
        }
        rolled_back
    }

    /// Every unit behind the head that holds anything until its turn runs again, in order: it must
    /// not take the same lock again before the head has it. How many.
    pub(super) fn call_back_held(&mut self, actions: &mut Vec<Action>) -> usize {
        let places = 1..self.units.len();
        let called = places.filter(|place| self.roll_back(*place, Step::MadeSerial, actions));
        called.count()
    }

    /// The place of the oldest unit that is with a worker.
    fn running(&mut self, worker: WorkerId) -> Option<usize> {
        let oldest = *self.scheduler.worker(worker)?.units.first()?;
        self.position(oldest)
    }

    /// The head is not sent, and no worker can take it before a later unit commits: the newest of
    /// those is called back.
    pub(super) fn make_way(&mut self, actions: &mut Vec<Action>) -> bool {
        let stuck = self
            .units
            .front()
            .is_some_and(|head| head.attempt.is_none())
            && self.scheduler.is_full()
            && !self.scheduler.is_calling_back();
        if !stuck {
            return false;
        }
        let held = |entry: &Entry| entry.attempt.is_some_and(|attempt| !attempt.commit_sent);
        match self.units.iter().rposition(held) {
            Some(place) => self.roll_back(place, Step::Swept, actions),
            None => false,
        }
    }
}

fn is_fact(place: usize, entry: &Entry) -> bool {
    place == 0 && entry.attempt.is_some_and(|attempt| attempt.in_order)
}
