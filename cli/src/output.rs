//! Standard output: results, one line each.
//!
//! The log is on standard error ([`super::log`]). A reader that has gone away (a closed pipe) is no
//! error of a command that did its work, so that what cannot be written is dropped.

use std::fmt;
use std::io::{self, Write};

/// Prints one line.
pub(crate) fn line(text: impl fmt::Display) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

/// Prints a value as JSON, indented for people, one value for programs.
pub(crate) fn json(value: &serde_json::Value) {
    line(format_args!("{value:#}"));
}
