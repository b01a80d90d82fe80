//! What an error means for the consumer: try again, stop and say why, or it is ours no longer.
//!
//! The one place where errors of PostgreSQL, Kafka and the registry become a decision. A transient
//! error is waited out for ever, with a growing pause, and is told of once when it starts and once
//! when it is over; a definite one ends the process with its own exit code, after what came before
//! it has been applied.
//!
//! What goes wrong inside a unit is not judged here alone: the engine's rule says whether it is a
//! fact (`apply::rule`); this module only says what the SQLSTATE would mean if it were.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_wire::{Error as WireError, ServerError, SqlState};

/// First pause before a retry.
const PAUSE_FIRST_MS: u64 = 100;

/// Longest pause before a retry.
const PAUSE_MAX_MS: u64 = 5_000;

/// Why something did not work.
#[derive(Debug)]
pub enum Failure {
    /// It passes by itself.
    Transient(Transient),
    /// A person must act.
    Definite(Stop),
    /// The lane is another's.
    Fenced,
    /// The process is to end.
    Shutdown,
}

/// An error that passes by itself.
#[derive(Debug)]
pub struct Transient {
    /// What kind it is: the label under which retries are counted.
    pub cause: Cause,
    /// The same as a stop, for commands that try once.
    pub stop: Stop,
}

/// Causes of retries, as they are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// A connection was lost or could not be made.
    Connection,
    /// The server shuts down or starts up.
    Shutdown,
    /// Deadlock, serialization failure, lock time-out.
    Lock,
    /// The statement was cancelled.
    Cancel,
    /// The subscriber is read-only: it is a stand-by, or was made one.
    ReadOnly,
    /// The subscriber's disk is full.
    DiskFull,
    /// The subscriber is short of connections, memory or such.
    Resources,
    /// A replication origin is still held by a session that ends.
    OriginInUse,
    /// Kafka is out of reach or not ready.
    Kafka,
    /// The registry is out of reach or answers 5xx.
    Registry,
}

impl Cause {
    /// The metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Shutdown => "shutdown",
            Self::Lock => "lock",
            Self::Cancel => "cancel",
            Self::ReadOnly => "read_only",
            Self::DiskFull => "disk_full",
            Self::Resources => "resources",
            Self::OriginInUse => "origin_in_use",
            Self::Kafka => "kafka",
            Self::Registry => "registry",
        }
    }
}

impl Failure {
    /// The failure as a stop, for commands that try once.
    pub fn into_stop(self) -> Stop {
        match self {
            Self::Transient(transient) => transient.stop,
            Self::Definite(stop) => stop,
            Self::Fenced => Stop {
                kind: StopKind::LaneOwnedElsewhere,
                message: "the lane is owned by another consumer".to_owned(),
                detail: None,
                hint: None,
            },
            Self::Shutdown => Stop {
                kind: StopKind::Internal,
                message: "interrupted by shutdown".to_owned(),
                detail: None,
                hint: None,
            },
        }
    }

    /// True if the subscriber has no replication origin for one more worker: fewer can do.
    pub fn is_for_want_of_origins(&self) -> bool {
        matches!(self, Self::Definite(stop) if stop.kind == StopKind::OriginLimit)
    }

    /// A transient failure.
    pub fn transient(cause: Cause, kind: StopKind, message: String) -> Self {
        let stop = Stop {
            kind,
            message,
            detail: None,
            hint: None,
        };
        Self::Transient(Transient { cause, stop })
    }

    /// A definite failure.
    pub fn definite(kind: StopKind, message: String) -> Self {
        Self::Definite(Stop {
            kind,
            message,
            detail: None,
            hint: None,
        })
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let mut failure = match &error {
            WireError::Server(server) => from_server(server),
            WireError::Authentication { .. } => {
                Self::Definite(stop_of(StopKind::Authentication, &error))
            }
            WireError::Unreachable { .. } | WireError::Closed { .. } => {
                let mut stop = stop_of(StopKind::ServerUnreachable, &error);
                stop.message = format!("subscriber cannot be reached: {error}");
                Self::Transient(Transient {
                    cause: Cause::Connection,
                    stop,
                })
            }
            WireError::Configuration { .. } => Self::Definite(stop_of(StopKind::Usage, &error)),
            WireError::Protocol(_) => Self::Definite(stop_of(StopKind::Internal, &error)),
            _ => Self::Definite(stop_of(StopKind::ServerUnreachable, &error)),
        };
        if let Self::Transient(Transient { stop, .. }) | Self::Definite(stop) = &mut failure
            && stop.hint.is_none()
        {
            stop.hint = error.remedy("subscriber");
        }
        failure
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        WireError::from(error).into()
    }
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        from_kafka(&error)
    }
}

