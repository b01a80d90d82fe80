//! What the engine answers when several workers apply.

use walbraid_apply::coordinator::Commit;
use walbraid_apply::engine::Config;
use walbraid_apply::event::Event;
use walbraid_apply::pace::Workers;
use walbraid_apply::rule::Cause;
use walbraid_apply::scheduler::WorkerId;

use crate::lane::config;
use crate::pool::{Done, Pool};

const NOTHING: [&str; 0] = [];

#[track_caller]
fn are(done: &Done, expected: &[&str]) {
    assert_eq!(done, expected);
}

fn retried(pool: &Pool, cause: Cause) -> u64 {
    pool.lane.engine.status().retries[cause as usize]
}

#[test]
fn what_has_nothing_in_common_runs_side_by_side_and_commits_in_order() {
    let mut pool = Pool::new(3);
    are(&pool.updates(&[1]), &["run 1 on 0"]);
    are(&pool.updates(&[2]), &["run 2 on 1"]);
    are(&pool.updates(&[3]), &["run 3 on 2"]);
    assert_eq!(pool.run(1).commit, Commit::InBurst);
    assert_eq!(pool.run(2).commit, Commit::WhenCounted);
    are(&pool.counted(3, false), &NOTHING);
    are(&pool.counted(2, false), &NOTHING);
    are(&pool.commits(1), &["commit 2"]);
    are(&pool.commits(2), &["commit 3"]);
    are(&pool.commits(3), &NOTHING);
}

#[test]
fn what_depends_runs_behind_on_the_same_connection() {
    let mut pool = Pool::new(2);
    are(&pool.updates(&[1]), &["run 1 on 0"]);
    are(&pool.updates(&[1, 2]), &["run 2 on 0"]);
    assert_eq!(pool.run(2).commit, Commit::InBurst, "it is in order");
    are(&pool.updates(&[3]), &["run 3 on 1"]);
    // It depends on both, and one of them holds its COMMIT.
    are(&pool.updates(&[2, 3]), &NOTHING);
    pool.commits(1);
    are(&pool.counted(3, false), &NOTHING);
    are(&pool.commits(2), &["commit 3", "run 4 on 1"]);
}

#[test]
fn an_error_ahead_of_its_turn_is_no_fact() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    // Behind the head, on its connection, it is in order.
    are(&pool.fails(2, "23505"), &["run 2 on 0"]);
    assert_eq!(retried(&pool, Cause::NotHead), 1);
    assert_eq!(pool.run(2).commit, Commit::InBurst);
    are(&pool.commits(1), &NOTHING);
    let done = pool.fails(2, "23505");
    assert!(
        done[0].starts_with("stop: stream \"shop\": transaction 2"),
        "{done:?}"
    );
}

#[test]
fn a_row_not_found_ahead_of_its_turn_is_no_fact() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    are(&pool.counted(2, true), &["call back 2", "run 2 on 0"]);
    assert_eq!(retried(&pool, Cause::NotFound), 1);
    // Its worker is given nothing before it says that it is gone.
    are(&pool.updates(&[3]), &["run 3 on 0"]);
    are(&pool.is_gone(), &NOTHING);
    are(&pool.updates(&[4]), &["run 4 on 1"]);
    are(&pool.commits(1), &NOTHING);
    are(&pool.commits(2), &NOTHING);
    assert_eq!(pool.lane.engine.status().transactions_applied, 2);
}

#[test]
fn nothing_commits_behind_a_count_that_is_not_read() {
    let mut pool = Pool::new(3);
    pool.updates(&[1]);
    pool.updates(&[2]);
    pool.updates(&[3]);
    pool.counted(3, false);
    are(&pool.commits(1), &NOTHING);
    // Its BEGIN was sent before the COMMIT of the one before had returned.
    are(&pool.counted(2, true), &["call back 2", "run 2 on 0"]);
    are(&pool.is_gone(), &NOTHING);
    are(&pool.commits(2), &["commit 3"]);
}

