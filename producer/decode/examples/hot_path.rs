//! How long a transaction of 4 row changes takes from pgoutput's bytes to the record's bytes.
//!
//! `cargo run --release -p walbraid-decode --example hot_path` prints the median of several rounds:
//! decoding alone, up to the parts, and up to the encoded record. Times are CPU time of the thread
//! where Linux tells it (others may use the machine too), else time on the clock.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use walbraid_decode::message::{ColumnBody, Framing, Message, RelationBody};
use walbraid_decode::{
    Assembler, Datum, Decoder, Encoder, Event, LinkPart, Protocol, Streaming, Tuple,
};
use walbraid_schemas::{Body, Envelope, Incarnation, Lsn, TableRef, envelope, frame};

const TRANSACTIONS: usize = 100_000;
const ROUNDS: usize = 7;
const RECORD_BYTES_MAX: usize = 900_000;

fn main() {
    let described = relation();
    let transaction = transaction();
    let bytes: usize = transaction.iter().map(Vec::len).sum();
    println!(
        "{} messages, {bytes} bytes a transaction",
        transaction.len()
    );

    let decode = median(|| {
        let mut decoder = Decoder::new(protocol());
        decoder.decode(Lsn(0), &described).unwrap();
        for _ in 0..TRANSACTIONS {
            for message in &transaction {
                black_box(decoder.decode(Lsn(1), message).unwrap());
            }
        }
    });
    println!("decode                      {decode:.2} µs");

    let parts = median(|| {
        let mut stream = Stream::new(&described);
        for _ in 0..TRANSACTIONS {
            stream.feed(&transaction);
            black_box(&stream.parts);
            stream.parts.clear();
        }
    });
    println!("decode, assemble, encode    {parts:.2} µs");

    let records = median(|| {
        let mut stream = Stream::new(&described);
        let mut record = Vec::new();
        for _ in 0..TRANSACTIONS {
            stream.feed(&transaction);
            for part in stream.parts.drain(..) {
                record.clear();
                write_record(part, &mut record);
                black_box(&record);
            }
        }
    });
    println!("up to the record's bytes    {records:.2} µs");
}

struct Stream {
    assembler: Assembler,
    encoder: Encoder,
    parts: Vec<LinkPart>,
}

impl Stream {
    fn new(described: &[u8]) -> Self {
        let mut assembler = Assembler::new(Decoder::new(protocol()));
        assert_eq!(assembler.push(Lsn(0), described).unwrap().count(), 0);
        Self {
            assembler,
            encoder: Encoder::new(RECORD_BYTES_MAX),
            parts: Vec::new(),
        }
    }

    fn feed(&mut self, transaction: &[Vec<u8>]) {
        for message in transaction {
            for event in self.assembler.push(Lsn(1), message).unwrap() {
                if let Event::Relation(relation) = &event {
                    let table = TableRef {
                        schema_id: 7,
                        fingerprint: 11,
                    };
                    self.encoder.register(relation, table);
                }
                self.encoder.push(event, &mut self.parts).unwrap();
            }
        }
    }
}

fn write_record(part: LinkPart, record: &mut Vec<u8>) {
    let envelope = Envelope {
        incarnation: Incarnation([7; 16]),
        timeline: 1,
        claim_offset: 1_000_000,
        options_hash: 0x1234_5678_9ABC,
        seq: 1_000_000,
        end_lsn: part.end_lsn,
        previous_end_lsn: Lsn(0x1_0000_0000),
        body: Body::Part(part.part),
    };
    frame::write(1, record);
    envelope::encode(&envelope, record).unwrap();
}

/// Microseconds a transaction, the median of several rounds.
fn median(mut round: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (clock, cpu) = (Instant::now(), cpu_ns());
            round();
            let spent_ns = match (cpu, cpu_ns()) {
                (Some(before), Some(after)) => (after - before) as f64,
                _ => clock.elapsed().as_secs_f64() * 1e9,
            };
            spent_ns / 1e3 / TRANSACTIONS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// CPU time of this thread so far.
fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn protocol() -> Protocol {
    Protocol {
        version: 4,
        streaming: Streaming::Off,
        two_phase: false,
    }
}

/// A table of 8 columns: key, numbers, texts, a time.
fn relation() -> Vec<u8> {
    let column = |name, type_oid, key| ColumnBody {
        key,
        name,
        type_oid,
        type_modifier: -1,
    };
    let columns = RelationBody::build_columns(&[
        column("id", 20, true),
        column("account", 23, false),
        column("amount", 1700, false),
        column("name", 25, false),
        column("active", 16, false),
        column("rate", 701, false),
        column("changed", 1184, false),
        column("note", 25, false),
    ]);
    let body = RelationBody::new(None, 16384, "public", "orders", b'd');
    written(&Message::Relation(body.with_columns(8, &columns).unwrap()))
}

fn transaction() -> Vec<Vec<u8>> {
    let row = Tuple::build(&[
        Datum::Text(b"123456789"),
        Datum::Text(b"4711"),
        Datum::Text(b"1234.50"),
        Datum::Text(b"somebody of some name"),
        Datum::Text(b"t"),
        Datum::Text(b"0.0725"),
        Datum::Text(b"2026-01-02 03:04:05.678901+00"),
        Datum::Null,
    ]);
    let new = Tuple::from_bytes(&row).unwrap();
    let (commit_lsn, commit_time_us) = (Lsn(0x1_0000_1000), 1_800_000_000_000_000);
    let insert = Message::Insert {
        xid: None,
        relation: 16384,
        new,
    };
    let update = Message::Update {
        xid: None,
        relation: 16384,
        old: None,
        new,
    };
    let end_lsn = Lsn(0x1_0000_1030);
    [
        Message::Begin {
            commit_lsn,
            commit_time_us,
            xid: 1000,
        },
        update,
        insert,
        update,
        insert,
        Message::Commit {
            commit_lsn,
            end_lsn,
            commit_time_us,
        },
    ]
    .iter()
    .map(written)
    .collect()
}

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(Framing::default(), &mut bytes);
    bytes
}
