//! What the engine answers, story by story.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::action::{Action, Report, TakeOver};
use walbraid_apply::engine::{Config, Engine};
use walbraid_apply::event::{CommitTag, Event, Record};
use walbraid_apply::failure::{Failure, Place, ServerFailure};
use walbraid_apply::mapping::{Mapped, MappingError, Target};
use walbraid_apply::relation::{Relation, RelationKind};
use walbraid_apply::rule::{BackOff, Cause};
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::{Unit, UnitId};
use walbraid_schemas::chain::{Position, Start};
use walbraid_schemas::envelope::NO_CLAIM;
use walbraid_schemas::{
    Body, Change, Claim, Envelope, Heartbeat, Identity, Incarnation, LinkKind, Lsn, Part, Stop,
    StopKind, Table, TableRef,
};

const WORKER: WorkerId = WorkerId(0);

/// An engine and the records of a lane whose links end at 110, 120, 130…
struct Lane {
    engine: Engine,
    offset: i64,
    end: u64,
    now_ms: u64,
    runs: Vec<(u64, Arc<Unit>)>,
}

impl Lane {
    fn new(config: Config) -> Self {
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

    fn begin(&mut self) {
        (self.offset, self.end) = (0, 100);
        self.runs.clear();
        self.step(Event::ReadFrom(Start::LogStart));
        self.record(NO_CLAIM, 100, 100, Body::Heartbeat(Heartbeat {}), vec![]);
        self.record(NO_CLAIM, 0, 0, Body::Claim(claim()), vec![]);
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.engine.step(self.now_ms, event, &mut actions);
        for action in &actions {
            if let Action::Run { run, unit, .. } = action {
                self.runs.push((*run, Arc::clone(unit)));
            }
        }
        actions
    }

    fn record(
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
    fn parts(&mut self, numbers: std::ops::Range<u32>, count: u32, target: &Target) -> Vec<Action> {
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

    fn transaction(&mut self) -> Vec<Action> {
        self.parts(0..1, 1, &mapped())
    }

    /// The oldest run that was not answered commits.
    fn commit(&mut self) -> Vec<Action> {
        let (run, unit) = self.runs.remove(0);
        self.step(Event::Committed {
            worker: WORKER,
            run,
            unit: unit.id,
            tag: CommitTag::Commit,
        })
    }

    /// The oldest run that was not answered fails, and all behind it.
    fn fail(&mut self, sqlstate: &str) -> Vec<Action> {
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

    fn xids(&self) -> Vec<Vec<u32>> {
        let xids = |unit: &Unit| unit.transactions.iter().map(|one| one.xid).collect();
        self.runs.iter().map(|(_, unit)| xids(unit)).collect()
    }
}

fn position(end: u64) -> Position {
    Position::start(Incarnation::default(), Lsn(end))
}

fn claim() -> Claim {
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

fn part(end: u64, number: u32, last: bool) -> Part {
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

fn mapped() -> Target {
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
    };
    Ok(Arc::new(
        Mapped::new(Arc::new(table), Some(Arc::new(relation))).unwrap(),
    ))
}

fn unmapped() -> Target {
    let (schema, name) = ("public".to_owned(), "gone".to_owned());
    Err(Arc::new(MappingError::RelationMissing { schema, name }))
}

fn refusal(sqlstate: &str) -> Failure {
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

fn stop(actions: &[Action]) -> Option<&Stop> {
    actions.iter().find_map(|action| match action {
        Action::Stop(stop) => Some(&**stop),
        _ => None,
    })
}

fn take_over(actions: &[Action]) -> Option<TakeOver> {
    actions.iter().find_map(|action| match action {
        Action::TakeOver { reason } => Some(*reason),
        _ => None,
    })
}

fn config() -> Config {
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

#[test]
fn one_to_one_while_keeping_up_and_grouped_when_behind() {
    let mut lane = Lane::new(config());
    for _ in 0..6 {
        lane.transaction();
    }
    assert_eq!(lane.xids(), [vec![110], vec![120]]);
    lane.commit();
    assert_eq!(lane.xids(), [vec![120], vec![130, 140, 150, 160]]);
}

#[test]
fn a_group_of_one_keeps_every_commit() {
    let mut config = config();
    config.group.transactions_max = 1;
    let mut lane = Lane::new(config);
    for _ in 0..4 {
        lane.transaction();
    }
    lane.commit();
    lane.commit();
    assert_eq!(lane.xids(), [[130], [140]]);
}

#[test]
fn a_refused_row_stops_with_everything_named_and_no_values() {
    let mut lane = Lane::new(config());
    lane.transaction();
    lane.transaction();
    lane.commit();
    let actions = lane.fail("23514");
    let stop = stop(&actions).unwrap();
    assert_eq!(stop.kind, StopKind::RowRefused);
    assert_eq!(
        stop.to_string(),
        "ERROR:  stream \"shop\": transaction 120, committed at 0/73, finished at 0/78, cannot be \
         applied: new row for relation \"t\" violates check constraint \"positive\"\n\
         DETAIL:  Relation: \"public\".\"t\". Constraint: \"positive\". SQLSTATE: 23514.\n\
         HINT:  Nothing of the transaction was applied. It is applied anew once the cause is mended."
    );
}

#[test]
fn a_unit_of_several_that_fails_runs_again_one_by_one() {
    let mut lane = Lane::new(config());
    for _ in 0..5 {
        lane.transaction();
    }
    lane.commit();
    lane.commit();
    assert_eq!(lane.xids(), [[130, 140, 150]]);
    assert!(stop(&lane.fail("23505")).is_none());
    assert_eq!(lane.xids(), [[130], [140]]);
    lane.commit();
    let actions = lane.fail("23505");
    assert!(stop(&actions).unwrap().message.contains("transaction 140,"));
}

#[test]
fn a_deadlock_is_repeated_for_ever_and_told_once() {
    let mut lane = Lane::new(config());
    lane.transaction();
    lane.transaction();
    let mut pauses = Vec::new();
    let mut reports = 0;
    for _ in 0..6 {
        let actions = lane.fail("40P01");
        assert!(
            lane.runs.is_empty(),
            "nothing runs before the pause is over"
        );
        for action in &actions {
            match action {
                Action::Report(Report::Retrying { cause, xid, .. }) => {
                    assert_eq!((*cause, *xid), (Cause::Deadlock, 110));
                    reports += 1;
                }
                Action::WakeAt { at_ms } => pauses.push(at_ms - lane.now_ms),
                other => panic!("{other:?}"),
            }
        }
        lane.now_ms += pauses.last().unwrap();
        lane.step(Event::Tick);
        assert_eq!(lane.xids(), [[110], [120]]);
    }
    assert_eq!((pauses, reports), (vec![10, 20, 40, 40, 40, 40], 1));
    let recovered = lane.commit();
    assert!(matches!(
        recovered[..],
        [
            Action::Report(Report::Recovered {
                cause: Cause::Deadlock,
                attempts: 6,
                ..
            }),
            ..
        ]
    ));
    assert_eq!(lane.engine.status().retries[Cause::Deadlock as usize], 6);
}

#[test]
fn a_missing_table_is_looked_for_once_more_and_stops_only_as_the_head() {
    let mut lane = Lane::new(config());
    lane.transaction();
    let actions = lane.parts(0..1, 1, &unmapped());
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(take_over(&lane.commit()), Some(TakeOver::ShapeChanged));
    lane.engine.resume(position(100));
    lane.begin();
    lane.transaction();
    lane.parts(0..1, 1, &unmapped());
    let actions = lane.commit();
    let stop = stop(&actions).unwrap();
    assert_eq!(stop.kind, StopKind::SubscriberShape);
    assert_eq!(
        stop.message,
        "stream \"shop\": transaction 120, committed at 0/73, finished at 0/78, cannot be applied: \
         relation \"public\".\"gone\" does not exist on the subscriber"
    );
}

#[test]
fn a_changed_column_is_read_again_before_it_is_a_stop() {
    let mut lane = Lane::new(config());
    lane.transaction();
    assert_eq!(take_over(&lane.fail("42703")), Some(TakeOver::ShapeChanged));
    lane.engine.resume(position(100));
    lane.begin();
    lane.transaction();
    assert_eq!(
        stop(&lane.fail("42703")).unwrap().kind,
        StopKind::SubscriberShape
    );
}

#[test]
fn a_log_that_cannot_be_read_on_stops_behind_what_was_read() {
    let mut lane = Lane::new(config());
    lane.transaction();
    lane.transaction();
    let why = Stop::new(StopKind::Undecodable, "record 4 cannot be decoded");
    assert!(lane.step(Event::LogStop(why.clone())).is_empty());
    assert!(stop(&lane.commit()).is_none());
    assert_eq!(stop(&lane.commit()), Some(&why));
}

#[test]
fn the_offset_follows_the_flush_and_not_the_commit() {
    let mut lane = Lane::new(config());
    lane.transaction();
    lane.transaction();
    assert!(lane.commit().is_empty());
    assert!(lane.commit().is_empty());
    assert_eq!(lane.engine.status().applied_lsn, Lsn(120));
    assert_eq!(lane.engine.status().flushed_lsn, Lsn(100));
    let actions = lane.step(Event::Flushed { lsn: Lsn(110) });
    assert!(
        matches!(actions[..], [Action::CommitOffset { offset: 2 }]),
        "{actions:?}"
    );
    let actions = lane.step(Event::Flushed { lsn: Lsn(120) });
    assert!(
        matches!(actions[..], [Action::CommitOffset { offset: 3 }]),
        "{actions:?}"
    );
    assert!(lane.engine.status().is_drained);
}

#[test]
fn a_commit_answered_with_rollback_is_no_commit() {
    let mut lane = Lane::new(config());
    lane.transaction();
    let (run, unit) = lane.runs.remove(0);
    let tag = CommitTag::RollBack;
    let actions = lane.step(Event::Committed {
        worker: WORKER,
        run,
        unit: unit.id,
        tag,
    });
    assert_eq!(take_over(&actions), Some(TakeOver::OutcomeUnknown));
    assert_eq!(lane.engine.status().applied_lsn, Lsn(100));
}

#[test]
fn a_large_transaction_is_applied_while_it_arrives() {
    let mut config = config();
    config.transaction_memory_bytes = 500;
    let mut lane = Lane::new(config);
    lane.transaction();
    lane.parts(0..3, 20, &mapped());
    assert_eq!(lane.runs.len(), 2);
    assert!(lane.runs[1].1.is_open());
    let actions = lane.parts(3..20, 20, &mapped());
    let extensions = actions
        .iter()
        .filter(|action| matches!(action, Action::Extend { .. }));
    assert_eq!(extensions.count(), 17);
    lane.commit();
    lane.commit();
    assert_eq!(lane.engine.status().applied_lsn, Lsn(120));
}

#[test]
fn a_large_transaction_that_stops_growing_is_rolled_back_and_read_again() {
    let mut config = config();
    config.transaction_memory_bytes = 500;
    config.run_idle_timeout_ms = 1_000;
    let mut lane = Lane::new(config);
    lane.parts(0..5, 20, &mapped());
    let (run, unit) = lane.runs.remove(0);
    lane.now_ms = 999;
    assert!(lane.step(Event::Tick).is_empty());
    lane.now_ms = 1_000;
    let actions = lane.step(Event::Tick);
    assert!(
        matches!(actions[..], [Action::Abandon { .. }]),
        "{actions:?}"
    );
    lane.step(Event::Abandoned {
        worker: WORKER,
        run,
        unit: unit.id,
    });
    let actions = lane.parts(5..6, 20, &mapped());
    assert_eq!(take_over(&actions), Some(TakeOver::ReadAgain));
}

#[test]
fn fetching_pauses_above_the_limit_and_goes_on_below() {
    let mut config = config();
    config.buffer_bytes_max = 2_000;
    let mut lane = Lane::new(config);
    let mut paused = 0;
    while lane
        .transaction()
        .iter()
        .all(|action| !matches!(action, Action::PauseFetch))
    {
        paused += 1;
        assert!(paused < 20, "{:?}", lane.engine.status());
    }
    assert!(lane.engine.status().buffered_bytes <= 2_000 + 300);
    let mut resumed = false;
    while !resumed {
        resumed = lane
            .commit()
            .iter()
            .any(|action| matches!(action, Action::ResumeFetch));
    }
}

#[test]
fn what_comes_from_a_swept_run_says_nothing() {
    let mut lane = Lane::new(config());
    lane.transaction();
    lane.transaction();
    let late = lane.runs[1].clone();
    lane.fail("40001");
    let tag = CommitTag::Commit;
    let (run, unit) = (late.0, late.1.id);
    let actions = lane.step(Event::Committed {
        worker: WORKER,
        run,
        unit,
        tag,
    });
    assert!(stop(&actions).is_none());
    assert_eq!(lane.engine.status().applied_lsn, Lsn(100));
}

#[test]
fn a_commit_out_of_turn_ends_the_process() {
    let mut lane = Lane::new(config());
    lane.transaction();
    let (run, _) = lane.runs[0];
    let tag = CommitTag::Commit;
    let actions = lane.step(Event::Committed {
        worker: WORKER,
        run,
        unit: UnitId(99),
        tag,
    });
    assert_eq!(stop(&actions).unwrap().kind, StopKind::Internal);
}