#[test]
fn a_head_that_waits_for_a_later_lock_is_asked_about_and_gets_it() {
    let mut pool = Pool::new(3);
    pool.updates(&[1]);
    pool.updates(&[2]);
    pool.counted(2, false);
    pool.lane.now_ms += 9;
    are(&pool.step(Event::Tick), &NOTHING);
    pool.lane.now_ms += 1;
    are(&pool.step(Event::Tick), &["ask"]);
    let waits = |waiting, holding| Event::Blocked {
        waits: vec![(WorkerId(waiting), WorkerId(holding))],
    };
    are(&pool.step(waits(1, 0)), &NOTHING);
    are(&pool.step(waits(0, 2)), &NOTHING);
    are(&pool.step(waits(0, 1)), &["call back 2", "run 2 on 0"]);
    assert_eq!(retried(&pool, Cause::Blocked), 1);
    are(&pool.is_gone(), &NOTHING);
    are(&pool.commits(1), &NOTHING);
    are(&pool.commits(2), &NOTHING);
}

#[test]
fn a_head_whose_commit_waits_for_a_later_lock_is_asked_about_too() {
    let mut pool = Pool::new(3);
    for row in 1..=3 {
        pool.updates(&[row]);
    }
    pool.counted(2, false);
    pool.counted(3, false);
    are(&pool.commits(1), &["commit 2"]);
    // A constraint that is checked at the end finds what 3 has in progress.
    pool.lane.now_ms += 10;
    are(&pool.step(Event::Tick), &["ask"]);
    let waits = vec![(WorkerId(1), WorkerId(2))];
    let done = pool.step(Event::Blocked { waits });
    are(&done, &["call back 3", "run 3 on 1"]);
}

#[test]
fn where_nobody_says_whose_lock_it_is_all_later_ones_make_way_once() {
    let mut pool = Pool::new(3);
    pool.updates(&[1]);
    pool.updates(&[2]);
    pool.updates(&[3]);
    pool.counted(3, false);
    let mut called_back = Vec::new();
    for _ in 0..100 {
        pool.lane.now_ms += 200;
        let done = pool.step(Event::Tick);
        called_back.extend(done.into_iter().filter(|one| one.starts_with("call")));
    }
    assert_eq!(called_back, ["call back 2", "call back 3"]);
    assert_eq!(retried(&pool, Cause::MadeWay), 2);
}

#[test]
fn a_head_that_did_not_get_a_lock_in_time_has_it_next() {
    for sqlstate in ["55P03", "40P01"] {
        let mut pool = Pool::new(2);
        pool.updates(&[1]);
        pool.updates(&[2]);
        pool.counted(2, false);
        are(&pool.fails(1, sqlstate), &["call back 2"]);
        assert_eq!(retried(&pool, Cause::MadeWay), 1);
        pool.lane.now_ms += 10;
        are(&pool.step(Event::Tick), &["run 1 on 0", "run 2 on 0"]);
    }
}

#[test]
fn a_unit_that_was_swept_away_stays_serial() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    are(&pool.fails(2, "23505"), &["run 2 on 0"]);
    // It was sent in order; what it was sent behind fails, and it may not run ahead of that.
    are(&pool.fails(1, "53100"), &NOTHING);
    are(&pool.updates(&[3]), &["run 3 on 0"]);
}

#[test]
fn a_session_that_is_refused_is_asked_for_again() {
    let mut config = config();
    config.in_flight.units_max = 2;
    config.workers = Workers::Auto { most: 3 };
    let mut pool = Pool::with(config);
    for row in 1..=40 {
        pool.updates(&[row]);
    }
    assert!(pool.commits(1).contains(&"connect".to_owned()));
    are(&pool.step(Event::Refused), &NOTHING);
    are(&pool.commits(2), &["run 4 on 0"]);
    // One connection takes what it gets.
    assert_eq!(pool.lane.engine.status().workers, 1);
    pool.lane.now_ms += 10_000;
    are(&pool.commits(3), &["connect", "run 5 on 0"]);
}

