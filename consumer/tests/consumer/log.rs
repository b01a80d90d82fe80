//! Writes a lane as a producer would, and as no producer should.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use walbraid_schemas::envelope::{self, NO_CLAIM};
use walbraid_schemas::{
    Body, Carrier, Change, Claim, Column, Envelope, Heartbeat, Identity, Incarnation, LinkKind,
    Lsn, OldKind, OldTuple, Part, Table, TableRef, Value, fingerprint, frame, headers, names, row,
};

/// Bytes of WAL that a transaction of these tests takes.
const LINK_BYTES: u64 = 0x100;

pub(crate) struct Log {
    producer: FutureProducer,
    http: reqwest::Client,
    registry: String,
    pub(crate) topic: String,
    pub(crate) incarnation: Incarnation,
    envelope_id: i32,
    seq: AtomicI64,
    claim: AtomicI64,
    pub(crate) options_hash: AtomicI64,
    end: AtomicU64,
    xid: AtomicU64,
}

impl Log {
    /// A lane with setup's heartbeat and a first claim.
    pub(crate) async fn new(
        kafka: &str,
        registry: &str,
        topic: &str,
        incarnation: Incarnation,
        start: Lsn,
    ) -> Self {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", kafka)
            .set("linger.ms", "1")
            .create();
        let mut log = Self {
            producer: producer.unwrap(),
            http: reqwest::Client::new(),
            registry: registry.to_owned(),
            topic: topic.to_owned(),
            incarnation,
            envelope_id: 0,
            seq: AtomicI64::new(0),
            claim: AtomicI64::new(NO_CLAIM),
            options_hash: AtomicI64::new(0),
            end: AtomicU64::new(start.0),
            xid: AtomicU64::new(700),
        };
        log.envelope_id = log
            .register(&names::envelope_subject(topic), envelope::SCHEMA)
            .await;
        log.heartbeat(start).await;
        log.options_hash.store(42, Ordering::Relaxed);
        log.claim().await;
        log
    }

