//! One thing that was looked at, and how it stands.
//!
//! Owns the form of what the checks of the producer's side report. Does not own the checks
//! (`publisher`, `slot`, `topic`, `registry`) nor how they are printed.

use walbraid_schemas::Stop;

/// How something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Good,
    /// It works; a person should know about it.
    Doubtful(Concern),
    /// It would stop the producer.
    Bad(Stop),
}

/// What a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concern {
    /// Lower-case message naming the object.
    pub message: String,
    /// What it may lead to, in sentences.
    pub detail: String,
    /// What to do, in sentences.
    pub hint: Option<String>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: server, then setting or object.
    pub subject: String,
    /// How it stands.
    pub standing: Standing,
}

impl Finding {
    /// `subject` is as it should be.
    pub fn good(subject: impl Into<String>) -> Finding {
        Finding {
            subject: subject.into(),
            standing: Standing::Good,
        }
    }

    /// `subject` would stop the producer.
    pub fn bad(subject: impl Into<String>, stop: Stop) -> Finding {
        Finding {
            subject: subject.into(),
            standing: Standing::Bad(stop),
        }
    }

    /// `subject` is good unless there is a stop.
    pub fn of(subject: impl Into<String>, stop: Option<Stop>) -> Finding {
        match stop {
            Some(stop) => Finding::bad(subject, stop),
            None => Finding::good(subject),
        }
    }

    /// `subject` works, but a person should know something about it.
    pub fn doubtful(
        subject: impl Into<String>,
        message: impl Into<String>,
        detail: impl Into<String>,
        hint: Option<String>,
    ) -> Finding {
        let concern = Concern {
            message: message.into(),
            detail: detail.into(),
            hint,
        };
        Finding {
            subject: subject.into(),
            standing: Standing::Doubtful(concern),
        }
    }
}
