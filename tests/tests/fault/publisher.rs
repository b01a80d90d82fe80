//! The publisher crashes, or ends the walsender.

use walbraid_tests::bank;
use walbraid_tests::bed::{Bed, PUBLICATION};
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::wait::{PATIENCE, until};

#[tokio::test]
async fn the_publisher_crashes_and_comes_back() {
    let bed = Bed::on(Stack::exclusive().await).await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect_in_log("");
    bank::open(&bed.publisher().await).await;
    for _ in 0..3 {
        bank::load(&bed.publisher_url, rand::random(), 2, 100).await;
        bed.stack.kill(Server::Publisher).await;
        bed.stack.start(Server::Publisher).await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn the_walsender_is_ended_again_and_again() {
    let bed = Bed::new().await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect_in_log("");
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
    while !load.is_finished() {
        until("the producer is back", PATIENCE, async || {
            publisher.holds(&active).await.then_some(())
        })
        .await;
        publisher.run(&end).await;
    }
    load.await.unwrap();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_slot_that_is_gone_stops_the_producer_by_name() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.producer.take().unwrap().terminate().await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!("SELECT pg_drop_replication_slot('{}')", bed.name))
        .await;
    pipeline.start_producer();
    pipeline.producer().expect_in_log("");
    assert_eq!(pipeline.producer().end().await, 17);
    // Made anew by somebody else, it starts at another place: a gap that must not be stepped over.
    publisher.run("INSERT INTO t VALUES (1)").await;
    let make = format!(
        "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
        bed.name
    );
    publisher.run(&make).await;
    pipeline.start_producer();
    pipeline.producer().expect_in_log("");
    assert_eq!(pipeline.producer().end().await, 32);
    // The reader sees the gap by the claim alone.
    pipeline.consumer().expect_in_log("chain breaks");
    assert_eq!(pipeline.consumer().end().await, 28);
}

/// From 18 on the walsender only warns of it, and leaves the tables out.
#[tokio::test]
async fn a_publication_dropped_under_the_producer_stops_it_by_name() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    pipeline.producer().expect_in_log(PUBLICATION);
    publisher
        .run(&format!("DROP PUBLICATION {PUBLICATION}"))
        .await;
    publisher.run("INSERT INTO t VALUES (2)").await;
    assert_eq!(pipeline.producer().end().await, 15);
    pipeline.run(&["wait", "--timeout", "1"]).await.expect(4);
}
