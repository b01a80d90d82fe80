//! Several workers on a model subscriber that has rows, locks, unique and foreign keys.
//!
//! The publisher makes a history in which every constraint holds; the subscriber runs what the
//! workers send, statement by statement, with PostgreSQL's rules as far as they decide who waits
//! for whom and who sees what. After each commit, what is visible is compared with what one session
//! would have made of as many transactions, and the progress names just those. No stop may be said
//! but for a row that was made to fail, and then by name, with exactly what stands before it
//! committed. Nothing may stand still. With a true catalogue and no row made to fail, no attempt
//! may go wrong but by itself: what runs side by side does not meet.
//!
//! In one run of a hundred, and in all runs of a profile of its own, the catalogue lies, so that
//! the analyzer says `NO_CONFLICT` where there is one. Rule 0 must save the result. Where it
//! cannot, the run says why: what went wrong was then neither an error, nor a row not found, nor a
//! lock.

mod decode;
mod heap;
mod history;
mod oracle;
mod reads;
mod run;
mod schema;
mod server;
mod settings;
mod subscriber;
mod worker;
mod world;

use std::collections::BTreeMap;

use run::{Outcome, Run};

use crate::{are_few, setting, share};

#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub faults: bool,
    pub poisoned: bool,
    pub lies: bool,
}

#[derive(Debug, Default)]
struct Sum {
    seen: BTreeMap<&'static str, u64>,
    unsaved: BTreeMap<&'static str, u64>,
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        for (what, times) in outcome.seen {
            *self.seen.entry(what).or_default() += times;
        }
        if let Some(why) = outcome.unsaved {
            *self.unsaved.entry(why).or_default() += 1;
        }
    }

    /// What must have happened in so many runs, or nothing was shown.
    fn expect(&self, expected: &[&str]) {
        for what in expected {
            let seen = &self.seen;
            assert!(seen.contains_key(what), "{what} never happened: {seen:#?}");
        }
    }
}

/// Runs that many of the seeds of an ordinary run; none if only one was asked for.
fn run(name: &str, profile: Profile, seeds: u64) -> Option<Sum> {
    if let Some(seed) = setting("WALBRAID_SEED") {
        println!("{name}: {:#?}", Run::new(seed, profile).run());
        return None;
    }
    let mut sum = Sum::default();
    for seed in share(seeds) {
        match std::panic::catch_unwind(|| Run::new(seed, profile).run()) {
            Ok(outcome) => sum.add(outcome),
            Err(panic) => {
                println!("{name}: failed with WALBRAID_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{name}: {sum:#?}");
    (!are_few()).then_some(sum)
}

#[test]
fn simulation_of_parallel_apply_without_misfortune() {
    let profile = Profile {
        faults: false,
        poisoned: false,
        lies: false,
    };
    if let Some(sum) = run("no misfortune", profile, 1_500) {
        sum.expect(&[
            "two target transactions at once",
            "a unit of several transactions",
            "a held commit",
            "a session joined",
            "old values",
        ]);
    }
}

#[test]
fn simulation_of_parallel_apply_with_crashes_and_errors() {
    let profile = Profile {
        faults: true,
        poisoned: false,
        lies: false,
    };
    if let Some(sum) = run("crashes and errors", profile, 2_500) {
        sum.expect(&[
            "two target transactions at once",
            "an open unit",
            "a question",
            "a session joined",
            "a session refused",
            "commits taken back",
            "a restart",
        ]);
    }
}

#[test]
fn simulation_of_parallel_apply_with_rows_that_are_refused_or_missing() {
    let profile = Profile {
        faults: false,
        poisoned: true,
        lies: false,
    };
    if let Some(sum) = run("refused or missing", profile, 1_000) {
        sum.expect(&["row-refused", "conflict", "not_head"]);
    }
}

#[test]
fn simulation_of_parallel_apply_with_a_wrong_no_conflict() {
    let profile = Profile {
        faults: true,
        poisoned: false,
        lies: true,
    };
    if let Some(sum) = run("a wrong NO_CONFLICT", profile, 1_200) {
        sum.expect(&[
            "not_head",
            "not_found",
            "blocked_head",
            "a deadlock in the server",
        ]);
        assert!(!sum.unsaved.is_empty(), "no run says why it was not saved");
    }
}
