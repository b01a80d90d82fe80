//! The workers: what the engine wants done, statement by statement.
//!
//! A worker does one thing at a time and in the order in which it was told, as the shell's do: a
//! unit behind another one runs when that one is committed, a failure takes all behind it away, a
//! unit called back is cancelled even while it waits.

use std::collections::VecDeque;
use std::sync::Arc;

use walbraid_apply::action::Action;
use walbraid_apply::coordinator::Commit;
use walbraid_apply::event::{CommitTag, Event};
use walbraid_apply::failure::{Failure, Place, ServerFailure};
use walbraid_apply::missing::{Missing, MissingKind};
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::{Ending, Piece, Unit, UnitId};

use super::decode::decode;
use super::server::{Progress, Server};
use super::subscriber::Subscriber;
use super::world::Op;
use crate::random::Random;

/// A change that is to be run.
#[derive(Debug)]
struct Task {
    xid: u32,
    place: Place,
    op: Op,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Executing,
    /// The counts are told.
    Held,
    Committing,
}

#[derive(Debug)]
struct Block {
    unit: UnitId,
    run: u64,
    commit: Commit,
    xids: Vec<u32>,
    tasks: VecDeque<Task>,
    changes: usize,
    missing: Option<Place>,
    ending: Option<Ending>,
    stage: Stage,
}

/// A worker and its session, which have the same number.
pub struct Worker {
    id: usize,
    orders: VecDeque<Action>,
    block: Option<Block>,
    swept: Option<u64>,
    busy_us: u64,
}

/// What goes wrong by itself.
#[derive(Clone, Copy)]
pub struct Faults(pub bool);

impl Worker {
    pub fn new(id: usize, subscriber: &mut Subscriber, busy_us: u64) -> Self {
        subscriber.server.open(id);
        Self {
            id,
            orders: VecDeque::new(),
            block: None,
            swept: None,
            busy_us,
        }
    }

    pub fn order(&mut self, action: Action) {
        let run = match &action {
            Action::Run { run, .. }
            | Action::Extend { run, .. }
            | Action::Commit { run, .. }
            | Action::Abandon { run, .. } => *run,
            other => panic!("not an order: {other:?}"),
        };
        if self.swept.is_none_or(|swept| run > swept) {
            self.orders.push_back(action);
        }
    }

    /// Units that it was given and has not finished.
    pub fn units(&self) -> usize {
        let waiting = self.orders.iter();
        let runs = waiting.filter(|order| matches!(order, Action::Run { .. }));
        runs.count() + usize::from(self.block.is_some())
    }

    pub fn can_go_on(&self, server: &Server) -> bool {
        let Some(block) = &self.block else {
            return !self.orders.is_empty();
        };
        match block.stage {
            _ if self.called_back().is_some() => true,
            Stage::Held => self.commit_order().is_some(),
            Stage::Executing if block.tasks.is_empty() && !server.is_executing(self.id) => {
                block.ending.is_some() || !self.orders.is_empty()
            }
            Stage::Executing | Stage::Committing => !server.is_waiting(self.id),
        }
    }

    fn called_back(&self) -> Option<usize> {
        let current = self.block.as_ref()?.unit;
        self.orders
            .iter()
            .position(|order| matches!(order, Action::Abandon { unit, .. } if *unit == current))
    }

    fn commit_order(&self) -> Option<usize> {
        let current = self.block.as_ref()?.unit;
        self.orders
            .iter()
            .position(|order| matches!(order, Action::Commit { unit, .. } if *unit == current))
    }

