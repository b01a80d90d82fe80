//! Tables by schema id: asked of the registry once, kept with a bound, checked by fingerprint.
//!
//! An id alone says nothing for sure: a registry that lost its data gives ids out again. So each
//! record names a schema by id and fingerprint, and what the registry answers is believed only if
//! its fingerprint is that one.
//!
//! A registry that is down, slow or answers 5xx is waited out, for ever; no error is kept, and no
//! more than one request is made for each pause. An id that it does not know is waited for a while
//! (a follower may lag), then it is a stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apache_avro::Schema;
use schema_registry_converter::async_impl::schema_registry::{SrSettings, get_schema_by_id};
use schema_registry_converter::error::SRCError;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::envelope::TableRef;
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_schemas::table::Table;

use crate::config::Registry;
use crate::metrics::LaneMetrics;
use crate::policy::{Cause, Failure, Retry, Trouble};

/// Tables kept; beyond it all are forgotten and asked for anew.
const TABLES_MAX: usize = 10_000;

/// How long an id that the registry does not know is waited for.
const UNKNOWN_WAIT_MS: u64 = 15_000;

/// The converter's settings for a registry.
fn settings(config: &Registry) -> Result<SrSettings, Failure> {
    let usage = |message: String| Failure::definite(StopKind::Usage, message);
    let (first, others) = config
        .urls
        .split_first()
        .ok_or_else(|| usage("registry url is not set".to_owned()))?;
    let mut builder = SrSettings::new_builder(first.trim_end_matches('/').to_owned());
    for url in others {
        builder.add_url(url.trim_end_matches('/').to_owned());
    }
    if let Some(user) = &config.user {
        builder.set_basic_authorization(user, config.password.as_deref());
    }
    builder.set_timeout(Duration::from_millis(config.timeout_ms));
    let mut client = reqwest::Client::builder();
    if let Some(path) = &config.ca_file {
        let unreadable = |error: &dyn std::fmt::Display| {
            usage(format!(
                "certificates in \"{}\" cannot be read: {error}",
                path.display()
            ))
        };
        let pem = std::fs::read(path).map_err(|error| unreadable(&error))?;
        let certificates =
            reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unreadable(&error))?;
        for certificate in certificates {
            client = client.add_root_certificate(certificate);
        }
    }
    builder
        .build_with(client)
        .map_err(|error| usage(format!("registry client: {}", error.error)))
}

/// The tables of the log, by what names them.
pub struct Tables {
    settings: SrSettings,
    tables: HashMap<TableRef, Arc<Table>>,
    envelopes: Vec<i32>,
    trouble: Trouble,
}

impl Tables {
    /// Nothing is known yet.
    pub fn new(config: &Registry) -> Result<Self, Failure> {
        Ok(Self {
            settings: settings(config)?,
            tables: HashMap::new(),
            envelopes: Vec::new(),
            trouble: Trouble::default(),
        })
    }

