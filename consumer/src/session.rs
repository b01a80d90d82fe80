//! An apply session: a connection that is pinned, fenced, and holds its worker's origin.
//!
//! Order of the steps, each of which must hold before the next: settings that change what a
//! statement does are pinned and read back; the session takes its share of the lane's lock and
//! finds that the lane is still ours; it takes its origin; it prepares the statements that frame a
//! unit.
//!
//! Why these settings: `session_replication_role = replica` because what the publisher's triggers
//! and foreign keys did is in the log already; `synchronous_commit = off` because durability is
//! asked for from the side (`flusher`); text settings so that a value means what it meant on the
//! publisher, whatever the role's own settings are; generic plans, no sequential scan where an
//! index serves, no JIT, because every statement is a lookup of one row; `row_security = off` so
//! that a policy is an error and never a row that silently is not found.

use std::time::Duration;

use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_wire::{
    CancelToken, ConnectOptions, Connection, Error, Receiver, Sender, ServerVersion, SqlState,
    Startup,
};

use crate::fence::{Ownership, owned_sql, share_sql};
use crate::origin::create_sql;
use crate::policy::Failure;

/// Text settings of every session that handles values.
pub(crate) const TEXT_SETTINGS: &[(&str, &str)] = &[
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("xmloption", "content"),
    ("array_nulls", "on"),
];

