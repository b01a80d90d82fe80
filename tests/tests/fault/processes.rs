//! Producer and consumer killed, frozen and doubled, at any moment.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::process::Process;
use walbraid_tests::trouble::{LANE, SLOT_IN_USE};
use walbraid_tests::wait::moment;
use walbraid_tests::watch::Watch;

#[tokio::test]
async fn killed_at_random_moments_under_load() {
    const KILLS: u32 = 20;
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bed = Bed::new().await.watched();
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    bank::open(&bed.publisher().await).await;
    let watch = Watch::start(&bed.subscriber_url, bank::INVARIANT).await;
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, seed, 3, 1500).await }
    });
    for _ in 0..KILLS {
        moment(Duration::from_millis(random.random_range(0..600))).await;
        match random.random_range(0..3) {
            0 => pipeline.restart_producer().await,
            1 => pipeline.restart_consumer().await,
            _ => {
                pipeline.restart_producer().await;
                pipeline.restart_consumer().await;
            }
        }
        pipeline.producer().expect(&[SLOT_IN_USE]);
    }
    load.await.unwrap();
    pipeline.catch_up().await;
    watch.finish().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_frozen_consumer_wakes_up_as_a_zombie_and_does_no_harm() {
    tokio::join!(frozen_and_awakened(1), frozen_and_awakened(8));
}

async fn frozen_and_awakened(workers: u32) {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE log (n int)")
        .await;
    let mut config = bed.config();
    config
        .set("kafka", "session.timeout.ms", 3000)
        .set("kafka", "heartbeat.interval.ms", 500)
        .set("consumer", "workers", workers);
    let mut pipeline = bed.pipeline_with(&config).await;
    let publisher = bed.publisher().await;
    publisher
        .run("INSERT INTO t VALUES (1, 0); INSERT INTO log VALUES (0)")
        .await;
    pipeline.catch_up().await;

    let mut zombie = pipeline.consumer.take().unwrap();
    zombie.pause();
    pipeline.start_consumer();
    for n in 1..50 {
        publisher
            .run(&format!(
                "UPDATE t SET v = {n}; INSERT INTO log VALUES ({n})"
            ))
            .await;
    }
    pipeline.catch_up().await;
    zombie.expect(&[LANE]);
    zombie.resume();
    for n in 50..100 {
        publisher
            .run(&format!(
                "UPDATE t SET v = {n}; INSERT INTO log VALUES ({n})"
            ))
            .await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    zombie.kill().await;
    publisher.run("INSERT INTO log VALUES (100)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_second_producer_does_no_harm() {
    let bed = Bed::new().await.watched();
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    // It waits for the slot, which has an owner, and takes over when the owner is gone.
    let mut second = Process::start(&pipeline.config, &["produce"]);
    second.expect(&[SLOT_IN_USE]);
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, 1, 2, 200).await }
    });
    second.wait_for_log("slot").await;
    pipeline.producer.take().unwrap().kill().await;
    load.await.unwrap();
    if !second.is_running() {
        pipeline.start_producer();
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn killed_in_the_middle_of_a_transaction_of_many_parts() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        .await;
    let mut config = bed.config();
    config.set("producer", "record_bytes_max", 20_000);
    let mut pipeline = bed.pipeline_with(&config).await;
    let publisher = bed.publisher().await;
    for round in 0..5 {
        publisher
            .run(&format!(
                "INSERT INTO t SELECT {round} * 100000 + i, repeat('x', 100)
                 FROM generate_series(1, 30000) i"
            ))
            .await;
        pipeline.restart_producer().await;
        pipeline.producer().expect(&[SLOT_IN_USE]);
        pipeline.restart_consumer().await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    assert_eq!(
        bed.subscriber().await.value("SELECT count(*) FROM t").await,
        "150000"
    );
    pipeline.terminate().await;
}
