//! The shell of the simulation: feeds, delivers, breaks, checks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use walbraid_apply::action::{Action, TakeOver};
use walbraid_apply::coordinator::OnMissing;
use walbraid_apply::engine::{Config, Engine};
use walbraid_apply::event::{Event, Record};
use walbraid_apply::mapping::{MappingError, Target};
use walbraid_apply::pace::Workers;
use walbraid_apply::relation::{Relation, RelationKind};
use walbraid_apply::rule::BackOff;
use walbraid_apply::scheduler::InFlightLimits;
use walbraid_apply::window::GroupLimits;
use walbraid_schemas::chain::Start;
use walbraid_schemas::envelope::Body;
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_schemas::table::{Identity, Table};

use crate::log::Log;
use crate::random::Random;
use crate::subscriber::{Applied, Poison, Subscriber, Worker};

#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub workers: usize,
    pub on_missing_is_error: bool,
    pub faults: bool,
}

/// Faults stop after this many steps; by the last everything must have arrived.
const FAULTY_STEPS: usize = 400;
const STEPS_MAX: usize = 40_000;

pub struct Consumer {
    random: Random,
    profile: Profile,
    config: Config,
    log: Log,
    subscriber: Subscriber,
    engine: Engine,
    workers: Vec<Worker>,
    events: VecDeque<Event>,
    now_ms: u64,
    next_offset: usize,
    committed_offset: Option<i64>,
    paused: bool,
    mapped: Target,
    /// The table of this transaction is missing on the subscriber until somebody makes it.
    unmapped_xid: Option<u32>,
    stopped: Option<Stop>,
    /// Transactions compared with the WAL already.
    compared: usize,
    seen: BTreeSet<&'static str>,
}

/// A record of the simulation is never larger.
const RECORD_BYTES_MAX: usize = 1_000;

impl Consumer {
    pub fn new(seed: u64, profile: Profile) -> Self {
        let mut random = Random::new(seed);
        let log = Log::new(&mut random);
        let on_missing = if profile.on_missing_is_error {
            OnMissing::Error
        } else {
            OnMissing::Skip
        };
        let config = Config {
            stream: "shop".to_owned(),
            workers: Workers::Fixed(profile.workers),
            conflict_keys_max: 1_000,
            resolver: true,
            on_missing,
            group: GroupLimits {
                transactions_max: 1 + random.below(6),
                bytes_max: 200 + random.below(4000),
            },
            in_flight: InFlightLimits {
                units_max: 1 + random.below(4),
                bytes_max: 500 + random.below(6000),
            },
            transaction_memory_bytes: 300 + random.below(4000),
            buffer_bytes_max: 5_000 + random.below(10_000),
            run_idle_timeout_ms: 200,
            back_off: BackOff {
                first_ms: 5,
                max_ms: 50,
            },
        };
        let mut subscriber = Subscriber::new();
        let mut unmapped_xid = None;
        if profile.faults {
            let xid = |random: &mut Random| log.links[random.below(log.links.len())].xid;
            if random.once_in(2) {
                let kind = if random.once_in(2) {
                    Poison::Check
                } else {
                    Poison::Missing
                };
                subscriber.poison = Some((xid(&mut random), kind));
            }
            unmapped_xid = random.once_in(4).then(|| xid(&mut random));
        }
        let engine = Engine::new(config.clone(), subscriber.position());
        let mut consumer = Self {
            random,
            profile,
            config,
            log,
            subscriber,
            engine,
            workers: Vec::new(),
            events: VecDeque::new(),
            now_ms: 0,
            next_offset: 0,
            committed_offset: None,
            paused: false,
            mapped: mapped(),
            unmapped_xid,
            stopped: None,
            compared: 0,
            seen: BTreeSet::new(),
        };
        consumer.sessions();
        consumer
    }

