//! Why something is serial, and what would mend it.
//!
//! The names are stable: metrics and `explain` carry them. No value of a row is ever part of one.

use std::fmt;

/// Why a table, an index, or a whole transaction is serial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SerialReason {
    /// A table of the transaction cannot be applied to the subscriber, or a row cannot be read.
    Unmapped,
}

impl SerialReason {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unmapped => "unmapped",
        }
    }

    /// The change that would mend it, in sentences.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unmapped => "Make the subscriber's table fit the publisher's.".to_owned(),
        }
    }
}

impl fmt::Display for SerialReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
