//! `restarts`: producer and consumer killed at random moments during a load, many times; then both
//! sides are equal, and a reader of the subscriber never saw money made or lost.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::watch::Watch;

/// Each of the two processes is killed and started this many times; true when all went well.
pub(crate) async fn run(times: u32) -> bool {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bed = Bed::new().await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    let watch = Watch::start(&bed.subscriber_url, bank::INVARIANT).await;
    let url = bed.publisher_url.clone();
    let load = tokio::spawn(async move {
        let mut round = 0;
        loop {
            bank::load(&url, seed.wrapping_add(round), 4, 50).await;
            round += 1;
        }
    });
    let started = Instant::now();
    for time in 1..=times {
        // Short enough to hit a process while it starts, long enough to let it work.
        let pause = Duration::from_millis(random.random_range(0..2500));
        tokio::time::sleep(pause).await;
        if random.random_bool(0.5) {
            pipeline.restart_producer().await;
            pipeline.restart_consumer().await;
        } else {
            pipeline.restart_consumer().await;
            tokio::time::sleep(pause / 4).await;
            pipeline.restart_producer().await;
        }
        pipeline.producer().expect_in_log("WARN");
        pipeline.consumer().expect_in_log("WARN");
        if time % 10 == 0 {
            println!(
                "{time} restarts in {:.0} s",
                started.elapsed().as_secs_f64()
            );
        }
    }
    load.abort();
    drop(load.await);
    pipeline.catch_up().await;
    bed.assert_equal().await;
    let looks = watch.polls();
    watch.finish().await;
    pipeline.terminate().await;
    println!("restarts {times} of each process: equal, never an invariant broken in {looks} looks");
    true
}
