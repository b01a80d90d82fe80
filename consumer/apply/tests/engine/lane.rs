//! A lane whose shell is the test: records in, runs answered by hand.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::action::{Action, TakeOver};
use walbraid_apply::engine::{Config, Engine};
use walbraid_apply::event::{CommitTag, Event, Record};
use walbraid_apply::failure::{Failure, Place, ServerFailure};
use walbraid_apply::mapping::{Mapped, MappingError, Target};
use walbraid_apply::relation::{Relation, RelationKind};
use walbraid_apply::rule::BackOff;
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::Unit;
use walbraid_schemas::chain::{Position, Start};
use walbraid_schemas::envelope::NO_CLAIM;
use walbraid_schemas::{
    Body, Change, Claim, Envelope, Heartbeat, Identity, Incarnation, LinkKind, Lsn, Part, Stop,
    Table, TableRef,
};

pub(crate) const WORKER: WorkerId = WorkerId(0);

/// An engine and the records of a lane whose links end at 110, 120, 130…
pub(crate) struct Lane {
    pub(crate) engine: Engine,
    offset: i64,
    end: u64,
    pub(crate) now_ms: u64,
    pub(crate) runs: Vec<(u64, Arc<Unit>)>,
}

impl Lane {
    pub(crate) fn new(config: Config) -> Self {
        let mut lane = Self {
            engine: Engine::new(config, position(100)),
            offset: 0,
            end: 100,
            now_ms: 0,
            runs: Vec::new(),
        };
        lane.begin();
        lane
    }

    pub(crate) fn begin(&mut self) {
        (self.offset, self.end) = (0, 100);
        self.runs.clear();
        self.step(Event::ReadFrom(Start::LogStart));
        self.record(NO_CLAIM, 100, 100, Body::Heartbeat(Heartbeat {}), vec![]);
        self.record(NO_CLAIM, 0, 0, Body::Claim(claim()), vec![]);
    }

    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.engine.step(self.now_ms, event, &mut actions);
        for action in &actions {
            if let Action::Run { run, unit, .. } = action {
                self.runs.push((*run, Arc::clone(unit)));
            }
        }
        actions
    }

    pub(crate) fn record(
        &mut self,
        claim_offset: i64,
        end: u64,
        previous: u64,
        body: Body,
        targets: Vec<Target>,
    ) -> Vec<Action> {
        let offset = self.offset;
        self.offset += 1;
        let envelope = Envelope {
            incarnation: Incarnation::default(),
            timeline: 1,
            claim_offset,
            options_hash: i64::from(offset > 0),
            seq: 0,
            end_lsn: Lsn(end),
            previous_end_lsn: Lsn(previous),
            body,
        };
        let record = Record {
            offset,
            size_bytes: 100,
            envelope,
            targets,
        };
        self.step(Event::Record(Box::new(record)))
    }

    /// A transaction in parts with these numbers out of `count`.
    pub(crate) fn parts(
        &mut self,
        numbers: std::ops::Range<u32>,
        count: u32,
        target: &Target,
    ) -> Vec<Action> {
        let (previous, end) = (self.end, self.end + 10);
        let mut actions = Vec::new();
        for number in numbers {
            let last = number + 1 == count;
            let part = part(end, number, last);
            let end = if last { end } else { 0 };
            let targets = vec![target.clone()];
            actions.extend(self.record(1, end, previous, Body::Part(part), targets));
            if last {
                self.end = end;
            }
        }
        actions
    }

    /// Where the last link ends, and where the next one does.
    pub(crate) fn next_end(&mut self) -> (u64, u64) {
        let previous = self.end;
        self.end += 10;
        (previous, self.end)
    }

    pub(crate) fn transaction(&mut self) -> Vec<Action> {
        self.parts(0..1, 1, &mapped())
    }

    /// The oldest run that was not answered commits.
    pub(crate) fn commit(&mut self) -> Vec<Action> {
        let (run, unit) = self.runs.remove(0);
        self.step(Event::Committed {
            worker: WORKER,
            run,
            unit: unit.id,
            tag: CommitTag::Commit,
            busy_us: 0,
        })
    }

    /// The oldest run that was not answered fails, and all behind it.
    pub(crate) fn fail(&mut self, sqlstate: &str) -> Vec<Action> {
        let (run, unit) = self.runs.remove(0);
        self.runs.clear();
        let failure = Box::new(refusal(sqlstate));
        self.step(Event::Failed {
            worker: WORKER,
            run,
            unit: unit.id,
            failure,
        })
    }

    pub(crate) fn xids(&self) -> Vec<Vec<u32>> {
        let xids = |unit: &Unit| unit.transactions.iter().map(|one| one.xid).collect();
        self.runs.iter().map(|(_, unit)| xids(unit)).collect()
    }
}

