//! What is told of transactions that depend on each other: `walbraid explain`.

use serde_json::Value;
use walbraid_tests::bed::{Bed, Pipeline};
use walbraid_tests::wait::{PATIENCE, until};

const TABLES: &str = "
CREATE TABLE plain (id int PRIMARY KEY, v int);
CREATE TABLE audited (id int PRIMARY KEY, v int)";

const TRIGGER: &str = "
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER audit AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION note();
ALTER TABLE audited ENABLE ALWAYS TRIGGER audit";

/// Four workers, and nobody's patience for locks.
async fn with_four_workers(bed: &Bed) -> Pipeline {
    bed.both(TABLES).await;
    bed.subscriber().await.run(TRIGGER).await;
    let mut config = bed.config();
    config
        .set("consumer", "workers", 4)
        .set("consumer", "group", 1)
        .set("consumer", "lock_timeout_ms", 0);
    bed.pipeline_with(&config).await
}

/// What the lane explains, once it counts so many transactions.
async fn explained(pipeline: &Pipeline, transactions: u64) -> Value {
    let what = format!("{transactions} transactions are explained");
    until(&what, PATIENCE, async || {
        let explain = pipeline.run(&["explain", "--json"]).await.expect(0);
        let explain: Value = serde_json::from_str(&explain.stdout).unwrap();
        let lane = explain["lanes"][0].clone();
        (lane["transactions"]["total"] == transactions).then_some(lane)
    })
    .await
}

#[tokio::test]
async fn explain_tells_why_one_table_is_serial_and_that_another_is_not() {
    let bed = Bed::new().await;
    let mut pipeline = with_four_workers(&bed).await;
    let publisher = bed.publisher().await;
    for id in 0..3 {
        let insert = format!("INSERT INTO plain VALUES ({id}, 0)");
        publisher.run(&insert).await;
    }
    publisher.run("INSERT INTO audited VALUES (1, 0)").await;
    pipeline.catch_up().await;
    let lane = explained(&pipeline, 4).await;
    assert_eq!(lane["workers"], 4);
    assert_eq!(lane["transactions"]["serial"], 1, "{lane}");
    let table = |name: &str| {
        let tables = lane["tables"].as_array().unwrap();
        let found = tables.iter().find(|table| table["table"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {lane}"))
    };
    let plain = table("public.plain");
    assert_eq!(plain["parallel"], 3, "{lane}");
    assert_eq!(plain["alone"], 0, "{lane}");
    let audited = table("public.audited");
    assert_eq!(audited["alone"], 1, "{lane}");
    let serial = &audited["serial"][0];
    assert_eq!(serial["reason"], "trigger", "{lane}");
    let remedy = serial["remedy"].as_str().unwrap();
    assert!(
        remedy.contains("\"audit\"") && remedy.contains("parallel_safe"),
        "{remedy}"
    );
    let text = pipeline.run(&["explain"]).await.expect(0).stdout;
    assert!(
        text.contains("1 serial for public.audited: trigger"),
        "{text}"
    );
    pipeline.terminate().await;
}
