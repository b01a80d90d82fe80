//! The log: the Avro schemas of its records, the Rust types for them, and the chain's reader.
//!
//! This crate is what producer and consumer share. It is pure: no IO, no clock, no randomness, no
//! async. It owns every byte that stands in a lane (record value, key, headers), the names under
//! which schemas are registered, the form of a table's rows, and the one rule by which the log is
//! read ([`chain`]). It does not own how records get to Kafka or schemas to a registry, nor what
//! a consumer does with a change.
//!
//! `docs/log-format.md` tells the same in words, for someone who writes a consumer of their own.

pub mod chain;
pub mod envelope;
pub mod fingerprint;
pub mod frame;
pub mod headers;
pub mod incarnation;
pub mod lsn;
pub mod names;
pub mod notice;
pub mod registry;
pub mod row;
pub mod table;
pub mod text;

mod varint;

pub use envelope::{
    Body, Change, Claim, Envelope, Fragment, Heartbeat, LinkKind, OldKind, OldTuple, Origin, Part,
    TableRef,
};
pub use incarnation::Incarnation;
pub use lsn::Lsn;
pub use notice::{Notice, Stop, StopKind};
pub use registry::Registry;
pub use row::Value;
pub use table::{Carrier, Column, Identity, Table};
