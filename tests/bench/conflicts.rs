//! `conflicts`: what several workers make of transactions that are cheap for the server and meet in
//! one row.
//!
//! The load of `drain`, in which 0, 1.5, 40 and 100 % of the transactions change one row that they
//! have in common; drained on one connection, with the pool that measures by itself whether more of
//! them pay, and with eight workers whatever they cost. Nothing waits in the server, so there is
//! nothing to gain: the figure is the worst share's ratio to one connection.

use walbraid_tests::bed::Bed;

use crate::backlog::drained;
use crate::small;
use crate::summary::{Samples, Verdict};

const TRANSACTIONS: u64 = 40_000;
/// Hot transactions of a thousand.
const SHARES: [u32; 4] = [0, 15, 400, 1_000];
/// Numbers of workers, as the configuration has them, behind the one that all are compared with.
const POOLS: [&str; 2] = ["\"auto\"", "8"];
const FLOOR: f64 = 0.9;

/// Runs `rounds` rounds; true when no share fell below the floor.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    let mut written = 0;
    let mut worst = f64::INFINITY;
    for share in SHARES {
        small::meet(&bed, share).await;
        let percent = f64::from(share) / 10.0;
        let mut one = Samples::default();
        let mut many = POOLS.map(|_| Samples::default());
        for round in 1..=rounds {
            let mut drain = async |workers: &str| {
                let first = written + 1;
                written += TRANSACTIONS;
                let mut config = bed.config();
                config.set("consumer", "workers", workers);
                let rate = drained(&bed, &config, (first, written)).await;
                println!("{percent} % round {round}: workers {workers} {rate:.0} transactions/s");
                rate
            };
            one.push(drain("1").await);
            for (workers, samples) in POOLS.iter().zip(&mut many) {
                samples.push(drain(workers).await);
            }
        }
        println!("{percent} %: 1 worker {one} transactions/s");
        for (workers, samples) in POOLS.iter().zip(&many) {
            let ratio = samples.over(&one);
            println!("{percent} %: workers {workers} {samples} transactions/s, ratio {ratio}");
            worst = worst.min(ratio.median());
        }
    }
    bed.assert_equal().await;
    let verdict = Verdict {
        name: "conflicts",
        ratio: worst,
        floor: FLOOR,
        target: FLOOR,
    };
    println!("{verdict}");
    verdict.passed()
}
