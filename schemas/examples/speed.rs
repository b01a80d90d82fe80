//! How long the forms take: a transaction of 4 rows × 8 columns, encoded and decoded.
//!
//! `cargo run --release -p walbraid-schemas --example speed`; prints the median of several
//! rounds, in µs a transaction.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use walbraid_schemas::chain::{Position, Reader, Start};
use walbraid_schemas::envelope::{self, NO_CLAIM};
use walbraid_schemas::{
    Body, Carrier, Change, Claim, Column, Envelope, Identity, Incarnation, LinkKind, Lsn, Part,
    Table, TableRef, row,
};

const ROUNDS: usize = 9;
const TRANSACTIONS: u32 = 50_000;
const ROW: [&[u8]; 8] = [
    b"123456",
    b"1234567890123",
    b"t",
    b"19.9900",
    b"2026-01-02 03:04:05.678901+00",
    b"3.25",
    b"a name of middling length",
    b"open",
];

fn table() -> Table {
    let types = [
        "int4",
        "int8",
        "bool",
        "numeric",
        "timestamptz",
        "float8",
        "text",
        "varchar",
    ];
    let column = |(index, name): (usize, &&str)| {
        let type_name = format!("pg_catalog.{name}");
        Column {
            name: format!("c{index}"),
            carrier: Carrier::of(&type_name),
            type_name,
            type_modifier: -1,
            key: index == 0,
        }
    };
    Table {
        schema: "public".to_owned(),
        name: "orders".to_owned(),
        identity: Identity::Default,
        columns: types.iter().enumerate().map(column).collect(),
    }
}

fn transaction(table: &Table, fingerprint: i64, buffer: &mut BytesMut) -> Envelope {
    let mut changes = Vec::with_capacity(4);
    for number in 0..4 {
        for (column, text) in table.columns.iter().zip(ROW) {
            row::write_text(column.carrier, text, buffer).unwrap();
        }
        let new = buffer.split().freeze();
        changes.push(match number % 2 {
            0 => Change::Insert { table: 0, new },
            _ => Change::Update {
                table: 0,
                old: None,
                new,
            },
        });
    }
    record(Body::Part(Part {
        kind: LinkKind::Transaction,
        xid: 4_000_000,
        commit_lsn: Lsn(0x16_B374_D848),
        commit_time_us: 1_700_000_000_000_000,
        prepare_end_lsn: Lsn::INVALID,
        gid: None,
        origin: None,
        number: 0,
        last: true,
        tables: vec![TableRef {
            schema_id: 7,
            fingerprint,
        }],
        changes,
        fragment: None,
    }))
}

fn record(body: Body) -> Envelope {
    Envelope {
        incarnation: Incarnation([3; 16]),
        timeline: 1,
        claim_offset: 0,
        options_hash: -7_000_000_000_000_000_000,
        seq: 123_456,
        end_lsn: Lsn(0x16_B374_D900),
        previous_end_lsn: Lsn(0x16_B374_D000),
        body,
    }
}

fn read_rows(table: &Table, record: &Envelope) -> usize {
    let Body::Part(part) = &record.body else {
        return 0;
    };
    let rows = part.changes.iter().filter_map(|change| match change {
        Change::Insert { new, .. } | Change::Update { new, .. } => Some(new),
        _ => None,
    });
    rows.map(|row| {
        row::Reader::new(table, row)
            .map(Result::unwrap)
            .map(black_box)
            .count()
    })
    .sum()
}

fn measure(what: &str, mut once: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..TRANSACTIONS {
                once();
            }
            begin.elapsed().as_secs_f64() * 1e6 / f64::from(TRANSACTIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:<40} {:6.2} µs", rounds[ROUNDS / 2]);
}

fn main() {
    let table = table();
    let fingerprint = table.fingerprint();
    let mut buffer = BytesMut::with_capacity(1 << 20);
    let ready = transaction(&table, fingerprint, &mut buffer);
    let mut out = Vec::new();
    envelope::encode(&ready, &mut out).unwrap();
    println!("{} bytes", out.len());
    let payload = Bytes::from(out.clone());

    measure("rows from text, and the transaction", || {
        buffer.reserve(4096);
        black_box(transaction(&table, fingerprint, &mut buffer));
    });
    measure("encode the envelope", || {
        out.clear();
        envelope::encode(black_box(&ready), &mut out).unwrap();
    });
    measure("decode the envelope", || {
        black_box(envelope::decode(black_box(&payload)).unwrap());
    });
    measure("read the rows", || {
        black_box(read_rows(&table, black_box(&ready)));
    });

    let mut reader = Reader::new(
        Position::start(Incarnation([3; 16]), Lsn(0)),
        Start::LogStart,
    );
    let claim = Claim {
        generation: 0,
        id: [0; 16],
        confirmed_lsn: Lsn(0),
        system_identifier: String::new(),
        database: String::new(),
        slot: String::new(),
        publications: Vec::new(),
        protocol: 4,
        writer: String::new(),
    };
    let mut claim = record(Body::Claim(claim));
    claim.claim_offset = NO_CLAIM;
    reader.offer(0, &claim);
    let (mut offset, mut next) = (0, ready);
    measure("one step of the chain", || {
        offset += 1;
        next.previous_end_lsn = Lsn(offset as u64 * 16);
        next.end_lsn = Lsn(next.previous_end_lsn.0 + 16);
        if let Body::Part(part) = &mut next.body {
            part.commit_lsn = Lsn(next.previous_end_lsn.0 + 8);
        }
        black_box(reader.offer(offset, &next));
    });
}