fn stop_of(kind: StopKind, error: &WireError) -> Stop {
    Stop {
        kind,
        message: format!("subscriber: {error}"),
        detail: error.detail().map(str::to_owned),
        hint: error.hint().map(str::to_owned),
    }
}

/// What an error of the subscriber means, by its SQLSTATE.
pub fn from_server(error: &ServerError) -> Failure {
    let stop = |kind| Stop {
        kind,
        message: format!("subscriber: {}", error.message),
        detail: error.detail.clone(),
        hint: error.hint.clone(),
    };
    match cause_of(error.sqlstate) {
        Some((cause, kind)) => Failure::Transient(Transient {
            cause,
            stop: stop(kind),
        }),
        None => Failure::Definite(stop(kind_of(error.sqlstate))),
    }
}

/// The cause a transient SQLSTATE is counted under, and the stop it would be for a command that
/// tries once; `None` when it does not pass by itself.
pub fn cause_of(state: SqlState) -> Option<(Cause, StopKind)> {
    let unreachable = StopKind::ServerUnreachable;
    let other = StopKind::SubscriberError;
    Some(match state {
        SqlState::READ_ONLY_SQL_TRANSACTION => (Cause::ReadOnly, StopKind::SubscriberReadOnly),
        SqlState::DISK_FULL => (Cause::DiskFull, StopKind::DiskFull),
        SqlState::OBJECT_IN_USE => (Cause::OriginInUse, other),
        SqlState::QUERY_CANCELED => (Cause::Cancel, other),
        _ if !state.is_transient() => return None,
        _ => match state.class() {
            "08" => (Cause::Connection, unreachable),
            "57" => (Cause::Shutdown, unreachable),
            "40" | "55" => (Cause::Lock, other),
            _ => (Cause::Resources, other),
        },
    })
}

/// Which stop a SQLSTATE is when it does not pass by itself.
pub fn kind_of(state: SqlState) -> StopKind {
    match state {
        SqlState::INSUFFICIENT_PRIVILEGE => StopKind::MissingRight,
        SqlState::CONFIGURATION_LIMIT_EXCEEDED => StopKind::OriginLimit,
        SqlState::DATABASE_DROPPED => StopKind::Usage,
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::UNDEFINED_OBJECT
        | SqlState::UNDEFINED_FUNCTION => StopKind::SubscriberShape,
        _ => match state.class() {
            "22" | "23" => StopKind::RowRefused,
            "28" => StopKind::Authentication,
            "3F" | "42" => StopKind::SubscriberShape,
            // A database does not come by itself.
            "3D" => StopKind::Usage,
            _ => StopKind::SubscriberError,
        },
    }
}

/// True for errors that a table changed since it was read explains: read it again before the error
/// is believed.
pub fn shape_may_have_changed(state: SqlState) -> bool {
    matches!(
        state,
        SqlState::FEATURE_NOT_SUPPORTED | SqlState::NOT_NULL_VIOLATION
    ) || matches!(state.class(), "42" | "3F")
        || matches!(state.code(), "428C9" | "26000")
}

fn from_kafka(error: &KafkaError) -> Failure {
    use RDKafkaErrorCode as Code;
    let message = format!("Kafka: {error}");
    let Some(code) = error.rdkafka_error_code() else {
        return match error {
            KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => {
                Failure::definite(StopKind::Usage, message)
            }
            _ => Failure::transient(Cause::Kafka, StopKind::KafkaUnreachable, message),
        };
    };
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            let gone = "the stream's topic, or the lane's partition of it, does not exist";
            let stop = Stop::new(StopKind::TopicMissing, gone)
                .detail(format!("{message}."))
                .hint("Run \"walbraid setup\": it says what is missing.");
            Failure::Definite(stop)
        }
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication => Failure::definite(StopKind::KafkaAuthorization, message),
        _ => Failure::transient(Cause::Kafka, StopKind::KafkaUnreachable, message),
    }
}

