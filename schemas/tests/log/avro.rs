//! The Avro forms: against apache-avro's reader, and against broken bytes.

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use bytes::Bytes;
use walbraid_schemas::envelope::{self, DecodeError};
use walbraid_schemas::{Body, Carrier, Change, Column, Identity, Table, Value, row, text};

use crate::random::for_seeds;
use crate::samples;

fn read(schema: &Schema, bytes: &[u8]) -> Avro {
    let mut rest = bytes;
    let reader = GenericDatumReader::builder(schema).build().unwrap();
    let value = reader.read_value(&mut rest).unwrap();
    assert!(rest.is_empty());
    value
}

fn same(ours: Value<'_>, theirs: &Avro) -> bool {
    match (ours, theirs) {
        (Value::Null, Avro::Union(0, value)) => **value == Avro::Null,
        (Value::Unchanged, Avro::Union(2, value)) => {
            **value == Avro::Enum(0, "UNCHANGED_TOAST".to_owned())
        }
        (Value::NotSent, Avro::Union(2, value)) => **value == Avro::Enum(1, "NOT_SENT".to_owned()),
        (ours, Avro::Union(1, value)) => match (ours, &**value) {
            (Value::Bool(ours), Avro::Boolean(theirs)) => ours == *theirs,
            (Value::Int(ours), Avro::Int(theirs)) => ours == i64::from(*theirs),
            (Value::Int(ours), Avro::Long(theirs)) => ours == *theirs,
            (Value::Float4(ours), Avro::Float(theirs)) => ours.to_bits() == theirs.to_bits(),
            (Value::Float8(ours), Avro::Double(theirs)) => ours.to_bits() == theirs.to_bits(),
            (Value::Text(ours), Avro::String(theirs)) => ours == theirs,
            (Value::Bytes(ours), Avro::Bytes(theirs)) => ours == theirs,
            _ => false,
        },
        _ => false,
    }
}

#[test]
fn rows_are_read_by_another_reader() {
    let table = samples::table();
    let schema = Schema::parse_str(&table.to_avro()).unwrap();
    for values in samples::rows() {
        let bytes = samples::encoded(&table, &values);
        let theirs = read(&schema, &bytes);
        let Avro::Record(fields) = theirs else {
            panic!("no record: {theirs:?}")
        };
        let ours = row::Reader::new(&table, &bytes).map(Result::unwrap);
        assert_eq!(fields.len(), table.columns.len());
        for ((ours, written), (name, theirs)) in ours.zip(&values).zip(&fields) {
            assert!(same(ours, theirs), "{name}: {ours:?} {theirs:?}");
            assert!(same(*written, theirs), "{name}: {written:?} {theirs:?}");
        }
    }
}

#[test]
fn envelopes_are_read_by_another_reader() {
    let schema = Schema::parse_str(envelope::SCHEMA).unwrap();
    for record in samples::envelopes() {
        let mut bytes = Vec::new();
        envelope::encode(&record, &mut bytes).unwrap();
        let theirs = read(&schema, &bytes);
        let writer = GenericDatumWriter::builder(&schema).build().unwrap();
        let again = writer.write_value_to_vec(theirs).unwrap();
        assert_eq!(again, bytes, "{record:?}");
        assert_eq!(envelope::decode(&bytes.into()), Ok(record));
    }
}

#[test]
fn envelopes_are_whole_or_refused() {
    for record in samples::envelopes() {
        let mut bytes = Vec::new();
        envelope::encode(&record, &mut bytes).unwrap();
        let whole = Bytes::from(bytes.clone());
        for length in 0..whole.len() {
            assert!(
                envelope::decode(&whole.slice(..length)).is_err(),
                "{length} of {record:?}"
            );
        }
        bytes.push(0);
        assert_eq!(
            envelope::decode(&bytes.into()),
            Err(DecodeError::TrailingBytes(1))
        );
    }
}

#[test]
fn broken_envelopes_do_not_panic() {
    let records = samples::envelopes();
    for_seeds(4000, |random, _| {
        let mut bytes = Vec::new();
        envelope::encode(&records[random.index(records.len())], &mut bytes).unwrap();
        for _ in 0..1 + random.index(4) {
            let at = random.index(bytes.len());
            bytes[at] = random.next() as u8;
        }
        if let Ok(record) = envelope::decode(&bytes.into()) {
            let mut again = Vec::new();
            envelope::encode(&record, &mut again).unwrap();
            assert_eq!(envelope::decode(&again.into()), Ok(record));
        }
    });
}

#[test]
fn a_change_in_pieces_is_the_change() {
    let Some(Body::Part(part)) = samples::envelopes().into_iter().map(|e| e.body).nth(3) else {
        panic!("no part");
    };
    for change in part.changes {
        let mut bytes = Vec::new();
        envelope::encode_change(&change, &mut bytes).unwrap();
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let joined = Bytes::from([one, two].concat());
        assert_eq!(envelope::decode_change(&joined), Ok(change));
        assert!(envelope::decode_change(&Bytes::copy_from_slice(one)).is_err());
    }
}

