//! The engine against a tiny model of Kafka and of the subscriber, with seeded misfortune.
//!
//! Each run makes a WAL, a log that producers wrote of it (claims, parts, fragments, runs broken
//! off by a crash, repeats, zombies), and a subscriber that executes what it is given, refuses some
//! of it, loses sessions, and takes back commits that were not flushed. The consumer crashes too
//! and starts again from what is durable. After each step: what is committed is a prefix of the
//! WAL, in content too, and no offset passes the durable frontier. At the end everything has
//! arrived.
//!
//! [`parallel`] is about what several workers do to each other, on a subscriber with locks.
//!
//! A failure prints its seed; `WALBRAID_SEED=n` runs that one alone. `WALBRAID_SEEDS=n` runs so
//! many in all tests together, from `WALBRAID_FIRST_SEED` on.

#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod consumer;
mod log;
mod parallel;
mod random;
mod subscriber;

use std::collections::BTreeSet;

use consumer::{Consumer, Profile};

/// Seeds of all tests in an ordinary run.
const ALL_SEEDS: u64 = 10_000;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// The seeds of a test that has so many of those of an ordinary run.
fn share(seeds: u64) -> std::ops::Range<u64> {
    let all = setting("WALBRAID_SEEDS").unwrap_or(ALL_SEEDS);
    let first = setting("WALBRAID_FIRST_SEED").unwrap_or_default();
    first..first + (seeds * all).div_ceil(ALL_SEEDS)
}

/// True if too few seeds were asked for to show all that there is.
fn are_few() -> bool {
    setting("WALBRAID_SEED").is_some()
        || setting("WALBRAID_SEEDS").is_some_and(|all| all < ALL_SEEDS)
}

fn run(name: &str, profile: Profile, seeds: u64) -> BTreeSet<&'static str> {
    if let Some(seed) = setting("WALBRAID_SEED") {
        return Consumer::new(seed, profile).run();
    }
    let mut seen = BTreeSet::new();
    for seed in share(seeds) {
        match std::panic::catch_unwind(|| Consumer::new(seed, profile).run()) {
            Ok(more) => seen.extend(more),
            Err(panic) => {
                println!("{name}: failed with WALBRAID_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    seen
}

/// What must have happened in so many runs, or nothing was shown.
fn expect(seen: &BTreeSet<&'static str>, expected: &[&str]) {
    if are_few() {
        return;
    }
    for what in expected {
        assert!(
            seen.contains(what),
            "{what} never happened; what did: {seen:#?}"
        );
    }
}

const MISFORTUNES: &[&str] = &[
    "a unit of one transaction",
    "a unit of several transactions",
    "an open unit",
    "an extension",
    "an open unit called back",
    "an offset",
    "a seek back",
    "a pause",
    "the end of a pause",
    "an alarm",
    "a report",
    "row-refused",
    "subscriber-shape",
    "a session of the lane was lost",
    "the outcome of a commit is unknown",
    "the subscriber's tables may have changed",
    "a large transaction is read from the log again",
];

#[test]
fn simulation_of_one_worker_that_skips_missing_rows() {
    let profile = Profile {
        workers: 1,
        on_missing_is_error: false,
        faults: true,
    };
    let seen = run("one worker", profile, 1500);
    expect(&seen, MISFORTUNES);
    assert!(!seen.contains("conflict"));
}

#[test]
fn simulation_of_one_worker_that_reads_the_counts_first() {
    let profile = Profile {
        workers: 1,
        on_missing_is_error: true,
        faults: true,
    };
    let seen = run("counts first", profile, 1000);
    expect(&seen, MISFORTUNES);
    expect(&seen, &["a held commit", "conflict"]);
}

#[test]
fn simulation_of_several_workers() {
    let profile = Profile {
        workers: 3,
        on_missing_is_error: false,
        faults: true,
    };
    let seen = run("three workers", profile, 1000);
    expect(&seen, MISFORTUNES);
    expect(&seen, &["a held commit"]);
}

#[test]
fn simulation_without_any_misfortune() {
    let profile = Profile {
        workers: 1,
        on_missing_is_error: false,
        faults: false,
    };
    let seen = run("no faults", profile, 300);
    assert!(
        !seen.contains("row-refused") && !seen.contains("a report"),
        "{seen:#?}"
    );
}
