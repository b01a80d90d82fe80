//! `memory`: what producer and consumer hold at most while they work off a backlog.
//!
//! Two backlogs, one ten times the other: the peak must stay under the ceiling, and must not grow
//! with the backlog.

use std::time::Duration;

use walbraid_tests::bed::Bed;
use walbraid_tests::process::{Process, run as command};
use walbraid_tests::wait::until;

use crate::machine::peak_resident_bytes;
use crate::small;

const CEILING_BYTES: u64 = 200_000_000;
const LONGEST: Duration = Duration::from_secs(1200);

/// Runs a tenth and the whole of `transactions`; true when every peak is under the ceiling.
pub(crate) async fn run(transactions: u64) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    let mut written = 0;
    let mut worst = 0;
    for backlog in [transactions / 10, transactions] {
        let (producer, consumer) = round(&bed, written + 1, written + backlog).await;
        written += backlog;
        println!(
            "{backlog} transactions: producer {} MB, consumer {} MB at most",
            producer / 1_000_000,
            consumer / 1_000_000
        );
        worst = worst.max(producer).max(consumer);
    }
    bed.assert_equal().await;
    println!(
        "memory {} MB (ceiling {} MB)",
        worst / 1_000_000,
        CEILING_BYTES / 1_000_000
    );
    worst <= CEILING_BYTES
}

/// Peaks of producer and consumer, in bytes.
async fn round(bed: &Bed, first: u64, last: u64) -> (u64, u64) {
    let config = bed.write(&bed.config(), "memory");
    command(&config, &["setup"]).await.expect(0);
    let publisher = bed.publisher().await;
    small::sell(&publisher, first, last).await;
    let producing = Process::start(&config, &["produce"]);
    small::until_in_kafka(bed, &publisher, LONGEST).await;
    let producer = peak_resident_bytes(producing.pid()).unwrap();
    let consuming = Process::start(&config, &["consume"]);
    let subscriber = bed.subscriber().await;
    until("the backlog is applied", LONGEST, async || {
        (small::newest(&subscriber).await >= last).then_some(())
    })
    .await;
    let consumer = peak_resident_bytes(consuming.pid()).unwrap();
    producing.terminate().await;
    consuming.terminate().await;
    command(&config, &["teardown"]).await.expect(0);
    (producer, consumer)
}
