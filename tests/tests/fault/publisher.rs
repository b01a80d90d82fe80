//! The publisher crashes, or ends the walsender.

use walbraid_tests::bank;
use walbraid_tests::bed::{Bed, PUBLICATION};
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::trouble::{CARRYING, SLOT_IN_USE};
use walbraid_tests::wait::{PATIENCE, until};

#[tokio::test]
async fn the_publisher_crashes_and_comes_back() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect(&[CARRYING]);
    bank::open(&bed.publisher().await).await;
    for _ in 0..3 {
        bank::load(&bed.publisher_url, rand::random(), 2, 100).await;
        bed.stack.kill(Server::Publisher).await;
        bed.stack.start(Server::Publisher).await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 1..=3).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn the_walsender_is_ended_again_and_again() {
    let bed = Bed::new().await.watched();
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect(&[CARRYING, SLOT_IN_USE]);
    let publisher = bed.publisher().await;
    bank::open(&publisher).await;
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, rand::random(), 2, 600).await }
    });
    let active = format!(
        "SELECT active FROM pg_replication_slots WHERE slot_name = '{}'",
        bed.name
    );
    let end = format!(
        "SELECT pg_terminate_backend(active_pid, 1000) FROM pg_replication_slots
         WHERE slot_name = '{}' AND active",
        bed.name
    );
    let mut ended = 0;
    while !load.is_finished() {
        until("the producer is back", PATIENCE, async || {
            publisher.holds(&active).await.then_some(())
        })
        .await;
        publisher.run(&end).await;
        ended += 1;
    }
    load.await.unwrap();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 1..=ended).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_slot_that_is_gone_stops_the_producer_by_name() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.producer.take().unwrap().terminate().await;
    let publisher = bed.publisher().await;
    publisher.until_free(&bed.name).await;
    publisher
        .run(&format!("SELECT pg_drop_replication_slot('{}')", bed.name))
        .await;
    pipeline.start_producer();
    let message = pipeline.producer().stops(17).await;
    assert!(
        message.contains(&bed.name) && message.contains("HINT:  "),
        "{message}"
    );
    // Made anew by somebody else, it starts at another place: a gap that must not be stepped over.
    publisher.run("INSERT INTO t VALUES (1)").await;
    let make = format!(
        "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
        bed.name
    );
    publisher.run(&make).await;
    pipeline.start_producer();
    let message = pipeline.producer().stops(32).await;
    assert!(
        message.contains(&bed.name) && message.contains("DETAIL:  "),
        "{message}"
    );
    // The reader sees the gap by the claim alone.
    let message = pipeline.consumer().stops(28).await;
    assert!(message.contains("chain breaks"), "{message}");
}

/// From 18 on the walsender only warns of it, and leaves the tables out.
#[tokio::test]
async fn a_publication_dropped_under_the_producer_stops_it_by_name() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    publisher
        .run(&format!("DROP PUBLICATION {PUBLICATION}"))
        .await;
    publisher.run("INSERT INTO t VALUES (2)").await;
    let message = pipeline.producer().stops(15).await;
    assert!(message.contains(PUBLICATION), "{message}");
    let message = pipeline.run(&["wait", "--timeout", "1"]).await.stops(4);
    assert!(message.contains(PUBLICATION), "{message}");
}