    /// Runs to the end; answers what kinds of things happened.
    pub fn run(mut self) -> BTreeSet<&'static str> {
        for step in 0..STEPS_MAX {
            let faults = self.profile.faults && step < FAULTY_STEPS;
            self.step(faults);
            self.check();
            let all = self.next_offset == self.log.records.len() && self.events.is_empty();
            if step > FAULTY_STEPS && all && self.engine.status().is_drained {
                self.check_the_end();
                return self.seen;
            }
        }
        panic!("not drained: {:?}", self.engine.status());
    }

    fn step(&mut self, faults: bool) {
        if let Some(stop) = self.stopped.take() {
            self.mend(&stop);
            self.restart();
            return;
        }
        match self.random.below(12) {
            0..=3 => self.feed(),
            4..=6 => {
                let worker = self.random.below(self.workers.len());
                let events =
                    self.workers[worker].step(&mut self.subscriber, &mut self.random, faults);
                self.events.extend(events);
            }
            7..=8 => {
                if let Some(event) = self.events.pop_front() {
                    self.tell(event);
                }
            }
            9 => {
                if let Some(lsn) = self.subscriber.flush() {
                    self.tell(Event::Flushed { lsn });
                }
            }
            10 => {
                self.now_ms += self.random.below(40) as u64;
                self.tell(Event::Tick);
            }
            _ if faults => self.misfortune(),
            _ => {}
        }
    }

    fn misfortune(&mut self) {
        match self.random.below(40) {
            // The consumer's process dies.
            0 => self.restart(),
            // The subscriber's does.
            1 => {
                self.subscriber.crash(&mut self.random);
                self.tell(Event::SessionLost {
                    worker: walbraid_apply::scheduler::WorkerId(0),
                });
            }
            // A session is ended. What it reported before has been read.
            2 => {
                while let Some(event) = self.events.pop_front() {
                    self.tell(event);
                }
                self.tell(Event::SessionLost {
                    worker: walbraid_apply::scheduler::WorkerId(0),
                });
            }
            // The fetcher is put elsewhere.
            3 => {
                if let Some(offset) = self.committed_offset {
                    self.read_from(offset as usize);
                }
            }
            _ => {}
        }
    }

    fn feed(&mut self) {
        if self.paused {
            return;
        }
        let Some(envelope) = self.log.records.get(self.next_offset).cloned() else {
            return;
        };
        let offset = self.next_offset as i64;
        self.next_offset += 1;
        let mut targets = Vec::new();
        let mut size_bytes = 50;
        if let Body::Part(part) = &envelope.body {
            let gone = Some(part.xid) == self.unmapped_xid;
            let missing = || MappingError::RelationMissing {
                schema: "s".to_owned(),
                name: "gone".to_owned(),
            };
            targets.push(if gone {
                Err(Arc::new(missing()))
            } else {
                self.mapped.clone()
            });
            size_bytes += part.changes.len() * 50;
        }
        let record = Record {
            offset,
            size_bytes,
            envelope,
            targets,
        };
        self.tell(Event::Record(Box::new(record)));
        self.check_memory();
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.engine.step(self.now_ms, event, &mut actions);
        for action in actions {
            self.execute(action);
        }
    }

    fn execute(&mut self, action: Action) {
        self.seen.insert(name(&action));
        match action {
            Action::Run { worker, .. }
            | Action::Extend { worker, .. }
            | Action::Commit { worker, .. }
            | Action::Abandon { worker, .. } => self.workers[worker.0].order(action),
            Action::CommitOffset { offset } => {
                let durable = self.subscriber.flushed_lsn();
                let mut links = self.log.links.iter();
                let last = links.rfind(|link| link.end_lsn <= durable);
                let limit = last.map_or(0, |link| link.last_offset);
                let records = &self.log.records[offset as usize];
                let Body::Part(part) = &records.body else {
                    panic!("not a link's record")
                };
                assert!(
                    part.commit_lsn < durable,
                    "offset {offset} is beyond {durable}"
                );
                // A repeat of the link further on is as good as its first copy.
                assert!(offset <= limit || part.commit_lsn < durable);
                self.committed_offset = Some(offset);
            }
            Action::SeekBack => self.seek_back(),
            Action::PauseFetch => self.paused = true,
            Action::ResumeFetch => self.paused = false,
            Action::WakeAt { .. } | Action::Report(_) | Action::AskBlocked => {}
            Action::Connect => panic!("all sessions are open"),
            Action::ReadOldValues { .. } => panic!("one worker needs no old values"),
            Action::TakeOver { reason } => self.take_over(reason),
            Action::Stop(stop) => self.stopped = Some(*stop),
        }
    }

    fn sessions(&mut self) {
        let counts = self.profile.on_missing_is_error;
        self.workers = (0..self.profile.workers)
            .map(|id| Worker::new(id, counts))
            .collect();
        self.events.clear();
    }

    fn take_over(&mut self, _reason: TakeOver) {
        self.sessions();
        self.subscriber.flush();
        self.paused = false;
        self.engine.resume(self.subscriber.position());
        let hint = self.committed_offset.unwrap_or(0) as usize;
        self.next_offset = hint;
        if hint == 0 {
            self.tell(Event::ReadFrom(Start::LogStart));
        }
    }

    /// A new process: the hint is what was committed, or anything.
    fn restart(&mut self) {
        self.sessions();
        self.subscriber.flush();
        self.paused = false;
        self.engine = Engine::new(self.config.clone(), self.subscriber.position());
        let committed = self.committed_offset.unwrap_or(0) as usize;
        let hint = match self.random.below(3) {
            0 => self.random.below(self.log.records.len()),
            _ => committed,
        };
        self.read_from(hint);
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

    fn seek_back(&mut self) {
        let offset = self.subscriber.position().claim_offset.max(0) as usize;
        self.read_from(offset);
    }

    /// A person acts on a stop: it must be about the transaction that is to blame.
    fn mend(&mut self, stop: &Stop) {
        let xid = self.log.links[self.subscriber.applied().count()].xid;
        let names = format!("transaction {xid},");
        assert!(stop.message.contains(&names), "{stop}");
        assert!(stop.message.contains("stream \"shop\""), "{stop}");
        match stop.kind {
            StopKind::RowRefused | StopKind::Conflict => {
                let (poisoned, _) = self.subscriber.poison.take().unwrap();
                assert_eq!(poisoned, xid);
            }
            StopKind::SubscriberShape => assert_eq!(self.unmapped_xid.take(), Some(xid)),
            other => panic!("{other}: {stop}"),
        }
    }

    fn check(&mut self) {
        let count = self.subscriber.applied().count();
        let from = self.compared.min(count);
        let mut links = self.log.links.iter().skip(from);
        for applied in self.subscriber.applied_since(from) {
            let link = links.next().expect("more was committed than there is");
            let Applied {
                commit_lsn,
                changes,
            } = applied;
            assert_eq!((commit_lsn, changes), (&link.commit_lsn, &link.changes));
        }
        self.compared = count;
    }

    fn check_memory(&self) {
        let held = self.engine.status().buffered_bytes;
        let bound = self.config.buffer_bytes_max
            + self.config.transaction_memory_bytes
            + 2 * RECORD_BYTES_MAX;
        assert!(held <= bound, "{held} bytes are held, allowed are {bound}");
    }

    fn check_the_end(&self) {
        assert_eq!(self.subscriber.applied().count(), self.log.links.len());
        let last = self.log.links.last().unwrap();
        let status = self.engine.status();
        assert_eq!(status.flushed_lsn, last.end_lsn);
        assert_eq!(self.subscriber.position().end_lsn, last.end_lsn);
    }
}

