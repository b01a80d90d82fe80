//! One run: the shell of the engine, what befalls it, and what is checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use walbraid_apply::action::Action;
use walbraid_apply::coordinator::OnMissing;
use walbraid_apply::engine::{Config, Engine};
use walbraid_apply::event::{Event, Record};
use walbraid_apply::failure::Failure;
use walbraid_apply::mapping::Target;
use walbraid_apply::rule::Cause;
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::UnitId;
use walbraid_schemas::chain::Start;
use walbraid_schemas::envelope::Body;
use walbraid_schemas::notice::Stop;

use super::Profile;
use super::history::History;
use super::oracle::Oracle;
use super::reads::Reads;
use super::schema::{Lie, MAIL, STAMPED, Schema, TABLES};
use super::server::Server;
use super::settings::{config, without_a_row};
use super::subscriber::Subscriber;
use super::worker::{Faults, Worker};
use super::world::Side;
use crate::random::Random;

/// Faults stop after this many steps; by the last everything must have arrived.
const FAULTY_STEPS: usize = 300;
const STEPS_MAX: usize = 20_000;

/// What may come next: work, reports, records, a flush, answers, time.
const TURNS: usize = 6;

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What happened, and how often.
    pub seen: BTreeMap<&'static str, u64>,
    /// The catalogue lied, the tables went wrong, and no attempt failed: why.
    pub unsaved: Option<&'static str>,
}

pub struct Run {
    random: Random,
    profile: Profile,
    config: Config,
    schema: Arc<Schema>,
    history: History,
    oracle: Oracle,
    side: Side,
    lie: Option<Lie>,
    /// By table what the engine is told: the truth, and the lie.
    targets: [Vec<Target>; 2],
    subscriber: Subscriber,
    engine: Engine,
    workers: Vec<Worker>,
    busy_us: u64,
    /// How often each of the turns is taken.
    pace: [usize; TURNS],
    events: VecDeque<Event>,
    /// What was found when somebody asked who waits for whom; it arrives later.
    answer: Option<Vec<(WorkerId, WorkerId)>>,
    reads: Reads,
    connecting: bool,
    now_ms: u64,
    next_offset: usize,
    paused: bool,
    stopped: Option<Stop>,
    checked: usize,
    /// How often a unit met something that would be a fact at the head.
    met: BTreeMap<UnitId, u32>,
    /// Units that are called back: nobody looks at what they meet.
    called_back: BTreeSet<UnitId>,
    outcome: Outcome,
}

impl Run {
    pub fn new(seed: u64, profile: Profile) -> Self {
        let mut random = Random::new(seed);
        let lies = profile.lies || random.once_in(100);
        let lie = lies.then(|| Lie::ALL[random.below(Lie::ALL.len())]);
        let mut schema = Schema::new(&mut random, lie == Some(Lie::SafeTrigger));
        schema.rechecks_ctid = lie != Some(Lie::OtherTable) || !random.once_in(4);
        let schema = Arc::new(schema);
        let history = History::new(&mut random, &schema);
        let config = config(&mut random);
        let strict = config.on_missing == OnMissing::Error;
        let side = if strict { Side::Strict } else { Side::Lenient };
        let mut start = history.start.clone();
        let mut poison = None;
        if profile.poisoned {
            if random.once_in(2) {
                start = without_a_row(&mut random, start);
            } else {
                let link = &history.links[random.below(history.links.len())];
                poison = Some((link.xid, random.below(link.ops.len().max(1))));
            }
        }
        let server = Server::new(Arc::clone(&schema), &start);
        let mut subscriber = Subscriber::new(server, strict);
        subscriber.poison = poison;
        let targets = |lie: Option<Lie>| -> Vec<Target> {
            let tables = 0..TABLES;
            tables.map(|table| schema.target(table, lie)).collect()
        };
        let targets = [
            targets(None),
            lie.map_or(Vec::new(), |lie| targets(Some(lie))),
        ];
        let oracle = Oracle::new(&history, &schema, side, poison, (0, start));
        let engine = Engine::new(config.clone(), subscriber.position());
        let busy_us = [20, 500, 5_000][random.below(3)];
        let pace = [8, 8, 8, 2, 3, 3].map(|most| 1 + random.below(most));
        let mut run = Self {
            random,
            profile,
            config,
            schema,
            history,
            oracle,
            side,
            lie,
            targets,
            subscriber,
            engine,
            workers: Vec::new(),
            busy_us,
            pace,
            events: VecDeque::new(),
            answer: None,
            reads: Reads::default(),
            connecting: false,
            now_ms: 0,
            next_offset: 0,
            paused: false,
            stopped: None,
            checked: 0,
            met: BTreeMap::new(),
            called_back: BTreeSet::new(),
            outcome: Outcome::default(),
        };
        run.sessions();
        run.read_from(0);
        run
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        for step in 0..STEPS_MAX {
            let faults = Faults(self.profile.faults && step < FAULTY_STEPS);
            self.step(faults);
            if self.outcome.unsaved.is_some() {
                self.count_retries();
                return self.outcome;
            }
            let read = self.next_offset == self.history.records.len() && self.events.is_empty();
            let applied = self.subscriber.applied == self.history.links.len();
            if read && applied && self.engine.status().is_drained {
                self.check_the_end();
                self.count_retries();
                return self.outcome;
            }
        }
        let waits = self.subscriber.server.waits();
        let status = self.engine.status();
        panic!("nothing moves: {waits:?} {status:?}");
    }