pub(crate) fn position(end: u64) -> Position {
    Position::start(Incarnation::default(), Lsn(end))
}

pub(crate) fn claim() -> Claim {
    Claim {
        generation: 1,
        id: [0; 16],
        confirmed_lsn: Lsn(100),
        system_identifier: String::new(),
        database: String::new(),
        slot: String::new(),
        publications: Vec::new(),
        protocol: 4,
        writer: String::new(),
    }
}

pub(crate) fn part(end: u64, number: u32, last: bool) -> Part {
    Part {
        kind: LinkKind::Transaction,
        xid: end as u32,
        commit_lsn: Lsn(end - 5),
        commit_time_us: 7,
        prepare_end_lsn: Lsn(0),
        gid: None,
        origin: None,
        number,
        last,
        tables: vec![TableRef {
            schema_id: 1,
            fingerprint: 1,
        }],
        changes: vec![Change::Insert {
            table: 0,
            new: Bytes::from_static(b"row"),
        }],
        fragment: None,
    }
}

pub(crate) fn mapped() -> Target {
    let table = Table {
        schema: "public".to_owned(),
        name: "t".to_owned(),
        identity: Identity::Nothing,
        columns: Vec::new(),
    };
    let relation = Relation {
        oid: 1,
        schema: "public".to_owned(),
        name: "t".to_owned(),
        kind: RelationKind::Table,
        columns: Vec::new(),
        primary_key: None,
        replica_identity: None,
        insert_trigger: false,
        rule: None,
        keys: Default::default(),
    };
    Ok(Arc::new(
        Mapped::new(Arc::new(table), Some(Arc::new(relation))).unwrap(),
    ))
}

pub(crate) fn unmapped() -> Target {
    let (schema, name) = ("public".to_owned(), "gone".to_owned());
    Err(Arc::new(MappingError::RelationMissing { schema, name }))
}

pub(crate) fn refusal(sqlstate: &str) -> Failure {
    let error = ServerFailure {
        sqlstate: sqlstate.to_owned(),
        message: "new row for relation \"t\" violates check constraint \"positive\"".to_owned(),
        detail: Some("Failing row contains (1, -5).".to_owned()),
        hint: None,
        schema: Some("public".to_owned()),
        table: Some("t".to_owned()),
        column: None,
        constraint: Some("positive".to_owned()),
    };
    let place = Some(Place {
        transaction: 0,
        change: 0,
    });
    Failure::Server {
        error,
        place,
        relation: None,
    }
}

pub(crate) fn stop(actions: &[Action]) -> Option<&Stop> {
    actions.iter().find_map(|action| match action {
        Action::Stop(stop) => Some(&**stop),
        _ => None,
    })
}

pub(crate) fn take_over(actions: &[Action]) -> Option<TakeOver> {
    actions.iter().find_map(|action| match action {
        Action::TakeOver { reason } => Some(*reason),
        _ => None,
    })
}

pub(crate) fn config() -> Config {
    let mut config = Config {
        stream: "shop".to_owned(),
        ..Config::default()
    };
    config.in_flight.units_max = 2;
    config.back_off = BackOff {
        first_ms: 10,
        max_ms: 40,
    };
    config
}
