//! The commands that people script against: their output and exit codes.

use serde_json::Value;
use walbraid_tests::bed::Bed;
use walbraid_tests::process::{Process, run};
use walbraid_tests::wait::{PATIENCE, until};

#[tokio::test]
async fn setup_is_safe_to_run_twice_and_teardown_removes_exactly_that() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let config = bed.write(&bed.config(), "walbraid");
    let publisher = bed.publisher().await;
    let subscriber = bed.subscriber().await;
    let slots = format!(
        "SELECT count(*) FROM pg_replication_slots WHERE database = '{}'",
        bed.name
    );
    let origins = "SELECT count(*) FROM pg_replication_origin o, pg_database d
         WHERE d.datname = current_database() AND roname LIKE format('walbraid\\_%s\\_%%', d.oid)";
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'walbraid'";
    for _ in 0..2 {
        let made = run(&config, &["setup"]).await.expect(0);
        assert!(!made.stdout.is_empty(), "setup does not say what it made");
        assert_eq!(publisher.value(&slots).await, "1");
        assert_eq!(subscriber.value(schema).await, "1");
        assert_eq!(subscriber.value(origins).await, "1");
        assert!(bed.topic.exists().await);
    }
    run(&config, &["teardown"]).await.expect(0);
    assert_eq!(publisher.value(&slots).await, "0");
    assert_eq!(subscriber.value(schema).await, "0");
    assert_eq!(subscriber.value(origins).await, "0");
    assert!(!bed.topic.exists().await);
    assert_eq!(
        publisher.value("SELECT count(*) FROM t").await,
        "0",
        "the user's table is gone"
    );
}

/// The topic is looked at before anything is made, and what is another stream's is not removed,
/// whatever a set-up that was cut off left behind.
#[tokio::test]
async fn a_setup_that_is_refused_makes_nothing_and_teardown_spares_the_other_streams() {
    let (bed, other) = (Bed::new().await, Bed::new().await);
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    let mut config = other.config();
    config.text("kafka", "topic", &bed.topic.name);
    let config = other.write(&config, "refused");
    let refused = run(&config, &["setup"]).await.expect(21);
    assert_eq!(refused.stdout, "", "it made something");
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'walbraid'";
    let (left, right) = (other.publisher().await, other.subscriber().await);
    assert_eq!(left.value(slots).await, "0");
    assert_eq!(right.value(schema).await, "0");

    // As a set-up that did not look at first left it.
    run(&other.write(&other.config(), "own"), &["setup"])
        .await
        .expect(0);
    let announced = "UPDATE walbraid.streams SET state = 'creating', topic_made = true, topic = ";
    right.run(&format!("{announced}'{}'", bed.topic.name)).await;
    let removed = run(&config, &["teardown"]).await.expect(0).stdout;
    assert!(removed.contains("removed slot"), "{removed}");
    for what in ["subject", "topic"] {
        assert!(!removed.contains(what), "{removed}");
    }
    assert!(bed.topic.exists().await);
    // A consumer that starts anew asks for the schemas.
    pipeline.restart_consumer().await;
    publisher.run("INSERT INTO t VALUES (2)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
    let removed = pipeline.run(&["teardown"]).await.expect(0).stdout;
    for subject in ["-value", ".public.t"] {
        let subject = format!("removed subject \"{}{subject}\"", bed.topic.name);
        assert!(removed.contains(&subject), "{removed}");
    }
}

#[tokio::test]
async fn a_subscriber_that_is_read_only_by_default_is_set_up_and_torn_down() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let read_only = format!(
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        bed.name
    );
    bed.subscriber().await.run(&read_only).await;
    let mut pipeline = bed.pipeline().await;
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
    pipeline.run(&["teardown"]).await.expect(0);
}

#[tokio::test]
async fn check_is_content_with_a_good_place_and_changes_nothing() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let config = bed.write(&bed.config(), "walbraid");
    let checked = run(&config, &["check"]).await.expect(0);
    assert!(!checked.stdout.is_empty());
    assert!(!bed.topic.exists().await);
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'walbraid'";
    assert_eq!(bed.subscriber().await.value(schema).await, "0");
}

#[tokio::test]
async fn status_shows_where_a_stream_is() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    // The counters of a lane are written once a second.
    let lane = until("the transaction is counted", PATIENCE, async || {
        let status = pipeline.run(&["status", "--json"]).await.expect(0);
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        let lane = find_lane(&status).unwrap_or_else(|| panic!("no lane in {status}"));
        (lane["transactions_applied"] == 1).then(|| lane.clone())
    })
    .await;
    for key in [
        "state",
        "since",
        "reason",
        "published_lsn",
        "confirmed_lsn",
        "applied_lsn",
        "flushed_lsn",
        "lag_bytes",
        "lag_ms",
        "transactions_applied",
    ] {
        assert!(lane.get(key).is_some(), "{key} is missing in {lane}");
    }
    assert_eq!(lane["state"], "running");
    pipeline.terminate().await;
}

/// The first object in which a lane's state stands, wherever the output keeps it.
fn find_lane(value: &Value) -> Option<&Value> {
    match value {
        Value::Object(object) if object.contains_key("applied_lsn") => Some(value),
        Value::Object(object) => object.values().find_map(find_lane),
        Value::Array(items) => items.iter().find_map(find_lane),
        _ => None,
    }
}

#[tokio::test]
async fn wait_ends_with_3_when_the_time_is_over() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let config = bed.write(&bed.config(), "walbraid");
    run(&config, &["setup"]).await.expect(0);
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    run(&config, &["wait", "--timeout", "1"]).await.expect(3);
    run(&config, &["wait", "--lsn", "0/1", "--timeout", "10"])
        .await
        .expect(0);
}

#[tokio::test]
async fn a_second_member_stands_by_and_takes_over() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut config = bed.config();
    config
        .set("kafka", "session.timeout.ms", 3000)
        .set("kafka", "heartbeat.interval.ms", 500);
    let mut pipeline = bed.pipeline_with(&config).await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    pipeline.catch_up().await;
    config.text("kafka", "group.instance.id", "second");
    let second = bed.write(&config, "second");
    let stand_by = Process::start(&second, &["consume"]);
    let group = format!("walbraid.{}", bed.name);
    until("two members", PATIENCE, async || {
        (bed.topic.members(&group).await == 2).then_some(())
    })
    .await;
    publisher.run("INSERT INTO t VALUES (2)").await;
    pipeline.catch_up().await;
    pipeline.consumer.take().unwrap().kill().await;
    publisher.run("INSERT INTO t VALUES (3)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    stand_by.terminate().await;
    pipeline.terminate().await;
}
