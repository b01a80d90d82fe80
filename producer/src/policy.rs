//! What becomes of a failure: tried again, told to a person, or the end that was asked for.
//!
//! Owns the one place where errors of the publisher, of Kafka, of the registry and of decoding are
//! sorted, and their text as a stop. Does not wait and does not log: the pipeline does both, once.
//!
//! Sorted by what the caller does:
//!
//! - **transient**: lost connections, servers that start or stop, resources short for a while, a
//!   lane claimed by another while the slot may still be ours. Tried again for ever, with back-off.
//! - **definite**: a person must act. It becomes a [`Stop`] with an exit code of its own.
//! - **shutdown**: asked for.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use walbraid_decode::Undecodable;
use walbraid_schemas::{Stop, StopKind};
use walbraid_wire::{Error, Severity, SqlState};

use crate::metrics::Cause;
use crate::slot;

/// What ended a claim or an attempt at one.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It will pass: try again.
    Transient {
        /// For the metric.
        cause: Cause,
        /// What happened, for the one warning, and for those who try only once.
        stop: Stop,
    },
    /// A person must act.
    Definite(Stop),
    /// Asked for.
    Shutdown,
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        Failure::Definite(stop)
    }
}

impl From<Undecodable> for Failure {
    fn from(error: Undecodable) -> Failure {
        Failure::Definite(Stop::from(error))
    }
}

/// An error of the publisher, in the producer that runs.
pub(crate) fn publisher(error: &Error) -> Failure {
    let stop = stop(error, "publisher");
    match error.is_transient() {
        true => Failure::Transient {
            cause: Cause::Publisher,
            stop,
        },
        false => Failure::Definite(stop),
    }
}

/// An error of a PostgreSQL server as a stop, for those who try once.
pub(crate) fn stop(error: &Error, server: &str) -> Stop {
    let (kind, message) = match error {
        Error::Configuration { message, .. } => (StopKind::Usage, message.clone()),
        Error::Unsupported { .. } => (StopKind::Usage, format!("{server}: {error}")),
        Error::Unreachable { .. } | Error::Closed { .. } | Error::Tls { .. } => (
            StopKind::ServerUnreachable,
            format!("{server} cannot be reached: {error}"),
        ),
        Error::Authentication { .. } => (StopKind::Authentication, format!("{server}: {error}")),
        Error::Server(_) => (server_kind(error), format!("{server}: {}", words(error))),
        Error::Protocol(_) => (StopKind::Internal, format!("{server}: {error}")),
        _ => (StopKind::Internal, format!("{server}: {error}")),
    };
    let mut stop = Stop::new(kind, message);
    stop.detail = error.detail().map(str::to_owned);
    let hint = error.hint().map(str::to_owned);
    stop.hint = hint.or_else(|| match kind {
        StopKind::NoFreeSlotOrWalsender => Some(slot::FREE_A_WALSENDER.to_owned()),
        _ => error.remedy(server),
    });
    stop
}

fn server_kind(error: &Error) -> StopKind {
    let Some(state) = error.sqlstate() else {
        return StopKind::Internal;
    };
    match state {
        SqlState::INSUFFICIENT_PRIVILEGE => StopKind::MissingRight,
        SqlState::CONFIGURATION_LIMIT_EXCEEDED => StopKind::NoFreeSlotOrWalsender,
        // The setting's name stands in the message in every language.
        SqlState::TOO_MANY_CONNECTIONS if words(error).contains("max_wal_senders") => {
            StopKind::NoFreeSlotOrWalsender
        }
        SqlState::OBJECT_IN_USE => StopKind::SlotInUse,
        // A database does not come by itself: its name is wrong, or a person must make it.
        SqlState::INVALID_CATALOG_NAME | SqlState::DATABASE_DROPPED => StopKind::Usage,
        SqlState::DISK_FULL => StopKind::DiskFull,
        SqlState::UNDEFINED_FILE => StopKind::SlotInvalidated,
        // What pgoutput says of a publication that was dropped under it: an error up to 17, from 18
        // on a warning behind which its tables are left out.
        SqlState::UNDEFINED_OBJECT => StopKind::Publication,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
            if error
                .server_error()
                .is_some_and(|e| e.severity == Severity::Warning) =>
        {
            StopKind::Publication
        }
        // A value that cannot be told in UTF-8.
        _ if matches!(state.class(), "22") => StopKind::Undecodable,
        _ if matches!(state.class(), "28") => StopKind::Authentication,
        _ if state.is_transient() => StopKind::ServerUnreachable,
        _ => StopKind::Internal,
    }
}

/// The server's own primary message, without what surrounds it.
fn words(error: &Error) -> String {
    error
        .server_error()
        .map_or_else(|| error.to_string(), |e| e.message.clone())
}

/// Adds the server's own words to a stop of ours.
pub(crate) fn with_words(stop: Stop, error: &Error) -> Stop {
    let detail = format!("The server says: {}", words(error));
    let hint = error.hint().map(str::to_owned);
    let mut stop = stop.detail(detail);
    stop.hint = stop.hint.or(hint);
    stop
}