/// Pauses between tries of one thing: they grow, and the log hears of the first and of the end.
#[derive(Debug)]
pub struct Retry {
    what: &'static str,
    tries: u32,
    failing: Option<Failing>,
    trouble: Trouble,
}

/// What is tried again just now, for whoever is not the one who tries.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// Why it failed last, while it does.
    pub fn reason(&self) -> Option<String> {
        let reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    reason: String,
}

impl Retry {
    /// Nothing has failed yet.
    pub fn new(what: &'static str) -> Self {
        Self::seen(what, Trouble::default())
    }

    /// Nothing has failed yet; what does is seen in `trouble`.
    pub fn seen(what: &'static str, trouble: Trouble) -> Self {
        Self {
            what,
            tries: 0,
            failing: None,
            trouble,
        }
    }

    /// A try failed: says so if it is the first, and answers how long to wait.
    pub fn failed(&mut self, transient: &Transient) -> Duration {
        let reason = &transient.stop.message;
        self.trouble.set(Some(reason.clone()));
        match &mut self.failing {
            None => {
                let cause = transient.cause.name();
                tracing::warn!(cause, "{} failed, trying again: {reason}", self.what);
                self.failing = Some(Failing {
                    since: Instant::now(),
                    reason: reason.clone(),
                });
            }
            Some(failing) => {
                tracing::debug!(tries = self.tries, "{} failed again: {reason}", self.what);
                failing.reason.clone_from(reason);
            }
        }
        self.tries = self.tries.saturating_add(1);
        let pause = PAUSE_FIRST_MS.saturating_mul(1 << self.tries.min(10).saturating_sub(1));
        Duration::from_millis(pause.min(PAUSE_MAX_MS))
    }

    /// It worked: says so if it had failed before.
    pub fn worked(&mut self) {
        if let Some(failing) = self.failing.take() {
            self.trouble.set(None);
            let seconds = failing.since.elapsed().as_secs_f64();
            tracing::info!(
                tries = self.tries,
                "{} works again after {seconds:.1} s",
                self.what
            );
        }
        self.tries = 0;
    }

    /// Why it failed last, while it does.
    pub fn reason(&self) -> Option<&str> {
        self.failing.as_ref().map(|failing| failing.reason.as_str())
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        // Nobody tries any more.
        self.trouble.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_pass_by_themselves_are_counted_by_cause() {
        let check = |code: &str, cause: Option<Cause>| {
            let found = cause_of(SqlState::from_code(code)).map(|(cause, _)| cause);
            assert_eq!(found, cause, "{code}");
        };
        check("40P01", Some(Cause::Lock));
        check("40001", Some(Cause::Lock));
        check("55P03", Some(Cause::Lock));
        check("57014", Some(Cause::Cancel));
        check("57P01", Some(Cause::Shutdown));
        check("08006", Some(Cause::Connection));
        check("25006", Some(Cause::ReadOnly));
        check("53100", Some(Cause::DiskFull));
        check("53300", Some(Cause::Resources));
        check("55006", Some(Cause::OriginInUse));
        check("23505", None);
        check("42P01", None);
    }

    #[test]
    fn facts_have_the_stop_of_their_class() {
        let check = |code: &str, kind: StopKind| {
            assert_eq!(kind_of(SqlState::from_code(code)), kind, "{code}");
        };
        check("23502", StopKind::RowRefused);
        check("22001", StopKind::RowRefused);
        check("42P01", StopKind::SubscriberShape);
        check("42501", StopKind::MissingRight);
        check("53400", StopKind::OriginLimit);
        check("3D000", StopKind::Usage);
        check("57P04", StopKind::Usage);
        check("P0001", StopKind::SubscriberError);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_start_anew() {
        let mut retry = Retry::new("a thing");
        let Failure::Transient(transient) =
            Failure::transient(Cause::Kafka, StopKind::KafkaUnreachable, String::new())
        else {
            unreachable!("made transient")
        };
        let pauses: Vec<u128> = (0..9)
            .map(|_| retry.failed(&transient).as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        retry.worked();
        assert_eq!(retry.failed(&transient).as_millis(), 100);
    }
}
