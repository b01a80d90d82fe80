//! Tables, rows and envelopes with everything in them that the forms can express.

use bytes::Bytes;
use walbraid_schemas::{
    Body, Carrier, Change, Claim, Column, Envelope, Fragment, Heartbeat, Identity, Incarnation,
    LinkKind, Lsn, Notice, OldKind, OldTuple, Origin, Part, Table, TableRef, Value, row,
};

fn column(name: &str, type_name: &str, key: bool) -> Column {
    Column {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        type_modifier: if type_name.ends_with("numeric") {
            786_438
        } else {
            -1
        },
        key,
        carrier: Carrier::of(type_name),
    }
}

/// A table with a column of each carrier, and names that Avro does not allow.
pub(crate) fn table() -> Table {
    Table {
        schema: "My Schema".to_owned(),
        name: "Weird \"T.able".to_owned(),
        identity: Identity::Index,
        columns: vec![
            column("id", "pg_catalog.int8", true),
            column("flag", "pg_catalog.bool", false),
            column("small", "pg_catalog.int2", true),
            column("a.b", "pg_catalog.int4", false),
            column("real", "pg_catalog.float4", false),
            column("double", "pg_catalog.float8", false),
            column("select", "pg_catalog.text", false),
            column("Ünï Cødé", "pg_catalog.bytea", false),
            column("amount", "pg_catalog.numeric", false),
            column("mood", "public.mood", false),
        ],
    }
}

/// Rows of [`table`], with the values that go wrong first.
pub(crate) fn rows() -> Vec<Vec<Value<'static>>> {
    use Value::{Bool, Bytes, Float4, Float8, Int, NotSent, Null, Text, Unchanged};
    vec![
        vec![
            Int(i64::MIN),
            Bool(true),
            Int(i64::from(i16::MIN)),
            Int(i64::from(i32::MIN)),
            Float4(f32::NAN),
            Float8(-0.0),
            Text(""),
            Bytes(b""),
            Text("NaN"),
            Text("sad"),
        ],
        vec![
            Int(i64::MAX),
            Bool(false),
            Int(i64::from(i16::MAX)),
            Int(i64::from(i32::MAX)),
            Float4(f32::MIN_POSITIVE / 3.0),
            Float8(f64::NEG_INFINITY),
            Text("Ünï\u{0}🐘"),
            Bytes(&[0, 255, 128]),
            Text("-0.00000001"),
            Text("it's \"ok\""),
        ],
        vec![
            Int(0),
            Null,
            Int(-1),
            Null,
            Float4(0.1),
            Float8(5e-324),
            Unchanged,
            Unchanged,
            Unchanged,
            Null,
        ],
        vec![
            Int(1),
            NotSent,
            Int(1),
            NotSent,
            NotSent,
            NotSent,
            NotSent,
            NotSent,
            NotSent,
            NotSent,
        ],
    ]
}

pub(crate) fn encoded(table: &Table, values: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (column, value) in table.columns.iter().zip(values) {
        row::write(column.carrier, *value, &mut out).unwrap();
    }
    out
}

pub(crate) fn part(changes: Vec<Change>) -> Part {
    Part {
        kind: LinkKind::Transaction,
        xid: u32::MAX,
        commit_lsn: Lsn(0x16_B374_D848),
        commit_time_us: 1_700_000_000_000_000,
        prepare_end_lsn: Lsn::INVALID,
        gid: None,
        origin: None,
        number: 0,
        last: true,
        tables: vec![TableRef {
            schema_id: 7,
            fingerprint: table().fingerprint(),
        }],
        changes,
        fragment: None,
    }
}

pub(crate) fn envelope(body: Body) -> Envelope {
    Envelope {
        incarnation: Incarnation(*b"0123456789abcdef"),
        timeline: 3,
        claim_offset: 41,
        options_hash: i64::MIN,
        seq: 1,
        end_lsn: Lsn(0x16_B374_D900),
        previous_end_lsn: Lsn(0x16_B374_D000),
        body,
    }
}

/// One envelope of each kind.
pub(crate) fn envelopes() -> Vec<Envelope> {
    let table = table();
    let rows: Vec<Bytes> = rows()
        .iter()
        .map(|values| encoded(&table, values).into())
        .collect();
    let old = |kind, row: &Bytes| OldTuple {
        kind,
        row: row.clone(),
    };
    let changes = vec![
        Change::Insert {
            table: 0,
            new: rows[0].clone(),
        },
        Change::Update {
            table: 0,
            old: None,
            new: rows[1].clone(),
        },
        Change::Update {
            table: 0,
            old: Some(old(OldKind::Key, &rows[3])),
            new: rows[2].clone(),
        },
        Change::Delete {
            table: 0,
            old: old(OldKind::Full, &rows[1]),
        },
        Change::Truncate {
            tables: vec![0, u32::MAX],
            cascade: true,
            restart_identity: false,
        },
        Change::Message {
            prefix: "p".to_owned(),
            content: Bytes::from_static(b"\0c"),
            lsn: Lsn(9),
            transactional: true,
        },
    ];
    let prepared = Part {
        kind: LinkKind::CommitPrepared,
        prepare_end_lsn: Lsn(5),
        gid: Some("a'b".to_owned()),
        origin: Some(Origin {
            name: "node".to_owned(),
            lsn: Lsn(77),
        }),
        tables: Vec::new(),
        ..part(Vec::new())
    };
    let piece = Part {
        number: 4,
        last: false,
        fragment: Some(Fragment {
            bytes: Bytes::from_static(b"piece"),
            last: true,
        }),
        ..part(Vec::new())
    };
    let claim = Claim {
        generation: 2,
        id: [9; 16],
        confirmed_lsn: Lsn(0x16_B374_D000),
        system_identifier: "7300000000000000000".to_owned(),
        database: "shop".to_owned(),
        slot: "walbraid_shop".to_owned(),
        publications: vec!["a".to_owned(), "b".to_owned()],
        protocol: 4,
        writer: "host:1".to_owned(),
    };
    let notice = Notice {
        kind: "disk-full".to_owned(),
        message: "m".to_owned(),
        detail: None,
        hint: Some("H.".to_owned()),
    };
    vec![
        envelope(Body::Claim(claim)),
        envelope(Body::Heartbeat(Heartbeat {})),
        envelope(Body::Notice(notice)),
        envelope(Body::Part(part(changes))),
        envelope(Body::Part(prepared)),
        envelope(Body::Part(piece)),
    ]
}