/// How a statement behaves in an apply session.
const APPLY_SETTINGS: &[(&str, &str)] = &[
    ("session_replication_role", "replica"),
    ("synchronous_commit", "off"),
    ("search_path", "pg_catalog"),
    ("row_security", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
];

/// Name of the prepared BEGIN.
pub(crate) const BEGIN: &str = "begin";
/// Name of the prepared COMMIT.
pub(crate) const COMMIT: &str = "commit";
/// Name of the prepared statement that says where the target transaction ends: its parameters are
/// end LSN, commit time, claim offset and options hash.
pub(crate) const PROGRESS: &str = "progress";

/// Oids of pg_lsn, timestamptz and int8.
const PG_LSN: u32 = 3220;
const TIMESTAMPTZ: u32 = 1184;
const INT8: u32 = 20;

/// How often an origin that is in use is tried again before that is an error.
const ORIGIN_TRIES: u32 = 20;

/// Pause between two tries.
const ORIGIN_PAUSE_MS: u64 = 20;

/// Microseconds between 1970 and PostgreSQL's 2000.
const EPOCH_SHIFT_US: i64 = 946_684_800 * 1_000_000;

/// What an apply session needs to be.
#[derive(Clone, Debug)]
pub(crate) struct SessionConfig {
    /// Where the subscriber is.
    pub(crate) options: ConnectOptions,
    /// The name shown in `pg_stat_activity`.
    pub(crate) application_name: String,
    /// Limit of a statement; 0 for none.
    pub(crate) statement_timeout_ms: u64,
    /// Limit of a wait for a lock; 0 for none.
    pub(crate) lock_timeout_ms: u64,
}

/// A session that may write to the lane.
pub(crate) struct Session {
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    /// Cancels what runs on it.
    pub(crate) cancel: CancelToken,
    /// The server process that serves it.
    pub(crate) process_id: i32,
    pub(crate) version: ServerVersion,
}

impl Session {
    /// Connects and goes through all steps.
    pub(crate) async fn open(
        config: &SessionConfig,
        ownership: &Ownership,
        origin: &str,
    ) -> Result<Self, Failure> {
        let name = [("application_name", config.application_name.as_str())];
        let startup = Startup {
            parameters: &name,
            ..Startup::default()
        };
        let mut connection = Connection::connect(&config.options, &startup).await?;
        pin(&mut connection, config).await?;
        connection.simple_query(&share_sql(ownership)).await?;
        if connection
            .simple_query(&owned_sql(ownership))
            .await?
            .is_empty()
        {
            // Whoever took the lane ends this session too; the error of closing says nothing.
            let _ = connection.close().await;
            return Err(Failure::Fenced);
        }
        connection.simple_query(&create_sql(origin)).await?;
        let origin = origin.replace('\'', "''");
        let take_origin =
            format!("SELECT pg_catalog.pg_replication_origin_session_setup('{origin}')");
        take(&mut connection, &take_origin).await?;
        let version = connection.server_version();
        let (cancel, process_id) = (connection.cancel_token(), connection.backend_pid());
        let (receiver, sender) = connection.into_split();
        let mut session = Self {
            receiver,
            sender,
            cancel,
            process_id,
            version,
        };
        session.prepare_frame(ownership).await?;
        Ok(session)
    }

    async fn prepare_frame(&mut self, ownership: &Ownership) -> Result<(), Failure> {
        let sender = &mut self.sender;
        sender.parse(
            BEGIN,
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            &[],
        );
        sender.parse(COMMIT, "COMMIT", &[]);
        let progress = format!(
            "INSERT INTO walbraid.progress (lane_id, end_lsn, claim_offset, options_hash) \
             SELECT {}, $1, $3, $4 \
             FROM pg_catalog.pg_replication_origin_xact_setup($1, $2)",
            ownership.lane_id
        );
        sender.parse(PROGRESS, &progress, &[PG_LSN, TIMESTAMPTZ, INT8, INT8]);
        self.sync().await
    }

    /// Sends Sync, with whatever is before it, and reads up to its ReadyForQuery.
    pub(crate) async fn sync(&mut self) -> Result<(), Failure> {
        self.sender.sync();
        self.sender.send_reading(&mut self.receiver).await?;
        self.until_ready().await.map(|_| ())
    }

    /// Reads up to ReadyForQuery; an ErrorResponse on the way is the answer.
    pub(crate) async fn until_ready(
        &mut self,
    ) -> Result<walbraid_wire::TransactionStatus, Failure> {
        use walbraid_wire::BackendMessage as Message;
        let mut failed = None;
        loop {
            match self.receiver.next().await {
                Ok(Message::ReadyForQuery(status)) => match failed {
                    None => return Ok(status),
                    Some(error) => return Err(Error::Server(error).into()),
                },
                Ok(Message::ErrorResponse(error)) => failed = Some(error),
                Ok(_) => {}
                Err(error) => {
                    return Err(failed.map_or(error, Error::Server).into());
                }
            }
        }
    }
}

/// A commit time in the binary form of a timestamptz.
pub(crate) fn commit_time(commit_time_us: i64) -> [u8; 8] {
    // Zero lets the server take its own clock, for links that have no time.
    let time = if commit_time_us == 0 {
        0
    } else {
        commit_time_us - EPOCH_SHIFT_US
    };
    time.to_be_bytes()
}

/// Takes the origin; a session that was just ended holds it for a moment longer than its lock.
async fn take(connection: &mut Connection, sql: &str) -> Result<(), Failure> {
    for _ in 0..ORIGIN_TRIES {
        match connection.simple_query(sql).await {
            Ok(_) => return Ok(()),
            Err(error) if error.sqlstate() == Some(SqlState::OBJECT_IN_USE) => {
                tokio::time::sleep(Duration::from_millis(ORIGIN_PAUSE_MS)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    connection.simple_query(sql).await?;
    Ok(())
}

const SEEN: &str = "SELECT current_setting('session_replication_role'), \
    current_setting('synchronous_commit'), current_setting('transaction_read_only')";

async fn pin(connection: &mut Connection, config: &SessionConfig) -> Result<(), Failure> {
    let mut sql = String::new();
    for (name, value) in TEXT_SETTINGS.iter().chain(APPLY_SETTINGS) {
        sql.push_str(&format!("SET {name} = '{value}';"));
    }
    if connection.server_version().major >= 17 {
        sql.push_str("SET transaction_timeout = 0;");
    }
    sql.push_str(&format!(
        "SET statement_timeout = {};",
        config.statement_timeout_ms
    ));
    sql.push_str(&format!("SET lock_timeout = {};", config.lock_timeout_ms));
    connection.simple_query(&sql).await?;
    // A query of its own: several statements in one are one transaction, which would still be what
    // it was when it began, read-only by default.
    let rows = connection.simple_query(SEEN).await?;
    let seen: Vec<&str> = rows
        .iter()
        .flat_map(|row| (0..3).filter_map(|index| row.value(index)))
        .collect();
    match seen.as_slice() {
        ["replica", "off", "off"] => Ok(()),
        [_, _, "on"] => {
            let message = "the subscriber is read-only".to_owned();
            let kind = StopKind::SubscriberReadOnly;
            Err(Failure::transient(
                crate::policy::Cause::ReadOnly,
                kind,
                message,
            ))
        }
        _ => {
            let stop = Stop::new(
                StopKind::SubscriberError,
                "settings of the apply session do not hold on the subscriber",
            )
            .detail(format!(
                "session_replication_role and synchronous_commit read {}.",
                seen.join(" and ")
            ))
            .hint("Connect without a pooler, or with one in session mode.");
            Err(Failure::Definite(stop))
        }
    }
}
