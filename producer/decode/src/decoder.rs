//! Messages in the order of one replication stream.
//!
//! Owns what the protocol makes its reader remember: whether a stream block is open (messages in
//! it have another form), the relations and the names of types. Does not own transactions
//! ([`crate::assembler`]).
//!
//! One decoder reads one START_REPLICATION: after a reconnect the walsender describes every
//! relation anew, and a new decoder is made. Invariants: a row message that is let through names a
//! described relation and has as many columns as it; a message of an option that was not asked for
//! is refused by name; the first refusal is the last message read, as everything behind it may
//! lean on what was refused.

use std::collections::HashMap;
use std::sync::Arc;

use walbraid_schemas::Lsn;

use crate::error::Undecodable;
use crate::message::{Framing, Message, RelationBody};
use crate::relation::Relation;
use crate::tuple::Tuple;
use crate::type_names::TypeNames;

/// The options of START_REPLICATION that change what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// `proto_version`, 1 to 4.
    pub version: u8,
    /// `streaming`.
    pub streaming: Streaming,
    /// `two_phase`.
    pub two_phase: bool,
}

/// `streaming`: whether large transactions come before their commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// They do not.
    Off,
    /// They come in blocks.
    On,
    /// They do, and an abort says where and when.
    Parallel,
}

/// Reads the messages of one replication stream.
#[derive(Debug)]
pub struct Decoder {
    protocol: Protocol,
    in_stream: bool,
    relations: HashMap<u32, Arc<Relation>>,
    types: TypeNames,
    shapes: u32,
}

impl Decoder {
    /// A decoder for a stream that was started with these options.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            in_stream: false,
            relations: HashMap::new(),
            types: TypeNames::default(),
            shapes: 0,
        }
    }

    /// Reads the next message, which the walsender sent with WAL position `lsn`.
    pub fn decode<'a>(&mut self, lsn: Lsn, bytes: &'a [u8]) -> Result<Message<'a>, Undecodable> {
        let framing = Framing {
            in_stream: self.in_stream,
            parallel: self.protocol.streaming == Streaming::Parallel,
        };
        let message = Message::parse(bytes, framing).map_err(|malformed| {
            let tag = bytes.first().copied().unwrap_or(0);
            Undecodable::Malformed {
                lsn,
                tag,
                malformed,
            }
        })?;
        self.remember(lsn, &message)?;
        Ok(message)
    }

    /// The present shape of a relation, by its oid.
    pub fn relation(&self, oid: u32) -> Option<&Arc<Relation>> {
        self.relations.get(&oid)
    }

    fn remember(&mut self, lsn: Lsn, message: &Message<'_>) -> Result<(), Undecodable> {
        let kind = message.kind();
        match *message {
            Message::Insert { relation, new, .. } => self.check(lsn, kind, relation, &[new]),
            Message::Update {
                relation,
                old: None,
                new,
                ..
            } => self.check(lsn, kind, relation, &[new]),
            Message::Update {
                relation,
                old: Some(old),
                new,
                ..
            } => self.check(lsn, kind, relation, &[old.tuple(), new]),
            Message::Delete { relation, old, .. } => {
                self.check(lsn, kind, relation, &[old.tuple()])
            }
            Message::Truncate { relations, .. } => relations
                .iter()
                .try_for_each(|oid| self.check(lsn, kind, oid, &[])),
            Message::Relation(body) => self.describe(lsn, &body),
            Message::Type {
                oid, schema, name, ..
            } => {
                self.types.insert(oid, schema, name);
                Ok(())
            }
            Message::Origin { .. } | Message::Logical { .. } => Ok(()),
            Message::StreamStop if self.in_stream => {
                self.in_stream = false;
                Ok(())
            }
            Message::StreamStop => {
                self.asked_for(lsn, message)?;
                Err(Undecodable::OutOfOrder {
                    lsn,
                    kind,
                    state: "no stream block is open",
                })
            }
            _ if self.in_stream => Err(Undecodable::OutOfOrder {
                lsn,
                kind,
                state: "a stream block is open",
            }),
            Message::Begin { .. } | Message::Commit { .. } => Ok(()),
            Message::StreamStart { .. } => {
                self.asked_for(lsn, message)?;
                self.in_stream = true;
                Ok(())
            }
            Message::StreamCommit { .. }
            | Message::StreamAbort { .. }
            | Message::StreamPrepare(_)
            | Message::BeginPrepare(_)
            | Message::Prepare(_)
            | Message::CommitPrepared { .. }
            | Message::RollbackPrepared { .. } => self.asked_for(lsn, message),
        }
    }

    /// Refuses streamed and two-phase messages where their option, or a protocol version that has
    /// them, was not asked for.
    fn asked_for(&self, lsn: Lsn, message: &Message<'_>) -> Result<(), Undecodable> {
        let kind = message.kind();
        let refuse = |option| Err(Undecodable::NotAskedFor { lsn, kind, option });
        let streaming = self.protocol.streaming != Streaming::Off && self.protocol.version >= 2;
        let two_phase = self.protocol.two_phase && self.protocol.version >= 3;
        match message {
            Message::StreamStart { .. }
            | Message::StreamStop
            | Message::StreamCommit { .. }
            | Message::StreamAbort { .. }
            | Message::StreamPrepare(_)
                if !streaming =>
            {
                refuse("streaming")
            }
            Message::BeginPrepare(_)
            | Message::Prepare(_)
            | Message::StreamPrepare(_)
            | Message::CommitPrepared { .. }
            | Message::RollbackPrepared { .. }
                if !two_phase =>
            {
                refuse("two_phase")
            }
            _ => Ok(()),
        }
    }

    fn check(
        &self,
        lsn: Lsn,
        kind: &'static str,
        oid: u32,
        tuples: &[Tuple<'_>],
    ) -> Result<(), Undecodable> {
        let relation = self
            .relations
            .get(&oid)
            .ok_or(Undecodable::UnknownRelation { lsn, kind, oid })?;
        let expected = relation.table.columns.len();
        match tuples.iter().find(|tuple| tuple.len() != expected) {
            None => Ok(()),
            Some(tuple) => Err(Undecodable::Columns {
                lsn,
                kind,
                relation: relation.qualified_name(),
                expected,
                found: tuple.len(),
            }),
        }
    }

    /// Keeps the shape of a relation; one that is described again as it was stays the same shape.
    fn describe(&mut self, lsn: Lsn, body: &RelationBody<'_>) -> Result<(), Undecodable> {
        let shape = Relation::new(self.shapes, lsn, body, &self.types)?;
        if self
            .relations
            .get(&body.oid)
            .is_some_and(|known| known.table == shape.table)
        {
            return Ok(());
        }
        self.shapes += 1;
        self.relations.insert(body.oid, Arc::new(shape));
        Ok(())
    }
}
