//! Kafka away, killed, or with settings that get in the way.

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::trouble::{ACKNOWLEDGEMENT, CARRYING, GROUP, LOG, START};

#[tokio::test]
async fn kafka_killed_and_back_under_load() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both(bank::SCHEMA).await;
    let mut config = bed.config();
    config.set("producer", "stall_warning_ms", 1000);
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.producer().expect(&[ACKNOWLEDGEMENT]);
    pipeline.consumer().expect(&[LOG, GROUP]);
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, rand::random(), 2, 400).await }
    });
    bed.stack.kill(Server::Kafka).await;
    load.await.unwrap();
    let warning = "Kafka does not acknowledge records";
    pipeline.producer().wait_for_log(warning).await;
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(ACKNOWLEDGEMENT, 1..=1).await;
    pipeline.consumer().tells(LOG, 1..=1);
    pipeline.consumer().recovers(GROUP, 0..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn nothing_is_confirmed_that_kafka_has_not_acknowledged() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.producer().expect(&[ACKNOWLEDGEMENT]);
    pipeline.consumer().expect(&[LOG, GROUP]);
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
    pipeline.producer().expect(&[CARRYING]);
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    // None where Kafka was back before it was missed.
    pipeline.producer().recovers(CARRYING, 0..=1).await;
    pipeline.consumer().tells(LOG, 1..=1);
    pipeline.consumer().recovers(GROUP, 0..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn kafka_down_when_the_processes_start() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.terminate().await;
    bed.stack.stop(Server::Kafka).await;
    pipeline.start_producer();
    pipeline.start_consumer();
    pipeline.producer().expect(&[CARRYING]);
    pipeline.consumer().expect(&[START]);
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    pipeline.producer().wait_for_log("WARN").await;
    bed.stack.start(Server::Kafka).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 1..=1).await;
    pipeline.consumer().recovers(START, 0..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_broker_that_takes_less_than_before_gets_smaller_records_or_a_named_stop() {
    const NOISE: &str =
        "(SELECT string_agg(md5(i::text || random()), '') FROM generate_series(1, 9000) i)";
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        .await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.producer().expect(&[CARRYING]);
    bed.topic.configure("max.message.bytes", "20000").await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!("INSERT INTO t VALUES (1, {NOISE})"))
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 1..=1).await;

    bed.topic.configure("max.message.bytes", "2000").await;
    publisher
        .run(&format!("INSERT INTO t VALUES (2, {NOISE})"))
        .await;
    let message = pipeline.producer().stops(23).await;
    assert!(
        message.contains("HINT:  Raise") && message.contains("max.message.bytes"),
        "{message}"
    );
    pipeline.producer = None;
    bed.topic.configure("max.message.bytes", "1000000").await;
    pipeline.start_producer();
    pipeline.producer().wait_for_log("claimed lane").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

/// The group knows a member by its name. One that was out of its reach may find itself replaced by
/// what it sent itself; one that was not is replaced by another process.
#[tokio::test]
async fn a_member_replaced_in_an_outage_joins_anew_and_one_replaced_without_stops() {
    const NAME: &str = "one-of-two";
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut config = bed.config();
    config
        .text("kafka", "group.instance.id", NAME)
        .set("kafka", "session.timeout.ms", 45_000);
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.producer().expect(&[ACKNOWLEDGEMENT]);
    pipeline.consumer().expect(&[LOG, GROUP]);
    let publisher = bed.publisher().await;
    let group = format!("walbraid.{}", bed.name);
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    bed.stack.stop(Server::Kafka).await;
    let trouble = "being a member of the consumer group failed";
    pipeline.consumer().wait_for_log(trouble).await;
    bed.stack.start(Server::Kafka).await;
    let _other = bed.topic.join(&group, NAME).await;
    let anew = "joins the consumer group anew";
    pipeline.consumer().wait_for_log(anew).await;
    // The group may be back before it refuses the member.
    pipeline.consumer().recovers(GROUP, 1..=2).await;
    assert_eq!(pipeline.consumer().count_in_log("Timed out"), 0);
    publisher.run("INSERT INTO t VALUES (2)").await;
    pipeline.catch_up().await;

    let _other = bed.topic.join(&group, NAME).await;
    let message = pipeline.consumer().stops(31).await;
    assert!(message.contains("HINT:  Another consumer"), "{message}");
    publisher.run("INSERT INTO t VALUES (3)").await;
    pipeline.start_consumer();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
