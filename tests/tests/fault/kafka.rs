//! Kafka away, killed, or with settings that get in the way.

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::stack::{Server, Stack};

#[tokio::test]
async fn kafka_killed_and_back_under_load() {
    let bed = Bed::on(Stack::exclusive().await).await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect_in_log("");
    pipeline.consumer().expect_in_log("");
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, rand::random(), 2, 400).await }
    });
    bed.stack.kill(Server::Kafka).await;
    load.await.unwrap();
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn nothing_is_confirmed_that_kafka_has_not_acknowledged() {
    let bed = Bed::on(Stack::exclusive().await).await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect_in_log("");
    pipeline.consumer().expect_in_log("");
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (0)").await;
    pipeline.catch_up().await;
    bed.stack.stop(Server::Kafka).await;
    let before = publisher.value("SELECT pg_current_wal_insert_lsn()").await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.producer().wait_for_log("afka").await;
    let confirmed = format!(
        "SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots WHERE slot_name = '{}'",
        bed.name
    );
    assert!(publisher.holds(&confirmed).await);
    // The transaction that was read and not acknowledged is sent again by another producer.
    pipeline.restart_producer().await;
    pipeline.producer().expect_in_log("");
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn kafka_down_when_the_processes_start() {
    let bed = Bed::on(Stack::exclusive().await).await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.terminate().await;
    bed.stack.stop(Server::Kafka).await;
    pipeline.start_producer();
    pipeline.start_consumer();
    pipeline.producer().expect_in_log("");
    pipeline.consumer().expect_in_log("");
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    pipeline.producer().wait_for_log("WARN").await;
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_broker_that_takes_less_than_before_gets_smaller_records_or_a_named_stop() {
    const NOISE: &str =
        "(SELECT string_agg(md5(i::text || random()), '') FROM generate_series(1, 9000) i)";
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        .await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.producer().expect_in_log("too large");
    bed.topic.configure("max.message.bytes", "20000").await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!("INSERT INTO t VALUES (1, {NOISE})"))
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;

    bed.topic.configure("max.message.bytes", "2000").await;
    pipeline.producer().expect_in_log("too small");
    publisher
        .run(&format!("INSERT INTO t VALUES (2, {NOISE})"))
        .await;
    assert_eq!(pipeline.producer().end().await, 23);
    pipeline.producer = None;
    bed.topic.configure("max.message.bytes", "1000000").await;
    pipeline.start_producer();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
