//! From the bytes of pgoutput to the parts of the log.
//!
//! The crate is pure: bytes in, events and parts out. It knows no socket, no clock and no Kafka.
//! Four layers stand on each other, and each can be used alone:
//!
//! 1. [`message`]: one pgoutput message, parsed from bytes and built into bytes. Total: a message
//!    is consumed to its last byte, or refused with its kind, the field and the LSN.
//! 2. [`decoder`]: messages in the order in which one walsender sends them; keeps what the
//!    protocol makes a reader keep (relations, type names, whether a stream block is open).
//! 3. [`assembler`]: messages to events of whole transactions, without holding a transaction in
//!    memory: begin, changes, commit.
//! 4. [`encoder`]: events to [`walbraid_schemas::Part`]s that fit into records of a given size.
//!
//! What is refused is refused by name ([`error::Undecodable`]); nothing is ever skipped, because a
//! message that was skipped is a row that is missing on the subscriber.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod assembler;
mod cursor;
pub mod decoder;
pub mod encoder;
pub mod error;
pub mod message;
mod parse;
pub mod relation;
mod rows;
mod run;
pub mod tuple;
mod type_names;
mod write;

pub use assembler::{Assembler, Begin, Change, ChangeKind, Commit, Event, Events, LogicalMessage};
pub use decoder::{Decoder, Protocol, Streaming};
pub use encoder::{Encoder, LinkPart};
pub use error::Undecodable;
pub use message::Message;
pub use relation::Relation;
pub use tuple::{Datum, OldTuple, Tuple};
