//! The parts of a transaction hold what its messages said, in records that are not too large.

use proptest::collection::vec;
use proptest::prelude::*;
use walbraid_decode::encoder::RECORD_BYTES_MIN;
use walbraid_decode::message::{ColumnBody, Message, Oids, RelationBody};
use walbraid_decode::{Datum, LinkPart, OldTuple, Tuple, Undecodable};
use walbraid_schemas::{Body, Envelope, Incarnation, LinkKind, Lsn, Stop, envelope, frame};

use crate::golden::captures;
use crate::stream::Stream;

const TABLES: u32 = 3;

/// Table `n` has columns (id int4 key, note text, raw bytea).
fn describe(stream: &mut Stream, table: u32) -> Result<(), Undecodable> {
    let column = |name, type_oid, key| ColumnBody {
        key,
        name,
        type_oid,
        type_modifier: -1,
    };
    let columns = [
        column("id", 23, true),
        column("note", 25, false),
        column("raw", 17, false),
    ];
    let columns = RelationBody::build_columns(&columns);
    let name = format!("table{table}");
    let body = RelationBody::new(None, table, "public", &name, b'd');
    stream.message(&Message::Relation(body.with_columns(3, &columns).unwrap()))
}

/// A change to make, with the sizes of its values.
#[derive(Clone, Debug)]
enum Make {
    Insert {
        table: u32,
        note: usize,
        raw: usize,
    },
    Update {
        table: u32,
        old: Option<bool>,
        note: usize,
    },
    Delete {
        table: u32,
        full: bool,
        note: usize,
    },
    Truncate {
        tables: Vec<u32>,
        cascade: bool,
    },
    Message {
        content: usize,
    },
}

fn begin() -> Message<'static> {
    Message::Begin {
        commit_lsn: Lsn((u64::MAX >> 1) - 8),
        commit_time_us: i64::MAX,
        xid: u32::MAX,
    }
}

fn commit() -> Message<'static> {
    Message::Commit {
        commit_lsn: Lsn((u64::MAX >> 1) - 8),
        end_lsn: Lsn(u64::MAX >> 1),
        commit_time_us: i64::MAX,
    }
}

/// Feeds the change; gives the line that it must be read back as.
fn make(stream: &mut Stream, change: &Make) -> String {
    let hex = |size: usize| format!("\\x{}", "ab".repeat(size));
    let tuple =
        |note: &Datum<'_>, raw: &Datum<'_>| Tuple::build(&[Datum::Text(b"-7"), *note, *raw]);
    match change {
        Make::Insert { table, note, raw } => {
            let (note, raw) = ("n".repeat(*note), hex(*raw));
            let new = tuple(&Datum::Text(note.as_bytes()), &Datum::Text(raw.as_bytes()));
            let new = Tuple::from_bytes(&new).unwrap();
            stream
                .message(&Message::Insert {
                    xid: None,
                    relation: *table,
                    new,
                })
                .unwrap();
            format!("insert table{table} '-7','{note}','{raw}'")
        }
        Make::Update { table, old, note } => {
            let note = "u".repeat(*note);
            let key = tuple(&Datum::Null, &Datum::Null);
            let full = tuple(&Datum::Text(note.as_bytes()), &Datum::Null);
            let new = tuple(&Datum::Text(note.as_bytes()), &Datum::Unchanged);
            let new = Tuple::from_bytes(&new).unwrap();
            let (old, line) = match old {
                None => (None, String::new()),
                Some(false) => {
                    let key = OldTuple::Key(Tuple::from_bytes(&key).unwrap());
                    (Some(key), " key '-7',not sent,not sent".to_owned())
                }
                Some(true) => {
                    let full = OldTuple::Full(Tuple::from_bytes(&full).unwrap());
                    (Some(full), format!(" full '-7','{note}',null"))
                }
            };
            stream
                .message(&Message::Update {
                    xid: None,
                    relation: *table,
                    old,
                    new,
                })
                .unwrap();
            format!("update table{table}{line} '-7','{note}',unchanged")
        }
        Make::Delete { table, full, note } => {
            let note = "d".repeat(*note);
            let row = if *full {
                Datum::Text(note.as_bytes())
            } else {
                Datum::Null
            };
            let row = tuple(&row, &Datum::Null);
            let row = Tuple::from_bytes(&row).unwrap();
            let old = if *full {
                OldTuple::Full(row)
            } else {
                OldTuple::Key(row)
            };
            stream
                .message(&Message::Delete {
                    xid: None,
                    relation: *table,
                    old,
                })
                .unwrap();
            match full {
                true => format!("delete table{table} full '-7','{note}',null"),
                false => format!("delete table{table} key '-7',not sent,not sent"),
            }
        }
        Make::Truncate { tables, cascade } => {
            let oids: Vec<u8> = tables
                .iter()
                .flat_map(|table| table.to_be_bytes())
                .collect();
            let relations = Oids::from_bytes(&oids);
            let (cascade, restart_identity) = (*cascade, true);
            let truncate = Message::Truncate {
                xid: None,
                cascade,
                restart_identity,
                relations,
            };
            stream.message(&truncate).unwrap();
            let names: Vec<String> = tables.iter().map(|table| format!("table{table}")).collect();
            format!("truncate {names:?} {cascade} true")
        }
        Make::Message { content } => {
            let content = "m".repeat(*content);
            let (lsn, prefix) = (Lsn(u64::MAX >> 1), "prefix");
            let content = content.as_bytes();
            let message = Message::Logical {
                xid: None,
                transactional: true,
                lsn,
                prefix,
                content,
            };
            stream.message(&message).unwrap();
            format!("message prefix {} true", content.escape_ascii())
        }
    }
}