    fn saw(&mut self, what: &'static str) {
        *self.outcome.seen.entry(what).or_default() += 1;
    }

    fn step(&mut self, faults: Faults) {
        if let Some(stop) = self.stopped.take() {
            self.mend(&stop);
            self.restart();
            return;
        }
        if faults.0 && self.random.once_in(60) && self.misfortune() {
            return;
        }
        let mut turn = self.random.below(self.pace.iter().sum());
        let first = self.pace.iter().position(|weight| {
            let chosen = turn < *weight;
            turn = turn.saturating_sub(*weight);
            chosen
        });
        let first = first.unwrap_or_default();
        for turn in first..first + TURNS {
            let done = match turn % TURNS {
                0 => self.work(faults),
                1 => self.deliver(),
                2 => self.feed(),
                3 => self.flush(),
                4 => self.answer(faults),
                _ => self.pass(),
            };
            if done {
                return;
            }
        }
    }

    fn feed(&mut self) -> bool {
        let Some(logged) = self.history.records.get(self.next_offset).cloned() else {
            return false;
        };
        if self.paused {
            return false;
        }
        let offset = self.next_offset as i64;
        self.next_offset += 1;
        let wrong = match self.lie {
            Some(Lie::OtherTable) => self.random.below(2),
            Some(_) => 1,
            None => 0,
        };
        let targets = logged.tables.iter();
        let targets = targets.map(|table| self.targets[wrong][*table].clone());
        let changes = match &logged.envelope.body {
            Body::Part(part) => part.changes.len(),
            _ => 0,
        };
        let record = Record {
            offset,
            size_bytes: 50 + 50 * changes,
            targets: targets.collect(),
            envelope: logged.envelope,
        };
        self.tell(Event::Record(Box::new(record)));
        true
    }

    fn work(&mut self, faults: Faults) -> bool {
        let server = &self.subscriber.server;
        let can = |worker: &usize| self.workers[*worker].can_go_on(server);
        let able: Vec<usize> = (0..self.workers.len()).filter(can).collect();
        if able.is_empty() {
            return false;
        }
        let worker = able[self.random.below(able.len())];
        let events = self.let_work(worker, faults);
        self.events.extend(events);
        true
    }

    fn let_work(&mut self, worker: usize, faults: Faults) -> Vec<Event> {
        let worker = &mut self.workers[worker];
        let events = worker.step(&mut self.subscriber, &mut self.random, faults);
        if self.subscriber.server.blocks() > 1 {
            self.saw("two target transactions at once");
        }
        self.check();
        events
    }

    fn deliver(&mut self) -> bool {
        let event = self.events.pop_front();
        event.map(|event| self.tell(event)).is_some()
    }

    fn flush(&mut self) -> bool {
        if !self.random.once_in(3) {
            return false;
        }
        self.subscriber.flush();
        let lsn = self.subscriber.position().end_lsn;
        self.tell(Event::Flushed { lsn });
        true
    }

    /// What was asked is answered, and the server looks for deadlocks.
    fn answer(&mut self, faults: Faults) -> bool {
        let server = &self.subscriber.server;
        if let Some(events) = self.reads.go_on(server, &mut self.random, faults.0) {
            self.events.extend(events);
            return true;
        }
        if let Some(waits) = self.answer.take() {
            let lost = faults.0 && self.random.once_in(4);
            if !lost {
                self.events.push_back(Event::Blocked { waits });
            }
            return true;
        }
        if self.connecting {
            self.connecting = false;
            if faults.0 && self.random.once_in(3) {
                self.saw("a session refused");
                self.events.push_back(Event::Refused);
            } else {
                let id = self.workers.len();
                let worker = Worker::new(id, &mut self.subscriber, self.busy_us);
                self.workers.push(worker);
                self.saw("a session joined");
                self.events.push_back(Event::Joined {
                    worker: WorkerId(id),
                });
            }
            return true;
        }
        let Some(victim) = self.subscriber.server.deadlocked(&mut self.random) else {
            return false;
        };
        self.saw("a deadlock in the server");
        let mut events = Vec::new();
        let worker = &mut self.workers[victim];
        worker.fail("40P01", &mut self.subscriber, &mut self.random, &mut events);
        self.events.extend(events);
        true
    }

