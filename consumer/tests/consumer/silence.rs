//! A subscriber that says nothing, one that is only busy, and one that says what cannot be.

use prometheus_client::registry::Registry;
use walbraid_consumer::Config;
use walbraid_consumer::config::Workers;
use walbraid_consumer::metrics::Metrics;
use walbraid_schemas::{StopKind, Value};
use walbraid_wire::{ConnectOptions, Environment};

use crate::bed::{Bed, connect};
use crate::log::{insert, table, update};
use crate::proxy::Proxy;

const N: &str = "CREATE TABLE n (id int8 PRIMARY KEY, v int)";

/// The bed's configuration by way of the proxy, with a short patience.
fn config(bed: &Bed, proxy: &Proxy, workers: usize) -> Config {
    let mut config = bed.config();
    let url = proxy.url(&bed.url);
    config.subscriber.connect = ConnectOptions::parse(&url, &Environment::empty()).unwrap();
    config.subscriber.answer_timeout_ms = 2_000;
    config.subscriber.lock_timeout_ms = 0;
    config.apply.workers = Workers::Fixed(workers);
    config
}

/// How often the lane was taken anew because a connection was lost.
fn losses(registry: &Registry) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let lines = text
        .lines()
        .filter(|line| line.contains("retries_total") && line.contains("cause=\"connection\""));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

async fn silent(name: &str, workers: usize) {
    let bed = Bed::new(name, N).await;
    let proxy = Proxy::to(&bed.url).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let row = |id| [Value::Int(id), Value::Int(1)];
    let mut registry = Registry::default();
    let metrics = Metrics::new(&bed.name, &mut registry);
    let consumer = bed.consume_counted(config(&bed, &proxy, workers), metrics);
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1))])
        .await;
    bed.drained().await;
    assert_eq!(losses(&registry), 0);
    proxy.freeze();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(2))])
        .await;
    bed.until("the silence is noticed", async || losses(&registry) > 0)
        .await;
    proxy.thaw();
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "2");
    assert_eq!(bed.lane().await.state, "running");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_silent_is_lost_and_taken_again() {
    silent("silent", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_silent_is_lost_by_several_workers() {
    silent("silent_to_two", 2).await;
}

async fn busy(name: &str, workers: usize) {
    let bed = Bed::new(name, N).await;
    let proxy = Proxy::to(&bed.url).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let row = |id, v| [Value::Int(id), Value::Int(v)];
    let mut registry = Registry::default();
    let metrics = Metrics::new(&bed.name, &mut registry);
    let consumer = bed.consume_counted(config(&bed, &proxy, workers), metrics);
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1, 1))])
        .await;
    bed.drained().await;
    let other = connect(&bed.url).await;
    other
        .batch_execute("BEGIN; UPDATE n SET v = 5 WHERE id = 1")
        .await
        .unwrap();
    bed.log
        .transaction(&tables, vec![update(0, &n, &row(1, 2))])
        .await;
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE application_name LIKE 'walbraid {} 0 worker _' AND wait_event_type = 'Lock' \
           AND clock_timestamp() - query_start > interval '5 seconds'",
        bed.name
    );
    bed.until("the statement takes longer than answers may", async || {
        bed.value(&waits).await == "1"
    })
    .await;
    other.batch_execute("ROLLBACK").await.unwrap();
    bed.drained().await;
    assert_eq!(bed.value("SELECT v FROM n").await, "2");
    assert_eq!(losses(&registry), 0);
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_busy_is_not_taken_for_dead() {
    busy("busy", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_busy_is_not_taken_for_dead_by_several_workers() {
    busy("busy_for_two", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_asked_for_ends_the_process_and_loses_nothing() {
    let bed = Bed::new("unasked", N).await;
    let proxy = Proxy::to(&bed.url).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let row = |id| [Value::Int(id), Value::Int(1)];
    let consumer = bed.consume_with(config(&bed, &proxy, 1));
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1))])
        .await;
    bed.drained().await;
    // ReadyForQuery: nothing is in flight, and no Sync either.
    let ready = b"Z\0\0\0\x05I";
    proxy.say_to_workers(ready);
    let stop = consumer.stopped().await;
    assert_eq!(stop.kind, StopKind::Internal, "{stop}");
    assert!(stop.message.contains("ReadyForQuery"), "{stop}");
    assert_eq!(bed.lane().await.stop_kind.as_deref(), Some("internal"));
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(2))])
        .await;
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "2");
    consumer.stop().await;
    bed.done().await;
}