/// An error of Kafka in `doing` something with `topic`, in the producer that runs.
pub(crate) fn kafka(code: RDKafkaErrorCode, reason: &str, topic: &str) -> Failure {
    let (kind, transient) = kafka_kind(code);
    let message = match kind {
        StopKind::TopicMissing => format!("topic \"{topic}\" does not exist"),
        StopKind::KafkaAuthorization => format!("Kafka refuses topic \"{topic}\": {reason}"),
        StopKind::RecordTooLarge => format!("a record is too large for topic \"{topic}\""),
        _ if code == RDKafkaErrorCode::Fatal => format!("the Kafka client failed: {reason}"),
        StopKind::KafkaUnreachable => format!("Kafka cannot be reached: {reason}"),
        _ => format!("Kafka failed for topic \"{topic}\": {reason}"),
    };
    let mut stop = Stop::new(kind, message);
    stop.hint = kafka_hint(kind, code).map(str::to_owned);
    match transient {
        true => Failure::Transient {
            cause: Cause::Kafka,
            stop,
        },
        false => Failure::Definite(stop),
    }
}

/// An error of a Kafka client call.
pub(crate) fn kafka_call(error: &KafkaError, topic: &str) -> Failure {
    match error.rdkafka_error_code() {
        Some(code) => kafka(code, &code.to_string(), topic),
        None => Failure::Definite(Stop::new(StopKind::Usage, format!("Kafka client: {error}"))),
    }
}

fn kafka_hint(kind: StopKind, code: RDKafkaErrorCode) -> Option<&'static str> {
    use RDKafkaErrorCode as Code;
    match (kind, code) {
        (StopKind::TopicMissing, _) => Some("Run \"walbraid setup\" to make it."),
        (StopKind::KafkaAuthorization, _) => Some(
            "Allow the Kafka user DESCRIBE, READ and WRITE on the topic, and check its password.",
        ),
        (StopKind::RecordTooLarge, _) => {
            Some("Lower \"producer.record_bytes_max\", or raise the topic's max.message.bytes.")
        }
        (
            _,
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut,
        ) => Some(
            "Check the addresses in \"kafka.bootstrap.servers\", that a broker runs there, and \
             \"kafka.security.protocol\".",
        ),
        _ => None,
    }
}

/// The kind of a Kafka error, and whether it passes by itself.
fn kafka_kind(code: RDKafkaErrorCode) -> (StopKind, bool) {
    use RDKafkaErrorCode as Code;
    match code {
        // A client that asks for a partition of a topic that is gone hears of the partition.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            (StopKind::TopicMissing, false)
        }
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::SSL => (StopKind::KafkaAuthorization, false),
        Code::MessageSizeTooLarge => (StopKind::RecordTooLarge, false),
        Code::InvalidArgument | Code::InvalidConfig | Code::NotImplemented => {
            (StopKind::Usage, false)
        }
        _ => (StopKind::KafkaUnreachable, true),
    }
}

/// A failure as a stop, for those who try once.
pub(crate) fn once(failure: Failure) -> Stop {
    match failure {
        Failure::Transient { stop, .. } | Failure::Definite(stop) => stop,
        Failure::Shutdown => Stop::new(StopKind::Internal, "interrupted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use walbraid_wire::ServerError;

    #[test]
    fn a_walsender_that_is_not_free_is_no_server_out_of_reach() {
        let check = |message: &str, kind| {
            let state = SqlState::TOO_MANY_CONNECTIONS;
            let error = ServerError::with_message(state, message.to_owned());
            let stop = stop(&Error::Server(error.into()), "publisher");
            let is_full = kind == StopKind::NoFreeSlotOrWalsender;
            assert_eq!((stop.kind, stop.hint.is_some()), (kind, is_full));
        };
        let full =
            "number of requested standby connections exceeds \"max_wal_senders\" (currently 1)";
        check(full, StopKind::NoFreeSlotOrWalsender);
        check(
            "sorry, too many clients already",
            StopKind::ServerUnreachable,
        );
    }

    #[test]
    fn a_broker_out_of_reach_names_the_key_of_its_address() {
        use RDKafkaErrorCode as Code;
        let check = |code, named: bool| {
            let hint = once(kafka(code, "", "t")).hint.unwrap_or_default();
            assert_eq!(
                hint.contains("bootstrap.servers"),
                named,
                "{code:?}: {hint}"
            );
        };
        check(Code::BrokerTransportFailure, true);
        check(Code::AllBrokersDown, true);
        check(Code::OperationTimedOut, true);
        check(Code::NotEnoughReplicas, false);
        check(Code::UnknownTopic, false);
    }

    #[test]
    fn kafka_errors_are_sorted_by_what_the_caller_does() {
        use RDKafkaErrorCode as Code;
        let check = |code, kind, transient| assert_eq!(kafka_kind(code), (kind, transient));
        check(
            Code::BrokerTransportFailure,
            StopKind::KafkaUnreachable,
            true,
        );
        check(Code::NotEnoughReplicas, StopKind::KafkaUnreachable, true);
        check(Code::Fatal, StopKind::KafkaUnreachable, true);
        check(Code::MessageSizeTooLarge, StopKind::RecordTooLarge, false);
        check(Code::UnknownTopic, StopKind::TopicMissing, false);
        check(Code::UnknownPartition, StopKind::TopicMissing, false);
        check(
            Code::TopicAuthorizationFailed,
            StopKind::KafkaAuthorization,
            false,
        );
    }
}
