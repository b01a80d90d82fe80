//! Why a part of walbraid stopped: the closed list of definite failures, and their text.
//!
//! A [`Stop`] is what a person must act on. It has PostgreSQL's form: a lower-case primary
//! message that names the object, then DETAIL and HINT as sentences. Its [`StopKind`] gives the
//! process' exit code and a name that scripts can match; both are stable.
//! A producer that stops writes a [`Notice`] into the lane when it still can, so that the
//! consumer's side can say why nothing arrives. A notice is no link: the chain ignores it, and a
//! newer claim clears it.
//!
//! Never here: row values, passwords. Whether a failure is transient is not decided here either.

use std::fmt;

macro_rules! stop_kinds {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// Every definite failure of both sides.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StopKind {
            $($(#[$doc])* $variant,)*
        }

        impl StopKind {
            /// All kinds, in the order of their exit codes.
            pub const ALL: &'static [StopKind] = &[$(StopKind::$variant),*];

            /// The exit code of a process that ends for this reason.
            pub fn exit_code(self) -> u8 {
                match self { $(StopKind::$variant => $code,)* }
            }

            /// The stable name, in kebab case.
            pub fn name(self) -> &'static str {
                match self { $(StopKind::$variant => $name,)* }
            }

            /// The kind of this name.
            pub fn from_name(name: &str) -> Option<StopKind> {
                match name { $($name => Some(StopKind::$variant),)* _ => None }
            }
        }
    };
}

stop_kinds! {
    /// A broken invariant of our own.
    Internal = 1, "internal";
    /// Wrong command line or configuration.
    Usage = 2, "usage";
    /// `wait`: the time is over.
    WaitTimedOut = 3, "wait-timed-out";
    /// `wait`: the pipeline stopped.
    PipelineStopped = 4, "pipeline-stopped";
    /// A PostgreSQL server cannot be reached.
    ServerUnreachable = 10, "server-unreachable";
    /// A PostgreSQL server refused the role or its password.
    Authentication = 11, "authentication";
    /// The role lacks a right.
    MissingRight = 12, "missing-right";
    /// `wal_level` of the publisher is not `logical`.
    WalLevel = 13, "wal-level";
    /// No free replication slot or walsender.
    NoFreeSlotOrWalsender = 14, "no-free-slot-or-walsender";
    /// The publication is missing or empty.
    Publication = 15, "publication";
    /// The slot is used by another session.
    SlotInUse = 16, "slot-in-use";
    /// The slot does not exist.
    SlotMissing = 17, "slot-missing";
    /// The slot was invalidated by the server.
    SlotInvalidated = 18, "slot-invalidated";
    /// The slot belongs to another plugin or database.
    SlotForeign = 19, "slot-foreign";
    /// The topic does not exist.
    TopicMissing = 20, "topic-missing";
    /// The topic's partitions or settings are not those configured.
    TopicMismatch = 21, "topic-mismatch";
    /// No broker can be reached.
    KafkaUnreachable = 22, "kafka-unreachable";
    /// A record is larger than the broker takes.
    RecordTooLarge = 23, "record-too-large";
    /// The Schema Registry cannot be reached.
    RegistryUnreachable = 24, "registry-unreachable";
    /// The Schema Registry refuses a schema, or gives another one than was registered.
    RegistryIncompatible = 25, "registry-incompatible";
    /// A table, column or type is missing on the subscriber.
    SubscriberShape = 26, "subscriber-shape";
    /// The subscriber refuses a row.
    RowRefused = 27, "row-refused";
    /// The chain of the log is broken.
    ChainBreak = 28, "chain-break";
    /// The lane holds another incarnation of the stream.
    Incarnation = 29, "incarnation";
    /// The log's position is not on the publisher's timeline.
    Timeline = 30, "timeline";
    /// The lane belongs to another owner.
    LaneOwnedElsewhere = 31, "lane-owned-elsewhere";
    /// The slot's confirmed position is ahead of what the log holds.
    SlotAheadOfLog = 32, "slot-ahead-of-log";
    /// Bytes that cannot be decoded.
    Undecodable = 33, "undecodable";
    /// Retention removed records that were not applied.
    LogTruncated = 34, "log-truncated";
    /// The subscriber is read-only.
    SubscriberReadOnly = 35, "subscriber-read-only";
    /// A disk is full.
    DiskFull = 36, "disk-full";
    /// `setup` has not been run.
    NotSetUp = 37, "not-set-up";
    /// The Kafka user lacks a right.
    KafkaAuthorization = 38, "kafka-authorization";
    /// No more replication origins are allowed on the subscriber.
    OriginLimit = 39, "origin-limit";
    /// An apply conflict under a policy of `error`.
    Conflict = 40, "conflict";
    /// Any other definite error of the subscriber.
    SubscriberError = 41, "subscriber-error";
    /// Open transactions of the publisher kept the slot from being made.
    OpenTransactions = 42, "open-transactions";
}

impl fmt::Display for StopKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A definite failure: what happened, to which object, and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Which failure.
    pub kind: StopKind,
    /// Primary message: lower case, no full stop, naming the object.
    pub message: String,
    /// More about it, in sentences.
    pub detail: Option<String>,
    /// What to do, in sentences.
    pub hint: Option<String>,
}

impl Stop {
    /// A stop with a primary message alone.
    pub fn new(kind: StopKind, message: impl Into<String>) -> Stop {
        Stop {
            kind,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// Adds the DETAIL.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Stop {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the HINT.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Stop {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code of a process that ends with this stop.
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR:  {}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL:  {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT:  {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stop {}

/// What a producer that stops leaves in the lane. `kind` is a [`StopKind::name`]; a reader takes
/// names it does not know as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name of the [`StopKind`].
    pub kind: String,
    /// Primary message.
    pub message: String,
    /// DETAIL.
    pub detail: Option<String>,
    /// HINT.
    pub hint: Option<String>,
}

impl From<&Stop> for Notice {
    fn from(stop: &Stop) -> Notice {
        Notice {
            kind: stop.kind.name().to_owned(),
            message: stop.message.clone(),
            detail: stop.detail.clone(),
            hint: stop.hint.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_one_to_one() {
        for (index, kind) in StopKind::ALL.iter().enumerate() {
            assert_eq!(StopKind::from_name(kind.name()), Some(*kind));
            for other in &StopKind::ALL[index + 1..] {
                assert!(kind.exit_code() < other.exit_code(), "{kind} {other}");
            }
        }
        assert_eq!(StopKind::from_name("chain_break"), None);
    }

    #[test]
    fn text_has_the_form_of_postgresql() {
        let stop = Stop::new(
            StopKind::SlotMissing,
            "replication slot \"a\" does not exist",
        )
        .detail("It was there at 0/1.")
        .hint("Run setup.");
        assert_eq!(
            stop.to_string(),
            "ERROR:  replication slot \"a\" does not exist\nDETAIL:  It was there at 0/1.\nHINT:  \
             Run setup."
        );
    }
}