    fn pass(&mut self) -> bool {
        self.now_ms += 1 + self.random.below(15) as u64;
        self.tell(Event::Tick);
        true
    }

    fn misfortune(&mut self) -> bool {
        let worker = WorkerId(self.random.below(self.workers.len()));
        match self.random.below(8) {
            // The consumer's process dies.
            0 => self.restart(),
            // The subscriber's does.
            1 => {
                let before = self.subscriber.applied;
                self.subscriber.crash(&mut self.random);
                self.checked = self.checked.min(self.subscriber.applied);
                if self.subscriber.applied < before {
                    self.saw("commits taken back");
                }
                self.sessions();
                self.tell(Event::SessionLost { worker });
            }
            // A session is ended; what was reported before has been read, or not.
            2 => {
                while self.random.once_in(2) && self.deliver() {}
                self.tell(Event::SessionLost { worker });
            }
            _ => return false,
        }
        true
    }

    fn tell(&mut self, event: Event) {
        self.meet(&event);
        let mut actions = Vec::new();
        self.engine.step(self.now_ms, event, &mut actions);
        for action in actions {
            self.execute(action);
        }
        self.check_limits();
    }

    /// Who met something ahead of its turn meets it again only as a fact.
    fn meet(&mut self, event: &Event) {
        let (unit, counts) = match event {
            Event::Abandoned { unit, .. } => (unit, false),
            Event::Counted { unit, missing, .. } => {
                (unit, *missing && !self.called_back.contains(unit))
            }
            Event::Failed { unit, failure, .. } => match &**failure {
                Failure::Server { error, .. } => (unit, error.sqlstate.starts_with("23")),
                _ => (unit, true),
            },
            _ => return,
        };
        let ends = !matches!(event, Event::Counted { .. });
        if ends && self.called_back.remove(unit) || !counts {
            return;
        }
        let times = self.met.entry(*unit).or_default();
        *times += 1;
        assert!(*times <= 2, "{unit:?} ran again ahead of its turn");
    }

    fn execute(&mut self, action: Action) {
        self.saw(crate::consumer::name(&action));
        if let Action::Abandon { unit, .. } = &action {
            self.called_back.insert(*unit);
        }
        match action {
            Action::Run { worker, .. }
            | Action::Extend { worker, .. }
            | Action::Commit { worker, .. }
            | Action::Abandon { worker, .. } => self.workers[worker.0].order(action),
            Action::CommitOffset { offset } => {
                let durable = self.subscriber.durable().end_lsn;
                match &self.history.records[offset as usize].envelope.body {
                    Body::Part(part) => assert!(part.commit_lsn < durable, "{offset}, {durable}"),
                    other => panic!("not a link's record: {other:?}"),
                }
            }
            Action::SeekBack => self.read_from(0),
            Action::PauseFetch => self.paused = true,
            Action::ResumeFetch => self.paused = false,
            Action::AskBlocked => {
                let waits = self.subscriber.server.waits();
                let pair = |(waiting, holding)| (WorkerId(waiting), WorkerId(holding));
                // One question at a time.
                self.answer
                    .get_or_insert_with(|| waits.into_iter().map(pair).collect());
            }
            Action::Connect => {
                assert!(!self.connecting, "asked for two sessions at once");
                self.connecting = true;
            }
            Action::TakeOver { .. } => self.take_over(),
            Action::Stop(stop) => self.stopped = Some(*stop),
            Action::ReadOldValues { read, table, keys } => self.reads.ask(read, table, keys),
            Action::WakeAt { .. } | Action::Report(_) => {}
        }
    }

    /// All sessions of the lane, opened anew.
    fn sessions(&mut self) {
        self.subscriber.server.end_all();
        self.events.clear();
        self.met.clear();
        self.called_back.clear();
        self.answer = None;
        self.reads.clear();
        self.connecting = false;
        let initial = self.config.workers.initial();
        self.workers.clear();
        for id in 0..initial {
            let worker = Worker::new(id, &mut self.subscriber, self.busy_us);
            self.workers.push(worker);
        }
    }

    /// Until they are ended, sessions go on with what they were given.
    fn sessions_end(&mut self) {
        for _ in 0..self.random.below(12) {
            let worker = self.random.below(self.workers.len());
            if self.workers[worker].can_go_on(&self.subscriber.server) {
                self.let_work(worker, Faults(false));
            }
        }
        self.sessions();
        self.subscriber.flush();
        self.paused = false;
    }

