//! The hazards of [`super`] as data: a log, and what the reader says of each record. The language
//! is that of [`super::script`].

use super::script::{OURS, at, check, fresh, parse};
use super::{Side, Start, Tail, TailStep};
use crate::{Lsn, StopKind};

#[test]
fn plain_log() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 20        => link
        3 beat 1 a 20 30        => quiet
        4 beat 1 a 20 30        => repeat
        5 part 1 a 20 40 0      => part
        6 part 1 a 20 40 1      => part
        7 part 1 a 20 40 2.     => link
        8 notice 1 a            => notice
        9 link 1 a 40 50        => link
    ";
    let reader = check("plain log", fresh(), Start::LogStart, log);
    assert_eq!(reader.position(), at(50, 1, "a"));
    assert_eq!(reader.quiet_until(), Lsn(50));
    check("the same from an offset", fresh(), Start::Offset, log);
}

#[test]
fn zombie() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 20        => link
        3 claim b 20            => claim
        4 link 3 b 20 30        => link
        5 link 1 a 20 25        => void
        6 link 1 a 25 30        => void
        7 notice 1 a            => void
        8 beat 1 a 30 99        => void
        9 link 3 b 30 40        => link
    ";
    check("1", fresh(), Start::LogStart, log);
}

#[test]
fn late_claim() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 20        => link
        3 link 1 a 20 30        => link
        4 claim a 10            => claim
        5 link 1 a 30 40        => void
        6 link 4 a 10 20        => repeat
        7 link 4 a 20 30        => repeat
        8 link 4 a 30 40        => link
        9 claim a 30            => claim
        10 link 9 a 30 40       => repeat
        11 link 9 a 40 50       => link
    ";
    check("2", fresh(), Start::LogStart, log);
}

#[test]
fn broken_run() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 part 1 a 10 20 0      => part
        3 part 1 a 10 20 1      => part
        4 claim a 10            => voids, claim
        5 part 1 a 10 20 2.     => void
        6 part 4 a 10 20 0      => part
        7 part 4 a 10 20 1.     => link
    ";
    check("3", fresh(), Start::LogStart, log);
}

#[test]
fn run_begun_again() {
    let before = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 part 1 a 10 20 0      => part
        3 part 1 a 10 20 1      => part
    ";
    let cases = [
        "4 part 1 a 10 20 1     => repeat
         5 part 1 a 10 20 2.    => link",
        "4 part 1 a 10 20 0     => voids, part
         5 part 1 a 10 20 1.    => link",
        "4 link 1 a 10 20       => voids, link",
        "4 part 1 a 10 20 3.    => voids, stop chain-break
         5 part 1 a 10 20 2     => stop chain-break",
        "4 link 1 a 10 15       => voids, stop chain-break",
        "4 link 1 a 20 30       => voids, stop chain-break",
    ];
    for case in cases {
        check("4", fresh(), Start::LogStart, &format!("{before}{case}"));
    }
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 part 1 a 10 20 1      => stop chain-break
    ";
    check("4, no part 0", fresh(), Start::LogStart, log);
}

#[test]
fn changed_view() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 100       => link
        3 link 1 a 100 200      => link
        4 claim b 100           => claim
        5 link 4 b 100 150      => repeat
        6 link 4 b 150 300      => link
        7 link 4 b 300 310      => link
    ";
    check("5", fresh(), Start::LogStart, log);
    let log = "
        3 link 1 a 100 200      => repeat
        4 claim b 100           => claim
        5 link 4 b 100 150      => repeat
        6 link 4 b 150 300      => link
    ";
    let log_covered = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 claim b 10            => claim
        3 beat 2 b 10 230       => quiet
        4 claim a 10            => claim
        5 link 4 a 10 200       => repeat
        6 link 4 a 200 300      => link
    ";
    check(
        "5, covered by a heartbeat",
        fresh(),
        Start::LogStart,
        log_covered,
    );
    check("5, restarted", at(200, 1, "a"), Start::Offset, log);
}

