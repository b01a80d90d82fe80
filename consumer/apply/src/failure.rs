//! What a worker reports when a unit did not go through, and the stop it becomes if it is a fact.
//!
//! A stop names stream, transaction, LSN, relation and constraint beside the server's own words.
//! No row values: the server's DETAIL is left out where it quotes rows or keys, and so is the value
//! that a data exception quotes in the message itself.

use walbraid_schemas::notice::{Stop, StopKind};

use crate::binding::BuildError;
use crate::missing::Missing;
use crate::quote;
use crate::unit::Transaction;

/// Where in a unit something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which transaction of the unit.
    pub transaction: usize,
    /// Which change of that transaction, counted over all its pieces from 0.
    pub change: usize,
}

/// An ErrorResponse of the subscriber, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFailure {
    /// Five characters.
    pub sqlstate: String,
    /// Primary message.
    pub message: String,
    /// DETAIL.
    pub detail: Option<String>,
    /// HINT.
    pub hint: Option<String>,
    /// Schema of the relation it is about.
    pub schema: Option<String>,
    /// The relation.
    pub table: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The constraint.
    pub constraint: Option<String>,
}

/// Why a unit did not go through.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The subscriber refused something.
    Server {
        /// What the server said.
        error: ServerFailure,
        /// The change whose statement failed; none for BEGIN, COMMIT and the like.
        place: Option<Place>,
        /// Relation of that statement, quoted.
        relation: Option<String>,
    },
    /// A row was not found, and the policy says that this is an error.
    Missing {
        /// Which row of which relation.
        missing: Missing,
        /// The change.
        place: Place,
    },
    /// No statement could be made of a change.
    Build {
        /// Why.
        error: BuildError,
        /// The change.
        place: Place,
    },
}

impl Failure {
    /// The primary message, for a line in the log.
    pub fn message(&self) -> String {
        match self {
            Self::Server { error, .. } => error.words(),
            Self::Missing { missing, .. } => missing.error_message(),
            Self::Build { error, .. } => error.to_string(),
        }
    }

    /// The stop that the failure of this transaction is.
    pub fn stop(&self, kind: StopKind, stream: &str, transaction: &Transaction) -> Stop {
        let stop = match self {
            Self::Server {
                error, relation, ..
            } => error.stop(kind, relation.as_deref()),
            Self::Missing { missing, .. } => {
                let stop = Stop::new(kind, missing.error_message()).detail(missing.detail());
                stop.hint("Insert the row on the subscriber, or set on_missing to \"skip\".")
            }
            Self::Build { error, .. } => error.stop(),
        };
        locate(stop, stream, transaction)
    }
}

/// Marks of a quotation in the languages that the server speaks.
const QUOTES: [char; 6] = ['"', '«', '»', '„', '“', '”'];

impl ServerFailure {
    /// The primary message without the value that it quotes. Names are quoted too, but not by data
    /// exceptions, which name types only; those about encodings quote these, and give the value as
    /// bytes.
    fn words(&self) -> String {
        let message = &self.message;
        match self.sqlstate.as_str() {
            "22P05" | "22021" if quotes_encodings_only(message) => without_bytes(message),
            state if state.starts_with("22") => without_quotation(message),
            _ => message.clone(),
        }
    }

    /// The server's HINT, but where it asks for another TRUNCATE than the one in the log.
    fn remedy(&self) -> Option<&str> {
        let hint = self.hint.as_deref()?;
        let asks = |keyword| hint.contains(keyword);
        // Keywords are the same in every language.
        Some(
            match self.sqlstate == "0A000" && asks("TRUNCATE") && asks("CASCADE") {
                true => TRUNCATE_REFERENCED,
                false => hint,
            },
        )
    }

    fn stop(&self, kind: StopKind, relation: Option<&str>) -> Stop {
        let mut details = Vec::new();
        if let Some(detail) = self
            .detail
            .as_ref()
            .filter(|_| !quotes_rows(&self.sqlstate))
        {
            details.push(detail.clone());
        }
        let relation = match (&self.schema, &self.table) {
            (Some(schema), Some(table)) => Some(quote::qualified(schema, table)),
            _ => relation.map(str::to_owned),
        };
        if let Some(relation) = relation {
            details.push(format!("Relation: {relation}."));
        }
        if let Some(column) = &self.column {
            details.push(format!("Column: {}.", quote::identifier(column)));
        }
        if let Some(constraint) = &self.constraint {
            details.push(format!("Constraint: {}.", quote::identifier(constraint)));
        }
        details.push(format!("SQLSTATE: {}.", self.sqlstate));
        let hint = self
            .remedy()
            .unwrap_or("Nothing of the transaction was applied. Mend the cause and start again.");
        Stop::new(kind, self.words())
            .detail(details.join(" "))
            .hint(hint)
    }
}

/// What helps where a table of the subscriber's own references a truncated one.
const TRUNCATE_REFERENCED: &str = "Drop the foreign key on the subscriber, or set \
                                   \"consumer.truncate_cascade\" to true, so that TRUNCATE empties \
                                   the table that has it too.";

/// What stands in the place of a value.
const A_VALUE: &str = "(a value)";

