//! `drain`: how fast a backlog in Kafka reaches the subscriber, against native logical replication.
//!
//! Each round writes the same number of transactions twice on the publisher: once for walbraid,
//! whose producer carries them to Kafka before its consumer starts, once for a native subscription
//! that was off. A rate is taken from the first transaction seen on the subscriber to the last, so
//! that neither side's start counts; the alternation takes the machine's mood out of the ratio.

use walbraid_tests::bed::Bed;

use crate::backlog::{drained, watch};
use crate::summary::{Samples, Verdict};
use crate::{native, small};

const TRANSACTIONS: u64 = 100_000;

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
                let rate = drained(&bed, &bed.config(), (first, written)).await;
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

async fn native_round(bed: &Bed, first: u64, last: u64) -> f64 {
    native::subscribe(bed).await;
    small::sell(&bed.publisher().await, first, last).await;
    native::enable(bed).await;
    let rate = watch(bed, (first, last), &[]).await;
    native::unsubscribe(bed).await;
    rate
}
