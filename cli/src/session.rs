//! Sessions with the two servers for what a command asks once, and their errors as stops.
//!
//! Text settings are pinned so that answers do not depend on a role's or a database's own. A
//! command that asks once does not retry: what is transient to a pipeline is an answer here.

use walbraid_producer::slot;
use walbraid_schemas::{Stop, StopKind};
use walbraid_wire::replication::SystemIdentity;
use walbraid_wire::{Connection, Error, Replication, Sql, SqlState, Startup};

use crate::config::Config;

/// A session.
pub(crate) type Session = Sql;

const SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "UTC"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
];

/// A session with the publisher.
pub(crate) async fn publisher(config: &Config, application: &str) -> Result<Session, Stop> {
    let options = config.producer.publisher.connect.clone();
    let options = options.with_default_application_name(application);
    walbraid_wire::sql(&options, SETTINGS)
        .await
        .map_err(|error| stop("publisher", &error))
}

/// A session with the subscriber.
pub(crate) async fn subscriber(config: &Config, application: &str) -> Result<Session, Stop> {
    let options = config
        .consumer
        .subscriber
        .connect
        .clone()
        .with_default_application_name(application);
    walbraid_wire::sql(&options, SETTINGS)
        .await
        .map_err(|error| stop("subscriber", &error))
}

/// A session with the subscriber that writes where sessions are read-only by default, as those that
/// apply do.
pub(crate) async fn writing_subscriber(
    config: &Config,
    application: &str,
) -> Result<Session, Stop> {
    let session = subscriber(config, application).await?;
    session
        .batch_execute("SET default_transaction_read_only = off")
        .await
        .or_stop("subscriber")?;
    Ok(session)
}

/// An error of a server, in its own words.
pub(crate) fn stop(server: &str, error: &Error) -> Stop {
    let kind = match error {
        Error::Configuration { .. } => StopKind::Usage,
        Error::Unreachable { .. } | Error::Closed { .. } | Error::Tls { .. } => {
            StopKind::ServerUnreachable
        }
        Error::Authentication { .. } => StopKind::Authentication,
        Error::Server(error) => server_kind(error.sqlstate, &error.message),
        _ => StopKind::Internal,
    };
    let words = error
        .server_error()
        .map_or_else(|| error.to_string(), |e| e.message.clone());
    let mut stop = Stop::new(kind, format!("{server}: {words}"));
    stop.detail = error.detail().map(str::to_owned);
    stop.hint = match (error.hint(), kind) {
        (Some(hint), _) => Some(hint.to_owned()),
        (None, StopKind::NoFreeSlotOrWalsender) => Some(slot::FREE_A_WALSENDER.to_owned()),
        (None, _) => error.remedy(server),
    };
    stop
}

fn server_kind(state: SqlState, message: &str) -> StopKind {
    match state {
        // The setting's name stands in the message in every language.
        SqlState::TOO_MANY_CONNECTIONS if message.contains("max_wal_senders") => {
            StopKind::NoFreeSlotOrWalsender
        }
        SqlState::INSUFFICIENT_PRIVILEGE => StopKind::MissingRight,
        SqlState::INVALID_CATALOG_NAME | SqlState::DATABASE_DROPPED => StopKind::Usage,
        SqlState::READ_ONLY_SQL_TRANSACTION => StopKind::SubscriberReadOnly,
        SqlState::DISK_FULL => StopKind::DiskFull,
        SqlState::OBJECT_IN_USE => StopKind::SlotInUse,
        _ if state.class() == "28" => StopKind::Authentication,
        _ if state.is_transient() => StopKind::ServerUnreachable,
        _ => StopKind::Internal,
    }
}

/// Turns the errors of a client into stops that name their server.
pub(crate) trait OrStop<T> {
    /// The value, or the stop.
    fn or_stop(self, server: &str) -> Result<T, Stop>;
}

impl<T> OrStop<T> for Result<T, tokio_postgres::Error> {
    fn or_stop(self, server: &str) -> Result<T, Stop> {
        self.map_err(|error| stop(server, &Error::from(error)))
    }
}

impl<T> OrStop<T> for Result<T, Error> {
    fn or_stop(self, server: &str) -> Result<T, Stop> {
        self.map_err(|error| stop(server, &error))
    }
}

/// Which server the publisher is, asked as a walsender is: who may not replicate learns it here.
pub(crate) async fn identify(config: &Config) -> Result<SystemIdentity, Stop> {
    let startup = Startup {
        replication: Replication::Database,
        ..Startup::default()
    };
    let connect = &config.producer.publisher.connect;
    let mut connection = Connection::connect(connect, &startup)
        .await
        .or_stop("publisher")?;
    let identity = connection.identify_system().await.or_stop("publisher")?;
    connection.close().await.or_stop("publisher")?;
    Ok(identity)
}
