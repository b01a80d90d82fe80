//! Why something is serial, and what would mend it.
//!
//! The names are stable: metrics and `explain` carry them. No value of a row is ever part of one.

use std::fmt;
use std::sync::Arc;

/// Why a table, an index, or a whole transaction is serial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SerialReason {
    /// A table of the transaction cannot be applied to the subscriber.
    Unmapped,
    /// A row of the transaction cannot be read.
    Undecodable,
    /// The publisher sends nothing that a row could be found by.
    NoIdentity,
    /// None of the columns by which rows are found can be compared here.
    NoKey,
    /// The equality of a column's type, operator class or collation cannot be mirrored here.
    IncomparableKey {
        /// The column.
        column: Arc<str>,
        /// Its type.
        type_name: Arc<str>,
    },
    /// The index is made of an expression.
    Expression {
        /// The index.
        index: Arc<str>,
    },
    /// The values of an index that more than equality decides about.
    Exclusion {
        /// The constraint.
        constraint: Arc<str>,
    },
    /// A column of the index is not published, or generated on the subscriber.
    NotPublished {
        /// The column.
        column: Arc<str>,
    },
    /// A value was given up that is neither on the wire nor known from the subscriber.
    UnknownOldValue {
        /// Values of the index can be read from the subscriber.
        readable: bool,
    },
    /// A value was taken that is not on the wire: a toasted column that did not change, or a text
    /// that is none of the subscriber's type.
    UnknownNewValue,
    /// A trigger or rule fires in replica mode.
    Trigger {
        /// Its name.
        name: Arc<str>,
    },
    /// A check, index, generated column or default calls a function that may read other tables.
    ForeignTableExpression {
        /// The function.
        function: Arc<str>,
    },
    /// Row level security applies to the role that applies.
    RowSecurity,
    /// A foreign key that is checked in replica mode changes the rows that reference a row.
    ForeignKeyAction {
        /// The constraint.
        constraint: Arc<str>,
    },
    /// A foreign key that is checked in replica mode, between columns that cannot be compared
    /// here, or from a column that is not published.
    ForeignKey {
        /// The constraint.
        constraint: Arc<str>,
    },
    /// The first change under another shape of the table waits for those under the shape before.
    ShapeChanged,
    /// The transaction is larger than what one connection may have before it.
    Large,
    /// As many keys are known of unfinished transactions as may be.
    KeysLimit,
}

/// What helps where old values are read and were not there when they were needed.
const TOO_LATE: &str = "Old values came too late or could not be read: look for a failed read in \
                        the consumer's log and mend it, let the subscriber answer within a second";

/// What helps where old values of an index are not read.
const UNREADABLE: &str = "Old values of this index are not read, because it or the key that finds \
                          the rows cannot be compared exactly: give the columns a type that can";

impl SerialReason {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unmapped => "unmapped",
            Self::Undecodable => "undecodable",
            Self::NoIdentity => "no_identity",
            Self::NoKey => "no_key",
            Self::IncomparableKey { .. } => "incomparable_key",
            Self::Expression { .. } => "expression",
            Self::Exclusion { .. } => "exclusion",
            Self::NotPublished { .. } => "not_published",
            Self::UnknownOldValue { .. } => "unknown_old_value",
            Self::UnknownNewValue => "unknown_new_value",
            Self::Trigger { .. } => "trigger",
            Self::ForeignTableExpression { .. } => "foreign_table_expression",
            Self::RowSecurity => "row_security",
            Self::ForeignKeyAction { .. } => "foreign_key_action",
            Self::ForeignKey { .. } => "foreign_key",
            Self::ShapeChanged => "shape_changed",
            Self::Large => "large",
            Self::KeysLimit => "keys_limit",
        }
    }

    /// The change that would mend it, in sentences. `resolver`: old values are read from the
    /// subscriber where they can be.
    pub fn remedy(&self, resolver: bool) -> String {
        const SAFE: &str = "or list the table in parallel_safe if it touches no other row.";
        match self {
            Self::Unmapped => "Make the subscriber's table fit the publisher's.".to_owned(),
            Self::Undecodable => "The log holds a row that is none of its table.".to_owned(),
            Self::NoIdentity => {
                "Give the publisher's table a primary key or a replica identity.".to_owned()
            }
            Self::NoKey => "Give the table a primary key on both sides.".to_owned(),
            Self::IncomparableKey { column, type_name } => format!(
                "Use a type, operator class and deterministic collation whose equality is known \
                 for column \"{column}\" ({type_name}), or drop the index on the subscriber."
            ),
            Self::Expression { index } => format!(
                "Replace index \"{index}\" by one on columns (or on lower(column)), or make it \
                 not unique on the subscriber."
            ),
            Self::Exclusion { constraint } => format!(
                "Add a column compared by = to constraint \"{constraint}\", or drop it on the \
                 subscriber."
            ),
            Self::NotPublished { column } => format!(
                "Publish column \"{column}\", or drop the unique index over it on the subscriber."
            ),
            Self::UnknownOldValue { readable } => {
                let first = match (readable, resolver) {
                    (true, true) => TOO_LATE,
                    (true, false) => "Switch consumer.resolver on",
                    (false, _) => UNREADABLE,
                };
                format!(
                    "{first}, or use REPLICA IDENTITY FULL on the publisher, or drop the unique \
                     index on the subscriber."
                )
            }
            Self::UnknownNewValue => "Use the publisher's type on the subscriber, or REPLICA \
                 IDENTITY FULL where the column is toasted."
                .to_owned(),
            Self::Trigger { name } => format!(
                "Disable \"{name}\", or let it fire in origin mode only (ENABLE TRIGGER), {SAFE}"
            ),
            Self::ForeignTableExpression { function } => {
                format!("Drop the expression that calls {function} on the subscriber, {SAFE}")
            }
            Self::RowSecurity => "Let a role apply that bypasses row level security.".to_owned(),
            Self::ForeignKeyAction { constraint } => format!(
                "Let the triggers of constraint \"{constraint}\" fire in origin mode only, or make \
                 it NO ACTION on the subscriber."
            ),
            Self::ForeignKey { constraint } => format!(
                "Give both sides of constraint \"{constraint}\" one type and publish them, or let \
                 its triggers fire in origin mode only."
            ),
            Self::ShapeChanged => "Nothing: it is over with one transaction.".to_owned(),
            Self::Large => "Write less in one transaction; the limit is an eighth of \
                 consumer.memory_bytes, and 8 MiB at most."
                .to_owned(),
            Self::KeysLimit => "Raise consumer.memory_bytes.".to_owned(),
        }
    }
}

impl fmt::Display for SerialReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_of_an_unknown_old_value_is_not_what_is_done_already() {
        let check = |readable, resolver, words: &str| {
            let remedy = SerialReason::UnknownOldValue { readable }.remedy(resolver);
            assert!(remedy.contains(words), "{remedy}");
            let switch = remedy.contains("consumer.resolver");
            assert_eq!(switch, readable && !resolver, "{remedy}");
            assert!(remedy.contains("REPLICA IDENTITY FULL"), "{remedy}");
        };
        check(true, false, "Switch consumer.resolver on");
        check(true, true, "too late");
        check(false, true, "cannot be compared exactly");
        check(false, false, "cannot be compared exactly");
    }
}