fn without_quotation(message: &str) -> String {
    let quotation = message.find(QUOTES).zip(message.rfind(QUOTES));
    let Some((from, to)) = quotation.filter(|(from, to)| from < to) else {
        return message.to_owned();
    };
    let (before, rest) = message.split_at(from);
    let after = rest[to - from..].trim_start_matches(QUOTES);
    format!("{before}{A_VALUE}{after}")
}

/// How the names of PostgreSQL's encodings begin.
const ENCODINGS: [&str; 15] = [
    "SQL_ASCII",
    "UTF8",
    "LATIN",
    "WIN",
    "ISO_8859_",
    "KOI8",
    "EUC_",
    "MULE_INTERNAL",
    "SJIS",
    "SHIFT_JIS",
    "BIG5",
    "GBK",
    "GB18030",
    "UHC",
    "JOHAB",
];

fn quotes_encodings_only(message: &str) -> bool {
    let is_part = |one: char| one.is_ascii_uppercase() || one.is_ascii_digit() || one == '_';
    let is_encoding = |word: &str| {
        let known = ENCODINGS.iter().any(|start| word.starts_with(start));
        known && word.chars().all(is_part)
    };
    message.split(QUOTES).skip(1).step_by(2).all(is_encoding)
}

/// Each run of bytes like "0xe6 0x97" is a value, and so is the escape of a character.
fn without_bytes(message: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in message.split(' ') {
        match is_byte(word) {
            false => words.push(word),
            true if words.last() == Some(&A_VALUE) => {}
            true => words.push(A_VALUE),
        }
    }
    words.join(" ")
}

fn is_byte(word: &str) -> bool {
    ["0x", "\\u", "\\U", "U+"].iter().any(|prefix| {
        word.strip_prefix(prefix)
            .is_some_and(|digits| digits.starts_with(|one: char| one.is_ascii_hexdigit()))
    })
}

/// True if the server's DETAIL of that error holds values of rows.
fn quotes_rows(sqlstate: &str) -> bool {
    matches!(sqlstate.get(..2), Some("21" | "22" | "23" | "44" | "P0"))
}

/// Says in a stop which transaction of which stream it is about.
pub(crate) fn locate(stop: Stop, stream: &str, transaction: &Transaction) -> Stop {
    let Transaction {
        xid, commit_lsn, ..
    } = transaction;
    let end = match &transaction.ending {
        Some(ending) => format!(", finished at {}", ending.end_lsn),
        None => String::new(),
    };
    let message = format!(
        "stream \"{stream}\": transaction {xid}, committed at {commit_lsn}{end}, cannot be \
         applied: {}",
        stop.message
    );
    Stop { message, ..stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncate_of_the_log_cannot_be_another_one() {
        let check = |sqlstate: &str, hint: &str, expected: &str| {
            let failure = ServerFailure {
                sqlstate: sqlstate.to_owned(),
                hint: Some(hint.to_owned()),
                ..ServerFailure::default()
            };
            assert_eq!(failure.remedy(), Some(expected));
        };
        let hint = "Truncate table \"own\" at the same time, or use TRUNCATE ... CASCADE.";
        check("0A000", hint, TRUNCATE_REFERENCED);
        let german = "Leeren Sie die Tabelle »own« gleichzeitig oder verwenden Sie TRUNCATE ... \
                      CASCADE.";
        check("0A000", german, TRUNCATE_REFERENCED);
        check("0A000", "Do otherwise.", "Do otherwise.");
        check("2BP01", "Use DROP ... CASCADE.", "Use DROP ... CASCADE.");
    }

    #[test]
    fn a_message_says_no_value() {
        let check = |sqlstate: &str, message: &str, words: &str| {
            let (sqlstate, message) = (sqlstate.to_owned(), message.to_owned());
            let failure = ServerFailure {
                sqlstate,
                message,
                ..ServerFailure::default()
            };
            assert_eq!(failure.words(), words);
        };
        check(
            "22P02",
            "invalid input syntax for type integer: \"a \"b\" c\"",
            "invalid input syntax for type integer: (a value)",
        );
        check(
            "22003",
            "value \"99999999999\" is out of range for type integer",
            "value (a value) is out of range for type integer",
        );
        check("22P02", "ungültig: »x«", "ungültig: (a value)");
        check("22P02", "ungültig: „x“", "ungültig: (a value)");
        check(
            "22001",
            "value too long for type character(1)",
            "value too long for type character(1)",
        );
        check(
            "22P05",
            "character with byte sequence 0xe6 0x97 0xa5 in encoding \"UTF8\" has no equivalent in \
             encoding \"LATIN1\"",
            "character with byte sequence (a value) in encoding \"UTF8\" has no equivalent in \
             encoding \"LATIN1\"",
        );
        check(
            "22021",
            "invalid byte sequence for encoding \"UTF8\": 0xff 0x41",
            "invalid byte sequence for encoding \"UTF8\": (a value)",
        );
        check(
            "22021",
            "ungültige Byte-Sequenz für Kodierung »UTF8«: 0x00",
            "ungültige Byte-Sequenz für Kodierung »UTF8«: (a value)",
        );
        check("22021", "\"Ann\" is no \"UTF8\"", "(a value)");
        let unique = "duplicate key value violates unique constraint \"t_pkey\"";
        check("23505", unique, unique);
    }
}