    /// Does the next thing; says what happened.
    pub fn step(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: Faults,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(place) = self.called_back()
            && random.once_in(2)
        {
            self.orders.remove(place);
            self.abandon(subscriber, &mut events);
            return events;
        }
        match &self.block {
            None => self.next_order(subscriber, &mut events),
            Some(block) if block.stage == Stage::Held => {
                if let Some(place) = self.commit_order() {
                    self.orders.remove(place);
                    self.enter(Stage::Committing);
                    self.commit(subscriber, random, faults, &mut events);
                }
            }
            Some(block) if block.stage == Stage::Committing => {
                self.commit(subscriber, random, faults, &mut events);
            }
            Some(_) => self.execute(subscriber, random, faults, &mut events),
        }
        events
    }

    fn enter(&mut self, stage: Stage) {
        if let Some(block) = &mut self.block {
            block.stage = stage;
        }
    }

    fn next_order(&mut self, subscriber: &mut Subscriber, events: &mut Vec<Event>) {
        match self.orders.pop_front() {
            Some(Action::Run {
                run, unit, commit, ..
            }) => {
                self.begin(run, &unit, commit, subscriber);
            }
            Some(Action::Extend {
                unit, extension, ..
            }) => {
                let size_bytes = extension.piece.size_bytes();
                events.push(Event::Consumed { unit, size_bytes });
            }
            // What it was about has failed.
            Some(Action::Abandon { .. } | Action::Commit { .. }) | None => {}
            Some(other) => panic!("not an order: {other:?}"),
        }
    }

    fn begin(&mut self, run: u64, unit: &Arc<Unit>, commit: Commit, subscriber: &mut Subscriber) {
        subscriber.server.begin(self.id);
        let mut block = Block {
            unit: unit.id,
            run,
            commit,
            xids: Vec::new(),
            tasks: VecDeque::new(),
            changes: 0,
            missing: None,
            ending: unit.ending().cloned(),
            stage: Stage::Executing,
        };
        for transaction in &unit.transactions {
            block.xids.push(transaction.xid);
            block.changes = 0;
            for piece in &transaction.pieces {
                block.add(piece);
            }
        }
        self.block = Some(block);
    }

    fn execute(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: Faults,
        events: &mut Vec<Event>,
    ) {
        let Some(block) = &mut self.block else { return };
        if !subscriber.server.is_executing(self.id) {
            let Some(task) = block.tasks.front() else {
                self.through(subscriber, random, faults, events);
                return;
            };
            if subscriber.poison == Some((task.xid, task.place.change)) {
                self.fail("23514", subscriber, random, events);
                return;
            }
            subscriber.server.start(self.id, task.op.clone());
        }
        if faults.0 && random.once_in(80) {
            self.fail(transient(random), subscriber, random, events);
            return;
        }
        match subscriber.server.go_on(self.id, random) {
            Progress::Going | Progress::Waits => {}
            Progress::Done { missing } => {
                let task = block.tasks.pop_front();
                if missing {
                    block.missing = block.missing.or(task.map(|task| task.place));
                }
            }
            Progress::Error(sqlstate) => self.fail(sqlstate, subscriber, random, events),
        }
    }

    /// All statements that there are have run.
    fn through(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: Faults,
        events: &mut Vec<Event>,
    ) {
        let Some(block) = &mut self.block else { return };
        if block.ending.is_none() {
            if let Some(Action::Extend { .. }) = self.orders.front()
                && let Some(Action::Extend {
                    unit, extension, ..
                }) = self.orders.pop_front()
            {
                let size_bytes = extension.piece.size_bytes();
                events.push(Event::Consumed { unit, size_bytes });
                block.add(&extension.piece);
                block.ending = extension.ending;
            }
            return;
        }
        let (worker, run, unit) = (WorkerId(self.id), block.run, block.unit);
        match (block.commit, block.missing) {
            (Commit::InBurst, _) => {
                block.stage = Stage::Committing;
                self.commit(subscriber, random, faults, events);
            }
            (Commit::WhenCounted, Some(place)) if subscriber.strict => {
                self.give_up(missing(place), subscriber, random, events);
            }
            (Commit::WhenCounted, missing) => {
                block.stage = Stage::Held;
                let missing = missing.is_some();
                events.push(Event::Counted {
                    worker,
                    run,
                    unit,
                    missing,
                });
            }
        }
    }