    fn take_over(&mut self) {
        self.sessions_end();
        self.engine.resume(self.subscriber.position());
        self.read_on();
    }

    /// A new process.
    fn restart(&mut self) {
        self.saw("a restart");
        self.sessions_end();
        self.count_retries();
        self.engine = Engine::new(self.config.clone(), self.subscriber.position());
        self.read_on();
    }

    fn read_on(&mut self) {
        let last = self.subscriber.applied.checked_sub(1);
        let offset = last.map_or(0, |last| self.history.links[last].last_offset);
        let early = self.random.once_in(4);
        self.read_from(if early { 0 } else { offset });
    }

    fn read_from(&mut self, offset: usize) {
        self.next_offset = offset;
        let start = if offset == 0 {
            Start::LogStart
        } else {
            Start::Offset
        };
        self.tell(Event::ReadFrom(start));
    }

    /// A person acts on a stop: it must be the one that there has to be.
    fn mend(&mut self, stop: &Stop) {
        let applied = self.subscriber.applied;
        let expected = self.oracle.refusal;
        assert_eq!(
            expected,
            Some((applied, stop.kind)),
            "not to be stopped for: {stop}"
        );
        let xid = self.history.links[applied].xid;
        let names = format!("transaction {xid},");
        assert!(stop.message.contains(&names), "{stop}");
        self.sessions();
        let world = self.history.after(&self.schema, applied);
        self.subscriber.mend(&world);
        let (history, schema) = (&self.history, &self.schema);
        self.oracle = Oracle::new(history, schema, self.side, None, (applied, world));
    }

    /// What is committed must be what it was after as many transactions in a row.
    fn check(&mut self) {
        let applied = self.subscriber.applied;
        if applied <= self.checked {
            return;
        }
        self.checked = applied;
        let held = self.subscriber.server.heap.hashes;
        let Some(expected) = self.oracle.states.get(&applied) else {
            let refusal = self.oracle.refusal;
            panic!("{applied} transactions are applied, to be refused is {refusal:?}");
        };
        let wrong = (0..TABLES).filter(|table| held[*table] != expected[*table]);
        let wrong: BTreeSet<usize> = wrong.collect();
        if wrong.is_empty() {
            return;
        }
        let only = |table: usize| wrong.iter().all(|one| *one == table);
        self.outcome.unsaved = Some(match self.lie {
            Some(Lie::SafeTrigger) if only(STAMPED) => "a trigger that reads another table",
            lie => panic!("tables {wrong:?} are wrong after {applied} transactions; {lie:?}"),
        });
    }

    fn check_limits(&self) {
        let Config {
            in_flight, group, ..
        } = self.config;
        // Each unit that runs alone holds one, and the head may be in as many as it has parts.
        let alone = in_flight.units_max * self.workers.len() + group.transactions_max;
        let touches = self.engine.conflict_touches();
        let most = self.config.conflict_keys_max + alone;
        assert!(touches <= most, "{touches} touches are held of {most}");
        for worker in &self.workers {
            let held = worker.units();
            let most = in_flight.units_max;
            assert!(held <= most, "{held} units with a worker, of {most}");
        }
    }

    fn check_the_end(&self) {
        let heap = &self.subscriber.server.heap;
        assert_eq!(heap.count_hashes(), heap.hashes);
        if self.lie.is_none() && !self.profile.poisoned {
            let world = self.history.after(&self.schema, self.history.links.len());
            assert_eq!(heap.hashes, world.hashes());
        }
        let last = self.history.links.last().unwrap();
        let status = self.engine.status();
        assert_eq!(status.flushed_lsn, last.end_lsn);
        assert_eq!(self.engine.conflict_touches(), 0);
    }

    fn count_retries(&mut self) {
        let retries = self.engine.status().retries;
        if self.lie.is_none() && !self.profile.poisoned {
            // Who is told the truth never lets two run at once that get in each other's way. But
            // for one case: a later unit holds a value twice for a moment, as an index allows whose
            // checks are left to the commit, and a row that keeps the value is moved before it.
            let deferred = self.schema.tables[MAIL].uniques[1].deferred;
            let causes = [Cause::NotHead, Cause::NotFound, Cause::Blocked];
            for cause in &causes[..if deferred { 2 } else { 3 }] {
                assert_eq!(retries[*cause as usize], 0, "{}", cause.name());
            }
        }
        for (cause, times) in Cause::ALL.iter().zip(retries) {
            if times > 0 {
                *self.outcome.seen.entry(cause.name()).or_default() += times;
            }
        }
    }
}