pub fn name(action: &Action) -> &'static str {
    match action {
        Action::Run { unit, .. } if unit.is_open() => "an open unit",
        Action::Run { unit, .. } if unit.transactions.len() > 1 => "a unit of several transactions",
        Action::Run { .. } => "a unit of one transaction",
        Action::Extend { .. } => "an extension",
        Action::Commit { .. } => "a held commit",
        Action::Abandon { .. } => "an open unit called back",
        Action::CommitOffset { .. } => "an offset",
        Action::SeekBack => "a seek back",
        Action::PauseFetch => "a pause",
        Action::ResumeFetch => "the end of a pause",
        Action::WakeAt { .. } => "an alarm",
        Action::AskBlocked => "a question",
        Action::Connect => "another session",
        Action::ReadOldValues { .. } => "old values",
        Action::TakeOver { reason } => reason.reason(),
        Action::Report(_) => "a report",
        Action::Stop(stop) => stop.kind.name(),
    }
}

fn mapped() -> Target {
    let table = Table {
        schema: "s".to_owned(),
        name: "t".to_owned(),
        identity: Identity::Nothing,
        columns: Vec::new(),
    };
    let relation = Relation {
        oid: 1,
        schema: "s".to_owned(),
        name: "t".to_owned(),
        kind: RelationKind::Table,
        columns: Vec::new(),
        primary_key: None,
        replica_identity: None,
        insert_trigger: false,
        rule: None,
        keys: Default::default(),
    };
    let mapped = walbraid_apply::mapping::Mapped::new(Arc::new(table), Some(Arc::new(relation)));
    mapped.map(Arc::new).map_err(Arc::new)
}
