//! What a publisher has not, or not enough of: `wal_level`, slots, walsenders, kept WAL.
//!
//! These are settings of a whole server that only a restart changes, so the tests hold the stack
//! whose servers may be stopped.

use walbraid_tests::bed::{Bed, Pipeline};
use walbraid_tests::session::Session;
use walbraid_tests::stack::Stack;
use walbraid_tests::wait::{PATIENCE, until};
use walbraid_tests::walsender::Walsender;

/// `setup` stops with `code`, and `check` finds the same; the message names `words` and a remedy.
async fn refused(pipeline: &Pipeline, code: i32, words: &str) {
    let message = pipeline.run(&["setup"]).await.stops(code);
    assert!(
        message.contains(words) && message.contains("HINT:  "),
        "{message}"
    );
    let found = pipeline.run(&["check"]).await.expect(code).stdout;
    assert!(
        found.contains(words) && found.contains("HINT:  "),
        "{found}"
    );
}

async fn walsenders(publisher: &Session) -> String {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'";
    publisher.value(count).await
}

#[tokio::test]
async fn a_publisher_without_logical_wal_a_free_slot_or_a_free_walsender_is_refused_by_name() {
    let bed = Bed::on(Stack::exclusive().await)
        .await
        .unwatched("the publisher cannot be streamed from until the end");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.not_set_up(&bed.config());
    bed.stack
        .configure_publisher(&[("wal_level", "replica")])
        .await;
    refused(&pipeline, 13, "wal_level").await;

    let enough = [
        ("wal_level", "logical"),
        ("max_replication_slots", "3"),
        ("max_wal_senders", "3"),
    ];
    bed.stack.configure_publisher(&enough).await;
    let publisher = bed.publisher().await;
    let others = "SELECT pg_create_physical_replication_slot('other_' || i)
         FROM generate_series(1, 3) i";
    publisher.run(others).await;
    refused(&pipeline, 14, "slot").await;
    publisher
        .run("SELECT pg_drop_replication_slot('other_' || i) FROM generate_series(1, 3) i")
        .await;

    let taken = Walsender::take_all(&bed.publisher_url).await;
    refused(&pipeline, 14, "max_wal_senders").await;
    free(taken, &publisher).await;
    pipeline.run(&["setup"]).await.expect(0);

    publisher.run("INSERT INTO t VALUES (1)").await;
    let taken = Walsender::take_all(&bed.publisher_url).await;
    pipeline.start_producer();
    let message = pipeline.producer().stops(14).await;
    for part in ["walsender", "DETAIL:  ", "HINT:  "] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    let message = pipeline.run(&["wait", "--timeout", "1"]).await.stops(4);
    assert!(message.contains("walsender"), "{message}");
    free(taken, &publisher).await;
    pipeline.start_producer();
    pipeline.producer().wait_for_log("claimed lane").await;
    pipeline.start_consumer();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

async fn free(taken: Vec<Walsender>, publisher: &Session) {
    assert!(!taken.is_empty());
    drop(taken);
    until("the walsenders are free", PATIENCE, async || {
        (walsenders(publisher).await == "0").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_slot_whose_wal_was_removed_stops_by_name_until_the_stream_is_made_anew() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    bed.stack
        .configure_publisher(&[("max_slot_wal_keep_size", "1MB")])
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (0)").await;
    pipeline.catch_up().await;
    pipeline.producer.take().unwrap().terminate().await;
    let status = format!(
        "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{}'",
        bed.name
    );
    let mut id = 0;
    until("the slot is lost", PATIENCE, async || {
        id += 1;
        publisher.run(&format!("INSERT INTO t VALUES ({id})")).await;
        publisher.run("SELECT pg_switch_wal()").await;
        publisher.run("CHECKPOINT").await;
        (publisher.value(&status).await == "lost").then_some(())
    })
    .await;

    pipeline.start_producer();
    let message = pipeline.producer().stops(18).await;
    for part in [&bed.name, "is lost", "DETAIL:  ", "HINT:  "] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    pipeline.producer = None;
    let message = pipeline.run(&["wait", "--timeout", "1"]).await.stops(4);
    assert!(message.contains("is lost"), "{message}");
    let reason = pipeline.reason_of("stopped").await;
    assert!(reason.contains("is lost"), "{reason}");
    let found = pipeline.run(&["check"]).await.expect(18).stdout;
    assert!(found.contains("is lost"), "{found}");
    pipeline.terminate().await;

    // As the message says: the tables are brought up to date while nobody writes.
    pipeline.run(&["teardown"]).await.expect(0);
    let copy = format!("INSERT INTO t SELECT generate_series(1, {id})");
    bed.subscriber().await.run(&copy).await;
    let mut pipeline = bed.pipeline().await;
    publisher
        .run(&format!("INSERT INTO t VALUES ({id} + 1)"))
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