fn change() -> impl Strategy<Value = Make> {
    let size = || prop_oneof![4 => 0..60usize, 1 => 0..3_000usize, 1 => 0..60_000usize];
    let table = || 0..TABLES;
    prop_oneof![
        4 => (table(), size(), size())
            .prop_map(|(table, note, raw)| Make::Insert { table, note, raw }),
        4 => (table(), any::<Option<bool>>(), size())
            .prop_map(|(table, old, note)| Make::Update { table, old, note }),
        2 => (table(), any::<bool>(), size())
            .prop_map(|(table, full, note)| Make::Delete { table, full, note }),
        1 => (vec(table(), 1..4), any::<bool>())
            .prop_map(|(tables, cascade)| Make::Truncate { tables, cascade }),
        1 => size().prop_map(|content| Make::Message { content }),
    ]
}

/// The record of a part, with every number of its envelope as long as it can be.
fn record_bytes(part: &LinkPart) -> usize {
    let envelope = Envelope {
        incarnation: Incarnation([0xFF; 16]),
        timeline: u32::MAX,
        claim_offset: i64::MAX,
        options_hash: i64::MIN,
        seq: i64::MAX,
        end_lsn: Lsn(u64::MAX >> 1),
        previous_end_lsn: Lsn(u64::MAX >> 1),
        body: Body::Part(part.part.clone()),
    };
    let mut record = Vec::new();
    frame::write(i32::MAX, &mut record);
    envelope::encode(&envelope, &mut record).unwrap();
    record.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn parts_hold_the_transaction_and_fit_into_records(
        changes in vec(change(), 1..30),
        record_bytes_max in RECORD_BYTES_MIN..40_000usize,
    ) {
        let mut stream = Stream::new(record_bytes_max);
        for table in 0..TABLES {
            describe(&mut stream, table).unwrap();
        }
        stream.message(&begin()).unwrap();
        let expected: Vec<String> =
            changes.iter().map(|change| make(&mut stream, change)).collect();
        stream.message(&commit()).unwrap();

        prop_assert_eq!(stream.changes(), expected);
        let count = stream.parts.len();
        for (number, part) in stream.parts.iter().enumerate() {
            let last = number + 1 == count;
            prop_assert_eq!(part.part.number as usize, number);
            prop_assert_eq!(part.part.last, last);
            prop_assert_eq!(part.end_lsn.is_invalid(), !last);
            prop_assert_eq!(part.part.xid, u32::MAX);
            prop_assert!(record_bytes(part) <= record_bytes_max);
        }
    }

    #[test]
    fn a_damaged_stream_is_refused_or_read_and_never_a_panic(
        capture in any::<prop::sample::Index>(),
        damage in vec((any::<[prop::sample::Index; 2]>(), 0..8u8), 1..20),
    ) {
        let mut capture = captures().remove(capture.index(captures().len()));
        for ([message, place], bit) in damage {
            let count = capture.messages.len();
            let bytes = &mut capture.messages[message.index(count)].1;
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        let mut stream = Stream::new(RECORD_BYTES_MIN);
        let refusal =
            capture.messages.iter().try_for_each(|(lsn, bytes)| stream.bytes(*lsn, bytes));
        prop_assert!(stream.parts.iter().all(|part| part.part.last != part.end_lsn.is_invalid()));
        drop(refusal);
    }
}

#[test]
fn captured_streams_become_links_in_the_order_of_the_wal() {
    for capture in captures()
        .iter()
        .filter(|capture| capture.name.ends_with("plain"))
    {
        let mut stream = Stream::new(RECORD_BYTES_MIN);
        for (lsn, bytes) in &capture.messages {
            stream.bytes(*lsn, bytes).unwrap();
        }
        let mut previous_end_lsn = Lsn(0);
        for LinkPart { part, end_lsn } in &stream.parts {
            assert!(part.last && part.number == 0, "{}", capture.name);
            // A commit record may start where the record of a message ends, and not before.
            assert!(
                part.commit_lsn >= previous_end_lsn,
                "{}: {part:?}",
                capture.name
            );
            assert!(*end_lsn > part.commit_lsn, "{}", capture.name);
            previous_end_lsn = *end_lsn;
        }
        let outside = stream
            .parts
            .iter()
            .filter(|part| part.part.kind == LinkKind::Message);
        assert_eq!(outside.count(), 3, "{}", capture.name);
        let from_elsewhere: Vec<_> = stream
            .parts
            .iter()
            .filter_map(|part| part.part.origin.as_ref())
            .collect();
        assert_eq!(from_elsewhere.len(), 1, "{}", capture.name);
        assert_eq!(from_elsewhere[0].name, "elsewhere");
        assert_eq!(from_elsewhere[0].lsn, Lsn(0xAB_CDEF));
    }
}

#[test]
fn captured_values_arrive_as_their_text() {
    for capture in captures()
        .iter()
        .filter(|capture| capture.name.ends_with("plain"))
    {
        let mut stream = Stream::new(RECORD_BYTES_MIN);
        for (lsn, bytes) in &capture.messages {
            stream.bytes(*lsn, bytes).unwrap();
        }
        let changes = stream.changes();
        let check = |line: &str| {
            assert!(
                changes.iter().any(|change| change == line),
                "{}: {line}",
                capture.name
            );
        };
        check(concat!(
            "insert typed '1','t','-2','9007199254740993','NaN','-0e0','e\u{308} | \"q\" \\',",
            "'\\xdeadbeef','12.50','wild','7','(1,\"a,b\")','{1,NULL,3}','{\"k\": [1, null]}',",
            "'2026-01-02 03:04:05.678901+00','[1,5)','var','c   '"
        ));
        check("update toasted '1',unchanged,'2'");
        check("update keyed key '1','2',not sent '4','2',null");
        check("update whole full null,'b' null,'c'");
        check("delete whole full '1',null");
        check("insert columnless ");
        check("truncate [\"parent\", \"child\"] true false");
        check("truncate [\"parent\", \"child\"] false true");
        check("message inside transactional true");
        check("message outside \\x00\\xff false");
        check("insert whole '2','x','calm'");
    }
}

#[test]
fn a_value_that_is_not_of_its_type_is_refused_without_being_shown() {
    let check = |datum: Datum<'_>, expected: &str| {
        let mut stream = Stream::new(RECORD_BYTES_MIN);
        describe(&mut stream, 1).unwrap();
        stream.message(&begin()).unwrap();
        let row = Tuple::build(&[datum, Datum::Null, Datum::Null]);
        let new = Tuple::from_bytes(&row).unwrap();
        let refusal = stream.message(&Message::Insert {
            xid: None,
            relation: 1,
            new,
        });
        let text = refusal.unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "value of column \"id\" of relation public.table1 at LSN 0/AB is not a valid \
                 pg_catalog.int4: {expected}"
            )
        );
    };
    check(Datum::Text(b"abc"), "its text form is not one of this type");
    check(
        Datum::Text(b"2147483648"),
        "its text form is not one of this type",
    );
    check(Datum::Text(b""), "its text form is not one of this type");
    check(
        Datum::Binary(b"\0\0\0\x01"),
        "it was sent in binary form, which was not asked for",
    );
}

