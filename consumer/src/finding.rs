//! What a check found: something that is right, something to know, or something to mend.
//!
//! Owned here: the form only. Every finding names what was looked at; one to mend is the stop that
//! `consume` would end with, so that `check` and a running pipeline say the same words.

use walbraid_schemas::notice::Stop;

/// The outcome of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it must be.
    Good(String),
    /// It works, with a consequence that the user should know.
    Warning {
        /// What was found.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// It does not work.
    Bad(Stop),
}

/// Something that was looked at, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `subscriber: replication origins`.
    pub subject: String,
    /// The outcome.
    pub verdict: Verdict,
}

impl Finding {
    /// It is as it must be.
    pub fn good(subject: &str, message: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            verdict: Verdict::Good(message.into()),
        }
    }

    /// It works, with a consequence.
    pub fn warning(subject: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let verdict = Verdict::Warning {
            message: message.into(),
            hint: hint.into(),
        };
        Self {
            subject: subject.to_owned(),
            verdict,
        }
    }

    /// It does not work.
    pub fn bad(subject: &str, stop: Stop) -> Self {
        Self {
            subject: subject.to_owned(),
            verdict: Verdict::Bad(stop),
        }
    }

    /// True for what must be mended.
    pub fn is_bad(&self) -> bool {
        matches!(self.verdict, Verdict::Bad(_))
    }
}
