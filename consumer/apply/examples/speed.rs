//! How long the pure half of the consumer takes: statements with parameters for a row, conflict
//! keys and the engine for a transaction.
//!
//! `cargo run --release -p walbraid-apply --example speed`; prints the median of several rounds.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::action::Action;
use walbraid_apply::binding::Builder;
use walbraid_apply::engine::{Config, Engine};
use walbraid_apply::event::{CommitTag, Event, Record};
use walbraid_apply::footprint::{self, Footprint, NoOldValues};
use walbraid_apply::keys::{KeyColumn, KeyIndex, KeySource, KeyType, Keys};
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};
use walbraid_apply::unit::{Piece, Transaction};
use walbraid_schemas::chain::{Position, Start};
use walbraid_schemas::{
    Body, Carrier, Change, Claim, Envelope, Identity, Incarnation, LinkKind, Lsn, Part, Table,
    TableRef, row,
};

const ROUNDS: usize = 9;
const ROWS: usize = 200_000;
const TRANSACTIONS: u64 = 50_000;
const START: Lsn = Lsn(1000);

const COLUMNS: [(&str, &[u8]); 8] = [
    ("int4", b"123456"),
    ("int8", b"1234567890123"),
    ("bool", b"t"),
    ("numeric", b"19.9900"),
    ("timestamptz", b"2026-01-02 03:04:05.678901+00"),
    ("float8", b"3.25"),
    ("text", b"a name of middling length"),
    ("varchar", b"open"),
];

fn main() {
    let target = target(false);
    let table = Arc::clone(target.as_ref().unwrap().table());
    let mut new = Vec::new();
    for (column, (_, text)) in table.columns.iter().zip(COLUMNS) {
        row::write_text(column.carrier, text, &mut new).unwrap();
    }
    let new = Bytes::from(new);
    let insert = Change::Insert {
        table: 0,
        new: Bytes::clone(&new),
    };
    let update = Change::Update {
        table: 0,
        old: None,
        new,
    };
    let mut toasted = Vec::new();
    for (place, (column, (_, text))) in table.columns.iter().zip(COLUMNS).enumerate() {
        match place {
            6 => row::write_unchanged(&mut toasted),
            _ => row::write_text(column.carrier, text, &mut toasted).unwrap(),
        }
    }
    let toasted = Change::Update {
        table: 0,
        old: None,
        new: Bytes::from(toasted),
    };
    for (name, change) in [
        ("insert", &insert),
        ("update", &update),
        ("update, one column unchanged", &toasted),
    ] {
        println!(
            "{name}: {:.0} ns a row of 8 columns",
            statements(change, &target)
        );
    }
    let changes = vec![update.clone(), update, insert.clone(), insert];
    println!(
        "keys, by the primary key: {:.0} ns a transaction of 4 rows",
        keys(&changes, &target)
    );
    println!(
        "keys, two unique indexes more: {:.0} ns a transaction of 4 rows",
        keys(&changes, &self::target(true))
    );
    println!(
        "engine: {:.0} ns a transaction of 4 rows",
        engine(&changes, &target)
    );
}

/// Time that this thread has had a processor: the clock's time says little on a busy machine.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn median(mut round: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn statements(change: &Change, target: &Target) -> f64 {
    let targets = [target.clone()];
    let mut builder = Builder::new(false);
    median(|| {
        let begin = cpu_ns();
        for _ in 0..ROWS {
            let statement = builder.build(black_box(change), &targets).unwrap().unwrap();
            black_box((statement.id(), builder.parameters().encoded()));
        }
        (cpu_ns() - begin) / ROWS as f64
    })
}

fn keys(changes: &[Change], target: &Target) -> f64 {
    let piece = Piece::new(changes.to_vec(), vec![target.clone()], 400);
    let transaction = Transaction {
        kind: LinkKind::Transaction,
        xid: 1,
        commit_lsn: Lsn(1),
        commit_time_us: 1,
        origin: None,
        pieces: vec![Arc::new(piece)],
        first_offset: 0,
        ending: None,
    };
    let mut footprint = Footprint::default();
    median(|| {
        let begin = cpu_ns();
        for _ in 0..ROWS {
            footprint.clear();
            footprint::add(black_box(&transaction), &mut NoOldValues, &mut footprint);
            black_box(&footprint.touches);
        }
        (cpu_ns() - begin) / ROWS as f64
    })
}

fn engine(changes: &[Change], target: &Target) -> f64 {
    median(|| {
        let records: Vec<Record> = (0..TRANSACTIONS)
            .map(|number| record(number, changes, target))
            .collect();
        let position = Position::start(Incarnation::default(), START);
        let mut engine = Engine::new(Config::default(), position);
        let mut actions = Vec::new();
        engine.step(0, Event::ReadFrom(Start::LogStart), &mut actions);
        for record in opening() {
            engine.step(0, Event::Record(Box::new(record)), &mut actions);
        }
        let begin = cpu_ns();
        let mut running = Vec::new();
        for record in records {
            engine.step(0, Event::Record(Box::new(record)), &mut actions);
            let behind = engine.status().window_transactions > 500;
            settle(&mut engine, &mut actions, &mut running, behind);
        }
        while !running.is_empty() {
            settle(&mut engine, &mut actions, &mut running, true);
        }
        assert_eq!(engine.status().transactions_applied, TRANSACTIONS);
        (cpu_ns() - begin) / TRANSACTIONS as f64
    })
}

