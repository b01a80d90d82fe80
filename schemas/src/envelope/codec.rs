//! The envelope as Avro bytes.
//!
//! The structs here mirror `avsc/envelope.avsc` field by field and borrow everything, so that
//! serde goes straight between them and bytes: measured 7 to 10 times faster than a value tree.
//! They never leave this file; [`super::Envelope`] is what others see.
//!
//! A change that stands alone (a [`super::Fragment`]'s content) has the same bytes as inside the
//! `changes` array: it is a datum of that array's item type.

use std::sync::LazyLock;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_avro_fast::de::{DeserializerConfig, DeserializerState, read::SliceRead};

use super::{
    Body, Change, Claim, Envelope, Fragment, Heartbeat, LinkKind, OldKind, OldTuple, Origin, Part,
    TableRef,
};
use crate::{Incarnation, Lsn, Notice};

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

fn lsn(field: &'static str, value: i64) -> Result<Lsn, DecodeError> {
    let lsn = u64::try_from(value).map_err(|_| DecodeError::OutOfRange { field, value })?;
    Ok(Lsn(lsn))
}

fn unsigned(field: &'static str, value: i64) -> Result<u32, DecodeError> {
    u32::try_from(value).map_err(|_| DecodeError::OutOfRange { field, value })
}

/// A slice that serde sees as Avro `bytes` or `fixed`.
#[derive(Clone, Copy)]
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a [u8]>::deserialize(deserializer).map(Raw)
    }
}

impl Raw<'_> {
    fn sixteen(self) -> Result<[u8; 16], DecodeError> {
        self.0
            .try_into()
            .map_err(|_| DecodeError::Datum("a fixed of 16 is not 16".to_owned()))
    }
}

#[derive(Serialize, Deserialize)]
struct EnvelopeForm<'a> {
    #[serde(borrow)]
    incarnation: Raw<'a>,
    timeline: i64,
    claim_offset: i64,
    options_hash: i64,
    seq: i64,
    end_lsn: i64,
    previous_end_lsn: i64,
    body: BodyForm<'a>,
}

#[derive(Serialize, Deserialize)]
enum BodyForm<'a> {
    #[serde(borrow, rename = "walbraid.Claim")]
    Claim(ClaimForm<'a>),
    #[serde(rename = "walbraid.Heartbeat")]
    Heartbeat(HeartbeatForm),
    #[serde(rename = "walbraid.Notice")]
    Notice(NoticeForm<'a>),
    #[serde(rename = "walbraid.Part")]
    Part(PartForm<'a>),
}

#[derive(Serialize, Deserialize)]
struct ClaimForm<'a> {
    generation: i64,
    #[serde(borrow)]
    id: Raw<'a>,
    confirmed_lsn: i64,
    system_identifier: &'a str,
    database: &'a str,
    slot: &'a str,
    publications: Vec<&'a str>,
    protocol: i32,
    writer: &'a str,
}

#[derive(Serialize, Deserialize)]
struct HeartbeatForm {}

#[derive(Serialize, Deserialize)]
struct NoticeForm<'a> {
    kind: &'a str,
    message: &'a str,
    detail: Option<&'a str>,
    hint: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
enum LinkKindForm {
    Transaction,
    Prepare,
    CommitPrepared,
    RollbackPrepared,
    Message,
    Ddl,
}

#[derive(Serialize, Deserialize)]
struct PartForm<'a> {
    kind: LinkKindForm,
    xid: i64,
    commit_lsn: i64,
    commit_time_us: i64,
    prepare_end_lsn: i64,
    gid: Option<&'a str>,
    #[serde(borrow)]
    origin: Option<OriginForm<'a>>,
    number: i64,
    last: bool,
    tables: Vec<TableRefForm>,
    changes: Vec<ChangeForm<'a>>,
    fragment: Option<FragmentForm<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Origin")]
struct OriginForm<'a> {
    name: &'a str,
    lsn: i64,
}

#[derive(Serialize, Deserialize)]
struct TableRefForm {
    schema_id: i32,
    fingerprint: i64,
}

#[derive(Serialize, Deserialize)]
enum ChangeForm<'a> {
    #[serde(borrow, rename = "walbraid.Insert")]
    Insert(InsertForm<'a>),
    #[serde(rename = "walbraid.Update")]
    Update(UpdateForm<'a>),
    #[serde(rename = "walbraid.Delete")]
    Delete(DeleteForm<'a>),
    #[serde(rename = "walbraid.Truncate")]
    Truncate(TruncateForm),
    #[serde(rename = "walbraid.LogicalMessage")]
    LogicalMessage(LogicalMessageForm<'a>),
}

#[derive(Serialize, Deserialize)]
struct InsertForm<'a> {
    table: i64,
    #[serde(borrow)]
    new: Raw<'a>,
}

#[derive(Serialize, Deserialize)]
struct UpdateForm<'a> {
    table: i64,
    #[serde(borrow)]
    old: Option<OldTupleForm<'a>>,
    new: Raw<'a>,
}

#[derive(Serialize, Deserialize)]
struct DeleteForm<'a> {
    table: i64,
    #[serde(borrow)]
    old: OldTupleForm<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "OldTuple")]
