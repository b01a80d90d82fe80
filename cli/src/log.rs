//! The log on standard error, as text or as JSON, and the one message a failed command ends with.
//!
//! `WALBRAID_LOG` filters it as `RUST_LOG` does elsewhere (`debug`,
//! `walbraid_consumer=debug,info`).

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use walbraid_schemas::{Stop, StopKind};

use crate::args::LogFormat;
use crate::config::Invalid;

/// What is logged when nothing is asked for.
///
/// What Kafka's clients say comes through their contexts. The wrapper's own lines are of clients
/// that are being dropped, which is nothing to look at.
const DEFAULT: &str = "info,rdkafka::consumer::base_consumer=off";

/// Starts logging. Called once.
pub(crate) fn start(format: LogFormat) {
    let asked = std::env::var("WALBRAID_LOG").unwrap_or_default();
    let filter = EnvFilter::try_new(if asked.is_empty() { DEFAULT } else { &asked })
        .unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// Says why a command failed: in PostgreSQL's form, or as one JSON object like every other.
pub(crate) fn stop(format: LogFormat, stop: &Stop) {
    match format {
        LogFormat::Text => {
            let _ = writeln!(io::stderr().lock(), "{stop}");
        }
        LogFormat::Json => tracing::error!(
            stop = stop.kind.name(),
            exit_code = stop.exit_code(),
            detail = stop.detail,
            hint = stop.hint,
            "{}",
            stop.message,
        ),
    }
}

/// Says what is wrong with a configuration: as lines, or as one JSON object for each thing.
pub(crate) fn invalid(format: LogFormat, invalid: &Invalid) {
    match format {
        LogFormat::Text => {
            let _ = writeln!(io::stderr().lock(), "{invalid}");
        }
        LogFormat::Json => {
            let exit_code = StopKind::Usage.exit_code();
            let stop = StopKind::Usage.name();
            for violation in invalid.violations() {
                tracing::error!(stop, exit_code, file = invalid.file(), "{violation}");
            }
        }
    }
}
