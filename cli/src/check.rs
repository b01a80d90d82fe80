//! `walbraid check`: tries every server, right and setting, and changes nothing.
//!
//! Producer and consumer each report what they need; a server that cannot be reached is one finding
//! and the checks of the others go on. What `setup` makes is no error while the stream is not set
//! up, and one from then on. The exit code is that of the first error.

pub(crate) mod subscriber;
mod tables;

use std::process::ExitCode;

use serde_json::{Value, json};
use walbraid_producer::{slot, standing};
use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;
use crate::finding::{Finding, Standing};
use crate::output::{json as print_json, line};
use crate::session::{self, OrStop};
use crate::setup;
use subscriber::SetUp;

/// What is said of Kafka itself, whatever the topic.
const KAFKA: &str = "kafka: connection";

/// Checks everything and prints what was found.
pub(crate) async fn run(config: &Config, json: bool) -> Result<ExitCode, Stop> {
    let producer = walbraid_producer::check::check(&config.producer).await;
    let mut findings: Vec<Finding> = producer.into_iter().map(Into::into).collect();
    let set_up = subscriber(config, &mut findings).await;
    match set_up {
        SetUp::Yes => match lost_slot(config).await {
            Some(lost) => replace(&mut findings, lost),
            None => findings.extend(standing(config).await),
        },
        // The slot and the topic that are named are not the stream's.
        SetUp::Otherwise => findings.retain(|finding| !is_of_names(&finding.subject)),
        SetUp::Begun => findings.iter_mut().for_each(made_by_setup),
        SetUp::No => {
            findings.iter_mut().for_each(made_by_setup);
            if let Some(foreign) = foreign_slot(config).await {
                replace(&mut findings, foreign);
            }
        }
        SetUp::Unknown => findings.iter_mut().for_each(made_by_setup),
    }
    report(&findings, set_up, json);
    let first = findings.iter().find_map(Finding::stop);
    Ok(first.map_or(ExitCode::SUCCESS, |stop| ExitCode::from(stop.exit_code())))
}

async fn subscriber(config: &Config, findings: &mut Vec<Finding>) -> SetUp {
    const CONNECTION: &str = "subscriber: connection";
    let session = match session::subscriber(config, "walbraid check").await {
        Ok(session) => session,
        Err(stop) => {
            findings.push(Finding::error(CONNECTION, stop));
            return SetUp::Unknown;
        }
    };
    findings.push(Finding::good(CONNECTION, ""));
    let set_up = match subscriber::look(config, &session, findings).await {
        Ok(set_up) => set_up,
        Err(stop) => {
            findings.push(Finding::error("subscriber: rights", stop));
            SetUp::Unknown
        }
    };
    // A publisher that is away is reported already.
    if let Ok(publisher) = session::publisher(config, "walbraid check").await {
        match tables::look(config, &publisher, &session).await {
            Ok(tables) => findings.extend(tables),
            Err(stop) => findings.push(Finding::error("subscriber: tables", stop)),
        }
    }
    set_up
}

/// A slot that is missing is made by setup, unless setup has been run.
async fn lost_slot(config: &Config) -> Option<Finding> {
    let publisher = session::publisher(config, "walbraid check").await.ok()?;
    let name = &config.producer.publisher.slot;
    match slot::inspect(&publisher, name).await.or_stop("publisher") {
        Ok(Some(_)) => None,
        Ok(None) => {
            let database = config.producer.publisher.connect.database();
            slot::unfit(None, name, database).map(|stop| Finding::error("publisher: slot", stop))
        }
        Err(stop) => Some(Finding::error("publisher: slot", stop)),
    }
}

/// Where slot and log meet, unless a producer has seen to that already. What cannot be asked is
/// reported elsewhere.
async fn standing(config: &Config) -> Option<Finding> {
    const SUBJECT: &str = "publisher: slot in the log";
    Some(match standing::look(&config.producer).await.ok()? {
        None => Finding::good(SUBJECT, ""),
        Some(stop) => Finding::error(SUBJECT, stop),
    })
}

/// A slot of a stream that setup has not begun with is somebody else's.
async fn foreign_slot(config: &Config) -> Option<Finding> {
    let publisher = session::publisher(config, "walbraid check").await.ok()?;
    let name = &config.producer.publisher.slot;
    slot::inspect(&publisher, name)
        .await
        .ok()?
        .map(|_| Finding::error("publisher: slot", setup::unannounced(name)))
}

/// Whether a finding is about the slot or the topic that the configuration names.
fn is_of_names(subject: &str) -> bool {
    subject == "publisher: slot" || subject.starts_with("kafka: ") && subject != KAFKA
}

/// In the place of what was found before.
fn replace(findings: &mut Vec<Finding>, better: Finding) {
    findings.retain(|finding| finding.subject != better.subject);
    findings.push(better);
}

fn made_by_setup(finding: &mut Finding) {
    if finding
        .stop()
        .is_some_and(|stop| stop.kind == StopKind::TopicMissing)
    {
        finding.standing = Standing::Good("not there; walbraid setup makes it".to_owned());
    }
}

fn report(findings: &[Finding], set_up: SetUp, json: bool) {
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
        let set_up = matches!(set_up, SetUp::Yes | SetUp::Otherwise);
        print_json(&json!({
            "errors": errors, "warnings": warnings, "set_up": set_up, "findings": findings,
        }));
        return;
    }
    findings.iter().for_each(|finding| line(finding.text()));
    let plural = |count, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    line(format_args!(
        "{}, {}",
        plural(errors, "error"),
        plural(warnings, "warning")
    ));
}