#[test]
fn rows_of_an_envelope_share_its_bytes() {
    let table = samples::table();
    let new = samples::encoded(&table, &samples::rows()[1]);
    let record = samples::envelope(Body::Part(samples::part(vec![Change::Insert {
        table: 0,
        new: new.clone().into(),
    }])));
    let mut bytes = Vec::new();
    envelope::encode(&record, &mut bytes).unwrap();
    let payload = Bytes::from(bytes);
    let Body::Part(part) = envelope::decode(&payload).unwrap().body else {
        panic!("no part")
    };
    let Change::Insert { new: read, .. } = &part.changes[0] else {
        panic!("no insert")
    };
    assert_eq!(*read, new);
    assert!(payload.as_ptr_range().contains(&read.as_ptr()));
}

#[test]
fn rows_are_whole_or_refused() {
    let table = samples::table();
    for values in samples::rows() {
        let bytes = samples::encoded(&table, &values);
        for length in 0..bytes.len() {
            let last = row::Reader::new(&table, &bytes[..length]).last();
            assert!(
                matches!(last, Some(Err(row::ReadError::Column { .. }))),
                "{length}"
            );
        }
        let longer = [bytes, vec![0]].concat();
        let last = row::Reader::new(&table, &longer).last();
        assert_eq!(last, Some(Err(row::ReadError::TrailingBytes(1))));
    }
}

#[test]
fn broken_rows_do_not_panic() {
    let table = samples::table();
    for_seeds(4000, |random, _| {
        let rows = samples::rows();
        let mut bytes = samples::encoded(&table, &rows[random.index(rows.len())]);
        let at = random.index(bytes.len());
        bytes[at] = random.next() as u8;
        assert!(row::Reader::new(&table, &bytes).count() <= table.columns.len() + 1);
    });
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let check = |carrier: Carrier, value: Value<'_>| {
        assert!(
            row::write(carrier, value, &mut Vec::new()).is_err(),
            "{carrier:?} {value:?}"
        );
    };
    check(Carrier::Int2, Value::Int(32_768));
    check(Carrier::Int4, Value::Int(1 << 31));
    check(Carrier::Bool, Value::Int(1));
    check(Carrier::Float4, Value::Float8(1.0));
    check(Carrier::Bytea, Value::Text("a"));
    check(Carrier::Other, Value::Bytes(b"a"));
}

fn one_column(carrier: Carrier) -> Table {
    let type_name = match carrier {
        Carrier::Bool => "pg_catalog.bool",
        Carrier::Int2 => "pg_catalog.int2",
        Carrier::Int4 => "pg_catalog.int4",
        Carrier::Int8 => "pg_catalog.int8",
        Carrier::Float4 => "pg_catalog.float4",
        Carrier::Float8 => "pg_catalog.float8",
        Carrier::Text => "pg_catalog.text",
        Carrier::Bytea => "pg_catalog.bytea",
        Carrier::Other => "pg_catalog.numeric",
    };
    Table {
        schema: "public".to_owned(),
        name: "t".to_owned(),
        identity: Identity::Default,
        columns: vec![Column {
            name: "c".to_owned(),
            type_name: type_name.to_owned(),
            type_modifier: -1,
            key: true,
            carrier,
        }],
    }
}

/// PostgreSQL's text in, a value; the value's text out, the same value.
#[test]
fn text_forms() {
    let check = |carrier: Carrier, given: &str, expected: Option<Value<'_>>| {
        let table = one_column(carrier);
        let mut bytes = Vec::new();
        let written = row::write_text(carrier, given.as_bytes(), &mut bytes);
        let Some(expected) = expected else {
            return assert!(written.is_err(), "{carrier:?} {given}");
        };
        written.unwrap();
        let value = row::Reader::new(&table, &bytes).next().unwrap().unwrap();
        let bits = |value: Value<'_>| match value {
            Value::Float4(value) => Some(u64::from(value.to_bits())),
            Value::Float8(value) => Some(value.to_bits()),
            _ => None,
        };
        let equal = |a: Value<'_>, b: Value<'_>| bits(a).map_or(a == b, |a| Some(a) == bits(b));
        assert!(equal(value, expected), "{carrier:?} {given}: {value:?}");
        let mut out = String::new();
        assert!(text::write(value, &mut out));
        let mut again = Vec::new();
        row::write_text(carrier, out.as_bytes(), &mut again).unwrap();
        assert_eq!(again, bytes, "{carrier:?} {given} as {out}");
    };
    use Carrier::{Bool, Bytea, Float4, Float8, Int2, Int4, Int8, Other, Text};
    check(Bool, "t", Some(Value::Bool(true)));
    check(Bool, "f", Some(Value::Bool(false)));
    check(Bool, "true", None);
    check(Int2, "-32768", Some(Value::Int(-32768)));
    check(Int2, "32768", None);
    check(Int4, "2147483647", Some(Value::Int(2_147_483_647)));
    check(Int4, "-2147483649", None);
    check(Int8, "-9223372036854775808", Some(Value::Int(i64::MIN)));
    check(Int8, "9223372036854775808", None);
    check(Int8, "+1", None);
    check(Int8, "", None);
    check(Int8, "1.0", None);
    check(Float4, "0.1", Some(Value::Float4(0.1)));
    check(Float4, "1e-45", Some(Value::Float4(f32::from_bits(1))));
    check(Float4, "3.4028235e+38", Some(Value::Float4(f32::MAX)));
    check(Float4, "-0", Some(Value::Float4(-0.0)));
    check(Float4, "NaN", Some(Value::Float4(f32::NAN)));
    check(Float4, "-Infinity", Some(Value::Float4(f32::NEG_INFINITY)));
    check(Float4, "1e39", None);
    check(Float8, "5e-324", Some(Value::Float8(5e-324)));
    check(
        Float8,
        "1.7976931348623157e+308",
        Some(Value::Float8(f64::MAX)),
    );
    check(Float8, "-0", Some(Value::Float8(-0.0)));
    check(Float8, "Infinity", Some(Value::Float8(f64::INFINITY)));
    check(Float8, "NaN", Some(Value::Float8(f64::NAN)));
    check(Float8, "inf", None);
    check(Float8, "nan", None);
    check(Float8, "1e309", None);
    check(Float8, "", None);
    check(Text, "", Some(Value::Text("")));
    check(Text, "Ünï🐘", Some(Value::Text("Ünï🐘")));
    check(Bytea, "\\x", Some(Value::Bytes(b"")));
    check(Bytea, "\\x00fFA0", Some(Value::Bytes(&[0, 255, 160])));
    check(Bytea, "\\x0", None);
    check(Bytea, "\\x0g", None);
    check(Bytea, "abc", None);
    check(Other, "1.00", Some(Value::Text("1.00")));
    assert!(row::write_text(Text, &[0xFF], &mut Vec::new()).is_err());
}

