//! Why the replication stream cannot be decoded.
//!
//! All of it is definite: the same bytes come again after a reconnect, so a person must act. The
//! text names message, relation, column and LSN, and never a value.

use walbraid_schemas::envelope::EncodeError;
use walbraid_schemas::{Lsn, Stop, StopKind};

use crate::message::{Malformed, kind_name};

/// A refusal of the decoder, the assembler or the encoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// The bytes of a message are not what the protocol says.
    #[error(
        "could not decode the {} message (\"{}\") at LSN {lsn}: {} {}",
        kind_name(*tag), tag.escape_ascii(), malformed.field, malformed.problem
    )]
    Malformed {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// First byte of the message; 0 for a message without any.
        tag: u8,
        /// The field and what is wrong with it.
        malformed: Malformed,
    },
    /// The message exists, but not under the options the stream was started with.
    #[error("unexpected {kind} message at LSN {lsn}: \"{option}\" was not asked for")]
    NotAskedFor {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Kind of the message.
        kind: &'static str,
        /// The option that brings it.
        option: &'static str,
    },
    /// The message belongs to a form of transaction that the assembler does not take.
    #[error("unexpected {kind} message at LSN {lsn}: {what} transactions are not supported")]
    NotAssembled {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Kind of the message.
        kind: &'static str,
        /// The form.
        what: &'static str,
    },
    /// The message does not fit what came before it.
    #[error("unexpected {kind} message at LSN {lsn}: {state}")]
    OutOfOrder {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Kind of the message.
        kind: &'static str,
        /// What came before it.
        state: &'static str,
    },
    /// Begin and Commit of a transaction disagree.
    #[error(
        "commit of transaction {xid} at LSN {lsn} does not match its begin: {field} is different"
    )]
    CommitMismatch {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// The transaction.
        xid: u32,
        /// What is different.
        field: &'static str,
    },
    /// A row of a relation that was never described.
    #[error("{kind} message at LSN {lsn} names relation {oid}, which was not described before")]
    UnknownRelation {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Kind of the message.
        kind: &'static str,
        /// Oid of the relation.
        oid: u32,
    },
    /// A column of a type that is neither built in nor was described.
    #[error(
        "column \"{column}\" of relation {relation} at LSN {lsn} has type {oid}, \
         which is neither built in nor was described before"
    )]
    UnknownType {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Qualified name of the relation.
        relation: String,
        /// Name of the column.
        column: String,
        /// Oid of the type.
        oid: u32,
    },
    /// A tuple has more or fewer columns than its relation.
    #[error(
        "{kind} message at LSN {lsn} for relation {relation} has {found} columns, \
         expected {expected}"
    )]
    Columns {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Kind of the message.
        kind: &'static str,
        /// Qualified name of the relation.
        relation: String,
        /// Columns of the relation.
        expected: usize,
        /// Columns of the tuple.
        found: usize,
    },
    /// A value is not what its column's type says.
    #[error(
        "value of column \"{column}\" of relation {relation} at LSN {lsn} is not a valid \
         {type_name}: {problem}"
    )]
    Value {
        /// WAL position the walsender gave for the row.
        lsn: Lsn,
        /// Qualified name of the relation.
        relation: String,
        /// Name of the column.
        column: String,
        /// Qualified name of its type.
        type_name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A row to be inserted without one of its values: PostgreSQL turns an UPDATE by which a row
    /// enters a row filter into an INSERT, and leaves out TOASTed values that did not change.
    #[error(
        "value of column \"{column}\" of relation {relation} was not sent with the row to be \
         inserted at LSN {lsn}"
    )]
    LeftOut {
        /// WAL position the walsender gave for the row.
        lsn: Lsn,
        /// Qualified name of the relation.
        relation: String,
        /// Name of the column.
        column: String,
    },
    /// Something that cannot be cut into parts does not fit into a record.
    #[error("{what} at LSN {lsn} needs {needed} bytes, more than a record can hold ({limit})")]
    TooLarge {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// What does not fit.
        what: &'static str,
        /// Bytes it needs.
        needed: usize,
        /// `record_bytes_max`.
        limit: usize,
    },
    /// A change of a relation whose shape was not registered before: the caller's mistake.
    #[error("relation {relation} at LSN {lsn} has no registered schema")]
    NotRegistered {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Qualified name of the relation.
        relation: String,
    },
    /// A change or commit without its begin: the caller's mistake.
    #[error("the encoder was given a change or commit without its begin")]
    NoTransaction,
    /// A change that the log's schema does not take: a mistake of our own.
    #[error("could not encode a change at LSN {lsn}: {error}")]
    NotEncoded {
        /// WAL position the walsender gave for the message.
        lsn: Lsn,
        /// Why.
        error: EncodeError,
    },
}

impl Undecodable {
    /// What a person can do about it.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge { .. } => Some("Raise \"record_bytes_max\" and the topic's limit."),
            Self::Value { .. } => {
                Some("The row on the publisher may be damaged; nothing behind it was confirmed.")
            }
            Self::LeftOut { .. } => Some(
                "An UPDATE brought the row into the publication's row filter. With REPLICA \
                 IDENTITY FULL, unchanged TOASTed values are sent too; what is in the WAL already \
                 needs a new slot.",
            ),
            _ => None,
        }
    }
}

impl From<Undecodable> for Stop {
    fn from(refusal: Undecodable) -> Self {
        let kind = match refusal {
            Undecodable::TooLarge { .. } => StopKind::RecordTooLarge,
            Undecodable::NotRegistered { .. }
            | Undecodable::NoTransaction
            | Undecodable::NotEncoded { .. } => StopKind::Internal,
            _ => StopKind::Undecodable,
        };
        let hint = refusal.hint().map(str::to_owned);
        Self {
            kind,
            message: refusal.to_string(),
            detail: None,
            hint,
        }
    }
}
