//! The `walbraid` schema of a subscriber: made, upgraded, removed; and the rights it takes.
//!
//! Each version has a file that makes it from the one before; a new schema is made by all of them.
//! It is made or upgraded in one transaction, under a lock that keeps two setups apart, so that
//! there is never half a schema; running it again does nothing. A schema of a newer version is
//! refused: this process would not know what it means.
//!
//! What a version adds, a consumer of the version before does without: it may run on while the
//! schema is upgraded, and stops when it is started anew.

use tokio_postgres::Client;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::policy::Failure;

/// The version that this process installs and understands.
pub const VERSION: i32 = 2;

/// What makes each version, from the first on.
pub const STEPS: [&str; VERSION as usize] = [
    include_str!("schema/version_1.sql"),
    include_str!("schema/version_2.sql"),
];

/// Keeps two setups of one database apart ("walb", "inst").
const INSTALL_LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(2002873442, 1768846196)";

/// What an installation did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Installed {
    /// The schema was made.
    Made,
    /// The schema was of an older version.
    Upgraded,
    /// It was there already.
    Found,
}

/// Makes or upgrades the schema unless it is there.
pub async fn install(client: &Client) -> Result<Installed, Failure> {
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let outcome = install_in_transaction(client).await;
    finish(client, outcome).await
}

async fn install_in_transaction(client: &Client) -> Result<Installed, Failure> {
    client.query_one(INSTALL_LOCK, &[]).await?;
    let found = version(client).await?;
    let (from, installed) = match found {
        None => (0, Installed::Made),
        Some(VERSION) => return Ok(Installed::Found),
        Some(older @ 1..VERSION) => (older.unsigned_abs(), Installed::Upgraded),
        Some(other) => return Err(Failure::Definite(unknown_version(other))),
    };
    for step in STEPS.iter().skip(from as usize) {
        client.batch_execute(step).await?;
    }
    Ok(installed)
}

/// The version that is installed; `None` when there is no walbraid schema.
pub async fn version(client: &Client) -> Result<Option<i32>, Failure> {
    let exists = "SELECT pg_catalog.to_regclass('walbraid.version') IS NOT NULL";
    if !client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    Ok(Some(
        client
            .query_one("SELECT version FROM walbraid.version", &[])
            .await?
            .try_get(0)?,
    ))
}

/// Fails unless a schema of this version is there.
pub async fn require(client: &Client) -> Result<(), Failure> {
    match version(client).await? {
        Some(VERSION) => Ok(()),
        Some(other) => Err(Failure::Definite(unknown_version(other))),
        None => {
            let message = "schema \"walbraid\" does not exist on the subscriber";
            let stop = Stop::new(StopKind::NotSetUp, message).hint("Run walbraid setup.");
            Err(Failure::Definite(stop))
        }
    }
}

/// Removes the schema; only when no stream stands in it any more.
pub async fn remove(client: &Client) -> Result<bool, Failure> {
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let outcome = remove_in_transaction(client).await;
    finish(client, outcome).await
}

async fn remove_in_transaction(client: &Client) -> Result<bool, Failure> {
    client.query_one(INSTALL_LOCK, &[]).await?;
    if version(client).await?.is_none() {
        return Ok(false);
    }
    let empty = "SELECT NOT EXISTS (SELECT FROM walbraid.streams)";
    if !client.query_one(empty, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(false);
    }
    client.batch_execute("DROP SCHEMA walbraid CASCADE").await?;
    Ok(true)
}

/// Ends the transaction as its outcome says.
pub(crate) async fn finish<T>(client: &Client, outcome: Result<T, Failure>) -> Result<T, Failure> {
    match outcome {
        Ok(value) => {
            client.batch_execute("COMMIT").await?;
            Ok(value)
        }
        Err(failure) => {
            // The first error is the one to tell; a lost connection rolls back by itself.
            let _ = client.batch_execute("ROLLBACK").await;
            Err(failure)
        }
    }
}

fn unknown_version(found: i32) -> Stop {
    let message =
        format!("schema \"walbraid\" of the subscriber is of version {found}, not {VERSION}");
    Stop::new(StopKind::NotSetUp, message).hint(match found < VERSION {
        true => "Run walbraid setup, which upgrades it.",
        false => "Use the walbraid that made it, or a newer one.",
    })
}

/// The functions that setting up a stream calls.
pub const SETUP_FUNCTIONS: &[&str] = &[
    "pg_catalog.pg_replication_origin_create(text)",
    "pg_catalog.pg_replication_origin_oid(text)",
];

/// The functions a consuming role must be allowed to call.
pub const FUNCTIONS: &[&str] = &[
    "pg_catalog.pg_replication_origin_create(text)",
    "pg_catalog.pg_replication_origin_drop(text)",
    "pg_catalog.pg_replication_origin_oid(text)",
    "pg_catalog.pg_replication_origin_progress(text, boolean)",
    "pg_catalog.pg_replication_origin_session_setup(text)",
    "pg_catalog.pg_replication_origin_session_reset()",
    "pg_catalog.pg_replication_origin_xact_setup(pg_lsn, timestamptz)",
    "pg_catalog.pg_replication_origin_xact_reset()",
];

/// The SQL that gives a role what consuming takes, but for the rights on the user's tables. From
/// 15 on a plain role is enough; on 14 it must be a superuser.
pub fn rights_sql(role: &str, server_version: u32) -> Vec<String> {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let mut statements: Vec<String> = FUNCTIONS
        .iter()
        .map(|function| format!("GRANT EXECUTE ON FUNCTION {function} TO {role};"))
        .collect();
    if server_version >= 150_000 {
        statements.push(format!(
            "GRANT SET ON PARAMETER session_replication_role TO {role};"
        ));
    }
    statements.push(format!("GRANT USAGE ON SCHEMA walbraid TO {role};"));
    statements.push(format!(
        "GRANT SELECT ON ALL TABLES IN SCHEMA walbraid TO {role};"
    ));
    statements.push(format!("GRANT UPDATE ON walbraid.lanes TO {role};"));
    statements.push(format!(
        "GRANT INSERT, DELETE ON walbraid.progress TO {role};"
    ));
    statements.push(format!(
        "GRANT INSERT, UPDATE, DELETE ON walbraid.explained, walbraid.recordings TO {role};"
    ));
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_makes_the_version_that_is_understood() {
        let version = format!("SET version = {VERSION},");
        assert!(STEPS.last().unwrap().contains(&version));
    }

    #[test]
    fn who_finds_another_version_is_told_what_to_do() {
        let check = |found, hint: &str| {
            assert_eq!(unknown_version(found).hint.as_deref(), Some(hint));
        };
        check(VERSION - 1, "Run walbraid setup, which upgrades it.");
        check(
            VERSION + 1,
            "Use the walbraid that made it, or a newer one.",
        );
    }

    #[test]
    fn rights_depend_on_the_servers_version() {
        let sets = |version| {
            rights_sql("me", version)
                .iter()
                .any(|sql| sql.contains("session_replication_role"))
        };
        assert!(!sets(140_000));
        assert!(sets(150_000));
        assert!(
            rights_sql("a\"b", 180_000)
                .iter()
                .all(|sql| sql.contains("\"a\"\"b\""))
        );
    }
}
