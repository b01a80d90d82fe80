//! Samples for readers that are not ours: records with all kinds of values, and lanes of the
//! simulation with the links that they hold. They are written under cargo's directory for test
//! data; with `WALBRAID_FASTAVRO_PYTHON` set to a Python that has fastavro,
//! `read_with_fastavro.py` reads them here and now.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::{Value as Json, json};
use walbraid_schemas::{Body, Change, Envelope, Table, Value, envelope, frame, row};

use crate::chain::World;
use crate::lane::{INCARNATION, read};
use crate::random::Random;
use crate::samples;

const ENVELOPE_ID: i32 = 1;
const TABLE_ID: i32 = 7;
const LANES: u64 = 40;

fn framed(record: &Envelope) -> Vec<u8> {
    let mut value = Vec::new();
    frame::write(ENVELOPE_ID, &mut value);
    envelope::encode(record, &mut value).unwrap();
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tell_value(value: Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Unchanged => json!({"absent": "UNCHANGED_TOAST"}),
        Value::NotSent => json!({"absent": "NOT_SENT"}),
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float4(value) => json!({"float4": hex(&value.to_be_bytes())}),
        Value::Float8(value) => json!({"float8": hex(&value.to_be_bytes())}),
        Value::Text(value) => json!(value),
        Value::Bytes(value) => json!({"bytes": hex(value)}),
    }
}

fn tell_row(table: &Table, row: &[u8]) -> Json {
    let values = row::Reader::new(table, row).map(|value| tell_value(value.unwrap()));
    table
        .columns
        .iter()
        .map(|column| column.name.clone())
        .zip(values)
        .collect()
}

fn tell_change(table: &Table, change: &Change) -> Json {
    match change {
        Change::Insert { new, .. } => json!({"kind": "Insert", "new": tell_row(table, new)}),
        Change::Update { old: None, new, .. } => {
            json!({"kind": "Update", "new": tell_row(table, new)})
        }
        Change::Update {
            old: Some(old),
            new,
            ..
        } => json!({
            "kind": "Update",
            "old_kind": format!("{:?}", old.kind),
            "old": tell_row(table, &old.row),
            "new": tell_row(table, new),
        }),
        Change::Delete { old, .. } => json!({
            "kind": "Delete",
            "old_kind": format!("{:?}", old.kind),
            "old": tell_row(table, &old.row),
        }),
        Change::Truncate {
            tables,
            cascade,
            restart_identity,
        } => json!({
            "kind": "Truncate",
            "tables": tables,
            "cascade": cascade,
            "restart_identity": restart_identity,
        }),
        Change::Message {
            prefix,
            content,
            lsn,
            transactional,
        } => json!({
            "kind": "LogicalMessage",
            "prefix": prefix,
            "content": hex(content),
            "lsn": lsn.0,
            "transactional": transactional,
        }),
    }
}

fn tell(record: &Envelope) -> Json {
    let mut told = json!({
        "kind": match &record.body {
            Body::Claim(_) => "Claim",
            Body::Heartbeat(_) => "Heartbeat",
            Body::Notice(_) => "Notice",
            Body::Part(_) => "Part",
        },
        "incarnation": hex(&record.incarnation.0),
        "claim_offset": record.claim_offset,
        "options_hash": record.options_hash,
        "end_lsn": record.end_lsn.to_string(),
        "previous_end_lsn": record.previous_end_lsn.to_string(),
    });
    if let Body::Part(part) = &record.body {
        let table = samples::table();
        told["xid"] = json!(part.xid);
        told["commit_lsn"] = json!(part.commit_lsn.to_string());
        told["changes"] = part
            .changes
            .iter()
            .map(|change| tell_change(&table, change))
            .collect();
    }
    told
}

fn write_records(directory: &Path) {
    let schemas = directory.join("schemas");
    fs::create_dir_all(&schemas).unwrap();
    fs::write(
        schemas.join(format!("{ENVELOPE_ID}.avsc")),
        envelope::SCHEMA,
    )
    .unwrap();
    fs::write(
        schemas.join(format!("{TABLE_ID}.avsc")),
        samples::table().to_avro(),
    )
    .unwrap();
    let records = directory.join("records");
    fs::create_dir_all(&records).unwrap();
    for (index, record) in samples::envelopes().iter().enumerate() {
        fs::write(records.join(format!("{index}.bin")), framed(record)).unwrap();
        fs::write(
            records.join(format!("{index}.json")),
            tell(record).to_string(),
        )
        .unwrap();
    }
}

fn write_lanes(directory: &Path) {
    let lanes = directory.join("lanes");
    fs::create_dir_all(&lanes).unwrap();
    for seed in 0..LANES {
        let mut random = Random::new(seed);
        let world = World::simulate(&mut random);
        let whole = read(&world.lane, 0, world.start(), 0, &mut random);
        let mut content = Vec::new();
        for (offset, record) in &world.lane.records {
            let value = framed(record);
            content.extend_from_slice(&offset.to_be_bytes());
            content.extend_from_slice(&(value.len() as i32).to_be_bytes());
            content.extend_from_slice(&value);
        }
        let links: Vec<Json> = whole
            .links
            .iter()
            .map(|link| json!([link.position.end_lsn.0, link.rows]))
            .collect();
        let expected = json!({
            "incarnation": hex(&INCARNATION.0),
            "start": world.start().end_lsn.0,
            "links": links,
            "covered": whole.covered.0,
        });
        fs::write(lanes.join(format!("{seed}.bin")), content).unwrap();
        fs::write(lanes.join(format!("{seed}.json")), expected.to_string()).unwrap();
    }
}

#[test]
fn samples_for_other_readers() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("log-samples");
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    write_records(&directory);
    write_lanes(&directory);
    let Some(python) = env::var_os("WALBRAID_FASTAVRO_PYTHON") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_with_fastavro.py");
    let status = Command::new(python)
        .arg(script)
        .arg(&directory)
        .status()
        .unwrap();
    assert!(status.success(), "fastavro does not read the samples");
}