/// Takes the runs, and lets the oldest commit if the lane is behind.
fn settle(engine: &mut Engine, actions: &mut Vec<Action>, running: &mut Vec<Event>, commit: bool) {
    for action in actions.drain(..) {
        if let Action::Run {
            worker, run, unit, ..
        } = action
        {
            let tag = CommitTag::Commit;
            running.push(Event::Committed {
                worker,
                run,
                unit: unit.id,
                tag,
                busy_us: 0,
            });
        }
    }
    if commit && !running.is_empty() {
        engine.step(0, running.remove(0), actions);
    }
}

fn opening() -> [Record; 2] {
    let envelope = |body, claim_offset, options_hash, lsn| Envelope {
        incarnation: Incarnation::default(),
        timeline: 1,
        claim_offset,
        options_hash,
        seq: 0,
        end_lsn: lsn,
        previous_end_lsn: lsn,
        body,
    };
    let claim = Claim {
        generation: 1,
        id: [0; 16],
        confirmed_lsn: START,
        system_identifier: String::new(),
        database: String::new(),
        slot: String::new(),
        publications: Vec::new(),
        protocol: 4,
        writer: String::new(),
    };
    let heartbeat = envelope(Body::Heartbeat(Default::default()), -1, 0, START);
    let claim = envelope(Body::Claim(claim), -1, 1, Lsn(0));
    [(0, heartbeat), (1, claim)].map(|(offset, envelope)| Record {
        offset,
        size_bytes: 100,
        envelope,
        targets: Vec::new(),
    })
}

fn record(number: u64, changes: &[Change], target: &Target) -> Record {
    let end = |number: u64| Lsn(START.0 + 100 * number);
    let part = Part {
        kind: LinkKind::Transaction,
        xid: number as u32,
        commit_lsn: Lsn(end(number).0 + 50),
        commit_time_us: 1,
        prepare_end_lsn: Lsn(0),
        gid: None,
        origin: None,
        number: 0,
        last: true,
        tables: vec![TableRef {
            schema_id: 1,
            fingerprint: 1,
        }],
        changes: changes.to_vec(),
        fragment: None,
    };
    let envelope = Envelope {
        incarnation: Incarnation::default(),
        timeline: 1,
        claim_offset: 1,
        options_hash: 1,
        seq: 0,
        end_lsn: end(number + 1),
        previous_end_lsn: end(number),
        body: Body::Part(part),
    };
    let targets = vec![target.clone()];
    Record {
        offset: number as i64 + 2,
        size_bytes: 400,
        envelope,
        targets,
    }
}

/// The columns' types on the subscriber.
fn key_type(place: usize) -> KeyType {
    let oids = [23, 20, 16, 1700, 1184, 701, 25, 1043];
    KeyType::builtin(oids[place], COLUMNS[place].0)
}

/// A table with a primary key, and with a unique number and a unique name if that is asked for.
fn target(more: bool) -> Target {
    let columns = COLUMNS.iter().enumerate().map(|(place, (name, _))| {
        let type_name = format!("pg_catalog.{name}");
        walbraid_schemas::Column {
            name: format!("c{place}"),
            carrier: Carrier::of(&type_name),
            type_name,
            type_modifier: -1,
            key: place == 0,
        }
    });
    let table = Table {
        schema: "public".to_owned(),
        name: "orders".to_owned(),
        identity: Identity::Default,
        columns: columns.collect(),
    };
    let column = |place: usize| Column {
        name: format!("c{place}"),
        type_oid: 25,
        type_sql: "text".to_owned(),
        not_null: false,
        has_default: false,
        generated: false,
        identity: IdentityColumn::No,
        bytea: false,
        operand_sql: None,
        equality: Some(Operator::builtin("=")),
    };
    let index = |number: usize| {
        let place = [0, 3, 6][number];
        KeyIndex {
            oid: 10 + number as u32,
            name: "key".into(),
            columns: vec![KeyColumn {
                source: KeySource::Column(place),
                key_type: key_type(place),
            }],
            nulls_distinct: true,
            partial: false,
            exclusion: false,
        }
    };
    let key = IndexColumn {
        column: 0,
        equality: Operator::builtin("="),
    };
    let relation = Relation {
        oid: 1,
        schema: "public".to_owned(),
        name: "orders".to_owned(),
        kind: RelationKind::Table,
        columns: (0..COLUMNS.len()).map(column).collect(),
        primary_key: Some(UniqueIndex { columns: vec![key] }),
        replica_identity: None,
        insert_trigger: false,
        rule: None,
        keys: Keys {
            columns: (0..COLUMNS.len()).map(key_type).collect(),
            indexes: (0..if more { 3 } else { 1 }).map(index).collect(),
            ..Keys::default()
        },
    };
    Ok(Arc::new(
        Mapped::new(Arc::new(table), Some(Arc::new(relation))).unwrap(),
    ))
}
