//! What the engine answers, story by story.

#![allow(clippy::unwrap_used)]

mod lane;
mod parallel;
mod pool;
mod recorder;
mod resolver;
mod tables;
mod tally;

use walbraid_apply::action::{Action, Report, TakeOver};
use walbraid_apply::event::{CommitTag, Event};
use walbraid_apply::rule::Cause;
use walbraid_apply::unit::UnitId;
use walbraid_schemas::{Lsn, Stop, StopKind};

use lane::{Lane, WORKER, config, mapped, position, stop, take_over, unmapped};

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
         HINT:  Nothing of the transaction was applied. Mend the cause and start again."
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
fn a_tenure_that_the_shell_ends_leaves_nothing_that_would_run_twice() {
    let mut lane = Lane::new(config());
    for _ in 0..5 {
        lane.transaction();
    }
    assert_eq!(lane.xids(), [[110], [120]]);
    // The offset to read is gone from the log, say: the engine did not ask for a take-over. The
    // first two units were committed by then, and nobody heard of it.
    lane.engine.resume(position(120));
    lane.runs.clear();
    let status = lane.engine.status();
    assert_eq!((status.units, status.window_transactions), (0, 0));
    assert!(status.is_drained);
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
        busy_us: 0,
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
        busy_us: 0,
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
        busy_us: 0,
    });
    assert_eq!(stop(&actions).unwrap().kind, StopKind::Internal);
}
