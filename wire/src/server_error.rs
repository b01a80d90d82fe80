//! ErrorResponse and NoticeResponse: what a server says of an error, all fields of it.
//!
//! The fields keep the server's own words, so that a stop can hold them unchanged. Text that is
//! not UTF-8 (an error sent before the client encoding holds) is shown as well as it can be,
//! never refused: an error must not hide behind another.

use std::fmt;

use crate::sqlstate::SqlState;

/// How bad it is, untranslated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session is over.
    Fatal,
    /// The server is over.
    Panic,
    /// Something to know.
    Warning,
    /// Something to know.
    Notice,
    /// Something to know.
    Debug,
    /// Something to know.
    Info,
    /// Something to know.
    Log,
}

impl Severity {
    fn from_word(word: &str) -> Severity {
        match word {
            "FATAL" => Severity::Fatal,
            "PANIC" => Severity::Panic,
            "WARNING" => Severity::Warning,
            "NOTICE" => Severity::Notice,
            "DEBUG" => Severity::Debug,
            "INFO" => Severity::Info,
            "LOG" => Severity::Log,
            _ => Severity::Error,
        }
    }

    /// PostgreSQL's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Panic => "PANIC",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
            Severity::Debug => "DEBUG",
            Severity::Info => "INFO",
            Severity::Log => "LOG",
        }
    }
}

/// An error or notice of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// How bad it is.
    pub severity: Severity,
    /// The kind of the error.
    pub sqlstate: SqlState,
    /// The primary message.
    pub message: String,
    /// DETAIL.
    pub detail: Option<String>,
    /// HINT.
    pub hint: Option<String>,
    /// Character position in the statement, from 1.
    pub position: Option<u32>,
    /// Character position in `internal_query`, from 1.
    pub internal_position: Option<u32>,
    /// The statement a function ran.
    pub internal_query: Option<String>,
    /// CONTEXT.
    pub context: Option<String>,
    /// Schema of the object concerned.
    pub schema: Option<String>,
    /// Table concerned.
    pub table: Option<String>,
    /// Column concerned.
    pub column: Option<String>,
    /// Data type concerned.
    pub data_type: Option<String>,
    /// Constraint concerned.
    pub constraint: Option<String>,
    /// Source file of the server.
    pub file: Option<String>,
    /// Line in that file.
    pub line: Option<u32>,
    /// Function of the server.
    pub routine: Option<String>,
}

impl ServerError {
    /// Reads the body of an ErrorResponse or NoticeResponse: (type byte, C string)*, zero byte.
    pub(crate) fn parse(mut body: &[u8]) -> Option<ServerError> {
        let mut error = ServerError::with_message(SqlState::INTERNAL_ERROR, String::new());
        let mut localized = None;
        let mut severity = None;
        loop {
            let (&kind, rest) = body.split_first()?;
            if kind == 0 {
                break;
            }
            let end = rest.iter().position(|&byte| byte == 0)?;
            let (text, after) = rest.split_at(end);
            body = after.get(1..)?;
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                b'S' => localized = Some(text),
                b'V' => severity = Some(text),
                b'C' => error.sqlstate = SqlState::from_code(&text),
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                b'P' => error.position = text.parse().ok(),
                b'p' => error.internal_position = text.parse().ok(),
                b'q' => error.internal_query = Some(text),
                b'W' => error.context = Some(text),
                b's' => error.schema = Some(text),
                b't' => error.table = Some(text),
                b'c' => error.column = Some(text),
                b'd' => error.data_type = Some(text),
                b'n' => error.constraint = Some(text),
                b'F' => error.file = Some(text),
                b'L' => error.line = text.parse().ok(),
                b'R' => error.routine = Some(text),
                // The protocol says that kinds we do not know are to be passed over.
                _ => {}
            }
        }
        if let Some(word) = severity.or(localized) {
            error.severity = Severity::from_word(&word);
        }
        Some(error)
    }

    /// An error of this kind that says this and nothing else.
    pub fn with_message(sqlstate: SqlState, message: String) -> ServerError {
        ServerError {
            severity: Severity::Error,
            sqlstate,
            message,
            detail: None,
            hint: None,
            position: None,
            internal_position: None,
            internal_query: None,
            context: None,
            schema: None,
            table: None,
            column: None,
            data_type: None,
            constraint: None,
            file: None,
            line: None,
            routine: None,
        }
    }

    /// True when the server ends the session with it.
    pub fn ends_session(&self) -> bool {
        matches!(self.severity, Severity::Fatal | Severity::Panic)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> ServerError {
        use tokio_postgres::error::ErrorPosition;
        let text = |value: Option<&str>| value.map(str::to_owned);
        let mut out = ServerError::with_message(
            SqlState::from_code(error.code().code()),
            error.message().to_owned(),
        );
        out.severity = Severity::from_word(error.severity());
        out.detail = text(error.detail());
        out.hint = text(error.hint());
        match error.position() {
            Some(ErrorPosition::Original(position)) => out.position = Some(*position),
            Some(ErrorPosition::Internal { position, query }) => {
                out.internal_position = Some(*position);
                out.internal_query = Some(query.clone());
            }
            None => {}
        }
        out.context = text(error.where_());
        out.schema = text(error.schema());
        out.table = text(error.table());
        out.column = text(error.column());
        out.data_type = text(error.datatype());
        out.constraint = text(error.constraint());
        out.file = text(error.file());
        out.line = error.line();
        out.routine = text(error.routine());
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_field_is_kept() {
        let body = b"SFEHLER\0VERROR\0C23505\0Mduplicate key\0DKey (id)=(1) already exists.\0\
            HThink.\0P7\0WPL/pgSQL\0spublic\0tt\0cid\0dint4\0nt_pkey\0Ffile.c\0\
            L12\0Rr\0Zunknown\0\0";
        let error = ServerError::parse(body).unwrap();
        assert_eq!(error.severity, Severity::Error);
        assert_eq!(error.sqlstate, SqlState::UNIQUE_VIOLATION);
        assert_eq!(error.message, "duplicate key");
        assert_eq!(
            error.detail.as_deref(),
            Some("Key (id)=(1) already exists.")
        );
        assert_eq!(error.hint.as_deref(), Some("Think."));
        assert_eq!(error.position, Some(7));
        assert_eq!(error.context.as_deref(), Some("PL/pgSQL"));
        assert_eq!(error.schema.as_deref(), Some("public"));
        assert_eq!(error.table.as_deref(), Some("t"));
        assert_eq!(error.column.as_deref(), Some("id"));
        assert_eq!(error.data_type.as_deref(), Some("int4"));
        assert_eq!(error.constraint.as_deref(), Some("t_pkey"));
        assert_eq!(error.line, Some(12));
        assert!(!error.ends_session());
    }

    #[test]
    fn a_cut_body_is_refused() {
        for cut in ["", "M", "Mno end", "Mtext\0"] {
            assert!(ServerError::parse(cut.as_bytes()).is_none(), "{cut:?}");
        }
    }

    #[test]
    fn text_in_another_encoding_is_shown() {
        let error = ServerError::parse(b"SFATAL\0C28P01\0Mpa\xdfwort\0\0").unwrap();
        assert_eq!(error.message, "pa\u{fffd}wort");
        assert!(error.ends_session());
    }
}
