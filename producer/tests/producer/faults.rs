//! Servers that go away under a producer. Each test holds the stack whose servers may be stopped.

use std::time::Duration;

use walbraid_schemas::{Lsn, StopKind};
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::wait::{PATIENCE, moment, until};
use walbraid_wire::{ConnectOptions, Environment};

use crate::place::{Place, insert};

const TABLE: &str = "CREATE TABLE a (id serial PRIMARY KEY, b text)";

async fn walsender(place: &Place) -> String {
    let question = format!(
        "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}'",
        place.config.publisher.slot
    );
    place.publisher().await.value(&question).await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_kafka_is_away_memory_is_bounded_and_the_publisher_hears_us() {
    const BUDGET_BYTES: usize = 2 << 20;
    let mut place = Place::on(Stack::exclusive().await, TABLE).await;
    place.config.limits.publish_memory_bytes = BUDGET_BYTES;
    place.config.intervals.stall_warning_ms = 500;
    let url = format!(
        "{}?options=-c%20wal_sender_timeout%3D2s",
        place.bed.publisher_url
    );
    place.config.publisher.connect = ConnectOptions::parse(&url, &Environment::empty()).unwrap();
    let publisher = place.publisher().await;
    let producer = place.run();
    let mut xids = insert(&publisher, "a", 1).await;
    let first = place.gets(1).await[0].end_lsn;
    place.confirms(first).await;
    let walsender_then = walsender(&place).await;

    place.bed.stack.stop(Server::Kafka).await;
    publisher
        .run("ALTER TABLE a ALTER b SET DEFAULT repeat('x', 20000)")
        .await;
    xids.extend(insert(&publisher, "a", 500).await);
    until("the budget is used", PATIENCE, async || {
        (producer.metric("pending_bytes") > BUDGET_BYTES as u64 / 2).then_some(())
    })
    .await;
    // Three times what a walsender waits for a client that says nothing.
    moment(Duration::from_secs(6)).await;
    assert!(producer.metric("pending_bytes") < BUDGET_BYTES as u64 + 100_000);
    assert_eq!(walsender(&place).await, walsender_then);

    place.bed.stack.start(Server::Kafka).await;
    place.holds(&xids).await;
    assert_eq!(producer.metric("claims_total"), 1);
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_confirmed_that_kafka_has_not_got() {
    let place = Place::on(Stack::exclusive().await, TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let mut xids = insert(&publisher, "a", 1).await;
    let first = place.gets(1).await[0].end_lsn;
    place.confirms(first).await;
    place.bed.stack.kill(Server::Kafka).await;
    let before: Lsn = publisher
        .value("SELECT pg_current_wal_lsn()")
        .await
        .parse()
        .unwrap();
    xids.extend(insert(&publisher, "a", 100).await);
    until("the transactions are received", PATIENCE, async || {
        (producer.metric("received_lsn") > before.0).then_some(())
    })
    .await;
    // Several keepalives and status updates go by.
    moment(Duration::from_secs(2)).await;
    assert!(place.confirmed().await <= before);
    producer.crash().await;
    place.bed.stack.start(Server::Kafka).await;
    let producer = place.run();
    place.holds(&xids).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_away_at_the_start_is_waited_for() {
    let place = Place::on(Stack::exclusive().await, TABLE).await;
    let publisher = place.publisher().await;
    place.bed.stack.stop(Server::Kafka).await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 10).await;
    until("it is tried again", PATIENCE, async || {
        (producer.metric("retries_total") > 0).then_some(())
    })
    .await;
    place.bed.stack.start(Server::Kafka).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_away_is_waited_for() {
    let place = Place::on(Stack::exclusive().await, TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let mut xids = insert(&publisher, "a", 10).await;
    place.holds(&xids).await;
    place.bed.stack.stop(Server::Registry).await;
    publisher
        .run("CREATE TABLE c (id serial PRIMARY KEY)")
        .await;
    xids.extend(insert(&publisher, "a", 10).await);
    place.holds(&xids).await;
    xids.extend(insert(&publisher, "c", 10).await);
    until("it is tried again", PATIENCE, async || {
        (producer.metric("retries_total") > 2).then_some(())
    })
    .await;
    place.bed.stack.start(Server::Registry).await;
    place.holds(&xids).await;
    assert_eq!(producer.metric("claims_total"), 1);
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_crashed_is_connected_again() {
    let place = Place::on(Stack::exclusive().await, TABLE).await;
    let producer = place.run();
    let mut xids = insert(&place.publisher().await, "a", 50).await;
    place.holds(&xids).await;
    let last = place.links().await.last().unwrap().end_lsn;
    place.confirms(last).await;
    place.bed.stack.kill(Server::Publisher).await;
    place.bed.stack.start(Server::Publisher).await;
    xids.extend(insert(&place.publisher().await, "a", 50).await);
    place.holds(&xids).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_lost_its_wal_is_a_stop() {
    let place = Place::on(Stack::exclusive().await, TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
    publisher
        .run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        .await;
    publisher.run("SELECT pg_reload_conf()").await;
    insert(&publisher, "a", 5).await;
    let status = format!(
        "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{}'",
        place.config.publisher.slot
    );
    until("the slot is lost", PATIENCE, async || {
        publisher
            .run("INSERT INTO a (b) SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
            .await;
        publisher.run("SELECT pg_switch_wal()").await;
        publisher.run("CHECKPOINT").await;
        (publisher.value(&status).await == "lost").then_some(())
    })
    .await;
    publisher
        .run("ALTER SYSTEM RESET max_slot_wal_keep_size")
        .await;
    publisher.run("SELECT pg_reload_conf()").await;
    let stop = place.run().stopped().await;
    assert_eq!(stop.kind, StopKind::SlotInvalidated, "{stop}");
}