#[test]
fn floats_keep_their_bits() {
    for_seeds(20_000, |random, _| {
        let double = f64::from_bits(random.next());
        let single = f32::from_bits(random.next() as u32);
        let mut out = String::new();
        text::write(Value::Float8(double), &mut out);
        let read = text::parse_float8(out.as_bytes()).unwrap();
        assert!(
            read.to_bits() == double.to_bits() || double.is_nan(),
            "{out}"
        );
        out.clear();
        text::write(Value::Float4(single), &mut out);
        let read = text::parse_float4(out.as_bytes()).unwrap();
        assert!(
            read.to_bits() == single.to_bits() || single.is_nan(),
            "{out}"
        );
    });
}

#[test]
fn tables_come_back_from_their_schemas() {
    let table = samples::table();
    let avro = table.to_avro();
    assert_eq!(Table::from_avro(&avro).as_ref(), Ok(&table));
    let printed: serde_json::Value = serde_json::from_str(&avro).unwrap();
    let printed = serde_json::to_string_pretty(&printed).unwrap();
    assert_eq!(
        Table::from_avro(&printed).unwrap().fingerprint(),
        table.fingerprint()
    );
    let empty = Table {
        columns: Vec::new(),
        ..one_column(Carrier::Bool)
    };
    assert_eq!(Table::from_avro(&empty.to_avro()), Ok(empty));
}

#[test]
fn every_property_is_in_the_fingerprint() {
    let table = samples::table();
    let changed = |change: fn(&mut Table)| {
        let mut other = samples::table();
        change(&mut other);
        assert_ne!(other.fingerprint(), table.fingerprint(), "{other:?}");
        assert_eq!(Table::from_avro(&other.to_avro()), Ok(other));
    };
    changed(|table| table.schema.push('a'));
    changed(|table| table.name.make_ascii_lowercase());
    changed(|table| table.identity = Identity::Full);
    changed(|table| table.columns[9].name.push('a'));
    changed(|table| table.columns[9].type_name.push('a'));
    changed(|table| table.columns[9].type_modifier = 4);
    changed(|table| table.columns[9].key = true);
    changed(|table| table.columns.swap(8, 9));
    changed(|table| {
        table.columns.pop();
    });
}

#[test]
fn other_schemas_are_refused() {
    let avro = samples::table().to_avro();
    let check = |from: &str, to: &str| {
        assert!(avro.contains(from), "{from}");
        assert!(
            Table::from_avro(&avro.replacen(from, to, 1)).is_err(),
            "{from} as {to}"
        );
    };
    check("\"long\"", "\"int\"");
    check("\"pg_position\":1", "\"pg_position\":2");
    check(
        "\"pg_type\":\"pg_catalog.int8\"",
        "\"pg_type\":\"pg_catalog.int4\"",
    );
    check("\"pg_column\":\"id\"", "\"pg_column\":\"ie\"");
    check("\"pg_table\":\"W", "\"pg_table\":\"w");
    check("UNCHANGED_TOAST", "UNCHANGED");
    check("\"pg_key\":true", "\"pg_keys\":true");
    check("\"type\":\"record\"", "\"type\":\"array\"");
    assert!(Table::from_avro(envelope::SCHEMA).is_err());
    assert!(Table::from_avro("").is_err());
}
