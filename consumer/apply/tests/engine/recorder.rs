//! What becomes of transactions, recorded on request.

use walbraid_apply::engine::{AttemptEnd, RecordedUnit, Recording};
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;

use crate::lane::{Lane, config, position};
use crate::pool::Pool;

/// A unit in a line: its xids, what was found, what it waits for, its attempts.
fn line(recording: &Recording, unit: &RecordedUnit) -> String {
    let xid = |unit: &RecordedUnit| unit.transactions[0].0;
    let xids: Vec<String> = unit.transactions.iter().map(|t| t.0.to_string()).collect();
    let found = unit.dependence.map_or("IN_ORDER", |found| found.name());
    let mut line = format!("{} {found}", xids.join("+"));
    for edge in &unit.edges {
        let key = edge.key.as_deref().unwrap_or("all");
        let before = recording.units.iter().find(|one| one.id == edge.unit);
        match before {
            Some(before) => line += &format!(" <- {} by {key}", xid(before)),
            None => line += &format!(" <- earlier by {key}"),
        }
    }
    for attempt in &unit.attempts {
        let end = match &attempt.end {
            AttemptEnd::Failed(code) => format!("failed {code}"),
            AttemptEnd::CalledBack(cause) => format!("called back {}", cause.name()),
            other => format!("{other:?}").to_lowercase(),
        };
        let times = [Some(attempt.sent_ms), attempt.counted_ms, attempt.turn_ms];
        let times: Vec<String> = times
            .into_iter()
            .chain([attempt.ended_ms])
            .map(|ms| ms.map_or("-".to_owned(), |ms| ms.to_string()))
            .collect();
        line += &format!("; on {} {}: {end}", attempt.worker.0, times.join(" "));
    }
    if unit.is_split {
        line += "; split";
    }
    line
}

fn lines(recording: &Recording) -> Vec<String> {
    let units = recording.units.iter();
    units.map(|unit| line(recording, unit)).collect()
}

#[track_caller]
fn check(pool: &mut Pool, complete: bool, expected: &[&str]) {
    assert_eq!(pool.lane.engine.recording_is_complete(), complete);
    let recording = pool.lane.engine.end_recording().unwrap();
    assert_eq!(lines(&recording), expected);
    assert_eq!(pool.lane.engine.end_recording(), None);
}

#[test]
fn nodes_edges_and_lanes_of_the_next_transactions() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.lane.engine.begin_recording(0, 3);
    pool.lane.now_ms = 1;
    pool.updates(&[2]);
    pool.updates(&[1, 2]);
    pool.lane.now_ms = 3;
    pool.counted(2, false);
    pool.lane.now_ms = 5;
    pool.commits(1);
    pool.lane.now_ms = 7;
    pool.commits(2);
    pool.updates(&[9]);
    pool.updates(&[8]);
    pool.lane.now_ms = 9;
    pool.commits(3);
    assert!(!pool.lane.engine.recording_is_complete());
    pool.counted(4, false);
    pool.commits(4);
    check(
        &mut pool,
        true,
        &[
            "2 NO_CONFLICT; on 1 1 3 5 7: committed",
            "3 CONFLICT <- earlier by public.account (account_pkey) \
             <- 2 by public.account (account_pkey); on 1 5 - - 9: committed",
            "4 NO_CONFLICT; on 0 7 9 9 9: committed",
        ],
    );
}

#[test]
fn attempts_that_were_undone_say_why() {
    let mut pool = Pool::new(4);
    pool.lane.engine.begin_recording(0, 9);
    for row in 1..=4 {
        pool.updates(&[row]);
    }
    pool.lane.now_ms = 2;
    pool.fails(2, "23505");
    pool.counted(3, true);
    pool.is_gone();
    let (waiting, holding) = (pool.run(1).worker, pool.run(4).worker);
    let waits = vec![(WorkerId(waiting), WorkerId(holding))];
    pool.step(Event::Blocked { waits });
    // They run again behind the head, on its connection.
    check(
        &mut pool,
        false,
        &[
            "1 NO_CONFLICT; on 0 0 - - -: open",
            "2 NO_CONFLICT; on 1 0 - - 2: failed 23505; on 0 2 - - -: open",
            "3 NO_CONFLICT; on 2 0 2 - 2: called back not_found; on 0 2 - - -: open",
            "4 NO_CONFLICT; on 3 0 - - 2: called back blocked_head; on 0 2 - - -: open",
        ],
    );
}

#[test]
fn one_connection_keeps_the_order_and_what_is_behind_a_failure_is_swept() {
    let mut lane = Lane::new(config());
    lane.engine.begin_recording(0, 9);
    for _ in 0..5 {
        lane.transaction();
    }
    lane.commit();
    lane.commit();
    lane.fail("23505");
    let recording = lane.engine.end_recording().unwrap();
    assert_eq!(
        lines(&recording),
        [
            "110 IN_ORDER; on 0 0 - - 0: committed",
            "120 IN_ORDER <- 110 by all; on 0 0 - - 0: committed",
            "130+140+150 IN_ORDER <- 120 by all; on 0 0 - - 0: failed 23505; split",
            "130 IN_ORDER; on 0 0 - - -: open",
            "140 IN_ORDER; on 0 0 - - -: open",
        ]
    );
}

#[test]
fn a_unit_behind_one_that_fails_is_swept() {
    let mut lane = Lane::new(config());
    lane.engine.begin_recording(0, 9);
    lane.transaction();
    lane.transaction();
    lane.fail("40P01");
    let recording = lane.engine.end_recording().unwrap();
    assert_eq!(
        lines(&recording),
        [
            "110 IN_ORDER; on 0 0 - - 0: failed 40P01",
            "120 IN_ORDER <- 110 by all; on 0 0 - - 0: swept",
        ]
    );
}

#[test]
fn nothing_is_kept_while_it_is_off_and_a_take_over_ends_it() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    assert_eq!(pool.lane.engine.end_recording(), None);
    pool.lane.engine.begin_recording(0, 9);
    pool.updates(&[2]);
    pool.lane.engine.resume(position(100));
    assert_eq!(pool.lane.engine.end_recording(), None);
}