    /// With the place where it is seen that the registry is waited for.
    #[must_use]
    pub fn seen(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    /// Whether records framed with this id are known to be envelopes.
    pub fn is_envelope(&self, id: i32) -> bool {
        self.envelopes.contains(&id)
    }

    /// The table, asked for until the registry answers.
    pub async fn get(
        &mut self,
        wanted: &TableRef,
        shutdown: &CancellationToken,
        metrics: &LaneMetrics,
    ) -> Result<Arc<Table>, Failure> {
        if let Some(table) = self.tables.get(wanted) {
            return Ok(Arc::clone(table));
        }
        let text = self.ask(wanted.schema_id, shutdown, metrics).await?;
        let table = Table::from_avro(&text).map_err(|error| {
            let id = wanted.schema_id;
            let message = format!("schema {id} of the registry is not a table's: {error}");
            Failure::definite(StopKind::RegistryIncompatible, message)
        })?;
        // Of the table, not of the text: registries write a schema anew when they give it back.
        if table.fingerprint() != wanted.fingerprint {
            return Err(Failure::Definite(another_schema(wanted.schema_id)));
        }
        let table = Arc::new(table);
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
        self.tables.insert(*wanted, Arc::clone(&table));
        Ok(table)
    }

    /// Fails unless records framed with this id are envelopes as this process knows them.
    pub async fn check_envelope(
        &mut self,
        id: i32,
        shutdown: &CancellationToken,
        metrics: &LaneMetrics,
    ) -> Result<(), Failure> {
        let text = self.ask(id, shutdown, metrics).await?;
        if !is_envelope(&text) {
            let message =
                format!("schema {id} of the registry is not the envelope of this version");
            let stop = Stop::new(StopKind::RegistryIncompatible, message)
                .hint("Use the same version of walbraid on both sides.");
            return Err(Failure::Definite(stop));
        }
        self.envelopes.push(id);
        Ok(())
    }

    async fn ask(
        &self,
        id: i32,
        shutdown: &CancellationToken,
        metrics: &LaneMetrics,
    ) -> Result<String, Failure> {
        let mut retry = Retry::seen("reading a schema from the registry", self.trouble.clone());
        let started = Instant::now();
        loop {
            let number = u32::try_from(id).unwrap_or_default();
            let asked = tokio::select! {
                asked = get_schema_by_id(number, &self.settings) => asked,
                () = shutdown.cancelled() => return Err(Failure::Shutdown),
            };
            let failure = match asked {
                Ok(found) => {
                    retry.worked();
                    return Ok(found.schema);
                }
                Err(error) => sort(id, &error, started.elapsed()),
            };
            let Failure::Transient(transient) = failure else {
                return Err(failure);
            };
            metrics.retried(transient.cause);
            let pause = retry.failed(&transient);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.cancelled() => return Err(Failure::Shutdown),
            }
        }
    }
}

/// Whether a schema reads as the envelope's, however it is written.
fn is_envelope(text: &str) -> bool {
    let form = |text: &str| Some(Schema::parse_str(text).ok()?.canonical_form());
    let ours = form(walbraid_schemas::envelope::SCHEMA);
    ours.is_some() && form(text) == ours
}

fn another_schema(id: i32) -> Stop {
    Stop::new(
        StopKind::RegistryIncompatible,
        format!("schema {id} of the registry is not the one that the log was written with"),
    )
    .detail("Its fingerprint is another: the registry lost its data and gave the id out again.")
    .hint("Restore the registry's data from before it was lost.")
}

fn sort(id: i32, error: &SRCError, waited: Duration) -> Failure {
    let message = match &error.cause {
        Some(cause) => format!("schema {id}: {}: {cause}", error.error),
        None => format!("schema {id}: {}", error.error),
    };
    match status(&error.error) {
        Some(401 | 403) => {
            Failure::Definite(Stop::new(StopKind::RegistryUnreachable, message).hint(
                "Check \"registry.username\" and \"registry.password\", and let that user read \
                 schemas.",
            ))
        }
        Some(404) if waited < Duration::from_millis(UNKNOWN_WAIT_MS) => {
            Failure::transient(Cause::Registry, StopKind::RegistryUnreachable, message)
        }
        Some(404 | 422) => {
            Failure::Definite(Stop::new(StopKind::RegistryIncompatible, message).hint(
                "Is \"registry.url\" the registry that the producer uses, with its path, such as \
                 /apis/ccompat/v7? If so, restore the registry's data from before it was lost.",
            ))
        }
        _ => Failure::transient(Cause::Registry, StopKind::RegistryUnreachable, message),
    }
}

/// The HTTP status that the converter's message ends with.
fn status(message: &str) -> Option<u16> {
    let (_, status) = message.split_once("failed with status ")?;
    status.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_status_and_age() {
        let answer = |status: &str, waited_ms: u64| {
            let error = SRCError::new(
                &format!("HTTP request to schema registry failed with status {status}"),
                None,
                false,
            );
            sort(1, &error, Duration::from_millis(waited_ms))
        };
        let is_transient = |failure: Failure| matches!(failure, Failure::Transient(_));
        assert!(is_transient(answer("500 Internal Server Error", 0)));
        assert!(is_transient(answer("503 Service Unavailable", 1_000_000)));
        assert!(is_transient(answer("429 Too Many Requests", 0)));
        assert!(is_transient(answer("404 Not Found", 0)));
        assert!(!is_transient(answer("404 Not Found", UNKNOWN_WAIT_MS)));
        assert!(!is_transient(answer("401 Unauthorized", 0)));
        let refused = SRCError::new("error sending request", None, true);
        assert!(is_transient(sort(1, &refused, Duration::ZERO)));
    }
}