    fn commit(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: Faults,
        events: &mut Vec<Event>,
    ) {
        if faults.0 && random.once_in(100) {
            self.fail(transient(random), subscriber, random, events);
            return;
        }
        match subscriber.server.check_deferred(self.id) {
            Progress::Going | Progress::Waits => return,
            Progress::Error(sqlstate) => {
                self.fail(sqlstate, subscriber, random, events);
                return;
            }
            Progress::Done { .. } => {}
        }
        let Some(block) = self.block.take() else {
            return;
        };
        let (worker, run, unit) = (WorkerId(self.id), block.run, block.unit);
        let commits = !(faults.0 && random.once_in(300));
        let undo = subscriber.server.end(self.id, commits);
        if commits {
            let position = block.ending.unwrap().position;
            subscriber.committed(&block.xids, position, undo);
        } else {
            self.sweep(run);
        }
        let tag = if commits {
            CommitTag::Commit
        } else {
            CommitTag::RollBack
        };
        let busy_us = self.busy_us * block.xids.len() as u64;
        events.push(Event::Committed {
            worker,
            run,
            unit,
            tag,
            busy_us,
        });
    }

    /// The server refuses what the worker does.
    pub fn fail(
        &mut self,
        sqlstate: &str,
        subscriber: &mut Subscriber,
        random: &mut Random,
        events: &mut Vec<Event>,
    ) {
        let error = ServerFailure {
            sqlstate: sqlstate.to_owned(),
            message: "the server's words".to_owned(),
            ..ServerFailure::default()
        };
        let failure = Failure::Server {
            error,
            place: None,
            relation: None,
        };
        self.give_up(failure, subscriber, random, events);
    }

    fn give_up(
        &mut self,
        failure: Failure,
        subscriber: &mut Subscriber,
        random: &mut Random,
        events: &mut Vec<Event>,
    ) {
        if let Some(place) = self.called_back()
            && random.once_in(2)
        {
            self.orders.remove(place);
            self.abandon(subscriber, events);
            return;
        }
        let Some(Block { run, unit, .. }) = self.block.take() else {
            return;
        };
        subscriber.server.end(self.id, false);
        self.sweep(run);
        let (worker, failure) = (WorkerId(self.id), Box::new(failure));
        events.push(Event::Failed {
            worker,
            run,
            unit,
            failure,
        });
    }

    fn abandon(&mut self, subscriber: &mut Subscriber, events: &mut Vec<Event>) {
        let Some(Block { run, unit, .. }) = self.block.take() else {
            return;
        };
        subscriber.server.end(self.id, false);
        self.orders
            .retain(|order| !matches!(order, Action::Extend { unit: of, .. } if *of == unit));
        let worker = WorkerId(self.id);
        events.push(Event::Abandoned { worker, run, unit });
    }

    fn sweep(&mut self, swept: u64) {
        self.swept = Some(swept);
        let orders = std::mem::take(&mut self.orders);
        for order in orders {
            self.order(order);
        }
    }
}

impl Block {
    fn add(&mut self, piece: &Piece) {
        let transaction = self.xids.len() - 1;
        for change in piece.changes() {
            self.tasks.push_back(Task {
                xid: self.xids[transaction],
                place: Place {
                    transaction,
                    change: self.changes,
                },
                op: decode(change, piece.targets()),
            });
            self.changes += 1;
        }
    }
}

fn transient(random: &mut Random) -> &'static str {
    ["40P01", "55P03", "40001", "57014", "53100"][random.below(5)]
}

fn missing(place: Place) -> Failure {
    let missing = Missing {
        kind: MissingKind::Update,
        relation: "s.t".to_owned(),
        columns: vec!["a".to_owned()],
        unique: true,
    };
    Failure::Missing { missing, place }
}