#[test]
fn a_row_that_enters_a_row_filter_without_a_value_is_refused() {
    let mut stream = Stream::new(RECORD_BYTES_MIN);
    describe(&mut stream, 1).unwrap();
    stream.message(&begin()).unwrap();
    let row = Tuple::build(&[Datum::Text(b"1"), Datum::Unchanged, Datum::Null]);
    let refusal = stream.message(&Message::Insert {
        xid: None,
        relation: 1,
        new: Tuple::from_bytes(&row).unwrap(),
    });
    let stop = Stop::from(refusal.unwrap_err());
    assert!(
        stop.message
            .contains("of relation public.table1 was not sent")
    );
    assert!(stop.hint.unwrap().contains("row filter"));
}

#[test]
fn a_list_of_relations_that_fits_no_record_is_refused() {
    let mut stream = Stream::new(RECORD_BYTES_MIN);
    let tables: Vec<u32> = (0..1100).collect();
    tables
        .iter()
        .for_each(|table| describe(&mut stream, *table).unwrap());
    stream.message(&begin()).unwrap();
    let oids: Vec<u8> = tables
        .iter()
        .flat_map(|table| table.to_be_bytes())
        .collect();
    let relations = Oids::from_bytes(&oids);
    let truncate = Message::Truncate {
        xid: None,
        cascade: false,
        restart_identity: false,
        relations,
    };
    let refusal = stream.message(&truncate).unwrap_err();
    assert!(matches!(refusal, Undecodable::TooLarge { .. }), "{refusal}");
}
