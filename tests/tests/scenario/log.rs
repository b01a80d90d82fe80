//! The log as a stranger reads it.

use std::io::Write;
use std::process::{Command, Stdio};

use rdkafka::Message;
use rdkafka::message::{Headers, OwnedMessage};
use serde_json::{Value, json};
use walbraid_tests::bed::Bed;
use walbraid_tests::workspace::root;

/// Has a lane read by another Avro library, through the registry.
fn read_elsewhere(registry: &str, records: &[OwnedMessage]) -> Vec<Value> {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let values: Vec<String> = records
        .iter()
        .map(|record| hex(record.payload().unwrap()))
        .collect();
    let order = json!({ "registry": registry, "records": values }).to_string();
    let mut child = Command::new(root().join("tests/interop/read_log.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(order.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the log cannot be read elsewhere");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The changes of all links, in order.
fn changes(envelopes: &[Value]) -> Vec<Value> {
    let parts = envelopes
        .iter()
        .filter(|each| each["body"]["kind"] == "Part");
    parts
        .flat_map(|part| part["body"]["changes"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test]
async fn an_independent_reader_reads_every_record_and_every_row() {
    let bed = Bed::new().await;
    bed.both(
        r#"CREATE TABLE "T t" (id int PRIMARY KEY, s int2, l int8, f float4, d float8, b bool,
               y bytea, t text, n numeric, "ä" text);
           ALTER TABLE "T t" ALTER t SET STORAGE EXTERNAL"#,
    )
    .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(
            r#"INSERT INTO "T t" VALUES
                   (1, -1, 9223372036854775807, '-0', 'NaN', true, '\x00ff', repeat('t', 3000),
                    1.50, NULL);
               UPDATE "T t" SET s = 2; DELETE FROM "T t"; TRUNCATE "T t";
               SELECT pg_logical_emit_message(true, 'prefix', 'content')"#,
        )
        .await;
    pipeline.catch_up().await;
    pipeline.terminate().await;

    let records = bed.topic.records().await;
    for record in &records {
        let key = std::str::from_utf8(record.key().unwrap()).unwrap();
        assert!(key.starts_with(&format!("{}/", bed.name)), "{key}");
        assert_eq!(record.headers().unwrap().count(), 5);
    }
    let registry = bed.stack.addresses.registry_url.clone();
    let envelopes = tokio::task::spawn_blocking(move || read_elsewhere(&registry, &records))
        .await
        .unwrap();
    let kinds: Vec<&str> = envelopes
        .iter()
        .map(|each| each["body"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[..2],
        ["Heartbeat", "Claim"],
        "setup's heartbeat, then the producer's claim"
    );

    let changes = changes(&envelopes);
    let kinds: Vec<&str> = changes
        .iter()
        .map(|each| each["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["Insert", "Update", "Delete", "Truncate", "LogicalMessage"]
    );
    let long = "t".repeat(3000);
    assert_eq!(changes[0]["table"], "public.T t");
    assert_eq!(
        changes[0]["new"],
        json!({
            "id": 1, "s": -1, "l": 9_223_372_036_854_775_807_i64,
            "f": { "float": "-0x0.0p+0" }, "d": { "float": "nan" }, "b": true,
            "y": "00ff", "t": long, "n": "1.50", "ä": null,
        })
    );
    assert_eq!(
        changes[1]["new"]["t"],
        json!({ "absent": "UNCHANGED_TOAST" })
    );
    assert_eq!(changes[1]["old"], Value::Null);
    assert_eq!(changes[2]["old"]["kind"], "Key");
    assert_eq!(changes[2]["old"]["row"]["id"], 1);
    assert_eq!(
        changes[2]["old"]["row"]["t"],
        json!({ "absent": "NOT_SENT" })
    );
    assert_eq!(changes[4]["prefix"], "prefix");
}

#[tokio::test]
async fn each_link_names_the_one_before_it() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    for id in 0..50 {
        publisher.run(&format!("INSERT INTO t VALUES ({id})")).await;
        if id % 20 == 10 {
            pipeline.restart_producer().await;
        }
    }
    pipeline.catch_up().await;
    pipeline.terminate().await;

    let records = bed.topic.records().await;
    let registry = bed.stack.addresses.registry_url.clone();
    let envelopes = tokio::task::spawn_blocking(move || read_elsewhere(&registry, &records))
        .await
        .unwrap();
    // The chain by the rules of docs/log-format.md, as a stranger would write it.
    let number = |envelope: &Value, key: &str| envelope[key].as_i64().unwrap();
    let mut position = number(&envelopes[0], "end_lsn");
    let (mut claim, mut links) = (-1, 0);
    for (offset, envelope) in envelopes.iter().enumerate().skip(1) {
        if envelope["body"]["kind"] == "Claim" {
            claim = offset as i64;
            continue;
        }
        let is_link = envelope["body"]["kind"] == "Part" && envelope["body"]["last"] == true;
        if number(envelope, "claim_offset") < claim || !is_link {
            continue;
        }
        let end = number(envelope, "end_lsn");
        if end > position {
            assert_eq!(
                number(envelope, "previous_end_lsn"),
                position,
                "a gap: {envelope}"
            );
            (position, links) = (end, links + 1);
        }
    }
    assert_eq!(links, 50);
}
