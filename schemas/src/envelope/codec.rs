//! The envelope as Avro bytes: serde between bytes and the structs of [`super::form`].
//!
//! A change that stands alone (a [`super::Fragment`]'s content) has the same bytes as inside the
//! `changes` array: it is a datum of that array's item type.

use std::sync::LazyLock;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_avro_fast::de::{DeserializerConfig, DeserializerState, read::SliceRead};

use super::form::{ChangeForm, EnvelopeForm};
use super::{Change, Envelope};

/// The envelope's Avro schema, as it is registered under `<topic>-value`.
pub const SCHEMA: &str = include_str!("../../avsc/envelope.avsc");

static ENVELOPE: LazyLock<serde_avro_fast::Schema> = LazyLock::new(|| parse(SCHEMA));
static CHANGE: LazyLock<serde_avro_fast::Schema> = LazyLock::new(|| parse(&change_schema()));

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no datum of the schema.
    #[error("invalid Avro datum: {0}")]
    Datum(String),
    /// Bytes are left behind the datum.
    #[error("{0} bytes are left behind the Avro datum")]
    TrailingBytes(usize),
    /// A number is outside the range of its PostgreSQL type.
    #[error("field \"{field}\" is out of range: {value}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What it held.
        value: i64,
    },
}

/// Why a record cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode Avro datum: {0}")]
pub struct EncodeError(String);

/// Appends the envelope's Avro datum to `out`.
pub fn encode(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write(&EnvelopeForm::of(envelope), &ENVELOPE, out)
}

/// Reads an envelope from its Avro datum. Rows share `datum`'s allocation.
pub fn decode(datum: &Bytes) -> Result<Envelope, DecodeError> {
    read::<EnvelopeForm<'_>>(datum, &ENVELOPE)?.into_envelope(datum)
}

/// Appends the Avro datum of one change to `out`: what [`super::Fragment`]s are cut from.
pub fn encode_change(change: &Change, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write(&ChangeForm::of(change), &CHANGE, out)
}

/// Reads one change from its Avro datum: what [`super::Fragment`]s make when joined.
pub fn decode_change(datum: &Bytes) -> Result<Change, DecodeError> {
    read::<ChangeForm<'_>>(datum, &CHANGE)?.into_change(datum)
}

fn parse(text: &str) -> serde_avro_fast::Schema {
    match text.parse() {
        Ok(schema) => schema,
        Err(error) => panic!("the built-in envelope schema is invalid: {error}"),
    }
}

/// The item type of `changes`, cut out of the envelope's schema.
fn change_schema() -> String {
    use serde_json::Value;
    let field = |record: &Value, name: &str| {
        let mut fields = record["fields"].as_array().into_iter().flatten();
        fields
            .find(|field| field["name"] == name)
            .map(|field| field["type"].clone())
    };
    let envelope: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
    let bodies = field(&envelope, "body").unwrap_or_default();
    let part = bodies
        .as_array()
        .into_iter()
        .flatten()
        .find(|body| body["name"] == "Part");
    let changes = part
        .and_then(|part| field(part, "changes"))
        .unwrap_or_default();
    let mut items = changes["items"].clone();
    for record in items.as_array_mut().into_iter().flatten() {
        record["namespace"] = envelope["namespace"].clone();
    }
    items.to_string()
}

fn write<T: Serialize>(
    form: &T,
    schema: &serde_avro_fast::Schema,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut config = serde_avro_fast::ser::SerializerConfig::new(schema);
    let start = out.len();
    serde_avro_fast::to_datum(form, &mut *out, &mut config)
        .map(|_| ())
        .map_err(|error| {
            out.truncate(start);
            EncodeError(error.to_string())
        })
}

fn read<'a, T: Deserialize<'a>>(
    datum: &'a [u8],
    schema: &serde_avro_fast::Schema,
) -> Result<T, DecodeError> {
    let mut config = DeserializerConfig::new(schema);
    // Every item of every array takes at least a byte.
    config.max_seq_size = datum.len();
    let mut state = DeserializerState::with_config(SliceRead::new(datum), config);
    let form = T::deserialize(state.deserializer())
        .map_err(|error| DecodeError::Datum(error.to_string()))?;
    let left = std::io::copy(&mut state.into_reader(), &mut std::io::sink()).unwrap_or(0);
    match left {
        0 => Ok(form),
        left => Err(DecodeError::TrailingBytes(left as usize)),
    }
}
