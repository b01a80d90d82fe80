//! What is told of transactions that depend on each other: `walbraid explain` and `walbraid dag`.

use serde_json::{Value, json};
use walbraid_tests::bed::{Bed, Pipeline};
use walbraid_tests::process::run;
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

#[tokio::test]
async fn dag_draws_the_edge_between_two_changes_of_one_row() {
    let bed = Bed::new().await;
    let mut pipeline = with_four_workers(&bed).await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO plain VALUES (1, 0)").await;
    pipeline.catch_up().await;
    // The first change is held up, so that the second finds it unfinished.
    let holder = bed.subscriber().await;
    holder
        .run("BEGIN; SELECT FROM plain WHERE id = 1 FOR UPDATE")
        .await;
    let page = pipeline.config.with_extension("html");
    let config = pipeline.config.clone();
    let html = page.to_str().unwrap().to_owned();
    let dag = tokio::spawn(async move {
        let wanted = ["--transactions", "2", "--timeout", "60"];
        let arguments = [&["dag", "--json", "--html", &html], &wanted[..]].concat();
        run(&config, &arguments).await
    });
    let watcher = bed.subscriber().await;
    until("the consumer records", PATIENCE, async || {
        let begun = "SELECT count(*) FROM walbraid.recordings WHERE began_at IS NOT NULL";
        (watcher.value(begun).await == "1").then_some(())
    })
    .await;
    for _ in 0..2 {
        publisher.run("UPDATE plain SET v = v + 1").await;
    }
    explained(&pipeline, 3).await;
    holder.run("COMMIT").await;
    let dag = dag.await.unwrap().expect(0);
    let (_, json) = dag.stdout.split_once('\n').unwrap();
    let recorded: Value = serde_json::from_str(json).unwrap();
    let units = recorded["lanes"][0]["units"].as_array().unwrap();
    assert_eq!(units.len(), 2, "{recorded}");
    assert_eq!(units[0]["edges"], json!([]), "{recorded}");
    let edge = json!([{ "unit": 1, "key": "public.plain (plain_pkey)" }]);
    assert_eq!(units[1]["edges"], edge, "{recorded}");
    for unit in units {
        let attempts = unit["attempts"].as_array().unwrap();
        assert_eq!(attempts.last().unwrap()["end"], "committed", "{recorded}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("2 waits for 1: public.plain (plain_pkey)"),
        "{page}"
    );
    let left = "SELECT count(*) FROM walbraid.recordings";
    assert_eq!(watcher.value(left).await, "0", "the request stays behind");

    let idle = pipeline.run(&["dag", "--timeout", "1"]).await.expect(0);
    assert!(idle.stdout.contains("the lane is idle"), "{}", idle.stdout);
    pipeline.terminate().await;
    let nobody = pipeline.run(&["dag", "--timeout", "1"]).await.expect(3);
    assert!(
        nobody.stderr.contains("no consumer began to record"),
        "{}",
        nobody.stderr
    );
}
