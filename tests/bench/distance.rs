//! `distance`: a consumer that is 5 ms (a round trip) away from the subscriber.
//!
//! The load of `drain`, through a proxy that lets bytes arrive later but carries any number of them
//! at a time. The figure is the rate with units as large as the lag makes them, over the rate
//! through the same proxy without delay. One publisher transaction a target transaction is measured
//! beside it, with 1, 8 and 16 workers: there the commits wait for each other's round trips.

use std::time::{Duration, Instant};

use walbraid_tests::bed::Bed;
use walbraid_tests::config::Config;
use walbraid_tests::proxy::Proxy;
use walbraid_tests::session::{Session, with_port};

use crate::backlog::drained;
use crate::small;
use crate::summary::{Samples, Verdict};

const TRANSACTIONS: u64 = 60_000;
/// Transactions where each is a target transaction, for each worker.
const ONE_BY_ONE: u64 = 500;
const ONE_WAY: Duration = Duration::from_micros(2_500);
const WORKERS: [u32; 3] = [1, 8, 16];
const FLOOR: f64 = 0.6;

/// Runs `rounds` rounds; true when the floor was reached.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    let proxy = Proxy::to(&address(&bed.subscriber_url)).await;
    let url = with_port(&bed.subscriber_url, proxy.port());
    let through = || {
        let mut config = bed.config();
        config.text("subscriber", "url", &url);
        config
    };
    let mut written = 0;
    let mut drain = async |config: &Config, transactions, delay| {
        proxy.pass(delay);
        let first = written + 1;
        written += transactions;
        drained(&bed, config, (first, written)).await
    };
    let (mut near, mut far) = (Samples::default(), Samples::default());
    let mut one_by_one = WORKERS.map(|_| Samples::default());
    for round in 1..=rounds {
        near.push(drain(&through(), TRANSACTIONS, Duration::ZERO).await);
        far.push(drain(&through(), TRANSACTIONS, ONE_WAY).await);
        println!(
            "round {round}: a round trip of {:.1} ms",
            round_trip_ms(&url).await
        );
        for (workers, samples) in WORKERS.into_iter().zip(&mut one_by_one) {
            let mut config = through();
            config
                .set("consumer", "workers", workers)
                .set("consumer", "group", 1);
            let transactions = ONE_BY_ONE * u64::from(workers);
            samples.push(drain(&config, transactions, ONE_WAY).await);
        }
    }
    bed.assert_equal().await;
    println!("near {near} transactions/s");
    println!("far  {far} transactions/s");
    for (workers, samples) in WORKERS.into_iter().zip(&one_by_one) {
        println!("far, one by one, {workers} workers {samples} transactions/s");
    }
    let verdict = Verdict {
        name: "distance",
        ratio: far.over(&near).median(),
        floor: FLOOR,
        target: FLOOR,
    };
    println!("{verdict}");
    verdict.passed()
}

/// Host and port of a URL.
fn address(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    let authority = rest.split(['/', '?']).next().unwrap();
    let (_, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    address.to_owned()
}

async fn round_trip_ms(url: &str) -> f64 {
    let session = Session::open(url).await;
    let mut samples = Samples::default();
    for _ in 0..20 {
        let began = Instant::now();
        session.value("SELECT 1").await;
        samples.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    samples.median()
}
