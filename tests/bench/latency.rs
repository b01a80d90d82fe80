//! `latency`: from the return of COMMIT on the publisher to the row's being visible on the
//! subscriber, at 200 transactions a second, beside native logical replication.
//!
//! One session commits by the clock; another asks the subscriber for the newest number again and
//! again. Both sides are on one machine, so one clock measures. What the asking itself costs, a
//! round trip of about 0.1 ms, is part of the figure. What Kafka alone takes for a record is
//! measured beside it ([`crate::canary`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use walbraid_tests::bed::Bed;

use crate::canary::Canary;
use crate::summary::Samples;
use crate::{native, small};

const PER_SECOND: u64 = 200;
const SECONDS: u64 = 20;
/// Transactions that are not counted: the first ones wait for the registry, which has never seen
/// the tables, and for statements to be prepared. Their worst is printed apart.
const WARM_UP: u64 = 1_000;
const P50_CEILING_MS: f64 = 15.0;
const P99_CEILING_MS: f64 = 60.0;

/// Runs `rounds` rounds; true when both ceilings were kept.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    let (mut middles, mut tails) = (Samples::default(), Samples::default());
    let mut written = 0;
    for round in 1..=rounds {
        let mut pipeline = bed.pipeline().await;
        pipeline.catch_up().await;
        let canary = Canary::start(&bed.topic.kafka, PER_SECOND).await;
        let ours = measure(&bed, &mut written).await;
        let kafka = canary.finish().await;
        pipeline.catch_up().await;
        pipeline.terminate().await;
        pipeline.run(&["teardown"]).await.expect(0);

        native::subscribe(&bed).await;
        native::enable(&bed).await;
        let theirs = measure(&bed, &mut written).await;
        native::unsubscribe(&bed).await;
        let figures = [
            ("walbraid", &ours),
            ("Kafka alone", &kafka),
            ("native", &theirs),
        ];
        for (name, figures) in figures {
            println!(
                "round {round}: {name} p50 {:.2} ms, p99 {:.2} ms, at most {:.0} ms",
                figures.quantile(0.5),
                figures.quantile(0.99),
                figures.quantile(1.0)
            );
        }
        middles.push(ours.quantile(0.5));
        tails.push(ours.quantile(0.99));
    }
    bed.assert_equal().await;
    println!("p50 {middles} ms\np99 {tails} ms");
    let (p50, p99) = (middles.median(), tails.median());
    println!(
        "latency p50 {p50:.2} ms, p99 {p99:.2} ms \
         (ceilings {P50_CEILING_MS} ms, {P99_CEILING_MS} ms)"
    );
    p50 <= P50_CEILING_MS && p99 <= P99_CEILING_MS
}

/// Latencies in milliseconds, without those of the warm-up.
async fn measure(bed: &Bed, written: &mut u64) -> Samples {
    let first = *written + 1;
    let last = *written + WARM_UP + PER_SECOND * SECONDS;
    *written = last;
    let committed = Arc::new(Mutex::new(Vec::new()));
    let writing = tokio::spawn(write(
        bed.publisher_url.clone(),
        first,
        last,
        Arc::clone(&committed),
    ));
    let subscriber = bed.subscriber().await;
    let mut seen = Vec::new();
    let mut newest = first - 1;
    let deadline = Instant::now() + Duration::from_secs(4 * SECONDS);
    while newest < last {
        let number = small::newest(&subscriber).await;
        let now = Instant::now();
        assert!(now < deadline, "transaction {last} is not seen");
        seen.extend((newest.max(first - 1) + 1..=number).map(|_| now));
        newest = newest.max(number);
    }
    writing.await.unwrap();
    let committed = committed.lock().await;
    let (mut first, mut figures) = (Samples::default(), Samples::default());
    for (index, (at, seen)) in committed.iter().zip(&seen).enumerate() {
        let figure = seen.saturating_duration_since(*at).as_secs_f64() * 1000.0;
        if index < WARM_UP as usize {
            first.push(figure);
        } else {
            figures.push(figure);
        }
    }
    println!(
        "  first use of the tables: {:.0} ms at most; then at most {:.0} ms",
        first.quantile(1.0),
        figures.quantile(1.0)
    );
    figures
}

async fn write(url: String, first: u64, last: u64, committed: Arc<Mutex<Vec<Instant>>>) {
    let publisher = walbraid_tests::session::Session::open(&url).await;
    let mut ticks = interval(Duration::from_micros(1_000_000 / PER_SECOND));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in first..=last {
        ticks.tick().await;
        publisher
            .run(&format!("CALL sell({number}, {number})"))
            .await;
        committed.lock().await.push(Instant::now());
    }
}
