//! Commands that are asked about the same thing give the same answer: `setup` and `check`, and what
//! `produce` would say; `wait` and `status` where no producer can say anything any more.
//!
//! Run with the built binary on real servers, as a script would.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;
use walbraid_tests::bed::Bed;
use walbraid_tests::process::run;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY)";

/// Every one of these commands ends with this code, and says this.
async fn all_say(config: &Path, commands: &[&[&str]], code: i32, words: &str) {
    for command in commands {
        let outcome = run(config, command).await.expect(code);
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(
            text.contains(words),
            "{command:?} does not say {words}: {text}"
        );
    }
}

/// Runs `status --json` to its end; the only lane.
async fn lane(config: &Path, code: i32) -> Value {
    let outcome = run(config, &["status", "--json"]).await.expect(code);
    let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
    status["lanes"][0].clone()
}

#[tokio::test]
async fn a_slot_that_was_there_before_is_refused_by_check_too() {
    let bed = Bed::new().await;
    bed.both(TABLE).await;
    let config = bed.write(&bed.config(), "walbraid");
    let publisher = bed.publisher().await;
    let make = format!(
        "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
        bed.name
    );
    publisher.run(&make).await;
    all_say(&config, &[&["check"], &["setup"]], 19, "exists already").await;
    let drop = format!("SELECT pg_drop_replication_slot('{}')", bed.name);
    publisher.run(&drop).await;
    all_say(&config, &[&["check"]], 0, "").await;
    all_say(&config, &[&["setup"], &["check"], &["setup"]], 0, "").await;
}

#[tokio::test]
async fn a_slot_that_was_moved_is_refused_before_a_producer_is_started() {
    let bed = Bed::new().await;
    bed.both(TABLE).await;
    let config = bed.write(&bed.config(), "walbraid");
    run(&config, &["setup"]).await.expect(0);
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1)").await;
    let advance = format!(
        "SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())",
        bed.name
    );
    publisher.run(&advance).await;
    let commands: [&[&str]; 3] = [&["check"], &["setup"], &["produce"]];
    all_say(&config, &commands, 32, "no record of the log ends").await;
}

#[tokio::test]
async fn a_topic_that_is_gone_is_why_the_pipeline_stopped() {
    let bed = Bed::new().await;
    bed.both(TABLE).await;
    let config = bed.write(&bed.config(), "walbraid");
    run(&config, &["setup"]).await.expect(0);
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    bed.topic.configure("cleanup.policy", "compact").await;
    let wait: [&[&str]; 1] = [&["wait", "--timeout", "1"]];
    all_say(&config, &wait, 4, "topic-mismatch").await;
    assert_eq!(lane(&config, 0).await["stop"], "topic-mismatch");
    bed.topic.delete().await;
    all_say(&config, &wait, 4, "topic-missing").await;
    let lane = lane(&config, 20).await;
    assert_eq!(lane["state"], "stopped", "{lane}");
    assert_eq!(lane["stop"], "topic-missing", "{lane}");
}

#[tokio::test]
async fn a_kafka_that_does_not_answer_is_said_when_the_time_is_over() {
    let bed = Bed::new().await;
    bed.both(TABLE).await;
    let config = bed.write(&bed.config(), "walbraid");
    run(&config, &["setup"]).await.expect(0);
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    let nobody = "kafka.bootstrap.servers=127.0.0.1:9";
    let wait: [&[&str]; 1] = [&["--set", nobody, "wait", "--timeout", "1"]];
    all_say(&config, &wait, 3, "Kafka did not answer").await;
}
