//! What a person does about a connection that was not made: the HINT where the server gives none.
//!
//! Owns the words. Whose connection it is the caller says; the key of the configuration that holds
//! the connection string is named after it. Of what goes wrong later, inside a session, only two
//! things have a remedy here: a server that is read-only, and functions that a role may not call.
//!
//! Which error it is stands in the SQLSTATE, and for those that share one in what the server says
//! in every language: the name of its function, of a file.

use crate::authentication::NO_PASSWORD;
use crate::error::Error;
use crate::server_error::ServerError;
use crate::sqlstate::SqlState;

/// The server's function that looks the role up.
const ROLE_LOOKUP: &str = "InitializeSessionUserId";

impl Error {
    /// What helps, if it is known; `side` is "publisher" or "subscriber".
    pub fn remedy(&self, side: &str) -> Option<String> {
        let remedy = match self {
            Error::Unreachable { .. } => format!(
                "Check host and port in \"{side}.url\", and that the server runs there and accepts \
                 connections."
            ),
            Error::Authentication { message, error, .. } => match error {
                Some(error) => refused(error, side)?,
                None if message == NO_PASSWORD => format!(
                    "Give it in a passfile (~/.pgpass, readable by its owner only), in PGPASSWORD, \
                     or in \"{side}.url\"."
                ),
                None => return None,
            },
            Error::Server(error) => refused(error, side)?,
            _ => return None,
        };
        Some(remedy)
    }
}

fn refused(error: &ServerError, side: &str) -> Option<String> {
    let remedy = match error.sqlstate {
        SqlState::READ_ONLY_SQL_TRANSACTION => format!(
            "Name the primary in \"{side}.url\", or every host with \
             target_session_attrs=read-write."
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            let function = origin_function(&error.message)?;
            format!(
                "As a superuser, GRANT EXECUTE ON FUNCTION pg_catalog.{function} to the role of \
                 \"{side}.url\"; all that it needs stands under \"Roles and rights\" in \
                 docs/operations.md."
            )
        }
        SqlState::INVALID_PASSWORD => format!(
            "Check the user in \"{side}.url\", and the password there, in PGPASSWORD, or in the \
             passfile."
        ),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            if error.routine.as_deref() == Some(ROLE_LOOKUP) =>
        {
            format!(
                "Create the role, give it LOGIN if it has not, or name another user in \
                 \"{side}.url\"."
            )
        }
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION if error.message.contains("pg_hba.conf") => {
            format!(
                "Let it in by a line in the server's pg_hba.conf, or check user, database and \
                 sslmode in \"{side}.url\"."
            )
        }
        SqlState::INVALID_CATALOG_NAME => {
            format!("Create the database, or name another one in \"{side}.url\".")
        }
        _ => return None,
    };
    Some(remedy)
}

/// The function of replication origins that a message names, in every language.
fn origin_function(message: &str) -> Option<&str> {
    let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_';
    message
        .split(|one| !is_part(one))
        .find(|word| word.starts_with("pg_replication_origin_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &Error, expected: Option<&str>) {
        let found = error.remedy("publisher");
        match expected {
            Some(words) => assert!(
                found.as_ref().is_some_and(|f| f.contains(words)),
                "{found:?}"
            ),
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn who_is_not_let_in_learns_what_to_look_at() {
        let server = |code: &str, message: &str, routine: Option<&str>| {
            let state = SqlState::from_code(code);
            let mut error = ServerError::with_message(state, message.to_owned());
            error.routine = routine.map(str::to_owned);
            Error::from(error)
        };
        let refused = |message: &str| Error::Authentication {
            server: "a:1".to_owned(),
            message: message.to_owned(),
            error: None,
        };
        check(&server("28P01", "", None), Some("PGPASSWORD"));
        check(&refused(NO_PASSWORD), Some("passfile"));
        check(&refused("another method"), None);
        check(
            &server("28000", "Rolle »a« existiert nicht", Some(ROLE_LOOKUP)),
            Some("Create the role"),
        );
        check(
            &server("28000", "no pg_hba.conf entry for host", None),
            Some("pg_hba.conf"),
        );
        check(&server("28000", "peer", None), None);
        check(&server("3D000", "", None), Some("\"publisher.url\""));
        check(&server("42P01", "", None), None);
        check(
            &server(
                "42501",
                "permission denied for function pg_replication_origin_oid",
                None,
            ),
            Some("GRANT EXECUTE ON FUNCTION pg_catalog.pg_replication_origin_oid to"),
        );
        check(
            &server("42501", "permission denied for table t", None),
            None,
        );
        check(
            &server(
                "25006",
                "cannot execute INSERT in a read-only transaction",
                None,
            ),
            Some("target_session_attrs"),
        );
        let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let server = "a:1".to_owned();
        check(
            &Error::Unreachable { server, source },
            Some("\"publisher.url\""),
        );
        check(&Error::Closed { source: None }, None);
    }
}