#[test]
fn back_to_the_old_view() {
    let log = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 100       => link
        3 link 1 a 100 200      => link
        4 claim b 100           => claim
        5 beat 4 b 100 230      => quiet
        6 claim a 230           => claim
        7 link 6 a 100 300      => link
    ";
    check("6", fresh(), Start::LogStart, log);
}

#[test]
fn restored_publisher() {
    let before = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 100       => link
        3 link 1 a 100 200      => link
    ";
    let cases = [
        "4 claim a 100          => claim
         5 link 4 a 100 250     => stop chain-break",
        "4 claim a 100          => claim
         5 link 4 a 100 150     => repeat
         6 link 4 a 150 250     => stop chain-break",
        "4 claim a 100          => claim
         5 beat 4 a 100 250     => stop chain-break",
        "4 claim a 100          => claim
         5 link 4 a 100 150     => repeat
         6 link 4 a 150 201     => stop chain-break",
        // A claim that was confirmed up to P need not name it.
        "4 claim a 200          => claim
         5 link 4 a 100 250     => link",
        // A link taken in the new view makes an end of the old one.
        "4 claim b 200          => claim
         5 link 4 b 200 300     => link
         6 claim b 200          => claim
         7 link 6 b 200 400     => stop chain-break",
        // Under P's own claim nothing may pass over P.
        "4 link 1 a 100 250     => stop chain-break",
    ];
    for case in cases {
        check("7", fresh(), Start::LogStart, &format!("{before}{case}"));
    }
}

#[test]
fn seek_too_far() {
    let cases = [
        "4 link 3 b 100 200     => seek back",
        "3 claim b 100          => seek back",
        "3 claim a 100          => seek back",
        "2 link 1 a 100 150     => seek back
         3 link 1 a 100 150     => seek back",
        "2 beat 1 a 100 150     => seek back",
        "4 link 0 a 10 20       => void
         5 link 1 a 100 150     => seek back",
        "4 link 1 a 20 100      => repeat
         5 link 1 a 100 150     => link",
        "4 beat 1 a 20 100      => repeat
         5 link 1 a 100 150     => link",
        "0 setup 10             => void
         1 claim a 20           => claim
         2 link 1 a 20 100      => repeat
         3 link 1 a 100 150     => link",
    ];
    for case in cases {
        check("8", at(100, 1, "a"), Start::Offset, case);
    }
    check(
        "8, not started yet",
        fresh(),
        Start::Offset,
        "3 link 1 a 10 20 => seek back",
    );
    check(
        "8, not started yet",
        fresh(),
        Start::Offset,
        "3 claim a 10 => seek back",
    );
}

#[test]
fn start_in_mid_run() {
    let position = at(100, 1, "a");
    check(
        "9",
        position,
        Start::Offset,
        "5 part 1 a 100 200 1. => seek back",
    );
    check(
        "9",
        position,
        Start::LogStart,
        "5 part 1 a 100 200 1. => stop log-truncated",
    );
    let log = "
        5 part 1 a 10 100 1.    => repeat
        6 part 1 a 100 200 0    => part
        7 part 1 a 100 200 1.   => link
    ";
    check("9, in P's own run", position, Start::Offset, log);
}

