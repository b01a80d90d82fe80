//! Definite failures: one message in PostgreSQL's form, an exit code of their own, nothing lost.

use walbraid_tests::bed::Bed;
use walbraid_tests::process::{Process, run};
use walbraid_tests::wait::{PATIENCE, until};

#[tokio::test]
async fn a_row_that_the_subscriber_refuses_stops_at_its_transaction() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    bed.subscriber()
        .await
        .run("ALTER TABLE t ADD CONSTRAINT v_is_small CHECK (v < 10)")
        .await;
    let mut pipeline = bed.set_up(&bed.config()).await;
    pipeline.start_producer();
    let publisher = bed.publisher().await;
    for id in 0..20 {
        publisher
            .run(&format!("INSERT INTO t VALUES ({id}, {id})"))
            .await;
    }
    // All of them in one unit: what is before the refused one commits all the same.
    pipeline.start_consumer();
    let message = pipeline.consumer().stops(27).await;
    for word in [
        "v_is_small",
        "\"t\"",
        &bed.name,
        "transaction",
        "finished at",
    ] {
        assert!(message.contains(word), "{word} is not in: {message}");
    }
    let subscriber = bed.subscriber().await;
    assert_eq!(subscriber.value("SELECT max(id) FROM t").await, "9");
    let stopped = pipeline.run(&["wait", "--timeout", "20"]).await.stops(4);
    assert!(stopped.contains("v_is_small"), "{stopped}");
    // The stop says more than the clock.
    pipeline.run(&["wait", "--timeout", "1"]).await.expect(4);

    subscriber
        .run("ALTER TABLE t DROP CONSTRAINT v_is_small")
        .await;
    pipeline.start_consumer();
    // Not waited for the consumer to be there: the old stop does not end the wait.
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_table_or_column_that_is_missing_stops_and_goes_on_when_it_is_there() {
    let bed = Bed::new().await.watched();
    bed.publisher()
        .await
        .run("CREATE TABLE t (id int PRIMARY KEY, v int)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1, 1)").await;
    let message = pipeline.consumer().stops(26).await;
    assert!(
        message.contains("\"public\".\"t\""),
        "the table is not named: {message}"
    );
    let hint = "Create the table on the subscriber.";
    assert_eq!(pipeline.lane().await["hint"], hint);
    let status = pipeline.run(&["status"]).await.expect(0).stdout;
    assert!(status.contains(&format!("HINT:  {hint}")), "{status}");
    let stopped = pipeline.run(&["wait", "--timeout", "1"]).await.stops(4);
    assert!(stopped.contains(&format!("HINT:  {hint}")), "{stopped}");
    let subscriber = bed.subscriber().await;
    subscriber.run("CREATE TABLE t (id int PRIMARY KEY)").await;
    pipeline.start_consumer();
    let message = pipeline.consumer().stops(26).await;
    assert!(
        message.contains("\"v\""),
        "the column is not named: {message}"
    );
    // What is in the log no publication takes back.
    assert!(message.contains("HINT:  Add the columns"), "{message}");
    subscriber.run("ALTER TABLE t ADD v int").await;
    pipeline.start_consumer();
    pipeline.consumer().wait_for_log("lane taken").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_row_that_is_missing_is_logged_and_skipped_or_stops() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut config = bed.config();
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline
        .consumer()
        .expect_in_log("conflict=update_missing")
        .expect_in_log("conflict=delete_missing");
    let publisher = bed.publisher().await;
    publisher
        .run("INSERT INTO t SELECT i, 0 FROM generate_series(1, 5) i")
        .await;
    pipeline.catch_up().await;
    let subscriber = bed.subscriber().await;
    subscriber.run("DELETE FROM t WHERE id IN (2, 3)").await;
    publisher
        .run("UPDATE t SET v = 1 WHERE id = 2; DELETE FROM t WHERE id = 3")
        .await;
    publisher.run("UPDATE t SET v = 2 WHERE id = 4").await;
    pipeline.catch_up().await;
    assert_eq!(
        subscriber
            .value("SELECT string_agg(id || ':' || v, ',' ORDER BY id) FROM t")
            .await,
        "1:0,4:2,5:0"
    );
    for conflict in ["conflict=update_missing", "conflict=delete_missing"] {
        assert_eq!(pipeline.consumer().count_in_log(conflict), 1, "{conflict}");
    }

    config.text("consumer", "on_missing", "error");
    let config = bed.write(&config, "strict");
    pipeline.consumer.take().unwrap().terminate().await;
    pipeline.config = config;
    pipeline.start_consumer();
    publisher
        .run("BEGIN; UPDATE t SET v = 9 WHERE id = 1; UPDATE t SET v = 9 WHERE id = 2; COMMIT")
        .await;
    let message = pipeline.consumer().stops(40).await;
    assert!(
        message.contains("\"public.t\"") && message.contains("HINT:  "),
        "{message}"
    );
    assert_eq!(subscriber.value("SELECT v FROM t WHERE id = 1").await, "0");
    subscriber.run("INSERT INTO t VALUES (2, 0)").await;
    pipeline.start_consumer();
    pipeline.consumer().wait_for_log("lane taken").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_truncate_that_the_subscribers_own_table_forbids_names_the_setting() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let subscriber = bed.subscriber().await;
    subscriber
        .run("CREATE TABLE own (id int REFERENCES t)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    subscriber.run("INSERT INTO own VALUES (1)").await;
    publisher.run("TRUNCATE t").await;
    let message = pipeline.consumer().stops(41).await;
    assert!(message.contains("consumer.truncate_cascade"), "{message}");
    pipeline.consumer = None;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_slot_of_another_plugin_is_refused() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let make = format!(
        "SELECT pg_create_logical_replication_slot('{}', 'test_decoding')",
        bed.name
    );
    bed.publisher().await.run(&make).await;
    let config = bed.write(&bed.config(), "walbraid");
    run(&config, &["setup"]).await.expect(19);
}

#[tokio::test]
async fn a_topic_with_more_partitions_or_compaction_is_refused() {
    for (key, value) in [("partitions", ""), ("cleanup.policy", "compact")] {
        let bed = Bed::new().await.watched();
        bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
        bed.topic
            .create(if key == "partitions" { 3 } else { 1 })
            .await;
        if key != "partitions" {
            bed.topic.configure(key, value).await;
        }
        let config = bed.write(&bed.config(), "walbraid");
        run(&config, &["setup"]).await.expect(21);
    }
}

#[tokio::test]
async fn a_log_whose_beginning_is_gone_stops_by_name() {
    let bed = Bed::new().await.unwatched("records are counted");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.consumer.take().unwrap().terminate().await;
    let publisher = bed.publisher().await;
    for id in 0..10 {
        publisher.run(&format!("INSERT INTO t VALUES ({id})")).await;
    }
    let end = bed.topic.end_after(10).await;
    bed.topic.delete_before(end - 3).await;
    pipeline.start_consumer();
    let message = pipeline.consumer().stops(34).await;
    assert!(
        message.contains("offset") && message.contains("HINT:  "),
        "{message}"
    );
    assert_eq!(
        bed.subscriber().await.value("SELECT count(*) FROM t").await,
        "0"
    );
    pipeline.consumer = None;
    pipeline.terminate().await;
}

#[tokio::test]
async fn setup_waits_for_the_end_of_a_run_that_was_killed_while_it_made_the_slot() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let config = bed.write(&bed.config(), "walbraid");
    let open = bed.publisher().await;
    open.run("BEGIN; INSERT INTO t VALUES (1)").await;
    let killed = Process::start(&config, &["setup"]);
    let publisher = bed.publisher().await;
    let held = format!(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}' AND active",
        bed.name
    );
    until("the slot is being made", PATIENCE, async || {
        (publisher.value(&held).await == "1").then_some(())
    })
    .await;
    killed.kill().await;

    let set = ["--set", "publisher.slot_lock_timeout_ms=300", "setup"];
    let outcome = run(&config, &set).await;
    // Its walsender holds the slot for as long as it waits, or it is gone and the slot with it.
    assert!([42, 16].contains(&outcome.code), "{}", outcome.stderr);
    open.run("ROLLBACK").await;
    let mut pipeline = bed.pipeline().await;
    publisher.run("INSERT INTO t VALUES (2)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_topic_that_was_made_anew_stops_both_sides_and_setup_says_what_helps() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    pipeline.producer.take().unwrap().terminate().await;
    pipeline.consumer.take().unwrap().terminate().await;
    bed.topic.delete().await;
    bed.topic.create(1).await;

    pipeline.start_consumer();
    let message = pipeline.consumer().stops(34).await;
    assert!(
        message.contains(&bed.name) && message.contains("teardown"),
        "{message}"
    );
    pipeline.run(&["produce"]).await.expect(37);
    let outcome = pipeline.run(&["setup"]).await.expect(34);
    assert!(outcome.stderr.contains("teardown"), "{}", outcome.stderr);
    pipeline.consumer = None;
    pipeline.terminate().await;
}