#[test]
fn a_fixed_number_of_workers_begins_with_those_that_could_be_opened() {
    let mut pool = Pool::new(3);
    pool.lane.engine.begin_with(pool.lane.now_ms, 1);
    are(&pool.updates(&[1]), &["run 1 on 0"]);
    are(&pool.updates(&[2]), &["run 2 on 0"]);
    assert_eq!(pool.lane.engine.status().workers, 1);
    pool.lane.now_ms += 10_000;
    are(&pool.step(Event::Tick), &["connect"]);
    are(
        &pool.step(Event::Joined {
            worker: WorkerId(1),
        }),
        &["connect"],
    );
    are(&pool.step(Event::Refused), &NOTHING);
    assert_eq!(pool.lane.engine.status().workers, 2);
    are(&pool.commits(1), &NOTHING);
    are(&pool.commits(2), &NOTHING);
    are(&pool.updates(&[3]), &["run 3 on 0"]);
    are(&pool.updates(&[4]), &["run 4 on 1"]);
}

#[test]
fn an_alarm_that_went_off_is_set_again() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    let mut alarms = 0;
    for _ in 0..5 {
        let Some(at_ms) = pool.alarm else { break };
        pool.lane.now_ms = at_ms;
        pool.alarm = None;
        pool.step(Event::Tick);
        alarms += 1;
    }
    assert_eq!(
        alarms, 5,
        "a head that waits is asked about again and again"
    );
}

#[test]
fn the_newest_makes_way_for_a_head_that_finds_no_worker() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    are(&pool.updates(&[2]), &NOTHING);
    are(&pool.updates(&[4]), &["run 4 on 0"]);
    are(&pool.counted(2, false), &NOTHING);
    // The head fails, and what was sent behind it; while it pauses, its worker is free.
    are(&pool.fails(1, "40001"), &["run 4 on 0"]);
    pool.lane.now_ms += 10;
    are(&pool.step(Event::Tick), &["call back 4"]);
    assert_eq!(retried(&pool, Cause::MadeWay), 1);
    are(&pool.is_gone(), &["run 1 on 0", "run 4 on 0"]);
    are(&pool.commits(1), &["commit 2", "run 3 on 1"]);
}

#[test]
fn a_barrier_waits_for_all_and_all_wait_for_it() {
    let mut pool = Pool::new(3);
    pool.updates(&[1]);
    pool.updates(&[2]);
    are(&pool.truncates(), &NOTHING);
    are(&pool.updates(&[3]), &NOTHING);
    pool.counted(2, false);
    are(&pool.commits(1), &["commit 2", "run 3 on 1", "run 4 on 1"]);
    assert_eq!(pool.run(3).commit, Commit::InBurst);
}

#[test]
fn others_join_when_transactions_wait_in_the_server() {
    let mut config = config();
    config.in_flight.units_max = 2;
    let mut pool = Pool::with(Config {
        workers: Workers::Auto { most: 2 },
        ..config
    });
    for row in 1..=12 {
        pool.updates(&[row]);
    }
    // Ten milliseconds each, and others wait.
    are(&pool.commits(1), &["connect", "run 3 on 0"]);
    let worker = WorkerId(1);
    are(&pool.step(Event::Joined { worker }), &NOTHING);
    assert_eq!(pool.lane.engine.status().workers, 2);
    // What was sent before is looked at as one.
    are(&pool.commits(2), &["run 4 on 0"]);
    are(&pool.commits(3), &["run 5 on 1", "run 6 on 0"]);
}

#[test]
fn a_take_over_asks_for_no_session_of_the_tenure_that_ends() {
    let mut pool = Pool::with(Config {
        workers: Workers::Auto { most: 2 },
        ..config()
    });
    for row in 1..=12 {
        pool.updates(&[row]);
    }
    let done = pool.commits(1);
    assert!(done.contains(&"connect".to_owned()), "{done:?}");
    let worker = WorkerId(0);
    are(
        &pool.step(Event::SessionLost { worker }),
        &["a session of the lane was lost"],
    );
}

#[test]
fn a_lost_session_takes_the_lane_over() {
    let mut pool = Pool::new(2);
    pool.updates(&[1]);
    pool.updates(&[2]);
    let worker = WorkerId(1);
    are(
        &pool.step(Event::SessionLost { worker }),
        &["a session of the lane was lost"],
    );
}