#[test]
fn truncated_head() {
    let cases = [
        "5 link 1 a 100 200     => link",
        "5 beat 1 a 100 200     => quiet
         6 link 1 a 100 300     => link",
        "5 beat 3 a 100 200     => quiet
         6 link 3 a 100 300     => link",
        "5 claim a 150          => claim
         6 notice 5 a           => notice
         7 beat 5 a 100 200     => quiet
         8 claim a 200          => claim
         9 link 8 a 100 300     => link",
        "5 link 3 a 50 100      => repeat
         6 link 3 a 100 200     => link",
        "5 part 3 a 50 90 1     => repeat
         6 link 3 a 100 200     => link",
        // The claim of the first record was removed, and it was a zombie's.
        "5 beat 1 a 100 110     => quiet
         6 beat 3 a 100 200     => quiet
         7 link 6 a 100 300     => stop chain-break",
        "5 link 3 b 100 200     => stop log-truncated",
        "5 link 3 a 150 200     => stop log-truncated",
        "5 link 3 a 50 200      => stop log-truncated",
        "5 beat 3 a 150 200     => stop log-truncated",
    ];
    for case in cases {
        check("10", at(100, 1, "a"), Start::LogStart, case);
    }
    let log = "
        7 claim a 40            => claim
        8 beat 7 a 10 50        => quiet
        9 link 7 a 10 60        => link
    ";
    check("10, not started yet", fresh(), Start::LogStart, log);
}

#[test]
fn lost_tail() {
    let before = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 link 1 a 10 20        => link
    ";
    let cases = [
        "3 link 1 a 30 40       => stop chain-break",
        "3 beat 1 a 30 40       => stop chain-break",
        "3 claim a 30           => stop chain-break",
        "3 part 1 a 20 40 0     => part
         4 claim a 30           => voids, stop chain-break",
        "4 link 3 a 20 30       => stop chain-break",
    ];
    for case in cases {
        check("11", fresh(), Start::LogStart, &format!("{before}{case}"));
    }
}

#[test]
fn heartbeat_over_an_open_run() {
    let before = "
        0 setup 10              => repeat
        1 claim a 10            => claim
        2 part 1 a 10 20 0      => part
    ";
    let cases = [
        "3 beat 1 a 10 20       => voids, stop chain-break",
        "3 beat 1 a 10 19       => quiet
         4 part 1 a 10 20 1.    => link",
    ];
    for case in cases {
        check("12", fresh(), Start::LogStart, &format!("{before}{case}"));
    }
}

#[test]
fn other_lives() {
    let log = "
        0 other setup 3         => foreign
        1 other claim a 3       => foreign
        2 other link 1 a 3 9    => foreign
        3 setup 10              => repeat
        4 other link 1 a 9 30   => void
        5 claim a 10            => claim
        6 other link 1 a 9 30   => void
        7 link 5 a 10 20        => link
        8 other setup 30        => void
        9 other claim a 30      => stop incarnation
    ";
    check("13", fresh(), Start::LogStart, log);
    check(
        "13",
        fresh(),
        Start::Offset,
        "2 other link 1 a 3 9 => seek back",
    );
    let position = at(20, 5, "a");
    check(
        "13",
        position,
        Start::Offset,
        "9 other claim a 30 => stop incarnation",
    );
    check(
        "13",
        position,
        Start::Offset,
        "9 other link 8 a 30 40 => stop incarnation",
    );
    check(
        "13",
        position,
        Start::LogStart,
        "9 other link 8 a 30 40 => stop incarnation",
    );
    check(
        "13, other setup",
        fresh(),
        Start::LogStart,
        "0 setup 11 => stop chain-break",
    );
}

#[test]
fn recreated_topic() {
    let cases = [
        "1 link 0 a 10 100      => stop log-truncated",
        "1 claim b 10           => stop log-truncated",
        "1 other claim a 10     => stop log-truncated",
        "0 setup 10             => void
         2 link 1 a 10 20       => stop log-truncated",
    ];
    for case in cases {
        check("14", at(100, 1, "a"), Start::Offset, case);
        check("14", at(100, 1, "a"), Start::LogStart, case);
    }
}

#[test]
fn records_that_contradict_themselves() {
    let before = "
        0 setup 10              => repeat
        1 claim a 10            => claim
    ";
    let cases = [
        "2 link 2 a 10 20       => stop chain-break",
        "2 link 7 a 10 20       => stop chain-break",
        "2 link 1 b 10 20       => stop chain-break",
        "2 link 1 a 20 20       => stop undecodable",
        "2 beat 1 a 20 10       => stop undecodable",
        "1 beat 1 a 10 20       => stop internal",
    ];
    for case in cases {
        check(
            "contradiction",
            fresh(),
            Start::LogStart,
            &format!("{before}{case}"),
        );
    }
}

