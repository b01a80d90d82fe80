//! `bin/bench NAME`: what walbraid costs and how fast it is, measured against what there is.
//!
//! A benchmark owns its stack (`bin/bench` starts it), compares in one run, alternating, over
//! several rounds, and prints last a line with its figure. It ends with 1 below its floor. Nothing
//! here is part of the tests: a test asserts what is true, never how fast.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program whose output is its point"
)]

mod backlog;
mod canary;
mod conflicts;
mod distance;
mod drain;
mod latency;
mod machine;
mod memory;
mod native;
mod parallel;
mod resolver;
mod restarts;
mod shares;
mod small;
mod summary;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse().ok());
    let passed = match arguments.first().map(String::as_str) {
        Some("conflicts") => conflicts::run(number(1).unwrap_or(3)).await,
        Some("distance") => distance::run(number(1).unwrap_or(3)).await,
        Some("drain") => drain::run(number(1).unwrap_or(3)).await,
        Some("latency") => latency::run(number(1).unwrap_or(3)).await,
        Some("memory") => memory::run(u64::from(number(1).unwrap_or(1_000_000))).await,
        Some("parallel") => parallel::run(number(1).unwrap_or(3)).await,
        Some("resolver") => resolver::run(number(1).unwrap_or(3)).await,
        Some("restarts") => restarts::run(number(1).unwrap_or(100)).await,
        Some("shares") => shares::run().await,
        _ => {
            eprintln!(
                "usage: bin/bench conflicts [ROUNDS] | distance [ROUNDS] | drain [ROUNDS] | \
                 latency [ROUNDS] | memory [TRANSACTIONS] | parallel [ROUNDS] | \
                 resolver [ROUNDS] | restarts [TIMES] | shares"
            );
            return ExitCode::from(2);
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
