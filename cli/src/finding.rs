//! What `walbraid check` reports: one line for each thing that was looked at.
//!
//! Producer and consumer each know what they need and report it in their own form; here both become
//! one. An error is the stop that the pipeline would end with, in the same words.

use serde_json::{Value, json};
use walbraid_schemas::Stop;

/// How something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// As it should be, with what was found.
    Good(String),
    /// It works, and a person should know.
    Warning {
        /// What was found.
        message: String,
        /// What it may lead to.
        detail: Option<String>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// It does not work.
    Error(Stop),
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Server and setting, right or object.
    pub(crate) subject: String,
    /// How it stands.
    pub(crate) standing: Standing,
}

impl Finding {
    /// It is as it should be.
    pub(crate) fn good(subject: &str, message: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            standing: Standing::Good(message.into()),
        }
    }

    /// It works, with a consequence.
    pub(crate) fn warning(
        subject: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let (message, hint) = (message.into(), Some(hint.into()));
        let standing = Standing::Warning {
            message,
            detail: None,
            hint,
        };
        Self {
            subject: subject.to_owned(),
            standing,
        }
    }

    /// It does not work.
    pub(crate) fn error(subject: &str, stop: Stop) -> Self {
        Self {
            subject: subject.to_owned(),
            standing: Standing::Error(stop),
        }
    }

    /// The stop of an error.
    pub(crate) fn stop(&self) -> Option<&Stop> {
        match &self.standing {
            Standing::Error(stop) => Some(stop),
            Standing::Good(_) | Standing::Warning { .. } => None,
        }
    }

    /// As text: a line, and DETAIL and HINT below it.
    pub(crate) fn text(&self) -> String {
        let (word, message, detail, hint) = match &self.standing {
            Standing::Good(message) => ("ok", message, None, None),
            Standing::Warning {
                message,
                detail,
                hint,
            } => ("warning", message, detail.as_ref(), hint.as_ref()),
            Standing::Error(stop) => (
                "error",
                &stop.message,
                stop.detail.as_ref(),
                stop.hint.as_ref(),
            ),
        };
        let mut text = format!("{word:<7}  {}", self.subject);
        for (before, part) in [
            (": ", Some(message)),
            ("\n         DETAIL:  ", detail),
            ("\n         HINT:  ", hint),
        ] {
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                text.push_str(before);
                text.push_str(part);
            }
        }
        text
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let subject = &self.subject;
        match &self.standing {
            Standing::Good(message) => {
                json!({ "subject": subject, "standing": "ok", "message": message })
            }
            Standing::Warning {
                message,
                detail,
                hint,
            } => json!({
                "subject": subject, "standing": "warning",
                "message": message, "detail": detail, "hint": hint,
            }),
            Standing::Error(stop) => json!({
                "subject": subject, "standing": "error",
                "stop": stop.kind.name(), "exit_code": stop.exit_code(),
                "message": stop.message, "detail": stop.detail, "hint": stop.hint,
            }),
        }
    }
}

impl From<walbraid_producer::finding::Finding> for Finding {
    fn from(finding: walbraid_producer::finding::Finding) -> Self {
        use walbraid_producer::finding::Standing as Of;
        let standing = match finding.standing {
            Of::Good => Standing::Good(String::new()),
            Of::Doubtful(concern) => Standing::Warning {
                message: concern.message,
                detail: Some(concern.detail),
                hint: concern.hint,
            },
            Of::Bad(stop) => Standing::Error(stop),
        };
        Self {
            subject: finding.subject,
            standing,
        }
    }
}

#[cfg(test)]
mod tests {
    use walbraid_schemas::StopKind;

    use super::*;

    #[test]
    fn texts() {
        let check = |finding: Finding, text: &str| assert_eq!(finding.text(), text);
        check(Finding::good("kafka: topic", ""), "ok       kafka: topic");
        check(
            Finding::good("kafka: topic", "one partition"),
            "ok       kafka: topic: one partition",
        );
        let stop = Stop::new(StopKind::WalLevel, "publisher has wal_level \"replica\"")
            .hint("Set wal_level = logical.");
        check(
            Finding::error("publisher: wal_level", stop),
            "error    publisher: wal_level: publisher has wal_level \"replica\"\n         \
             HINT:  Set wal_level = logical.",
        );
    }
}