#[test]
fn stepping_back() {
    let check = |confirmed: u64, log: &[&str], expected: Option<u64>| {
        let tail = Tail::new(OURS, Lsn(confirmed));
        let found = log
            .iter()
            .rev()
            .find_map(|record| match tail.offer(&parse(record)) {
                TailStep::Found(previous) => Some(previous.0),
                TailStep::GoOn => None,
            });
        assert_eq!(found, expected, "{confirmed} in {log:?}");
    };
    let log = [
        "other link 0 a 1 60",
        "setup 10",
        "claim a 10",
        "link 1 a 10 20",
        "beat 1 a 20 30",
        "part 1 a 20 40 0",
        "part 1 a 20 40 1.",
        "notice 1 a",
    ];
    check(10, &log, Some(10));
    check(20, &log, Some(20));
    check(30, &log, Some(20));
    check(40, &log, Some(40));
    check(35, &log, None);
    check(60, &log, None);
    check(0, &log, None);
    assert_eq!(
        Tail::new(OURS, Lsn(5)).not_found().kind,
        StopKind::SlotAheadOfLog
    );
}

#[test]
fn sides_of_a_position() {
    let check = |offset: i64, record: &str, expected: Side| {
        assert_eq!(
            at(100, 5, "a").side_of(offset, &parse(record)),
            expected,
            "{record}"
        );
    };
    check(5, "claim a 10", Side::AtOrBefore);
    check(3, "link 2 a 200 300", Side::AtOrBefore);
    check(7, "link 5 a 50 100", Side::AtOrBefore);
    check(7, "part 5 a 50 100 0", Side::AtOrBefore);
    check(7, "link 5 a 100 150", Side::After);
    check(7, "link 5 a 100 101", Side::After);
    check(7, "beat 5 a 50 100", Side::AtOrBefore);
    check(7, "beat 5 a 100 150", Side::After);
    check(7, "link 2 a 100 150", Side::Unsaid);
    check(7, "setup 10", Side::Unsaid);
    check(7, "notice 5 a", Side::Unsaid);
    check(7, "claim a 10", Side::After);
    check(9, "link 7 a 50 100", Side::After);
    assert_eq!(fresh().side_of(4, &parse("setup 10")), Side::AtOrBefore);
    assert_eq!(fresh().side_of(4, &parse("other setup 10")), Side::Unsaid);
    assert_eq!(fresh().side_of(4, &parse("link 1 a 10 20")), Side::After);
}

#[test]
fn zombie_at_the_start() {
    let log = "
        5 link 1 a 20 25        => repeat
        6 link 3 b 30 40        => seek back
        7 link 3 b 40 50        => seek back
    ";
    let mut reader = check("15", at(30, 1, "a"), Start::Offset, log);
    reader.restart(Start::Offset);
    assert_eq!(reader.position(), at(30, 1, "a"));
    let log = "
        1 claim a 10            => claim
        2 link 1 a 20 30        => repeat
        3 claim b 20            => claim
        4 link 3 b 20 30        => repeat
        5 link 1 a 20 25        => void
        6 link 3 b 30 40        => link
    ";
    check("15, further back", at(30, 1, "a"), Start::Offset, log);
    // No record of B, but the claim of whoever came behind it.
    let log = "
        5 link 1 a 20 25        => repeat
        6 claim c 40            => seek back
    ";
    check("15, a claim", at(30, 1, "a"), Start::Offset, log);
    let log = "
        1 claim a 10            => claim
        2 link 1 a 20 30        => repeat
        6 claim c 40            => stop chain-break
    ";
    check(
        "15, a break all the same",
        at(30, 1, "a"),
        Start::Offset,
        log,
    );
}
