//! Why a lane is in its state, as one text in its row.
//!
//! Owns the text's form: the message, then DETAIL and HINT each on a line of its own, as PostgreSQL
//! shows an error. The two functions are a pair. A row that an older version wrote has no such
//! lines: all of it is the message.

use walbraid_schemas::notice::{Notice, Stop};

const DETAIL: &str = "\nDETAIL:  ";
const HINT: &str = "\nHINT:  ";

/// What is known of the reason.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reason {
    /// What happened.
    pub message: String,
    /// More about it, in sentences.
    pub detail: Option<String>,
    /// What to do, in sentences.
    pub hint: Option<String>,
}

impl Reason {
    /// A message alone.
    pub fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// Reads a row's text.
    pub fn parse(text: &str) -> Self {
        let (text, hint) = split(text, HINT);
        let (message, detail) = split(text, DETAIL);
        Self {
            message: message.to_owned(),
            detail,
            hint,
        }
    }

    /// A row's text.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (before, part) in [(DETAIL, &self.detail), (HINT, &self.hint)] {
            if let Some(part) = part {
                text.push_str(before);
                text.push_str(part);
            }
        }
        text
    }
}

fn split<'a>(text: &'a str, at: &str) -> (&'a str, Option<String>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after.to_owned())),
        None => (text, None),
    }
}

impl From<&Stop> for Reason {
    fn from(stop: &Stop) -> Self {
        Self {
            message: stop.message.clone(),
            detail: stop.detail.clone(),
            hint: stop.hint.clone(),
        }
    }
}

impl From<&Notice> for Reason {
    fn from(notice: &Notice) -> Self {
        Self {
            message: notice.message.clone(),
            detail: notice.detail.clone(),
            hint: notice.hint.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for detail in [None, Some("It was so.\nAnd so.".to_owned())] {
            for hint in [None, Some("Mend it.".to_owned())] {
                let reason = Reason {
                    message: "a table is missing".to_owned(),
                    detail: detail.clone(),
                    hint,
                };
                assert_eq!(Reason::parse(&reason.text()), reason);
            }
        }
    }

    #[test]
    fn a_text_without_lines_is_a_message() {
        let text = "a table is missing. It was so.";
        assert_eq!(Reason::parse(text), Reason::of(text));
    }
}
