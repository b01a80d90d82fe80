//! What can go wrong on a connection, sorted by what the caller does about it.
//!
//! Unreachable and closed are waited out; configuration, TLS, authentication and unsupported need
//! a person; a server's error is judged by its SQLSTATE; a protocol error is a bug on one side.
//! No text here ever holds a password or a row.

use std::io;

use crate::server_error::ServerError;
use crate::sqlstate::SqlState;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection string, a file it names, or a setting is wrong.
    #[error("{message}")]
    Configuration {
        /// What is wrong, naming the parameter.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Nothing answers at the address, or not in time.
    #[error("could not connect to server at {server}: {source}")]
    Unreachable {
        /// Host and port, or the socket.
        server: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server does not speak TLS, or its certificate is refused.
    #[error("could not establish TLS with server at {server}: {message}")]
    Tls {
        /// Host and port.
        server: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The server does not let us in, or cannot prove that it knows our password.
    #[error("authentication failed at server {server}: {message}")]
    Authentication {
        /// Host and port, or the socket.
        server: String,
        /// What is wrong.
        message: String,
        /// The server's own words, if it was the server that refused.
        error: Option<Box<ServerError>>,
    },
    /// The server reports an error.
    #[error("{0}")]
    Server(#[source] Box<ServerError>),
    /// The server is too old for what is asked of it.
    #[error("{option} needs PostgreSQL {needs} or newer, the server is {has}")]
    Unsupported {
        /// The option, as it is written in the command.
        option: &'static str,
        /// First major version that has it.
        needs: u32,
        /// Major version of the server.
        has: u32,
    },
    /// The other side does not keep to the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The connection is gone.
    #[error("connection to server was lost{}", reason(.source))]
    Closed {
        /// What the system said; nothing when the server closed it in the ordinary way.
        source: Option<io::Error>,
    },
}

fn reason(source: &Option<io::Error>) -> String {
    source
        .as_ref()
        .map_or_else(String::new, |error| format!(": {error}"))
}

impl Error {
    /// The server's own words, if there are any.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Error::Server(error) => Some(error),
            Error::Authentication { error, .. } => error.as_deref(),
            _ => None,
        }
    }

    /// The SQLSTATE of the server's error.
    pub fn sqlstate(&self) -> Option<SqlState> {
        self.server_error().map(|error| error.sqlstate)
    }

    /// DETAIL, if there is one.
    pub fn detail(&self) -> Option<&str> {
        self.server_error()
            .and_then(|error| error.detail.as_deref())
    }

    /// HINT, if there is one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Configuration { hint, .. } | Error::Tls { hint, .. } => hint.as_deref(),
            _ => self.server_error().and_then(|error| error.hint.as_deref()),
        }
    }

    /// True for what passes by itself, so that trying again is right.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::Closed { .. } => true,
            Error::Server(error) => error.sqlstate.is_transient(),
            Error::Configuration { .. }
            | Error::Tls { .. }
            | Error::Authentication { .. }
            | Error::Unsupported { .. }
            | Error::Protocol(_) => false,
        }
    }

    /// True when the session this came from is over.
    pub fn ends_session(&self) -> bool {
        match self {
            Error::Server(error) => error.ends_session(),
            Error::Configuration { .. } | Error::Unsupported { .. } => false,
            _ => true,
        }
    }

    pub(crate) fn configuration(message: impl Into<String>) -> Error {
        Error::Configuration {
            message: message.into(),
            hint: None,
        }
    }

    /// An input or output error on an established connection.
    pub(crate) fn lost(source: io::Error) -> Error {
        match source.kind() {
            // Rustls reports a peer that breaks TLS so.
            io::ErrorKind::InvalidData => Error::Protocol(source.to_string()),
            io::ErrorKind::UnexpectedEof => Error::Closed { source: None },
            _ => Error::Closed {
                source: Some(source),
            },
        }
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Error {
        Error::Server(Box::new(error))
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        if let Some(db_error) = error.as_db_error() {
            return Error::Server(Box::new(ServerError::from(db_error)));
        }
        if error.is_closed() {
            return Error::Closed { source: None };
        }
        let message = chain(&error);
        match error
            .into_source()
            .map(|source| source.downcast::<io::Error>())
        {
            Some(Ok(source)) => Error::lost(*source),
            _ => Error::Protocol(message),
        }
    }
}

/// The text of an error with that of its causes behind it, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
