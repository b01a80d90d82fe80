//! A producer's loop without the producer, and what the parts hold as lines of text.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_decode::message::{Framing, Message};
use walbraid_decode::{
    Assembler, Decoder, Encoder, Event, LinkPart, Protocol, Relation, Streaming, Undecodable,
};
use walbraid_schemas::{Change, Lsn, OldKind, TableRef, Value, envelope, row, text};

/// Every shape is registered under its number.
pub(crate) struct Stream {
    assembler: Assembler,
    encoder: Encoder,
    relations: Vec<Arc<Relation>>,
    pub(crate) parts: Vec<LinkPart>,
}

impl Stream {
    pub(crate) fn new(record_bytes_max: usize) -> Self {
        let protocol = Protocol {
            version: 4,
            streaming: Streaming::Off,
            two_phase: false,
        };
        Self {
            assembler: Assembler::new(Decoder::new(protocol)),
            encoder: Encoder::new(record_bytes_max),
            relations: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(crate) fn bytes(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), Undecodable> {
        for event in self.assembler.push(lsn, bytes)? {
            if let Event::Relation(relation) = &event {
                let schema_id = i32::try_from(self.relations.len()).unwrap();
                self.relations.push(Arc::clone(relation));
                self.encoder.register(
                    relation,
                    TableRef {
                        schema_id,
                        fingerprint: i64::MIN,
                    },
                );
            }
            self.encoder.push(event, &mut self.parts)?;
        }
        Ok(())
    }

    pub(crate) fn message(&mut self, message: &Message<'_>) -> Result<(), Undecodable> {
        let mut bytes = Vec::new();
        message.write(Framing::default(), &mut bytes);
        self.bytes(Lsn(0xAB), &bytes)
    }

    /// The changes of all parts, one line each.
    pub(crate) fn changes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut datum = Vec::new();
        for LinkPart { part, .. } in &self.parts {
            if let Some(fragment) = &part.fragment {
                assert!(part.changes.is_empty());
                datum.extend_from_slice(&fragment.bytes);
                if fragment.last {
                    let change = Bytes::from(std::mem::take(&mut datum));
                    let change = envelope::decode_change(&change).unwrap();
                    lines.push(self.change(&change, &part.tables));
                }
            }
            assert!(datum.is_empty() || part.changes.is_empty());
            lines.extend(
                part.changes
                    .iter()
                    .map(|change| self.change(change, &part.tables)),
            );
        }
        assert!(datum.is_empty());
        lines
    }

    fn change(&self, change: &Change, tables: &[TableRef]) -> String {
        let relation = |index: &u32| {
            let table = tables[usize::try_from(*index).unwrap()];
            &self.relations[usize::try_from(table.schema_id).unwrap()]
        };
        let row = |index: &u32, row: &Bytes| self.row(relation(index), row);
        match change {
            Change::Insert { table, new } => {
                format!("insert {} {}", relation(table).table.name, row(table, new))
            }
            Change::Update { table, old, new } => {
                let old = old.as_ref().map(|old| {
                    let kind = if old.kind == OldKind::Key {
                        "key"
                    } else {
                        "full"
                    };
                    format!(" {kind} {}", row(table, &old.row))
                });
                let name = &relation(table).table.name;
                format!(
                    "update {name}{} {}",
                    old.unwrap_or_default(),
                    row(table, new)
                )
            }
            Change::Delete { table, old } => {
                let kind = if old.kind == OldKind::Key {
                    "key"
                } else {
                    "full"
                };
                format!(
                    "delete {} {kind} {}",
                    relation(table).table.name,
                    row(table, &old.row)
                )
            }
            Change::Truncate {
                tables,
                cascade,
                restart_identity,
            } => {
                let names: Vec<&str> = tables
                    .iter()
                    .map(|index| relation(index).table.name.as_str())
                    .collect();
                format!("truncate {names:?} {cascade} {restart_identity}")
            }
            Change::Message {
                prefix,
                content,
                transactional,
                ..
            } => {
                format!(
                    "message {prefix} {} {transactional}",
                    content.escape_ascii()
                )
            }
        }
    }

    fn row(&self, relation: &Relation, bytes: &Bytes) -> String {
        let columns: Vec<String> = row::Reader::new(&relation.table, bytes)
            .map(|value| match value.unwrap() {
                Value::Null => "null".to_owned(),
                Value::Unchanged => "unchanged".to_owned(),
                Value::NotSent => "not sent".to_owned(),
                value => {
                    let mut out = String::new();
                    assert!(text::write(value, &mut out));
                    format!("'{out}'")
                }
            })
            .collect();
        columns.join(",")
    }
}
