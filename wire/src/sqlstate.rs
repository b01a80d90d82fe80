//! SQLSTATE: the five characters by which PostgreSQL names the kind of an error.
//!
//! Owns the codes that walbraid decides by, and the one rule that says whether an error tells
//! something about the data or only about the moment. Does not own what to do then: that is the
//! policy of the process that got the error.

use std::fmt;

/// The code of a server's error, always five ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState {
            $($(#[$doc])* pub const $name: SqlState = SqlState(*$code);)*
        }
    };
}

codes! {
    /// `successful_completion`.
    SUCCESSFUL_COMPLETION = b"00000";
    /// `connection_exception`.
    CONNECTION_EXCEPTION = b"08000";
    /// `connection_failure`.
    CONNECTION_FAILURE = b"08006";
    /// `protocol_violation`.
    PROTOCOL_VIOLATION = b"08P01";
    /// `feature_not_supported`.
    FEATURE_NOT_SUPPORTED = b"0A000";
    /// `numeric_value_out_of_range`.
    NUMERIC_VALUE_OUT_OF_RANGE = b"22003";
    /// `invalid_parameter_value`.
    INVALID_PARAMETER_VALUE = b"22023";
    /// `invalid_text_representation`.
    INVALID_TEXT_REPRESENTATION = b"22P02";
    /// `integrity_constraint_violation`.
    INTEGRITY_CONSTRAINT_VIOLATION = b"23000";
    /// `not_null_violation`.
    NOT_NULL_VIOLATION = b"23502";
    /// `foreign_key_violation`.
    FOREIGN_KEY_VIOLATION = b"23503";
    /// `unique_violation`.
    UNIQUE_VIOLATION = b"23505";
    /// `check_violation`.
    CHECK_VIOLATION = b"23514";
    /// `exclusion_violation`.
    EXCLUSION_VIOLATION = b"23P01";
    /// `active_sql_transaction`.
    ACTIVE_SQL_TRANSACTION = b"25001";
    /// `read_only_sql_transaction`.
    READ_ONLY_SQL_TRANSACTION = b"25006";
    /// `in_failed_sql_transaction`.
    IN_FAILED_SQL_TRANSACTION = b"25P02";
    /// `idle_in_transaction_session_timeout`.
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = b"25P03";
    /// `invalid_authorization_specification`.
    INVALID_AUTHORIZATION_SPECIFICATION = b"28000";
    /// `invalid_password`.
    INVALID_PASSWORD = b"28P01";
    /// `invalid_catalog_name`: the database does not exist.
    INVALID_CATALOG_NAME = b"3D000";
    /// `serialization_failure`.
    SERIALIZATION_FAILURE = b"40001";
    /// `deadlock_detected`.
    DEADLOCK_DETECTED = b"40P01";
    /// `syntax_error`.
    SYNTAX_ERROR = b"42601";
    /// `insufficient_privilege`.
    INSUFFICIENT_PRIVILEGE = b"42501";
    /// `undefined_column`.
    UNDEFINED_COLUMN = b"42703";
    /// `undefined_object`: also a publication or a role that does not exist.
    UNDEFINED_OBJECT = b"42704";
    /// `duplicate_object`: also a slot of that name.
    DUPLICATE_OBJECT = b"42710";
    /// `undefined_function`.
    UNDEFINED_FUNCTION = b"42883";
    /// `undefined_table`.
    UNDEFINED_TABLE = b"42P01";
    /// `duplicate_table`.
    DUPLICATE_TABLE = b"42P07";
    /// `insufficient_resources`.
    INSUFFICIENT_RESOURCES = b"53000";
    /// `disk_full`.
    DISK_FULL = b"53100";
    /// `out_of_memory`.
    OUT_OF_MEMORY = b"53200";
    /// `too_many_connections`: also no free walsender.
    TOO_MANY_CONNECTIONS = b"53300";
    /// `configuration_limit_exceeded`: also no free slot or origin.
    CONFIGURATION_LIMIT_EXCEEDED = b"53400";
    /// `object_not_in_prerequisite_state`: also wal_level, an invalidated slot.
    OBJECT_NOT_IN_PREREQUISITE_STATE = b"55000";
    /// `object_in_use`: also a slot or an origin that is active elsewhere.
    OBJECT_IN_USE = b"55006";
    /// `lock_not_available`.
    LOCK_NOT_AVAILABLE = b"55P03";
    /// `query_canceled`.
    QUERY_CANCELED = b"57014";
    /// `admin_shutdown`.
    ADMIN_SHUTDOWN = b"57P01";
    /// `crash_shutdown`.
    CRASH_SHUTDOWN = b"57P02";
    /// `cannot_connect_now`: the server is starting up or shutting down.
    CANNOT_CONNECT_NOW = b"57P03";
    /// `database_dropped`.
    DATABASE_DROPPED = b"57P04";
    /// `idle_session_timeout`.
    IDLE_SESSION_TIMEOUT = b"57P05";
    /// `system_error`.
    SYSTEM_ERROR = b"58000";
    /// `io_error`.
    IO_ERROR = b"58030";
    /// `undefined_file`: also WAL that has been removed.
    UNDEFINED_FILE = b"58P01";
    /// `internal_error`.
    INTERNAL_ERROR = b"XX000";
}

impl SqlState {
    /// The code of these five characters; what is no code becomes `XX000`.
    pub fn from_code(code: &str) -> SqlState {
        match <[u8; 5]>::try_from(code.as_bytes()) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_alphanumeric) => SqlState(bytes),
            _ => SqlState::INTERNAL_ERROR,
        }
    }

    /// The five characters.
    pub fn code(&self) -> &str {
        // Built from ASCII only.
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// The first two characters, which name the class.
    pub fn class(&self) -> &str {
        self.code().get(..2).unwrap_or("XX")
    }

    /// True for what passes by itself: the same statement may succeed when it is tried again.
    ///
    /// Deadlocks, serialization failures, lock time-outs, cancels, shutdowns, lost connections,
    /// and a server short of connections, memory or disk.
    pub fn is_transient(&self) -> bool {
        match *self {
            SqlState::PROTOCOL_VIOLATION | SqlState::CONFIGURATION_LIMIT_EXCEEDED => false,
            SqlState::LOCK_NOT_AVAILABLE | SqlState::OBJECT_IN_USE => true,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => true,
            SqlState::READ_ONLY_SQL_TRANSACTION => true,
            SqlState::DATABASE_DROPPED | SqlState::UNDEFINED_FILE => false,
            _ => matches!(self.class(), "08" | "40" | "53" | "57" | "58"),
        }
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself() {
        let check = |code: &str, transient: bool| {
            assert_eq!(
                SqlState::from_code(code).is_transient(),
                transient,
                "{code}"
            );
        };
        check("40P01", true);
        check("40001", true);
        check("55P03", true);
        check("55006", true);
        check("57014", true);
        check("57P01", true);
        check("57P03", true);
        check("53100", true);
        check("53300", true);
        check("53400", false);
        check("08006", true);
        check("08P01", false);
        check("25006", true);
        check("23505", false);
        check("42P01", false);
        check("28P01", false);
        check("58P01", false);
        check("not a code", false);
    }
}
