//! The subscriber as the workers see it, and the workers.
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
use walbraid_apply::mapping::Target;
use walbraid_apply::missing::{Missing, MissingKind};
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::{Ending, Piece, Unit, UnitId};
use walbraid_schemas::chain::Position;
use walbraid_schemas::envelope::Change;
use walbraid_schemas::row::{Reader, Value};
use walbraid_schemas::table::Table;

use super::heap::Undo;
use super::schema::{Row, table_of};
use super::server::{Progress, Server};
use super::world::{Op, World};
use crate::log::{INCARNATION, START};
use crate::random::Random;

struct Commitment {
    links: usize,
    position: Position,
    undo: Vec<Undo>,
}

/// What the subscriber holds.
pub struct Subscriber {
    pub server: Server,
    commits: Vec<Commitment>,
    flushed: usize,
    /// Transactions applied.
    pub applied: usize,
    /// Refused until somebody mends it: a transaction, and which of its changes.
    pub poison: Option<(u32, usize)>,
    pub strict: bool,
}

impl Subscriber {
    pub fn new(server: Server, strict: bool) -> Self {
        Self {
            server,
            commits: Vec::new(),
            flushed: 0,
            applied: 0,
            poison: None,
            strict,
        }
    }

    pub fn position(&self) -> Position {
        match self.commits.last() {
            None => Position::start(INCARNATION, START),
            Some(commit) => commit.position,
        }
    }

    pub fn durable(&self) -> Position {
        match self.flushed.checked_sub(1) {
            None => Position::start(INCARNATION, START),
            Some(last) => self.commits[last].position,
        }
    }

    pub fn flush(&mut self) {
        for commit in &mut self.commits[self.flushed..] {
            commit.undo.clear();
        }
        self.flushed = self.commits.len();
    }

    /// Stops at once: the newest commits that were not flushed are gone, as many as it likes.
    pub fn crash(&mut self, random: &mut Random) {
        self.server.end_all();
        let volatile = self.commits.len() - self.flushed;
        let kept = self.flushed + random.below(volatile + 1);
        for commit in self.commits.drain(kept..).rev() {
            self.applied -= commit.links;
            self.server.heap.take_back(commit.undo);
        }
        self.flush();
    }

    /// A person makes the tables what they should be.
    pub fn mend(&mut self, world: &World) {
        self.poison = None;
        self.flush();
        self.server.heap = super::heap::Heap::new(world);
    }
}

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
            let wanted =
                (0..block.xids.len()).map(|next| 1_000 + (subscriber.applied + next) as u32);
            assert!(
                wanted.eq(block.xids.iter().copied()),
                "out of order: {:?}",
                block.xids
            );
            subscriber.applied += block.xids.len();
            subscriber.commits.push(Commitment {
                links: block.xids.len(),
                position: block.ending.unwrap().position,
                undo,
            });
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

fn decode(change: &Change, targets: &[Target]) -> Op {
    let mapped = |table: &u32| targets[*table as usize].as_ref().unwrap();
    let place = |table: &u32| table_of(mapped(table).relation().oid);
    match change {
        Change::Insert { table, new } => Op::Insert {
            table: place(table),
            new: row(mapped(table).table(), new),
        },
        Change::Update { table, old, new } => {
            let new = row(mapped(table).table(), new);
            let old = old.as_ref().map(|old| row(mapped(table).table(), &old.row));
            Op::Update {
                table: place(table),
                old: old.unwrap_or(new),
                new,
            }
        }
        Change::Delete { table, old } => Op::Delete {
            table: place(table),
            old: row(mapped(table).table(), &old.row),
        },
        Change::Truncate { tables, .. } => Op::Truncate {
            tables: tables.iter().map(place).collect(),
        },
        Change::Message { .. } => Op::Message,
    }
}

fn row(table: &Table, datum: &[u8]) -> Row {
    let mut row = [None; 3];
    for (place, value) in Reader::new(table, datum).enumerate() {
        row[place] = match value.unwrap() {
            Value::Int(value) => Some(value as i32),
            Value::Null | Value::NotSent => None,
            other => panic!("not a value of the simulation: {other:?}"),
        };
    }
    row
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
