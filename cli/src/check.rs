//! `walbraid check`: tries every server, right and setting, and changes nothing.
//!
//! Producer and consumer each report what they need; a server that cannot be reached is one finding
//! and the checks of the others go on. The exit code is that of the first error.

use std::process::ExitCode;

use serde_json::{Value, json};
use walbraid_schemas::Stop;

use crate::config::Config;
use crate::finding::{Finding, Standing};
use crate::output::{json as print_json, line};
use crate::session;

/// Checks everything and prints what was found.
pub(crate) async fn run(config: &Config, json: bool) -> Result<ExitCode, Stop> {
    let mut findings: Vec<Finding> = walbraid_producer::check::check(&config.producer)
        .await
        .into_iter()
        .map(Into::into)
        .collect();
    findings.extend(subscriber(config).await);
    let count = |wanted: fn(&Standing) -> bool| {
        findings
            .iter()
            .filter(|finding| wanted(&finding.standing))
            .count()
    };
    let errors = count(|standing| matches!(standing, Standing::Error(_)));
    let warnings = count(|standing| matches!(standing, Standing::Warning { .. }));
    if json {
        let findings: Vec<Value> = findings.iter().map(Finding::json).collect();
        print_json(&json!({ "errors": errors, "warnings": warnings, "findings": findings }));
    } else {
        findings.iter().for_each(|finding| line(finding.text()));
        line(format_args!("{errors} errors, {warnings} warnings"));
    }
    let first = findings.iter().find_map(Finding::stop);
    Ok(first.map_or(ExitCode::SUCCESS, |stop| ExitCode::from(stop.exit_code())))
}

async fn subscriber(config: &Config) -> Vec<Finding> {
    const CONNECTION: &str = "subscriber: connection";
    match session::subscriber(config, "walbraid check").await {
        Ok(_) => vec![Finding::good(CONNECTION, "")],
        Err(stop) => vec![Finding::error(CONNECTION, stop)],
    }
}