struct OldTupleForm<'a> {
    kind: OldKindForm,
    #[serde(borrow)]
    row: Raw<'a>,
}

#[derive(Serialize, Deserialize)]
enum OldKindForm {
    Key,
    Full,
}

#[derive(Serialize, Deserialize)]
struct TruncateForm {
    tables: Vec<i64>,
    cascade: bool,
    restart_identity: bool,
}

#[derive(Serialize, Deserialize)]
struct LogicalMessageForm<'a> {
    prefix: &'a str,
    #[serde(borrow)]
    content: Raw<'a>,
    lsn: i64,
    transactional: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Fragment")]
struct FragmentForm<'a> {
    #[serde(borrow)]
    bytes: Raw<'a>,
    last: bool,
}

impl<'a> EnvelopeForm<'a> {
    fn of(envelope: &'a Envelope) -> EnvelopeForm<'a> {
        EnvelopeForm {
            incarnation: Raw(&envelope.incarnation.0),
            timeline: envelope.timeline.into(),
            claim_offset: envelope.claim_offset,
            options_hash: envelope.options_hash,
            seq: envelope.seq,
            end_lsn: envelope.end_lsn.0 as i64,
            previous_end_lsn: envelope.previous_end_lsn.0 as i64,
            body: match &envelope.body {
                Body::Claim(claim) => BodyForm::Claim(ClaimForm::of(claim)),
                Body::Heartbeat(Heartbeat {}) => BodyForm::Heartbeat(HeartbeatForm {}),
                Body::Notice(notice) => BodyForm::Notice(NoticeForm {
                    kind: &notice.kind,
                    message: &notice.message,
                    detail: notice.detail.as_deref(),
                    hint: notice.hint.as_deref(),
                }),
                Body::Part(part) => BodyForm::Part(PartForm::of(part)),
            },
        }
    }

    fn into_envelope(self, datum: &Bytes) -> Result<Envelope, DecodeError> {
        Ok(Envelope {
            incarnation: Incarnation(self.incarnation.sixteen()?),
            timeline: unsigned("timeline", self.timeline)?,
            claim_offset: self.claim_offset,
            options_hash: self.options_hash,
            seq: self.seq,
            end_lsn: lsn("end_lsn", self.end_lsn)?,
            previous_end_lsn: lsn("previous_end_lsn", self.previous_end_lsn)?,
            body: match self.body {
                BodyForm::Claim(form) => Body::Claim(form.into_claim()?),
                BodyForm::Heartbeat(HeartbeatForm {}) => Body::Heartbeat(Heartbeat {}),
                BodyForm::Notice(form) => Body::Notice(Notice {
                    kind: form.kind.to_owned(),
                    message: form.message.to_owned(),
                    detail: form.detail.map(str::to_owned),
                    hint: form.hint.map(str::to_owned),
                }),
                BodyForm::Part(form) => Body::Part(form.into_part(datum)?),
            },
        })
    }
}

impl<'a> ClaimForm<'a> {
    fn of(claim: &'a Claim) -> ClaimForm<'a> {
        ClaimForm {
            generation: claim.generation,
            id: Raw(&claim.id),
            confirmed_lsn: claim.confirmed_lsn.0 as i64,
            system_identifier: &claim.system_identifier,
            database: &claim.database,
            slot: &claim.slot,
            publications: claim.publications.iter().map(String::as_str).collect(),
            protocol: claim.protocol,
            writer: &claim.writer,
        }
    }

    fn into_claim(self) -> Result<Claim, DecodeError> {
        Ok(Claim {
            generation: self.generation,
            id: self.id.sixteen()?,
            confirmed_lsn: lsn("confirmed_lsn", self.confirmed_lsn)?,
            system_identifier: self.system_identifier.to_owned(),
            database: self.database.to_owned(),
            slot: self.slot.to_owned(),
            publications: self.publications.into_iter().map(str::to_owned).collect(),
            protocol: self.protocol,
            writer: self.writer.to_owned(),
        })
    }
}

impl<'a> PartForm<'a> {
    fn of(part: &'a Part) -> PartForm<'a> {
        PartForm {
            kind: match part.kind {
                LinkKind::Transaction => LinkKindForm::Transaction,
                LinkKind::Prepare => LinkKindForm::Prepare,
                LinkKind::CommitPrepared => LinkKindForm::CommitPrepared,
                LinkKind::RollbackPrepared => LinkKindForm::RollbackPrepared,
                LinkKind::Message => LinkKindForm::Message,
                LinkKind::Ddl => LinkKindForm::Ddl,
            },
            xid: part.xid.into(),
            commit_lsn: part.commit_lsn.0 as i64,
            commit_time_us: part.commit_time_us,
            prepare_end_lsn: part.prepare_end_lsn.0 as i64,
            gid: part.gid.as_deref(),
            origin: part.origin.as_ref().map(|origin| OriginForm {
                name: &origin.name,
                lsn: origin.lsn.0 as i64,
            }),
            number: part.number.into(),
            last: part.last,
            tables: part
                .tables
                .iter()
                .map(|table| TableRefForm {
                    schema_id: table.schema_id,
                    fingerprint: table.fingerprint,
                })
                .collect(),
            changes: part.changes.iter().map(ChangeForm::of).collect(),
            fragment: part.fragment.as_ref().map(|fragment| FragmentForm {
                bytes: Raw(&fragment.bytes),
                last: fragment.last,
            }),
        }
    }

    fn into_part(self, datum: &Bytes) -> Result<Part, DecodeError> {
        let changes = self
            .changes
            .into_iter()
            .map(|change| change.into_change(datum));
        Ok(Part {
            kind: match self.kind {
                LinkKindForm::Transaction => LinkKind::Transaction,
                LinkKindForm::Prepare => LinkKind::Prepare,
                LinkKindForm::CommitPrepared => LinkKind::CommitPrepared,
                LinkKindForm::RollbackPrepared => LinkKind::RollbackPrepared,
                LinkKindForm::Message => LinkKind::Message,
                LinkKindForm::Ddl => LinkKind::Ddl,
            },
            xid: unsigned("xid", self.xid)?,
            commit_lsn: lsn("commit_lsn", self.commit_lsn)?,
            commit_time_us: self.commit_time_us,
            prepare_end_lsn: lsn("prepare_end_lsn", self.prepare_end_lsn)?,
            gid: self.gid.map(str::to_owned),
            origin: match self.origin {
                None => None,
                Some(form) => Some(Origin {
                    name: form.name.to_owned(),
                    lsn: lsn("origin.lsn", form.lsn)?,
                }),
            },
            number: unsigned("number", self.number)?,
            last: self.last,
            tables: self
                .tables
                .into_iter()
                .map(|form| TableRef {
                    schema_id: form.schema_id,
                    fingerprint: form.fingerprint,
                })
                .collect(),
            changes: changes.collect::<Result<_, _>>()?,
            fragment: self.fragment.map(|form| Fragment {
                bytes: datum.slice_ref(form.bytes.0),
                last: form.last,
            }),
        })
    }
}

impl<'a> ChangeForm<'a> {
    fn of(change: &'a Change) -> ChangeForm<'a> {
        match change {
            Change::Insert { table, new } => ChangeForm::Insert(InsertForm {
                table: (*table).into(),
                new: Raw(new),
            }),
            Change::Update { table, old, new } => ChangeForm::Update(UpdateForm {
                table: (*table).into(),
                old: old.as_ref().map(OldTupleForm::of),
                new: Raw(new),
            }),
            Change::Delete { table, old } => ChangeForm::Delete(DeleteForm {
                table: (*table).into(),
                old: OldTupleForm::of(old),
            }),
            Change::Truncate {
                tables,
                cascade,
                restart_identity,
            } => ChangeForm::Truncate(TruncateForm {
                tables: tables.iter().map(|table| (*table).into()).collect(),
                cascade: *cascade,
                restart_identity: *restart_identity,
            }),
            Change::Message {
                prefix,
                content,
                lsn,
                transactional,
            } => ChangeForm::LogicalMessage(LogicalMessageForm {
                prefix,
                content: Raw(content),
                lsn: lsn.0 as i64,
                transactional: *transactional,
            }),
        }
    }

    fn into_change(self, datum: &Bytes) -> Result<Change, DecodeError> {
        Ok(match self {
            ChangeForm::Insert(form) => Change::Insert {
                table: unsigned("table", form.table)?,
                new: datum.slice_ref(form.new.0),
            },
            ChangeForm::Update(form) => Change::Update {
                table: unsigned("table", form.table)?,
                old: form.old.map(|old| old.into_old_tuple(datum)),
                new: datum.slice_ref(form.new.0),
            },
            ChangeForm::Delete(form) => Change::Delete {
                table: unsigned("table", form.table)?,
                old: form.old.into_old_tuple(datum),
            },
            ChangeForm::Truncate(form) => {
                let tables = form
                    .tables
                    .into_iter()
                    .map(|table| unsigned("tables", table));
                Change::Truncate {
                    tables: tables.collect::<Result<_, _>>()?,
                    cascade: form.cascade,
                    restart_identity: form.restart_identity,
                }
            }
            ChangeForm::LogicalMessage(form) => Change::Message {
                prefix: form.prefix.to_owned(),
                content: datum.slice_ref(form.content.0),
                lsn: lsn("lsn", form.lsn)?,
                transactional: form.transactional,
            },
        })
    }
}

impl<'a> OldTupleForm<'a> {
    fn of(old: &'a OldTuple) -> OldTupleForm<'a> {
        OldTupleForm {
            kind: match old.kind {
                OldKind::Key => OldKindForm::Key,
                OldKind::Full => OldKindForm::Full,
            },
            row: Raw(&old.row),
        }
    }

    fn into_old_tuple(self, datum: &Bytes) -> OldTuple {
        OldTuple {
            kind: match self.kind {
                OldKindForm::Key => OldKind::Key,
                OldKindForm::Full => OldKind::Full,
            },
            row: datum.slice_ref(self.row.0),
        }
    }
}