    /// The end of the newest link.
    pub(crate) fn end_lsn(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Relaxed))
    }

    pub(crate) fn set_end(&self, end: Lsn) {
        self.end.store(end.0, Ordering::Relaxed);
    }

    /// Registers a schema; its id.
    pub(crate) async fn register(&self, subject: &str, schema: &str) -> i32 {
        let url = format!("{}/subjects/{subject}/versions", self.registry);
        let body = serde_json::json!({ "schema": schema }).to_string();
        let kind = "application/vnd.schemaregistry.v1+json";
        let request = self.http.post(url).header("content-type", kind).body(body);
        let answer: serde_json::Value =
            serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap();
        i32::try_from(answer["id"].as_i64().unwrap_or_else(|| panic!("{answer}"))).unwrap()
    }

    /// Registers a table.
    pub(crate) async fn table(&self, table: &Table) -> TableRef {
        let text = table.to_avro();
        let subject = names::table_subject(&self.topic, &table.schema, &table.name);
        let schema_id = self.register(&subject, &text).await;
        TableRef {
            schema_id,
            fingerprint: fingerprint::of(&text),
        }
    }

    /// A claim, which everything that follows is written under.
    pub(crate) async fn claim(&self) -> i64 {
        let claim = Claim {
            generation: 1,
            id: *uuid::Uuid::new_v4().as_bytes(),
            confirmed_lsn: self.end_lsn(),
            system_identifier: "7000000000000000001".to_owned(),
            database: "shop".to_owned(),
            slot: "walbraid_shop".to_owned(),
            publications: vec!["shop".to_owned()],
            protocol: 4,
            writer: "test:1".to_owned(),
        };
        self.claim.store(NO_CLAIM, Ordering::Relaxed);
        let offset = self
            .write(self.envelope(Lsn(0), Lsn(0), Body::Claim(claim)))
            .await;
        self.claim.store(offset, Ordering::Relaxed);
        offset
    }

    /// A heartbeat up to an LSN.
    pub(crate) async fn heartbeat(&self, until: Lsn) -> i64 {
        self.write(self.envelope(until, self.end_lsn(), Body::Heartbeat(Heartbeat {})))
            .await
    }

    /// A transaction in one part. Its end LSN.
    pub(crate) async fn transaction(&self, tables: &[TableRef], changes: Vec<Change>) -> Lsn {
        self.run(tables, vec![changes]).await
    }

    /// A transaction in several parts. Its end LSN.
    pub(crate) async fn run(&self, tables: &[TableRef], parts: Vec<Vec<Change>>) -> Lsn {
        let (previous, end) = self.advance();
        let xid = self.next_xid();
        let count = parts.len();
        let mut written = Vec::new();
        for (number, changes) in parts.into_iter().enumerate() {
            let part = self.part(xid, end, number, number + 1 == count, tables, changes);
            let end_lsn = if part.last { end } else { Lsn(0) };
            written.push(self.send(self.envelope(end_lsn, previous, Body::Part(part))));
        }
        for one in written {
            one.await;
        }
        end
    }

    /// The xid that the newest transaction has.
    pub(crate) fn xid(&self) -> u32 {
        u32::try_from(self.xid.load(Ordering::Relaxed)).unwrap()
    }

    pub(crate) fn advance(&self) -> (Lsn, Lsn) {
        let previous = self.end.fetch_add(LINK_BYTES, Ordering::Relaxed);
        (Lsn(previous), Lsn(previous + LINK_BYTES))
    }

    pub(crate) fn next_xid(&self) -> u32 {
        u32::try_from(self.xid.fetch_add(1, Ordering::Relaxed) + 1).unwrap()
    }

    pub(crate) fn part(
        &self,
        xid: u32,
        end: Lsn,
        number: usize,
        last: bool,
        tables: &[TableRef],
        changes: Vec<Change>,
    ) -> Part {
        Part {
            kind: LinkKind::Transaction,
            xid,
            commit_lsn: Lsn(end.0 - 0x30),
            commit_time_us: 1_790_000_000_000_000 + i64::from(xid),
            prepare_end_lsn: Lsn(0),
            gid: None,
            origin: None,
            number: u32::try_from(number).unwrap(),
            last,
            tables: tables.to_vec(),
            changes,
            fragment: None,
        }
    }

    pub(crate) fn envelope(&self, end_lsn: Lsn, previous_end_lsn: Lsn, body: Body) -> Envelope {
        Envelope {
            incarnation: self.incarnation,
            timeline: 1,
            claim_offset: self.claim.load(Ordering::Relaxed),
            options_hash: self.options_hash.load(Ordering::Relaxed),
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            end_lsn,
            previous_end_lsn,
            body,
        }
    }

    /// Writes a record and waits for it; its offset.
    pub(crate) async fn write(&self, envelope: Envelope) -> i64 {
        self.send(envelope).await
    }

    fn send(&self, envelope: Envelope) -> impl Future<Output = i64> {
        let mut payload = Vec::new();
        frame::write(self.envelope_id, &mut payload);
        envelope::encode(&envelope, &mut payload).unwrap();
        let headers = headers::of(&envelope).into_iter().fold(
            OwnedHeaders::new(),
            |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: Some(value.as_bytes()),
                })
            },
        );
        self.send_bytes(payload, headers)
    }

    /// Writes any bytes.
    pub(crate) async fn write_bytes(&self, payload: &[u8]) -> i64 {
        self.send_bytes(payload.to_vec(), OwnedHeaders::new()).await
    }

    fn send_bytes(
        &self,
        payload: Vec<u8>,
        headers: OwnedHeaders,
    ) -> impl Future<Output = i64> + use<> {
        let key = headers::key(&self.topic, self.incarnation);
        let record = FutureRecord::to(&self.topic).partition(0);
        let record = record
            .key(key.as_bytes())
            .payload(&payload)
            .headers(headers);
        let sent = self
            .producer
            .send_result(record)
            .map_err(|(error, _)| error)
            .unwrap();
        async move {
            let waited = tokio::time::timeout(Duration::from_secs(30), sent).await;
            waited.unwrap().unwrap().unwrap().offset
        }
    }
}

/// A table `public.<name>` with columns given as `name type`, the key's marked with `*`.
pub(crate) fn table(name: &str, columns: &[&str]) -> Table {
    let column = |text: &&str| {
        let key = text.ends_with('*');
        let (name, kind) = text.trim_end_matches('*').split_once(' ').unwrap();
        let type_name = format!("pg_catalog.{kind}");
        let carrier = Carrier::of(&type_name);
        Column {
            name: name.to_owned(),
            type_name,
            type_modifier: -1,
            key,
            carrier,
        }
    };
    Table {
        schema: "public".to_owned(),
        name: name.to_owned(),
        identity: Identity::Default,
        columns: columns.iter().map(column).collect(),
    }
}

fn encode(table: &Table, values: &[Value<'_>]) -> Bytes {
    let mut out = Vec::new();
    for (column, value) in table.columns.iter().zip(values) {
        row::write(column.carrier, *value, &mut out).unwrap();
    }
    out.into()
}

pub(crate) fn insert(number: u32, table: &Table, values: &[Value<'_>]) -> Change {
    Change::Insert {
        table: number,
        new: encode(table, values),
    }
}

pub(crate) fn update(number: u32, table: &Table, values: &[Value<'_>]) -> Change {
    Change::Update {
        table: number,
        old: None,
        new: encode(table, values),
    }
}

pub(crate) fn delete(number: u32, table: &Table, key: &[Value<'_>]) -> Change {
    let row = encode(table, key);
    Change::Delete {
        table: number,
        old: OldTuple {
            kind: OldKind::Key,
            row,
        },
    }
}
