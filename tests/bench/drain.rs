//! `drain`: how fast a backlog in Kafka reaches the subscriber, against native logical replication.
//!
//! Each round writes the same number of transactions twice on the publisher: once for walbraid,
//! whose producer carries them to Kafka before its consumer starts, once for a native subscription
//! that was off. A rate is taken from the first transaction seen on the subscriber to the last, so
//! that neither side's start counts; the alternation takes the machine's mood out of the ratio.

use std::time::{Duration, Instant};

use walbraid_tests::bed::Bed;
use walbraid_tests::process::{Process, run as command};
use walbraid_tests::stack::Server;
use walbraid_tests::wait::until;

use crate::machine::{Reading, between};
use crate::summary::{Samples, Verdict};
use crate::{native, small};

const TRANSACTIONS: u64 = 100_000;
const LONGEST: Duration = Duration::from_secs(300);

/// Runs `rounds` rounds; true when the floor was reached.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let mut written = 0;
    for round in 1..=rounds {
        // The first to go alternates, too.
        for turn in 0..2 {
            let first = written + 1;
            written += TRANSACTIONS;
            if (round + turn) % 2 == 1 {
                let rate = walbraid_round(&bed, first, written).await;
                println!("round {round}: walbraid {rate:.0} transactions/s");
                ours.push(rate);
            } else {
                let rate = native_round(&bed, first, written).await;
                println!("round {round}: native {rate:.0} transactions/s");
                theirs.push(rate);
            }
        }
        bed.assert_equal().await;
    }
    let ratio = ours.over(&theirs);
    println!("walbraid {ours} transactions/s");
    println!("native   {theirs} transactions/s");
    println!("ratio    {ratio}");
    let verdict = Verdict {
        name: "drain",
        ratio: ratio.median(),
        floor: 0.7,
        target: 1.0,
    };
    println!("{verdict}");
    verdict.passed()
}

async fn walbraid_round(bed: &Bed, first: u64, last: u64) -> f64 {
    let config = bed.write(&bed.config(), "drain");
    command(&config, &["setup"]).await.expect(0);
    let publisher = bed.publisher().await;
    small::sell(&publisher, first, last).await;
    let producing = Process::start(&config, &["produce"]);
    let pid = producing.pid();
    let (before, started) = (Reading::take(), Instant::now());
    small::until_in_kafka(bed, &publisher, LONGEST).await;
    let elapsed = started.elapsed().as_secs_f64();
    println!(
        "  to Kafka: {:.0} transactions/s; {}",
        (last - first + 1) as f64 / elapsed,
        between(
            &before,
            &Reading::take(),
            &[
                ("producer", pid),
                ("publisher", bed.stack.pid(Server::Publisher))
            ]
        )
    );
    producing.terminate().await;
    let consuming = Process::start(&config, &["consume"]);
    let rate = watch(bed, first, last, &[("consumer", consuming.pid())]).await;
    consuming.terminate().await;
    command(&config, &["teardown"]).await.expect(0);
    rate
}

async fn native_round(bed: &Bed, first: u64, last: u64) -> f64 {
    native::subscribe(bed).await;
    small::sell(&bed.publisher().await, first, last).await;
    native::enable(bed).await;
    let rate = watch(bed, first, last, &[]).await;
    native::unsubscribe(bed).await;
    rate
}

/// Transactions a second from the first one seen on the subscriber to the last.
async fn watch(bed: &Bed, first: u64, last: u64, processes: &[(&str, u32)]) -> f64 {
    let subscriber = bed.subscriber().await;
    let mut roots = processes.to_vec();
    for (name, server) in [
        ("subscriber", Server::Subscriber),
        ("publisher", Server::Publisher),
        ("kafka", Server::Kafka),
    ] {
        roots.push((name, bed.stack.pid(server)));
    }
    let seen = until("the first transaction is seen", LONGEST, async || {
        Some(small::newest(&subscriber).await).filter(|newest| *newest >= first)
    })
    .await;
    let (before, started) = (Reading::take(), Instant::now());
    until("all is seen", LONGEST, async || {
        (small::newest(&subscriber).await >= last).then_some(())
    })
    .await;
    let elapsed = started.elapsed().as_secs_f64();
    println!("  {}", between(&before, &Reading::take(), &roots));
    (last - seen) as f64 / elapsed
}
