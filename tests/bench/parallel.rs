//! `parallel`: what several workers make of transactions that wait in the server.
//!
//! Small transactions, of which each stalls 2 ms in the subscriber: a trigger sleeps where a cold
//! page, a slow trigger or a foreign key would make it wait. Strict order, one publisher
//! transaction a target transaction. The same backlog is drained with one worker and with 4, 8 and
//! 16; a ratio is formed of two figures of one round. Behind each drain the order of commits on the
//! subscriber is compared with the publisher's.

use walbraid_tests::bed::Bed;

use crate::backlog::drained;
use crate::small;
use crate::summary::{Samples, Verdict};

pub(crate) const TRANSACTIONS: u64 = 4_000;
/// What reads the order of commits from the subscriber's WAL.
const SLOT: &str = "order_of_commits";

/// A number of workers, and the ratios to one worker that it must and should reach.
const POOLS: [(u32, f64, f64); 3] = [(4, 2.0, 2.0), (8, 4.0, 5.5), (16, 6.0, 9.0)];

/// Runs `rounds` rounds; true when all floors were reached.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    stall(&bed).await;
    let mut one = Samples::default();
    let mut many = POOLS.map(|_| Samples::default());
    let mut written = 0;
    for round in 1..=rounds {
        let mut drain = async |workers| {
            let first = written + 1;
            written += TRANSACTIONS;
            let rate = one_by_one(&bed, (first, written), workers, true).await;
            println!("round {round}: {workers} workers {rate:.0} transactions/s");
            rate
        };
        one.push(drain(1).await);
        for ((workers, ..), samples) in POOLS.iter().zip(&mut many) {
            samples.push(drain(*workers).await);
        }
        bed.assert_equal().await;
    }
    println!("1 worker {one} transactions/s");
    let mut passed = true;
    for ((workers, floor, target), samples) in POOLS.into_iter().zip(&many) {
        let ratio = samples.over(&one);
        println!("{workers} workers {samples} transactions/s, ratio {ratio}");
        let name = format!("parallel {workers}");
        let verdict = Verdict {
            name: &name,
            ratio: ratio.median(),
            floor,
            target,
        };
        println!("{verdict}");
        passed &= verdict.passed();
    }
    passed
}

/// Each sale waits once, as for a page that is not in memory.
pub(crate) async fn stall(bed: &Bed) {
    let subscriber = bed.subscriber().await;
    subscriber
        .run(
            "CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM pg_sleep(0.002);
                 RETURN NEW;
             END $$;
             CREATE TRIGGER stall BEFORE INSERT ON sold
                 FOR EACH ROW WHEN (NEW.line = 1) EXECUTE FUNCTION stall();
             ALTER TABLE sold ENABLE ALWAYS TRIGGER stall",
        )
        .await;
}

/// Transactions a second, one publisher transaction a target transaction.
pub(crate) async fn one_by_one(
    bed: &Bed,
    (first, last): (u64, u64),
    workers: u32,
    resolver: bool,
) -> f64 {
    let mut config = bed.config();
    config
        .set("consumer", "workers", workers)
        .set("consumer", "group", 1)
        .set("consumer", "resolver", resolver)
        .text("consumer", "parallel_safe", "public.sold");
    let subscriber = bed.subscriber().await;
    let slot = format!("pg_create_logical_replication_slot('{SLOT}', 'test_decoding')");
    let made = format!("SELECT count(*) FROM {slot}");
    subscriber.value(&made).await;
    let rate = drained(bed, &config, (first, last)).await;
    in_order(bed, first, last).await;
    subscriber
        .run(&format!("SELECT pg_drop_replication_slot('{SLOT}')"))
        .await;
    rate
}

/// No commit overtook another: the order in which the subscriber's own WAL has them, as a decoder
/// of that WAL tells it.
async fn in_order(bed: &Bed, first: u64, last: u64) {
    let found = bed
        .subscriber()
        .await
        .value(&format!(
            "WITH commits AS (
                 SELECT place, substring(data FROM 'number\\[bigint\\]:(\\d+)')::bigint AS number
                 FROM pg_logical_slot_get_changes('{SLOT}', NULL, NULL)
                     WITH ORDINALITY AS change (lsn, xid, data, place)
                 WHERE data LIKE 'table public.sold: INSERT:%line[integer]:1 %'
             ), pairs AS (
                 SELECT number, lag(number) OVER (ORDER BY place) AS before FROM commits
             )
             SELECT count(*) FILTER (WHERE number = before + 1) || ' of ' || count(before)
             FROM pairs WHERE number > {first}"
        ))
        .await;
    let expected = last - first;
    assert_eq!(
        found,
        format!("{expected} of {expected}"),
        "commits in order"
    );
}
