//! A backlog: written on the publisher, carried to Kafka, and then drained by a consumer.
//!
//! Its rate is taken from the first transaction seen on the subscriber to the last, so that the
//! consumer's start does not count.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use walbraid_tests::bed::Bed;
use walbraid_tests::config::Config;
use walbraid_tests::process::{Process, run as command};
use walbraid_tests::stack::Server;
use walbraid_tests::wait::until;

use crate::machine::{Reading, between};
use crate::small;

const LONGEST: Duration = Duration::from_secs(300);

/// Drains the transactions `first` to `last` with a consumer of this configuration; transactions a
/// second.
pub(crate) async fn drained(bed: &Bed, config: &Config, (first, last): (u64, u64)) -> f64 {
    let config = bed.write(config, "backlog");
    carried(bed, &config, (first, last)).await;
    let consuming = Process::start(&config, &["consume"]);
    let rate = watch(bed, (first, last), &[("consumer", consuming.pid())]).await;
    consuming.terminate().await;
    command(&config, &["teardown"]).await.expect(0);
    rate
}

/// Sets the stream up, writes the transactions, and has a producer carry them to Kafka.
async fn carried(bed: &Bed, config: &Path, (first, last): (u64, u64)) {
    command(config, &["setup"]).await.expect(0);
    let publisher = bed.publisher().await;
    small::sell(&publisher, first, last).await;
    let producing = Process::start(config, &["produce"]);
    let roots = [
        ("producer", producing.pid()),
        ("publisher", bed.stack.pid(Server::Publisher)),
    ];
    let (before, started) = (Reading::take(), Instant::now());
    small::until_in_kafka(bed, &publisher, LONGEST).await;
    let rate = (last - first + 1) as f64 / started.elapsed().as_secs_f64();
    let processes = between(&before, &Reading::take(), &roots);
    println!("  to Kafka: {rate:.0} transactions/s; {processes}");
    producing.terminate().await;
}

/// Transactions a second from the first one seen on the subscriber to the last.
pub(crate) async fn watch(bed: &Bed, (first, last): (u64, u64), processes: &[(&str, u32)]) -> f64 {
    let subscriber = bed.subscriber().await;
    let mut roots = processes.to_vec();
    for (name, server) in [
        ("subscriber", Server::Subscriber),
        ("publisher", Server::Publisher),
        ("kafka", Server::Kafka),
    ] {
        roots.push((name, bed.stack.pid(server)));
    }
    let newest = async || small::newest(&subscriber).await;
    let seen = until("the first transaction is seen", LONGEST, async || {
        Some(newest().await).filter(|newest| *newest >= first)
    })
    .await;
    let (before, started) = (Reading::take(), Instant::now());
    until("all is seen", LONGEST, async || {
        (newest().await >= last).then_some(())
    })
    .await;
    let elapsed = started.elapsed().as_secs_f64();
    println!("  {}", between(&before, &Reading::take(), &roots));
    (last - seen) as f64 / elapsed
}

/// What the first lane of a stream explains.
pub(crate) async fn explained(config: &Path) -> Value {
    let explain = command(config, &["explain", "--json"]).await.expect(0);
    let explain: Value = serde_json::from_str(&explain.stdout).unwrap();
    explain["lanes"][0].clone()
}
