//! The envelope: what every record of a lane is.
//!
//! An envelope tells who wrote it (claim offset), of what life of the stream (incarnation), and
//! which interval of the publisher's WAL it speaks of: `(previous_end_lsn, end_lsn]`. A **link**
//! says that exactly one thing ended in that interval, at `end_lsn`; a **heartbeat** says that
//! nothing did. A link is written as one [`Part`] or, when it is large, as a run of them.
//!
//! Owns the types and their Avro form (`avsc/envelope.avsc`, [`encode`], [`decode`]). Does not
//! know the form of a row ([`crate::row`]), nor the rule by which records are joined
//! ([`crate::chain`]).
//!
//! Invariants: decoding consumes every byte or refuses the record; it copies no row, rows share
//! the payload's allocation. Numbers that PostgreSQL has unsigned (LSN, xid) are Avro `long`s.

mod codec;
mod form;

use bytes::Bytes;

pub use codec::{DecodeError, EncodeError, SCHEMA, decode, decode_change, encode, encode_change};

use crate::{Incarnation, Lsn, Notice};

/// `claim_offset` of a record that was written under no claim (setup's first heartbeat), and of
/// a claim itself, whose own offset is not known when it is written.
pub const NO_CLAIM: i64 = -1;

/// One record of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The life of the stream that the record belongs to.
    pub incarnation: Incarnation,
    /// The publisher's timeline when the record was written.
    pub timeline: u32,
    /// The Kafka offset of the writer's claim; [`NO_CLAIM`] in a claim and in setup's heartbeat.
    pub claim_offset: i64,
    /// Hash of what decides which links a WAL gives: publication names, options, protocol.
    /// The same in every record of one claim; 0 in setup's heartbeat.
    pub options_hash: i64,
    /// Counts the records of one claim. Informs only.
    pub seq: i64,
    /// Link: where it ends (only in its last part; `0/0` in the parts before). Heartbeat: up to
    /// where nothing ended. Claim and notice: `0/0`.
    pub end_lsn: Lsn,
    /// The end of the link before. Claim and notice: `0/0`.
    pub previous_end_lsn: Lsn,
    /// What the record is.
    pub body: Body,
}

/// What a record is.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A producer that holds the slot starts to write.
    Claim(Claim),
    /// Nothing ended in the interval.
    Heartbeat(Heartbeat),
    /// A producer stopped, and why.
    Notice(Notice),
    /// A link, or a part of one.
    Part(Part),
}

/// A producer's claim: it holds the slot, and writes every link above `confirmed_lsn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Counts the claims of an incarnation, as far as their writers knew. Informs only.
    pub generation: i64,
    /// Random; tells a producer its own claim from another's.
    pub id: [u8; 16],
    /// The slot's confirmed flush LSN, read while holding the slot and before the claim was sent.
    pub confirmed_lsn: Lsn,
    /// The publisher's system identifier.
    pub system_identifier: String,
    /// The publisher's database.
    pub database: String,
    /// The slot.
    pub slot: String,
    /// The publications, by name.
    pub publications: Vec<String>,
    /// pgoutput's `proto_version`.
    pub protocol: i32,
    /// Who writes: host and process id.
    pub writer: String,
}

/// Nothing ended in `(previous_end_lsn, end_lsn]`. The first one of an incarnation is written by
/// setup, under no claim, with both at the slot's consistent point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {}

/// What the WAL made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// A transaction.
    Transaction,
    /// PREPARE TRANSACTION.
    Prepare,
    /// COMMIT PREPARED.
    CommitPrepared,
    /// ROLLBACK PREPARED.
    RollbackPrepared,
    /// A logical message outside any transaction.
    Message,
    /// A schema change.
    Ddl,
}

/// A link, or a part of one. The run of a link's parts is named by the claim and `commit_lsn`.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What the WAL made.
    pub kind: LinkKind,
    /// The publisher's transaction id; 0 where there is none.
    pub xid: u32,
    /// Where the record that ends the link starts: commit, prepare, or message LSN.
    pub commit_lsn: Lsn,
    /// Commit time, µs since 1970-01-01 UTC; 0 where there is none.
    pub commit_time_us: i64,
    /// For COMMIT PREPARED and ROLLBACK PREPARED: where the PREPARE ended; else `0/0`.
    pub prepare_end_lsn: Lsn,
    /// The global id of a prepared transaction.
    pub gid: Option<String>,
    /// Where the transaction was first made, when not on the publisher.
    pub origin: Option<Origin>,
    /// Place in the run, from 0.
    pub number: u32,
    /// Whether the run ends here.
    pub last: bool,
    /// The tables that this part's changes name, by their index here.
    pub tables: Vec<TableRef>,
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// A piece of a change that is larger than a record; then `changes` is empty.
    pub fragment: Option<Fragment>,
}

/// A replication origin of the publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name.
    pub name: String,
    /// The commit LSN on that origin.
    pub lsn: Lsn,
}

/// A table's schema: its id in the registry, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableRef {
    /// The registry's id.
    pub schema_id: i32,
    /// [`crate::fingerprint::of`] the schema's text: a registry that lost its data gives ids out
    /// again.
    pub fingerprint: i64,
}

/// One change. Rows are Avro data of the table's schema ([`crate::row`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// INSERT.
    Insert {
        /// Index into [`Part::tables`].
        table: u32,
        /// The new row.
        new: Bytes,
    },
    /// UPDATE.
    Update {
        /// Index into [`Part::tables`].
        table: u32,
        /// The old row or key, when the server sent one.
        old: Option<OldTuple>,
        /// The new row.
        new: Bytes,
    },
    /// DELETE.
    Delete {
        /// Index into [`Part::tables`].
        table: u32,
        /// The old row or key.
        old: OldTuple,
    },
    /// TRUNCATE of several tables at once.
    Truncate {
        /// Indexes into [`Part::tables`].
        tables: Vec<u32>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
    },
    /// A logical message.
    Message {
        /// Its prefix.
        prefix: String,
        /// Its content.
        content: Bytes,
        /// Where it stands in the WAL.
        lsn: Lsn,
        /// Whether it belongs to its transaction.
        transactional: bool,
    },
}

/// The old side of an UPDATE or DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldTuple {
    /// Whether `row` is a key or whole.
    pub kind: OldKind,
    /// The row; columns that a key does not have are [`crate::Value::NotSent`].
    pub row: Bytes,
}

/// What an old tuple holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OldKind {
    /// `K`: the columns of the replica identity.
    Key,
    /// `O`: the whole row (REPLICA IDENTITY FULL).
    Full,
}

/// A piece of the Avro datum of a [`Change`]. The pieces stand in consecutive parts; the change
/// they make together belongs to the part with the last piece, also for its table's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The piece.
    pub bytes: Bytes,
    /// Whether the change ends here.
    pub last: bool,
}
