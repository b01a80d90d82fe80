//! What is to be said about the producer's side before it runs.
//!
//! Owns the order of the checks and the sentences about settings that work but may hurt. Changes
//! nothing: it connects, asks, and reports. A server that cannot be reached is one finding, and the
//! checks of the other servers go on.

use walbraid_schemas::Stop;
use walbraid_wire::Sql;

use crate::config::Config;
use crate::finding::Finding;
use crate::lane::LaneReader;
use crate::policy;
use crate::publisher::{self, Facts};
use crate::registry::SchemaRegistry;
use crate::session;
use crate::slot;
use crate::topic;

/// Looks at the publisher, Kafka and the registry.
pub async fn check(config: &Config) -> Vec<Finding> {
    let mut findings = publisher_findings(config).await;
    findings.extend(kafka_findings(config).await);
    let registry = registry(config).await;
    findings.push(Finding::of("registry: connection", registry));
    findings
}

async fn publisher_findings(config: &Config) -> Vec<Finding> {
    let sql = match session::sql(&config.publisher).await {
        Ok(sql) => sql,
        Err(error) => {
            return vec![Finding::bad(
                "publisher: connection",
                policy::stop(&error, "publisher"),
            )];
        }
    };
    let mut findings = vec![Finding::good("publisher: connection")];
    match publisher::facts(&sql).await {
        Ok(facts) => {
            findings.push(Finding::of("publisher: server", publisher::unfit(&facts)));
            findings.push(replication_finding(config).await);
            findings.extend(settings(&facts, config));
            findings.extend(publication_findings(&sql, &facts, config).await);
            findings.extend(slot_findings(&sql, &facts, config).await);
        }
        Err(error) => {
            let stop = policy::stop(&error, "publisher");
            findings.push(Finding::bad("publisher: server", stop));
        }
    }
    if let Err(error) = sql.close().await {
        tracing::debug!("session of the publisher ended: {error}");
    }
    findings
}

/// A replication connection is let in by rules of its own.
async fn replication_finding(config: &Config) -> Finding {
    const SUBJECT: &str = "publisher: replication connection";
    let connected = session::connect(&config.publisher, None).await;
    let identified = match connected {
        Ok(mut connection) => {
            let identified = connection.identify_system().await.map(|_| ());
            if let Err(error) = connection.close().await {
                tracing::debug!("replication connection ended: {error}");
            }
            identified
        }
        Err(error) => Err(error),
    };
    match identified {
        Ok(()) => Finding::good(SUBJECT),
        Err(error) => Finding::bad(SUBJECT, policy::stop(&error, "publisher")),
    }
}

fn settings(facts: &Facts, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let timeout_ms = facts.wal_sender_timeout_ms;
    if timeout_ms > 0 && timeout_ms < 2 * config.intervals.status_interval_ms {
        findings.push(Finding::doubtful(
            "publisher: wal_sender_timeout",
            format!("publisher has wal_sender_timeout = {timeout_ms} ms"),
            "The publisher may end the connection between two status updates.",
            Some("Raise it, or lower \"producer.status_interval_ms\".".to_owned()),
        ));
    }
    if facts.encoding == "SQL_ASCII" {
        findings.push(Finding::doubtful(
            "publisher: server_encoding",
            "publisher's database has the encoding SQL_ASCII",
            "The first value that is not UTF-8 stops the stream.",
            None,
        ));
    }
    if facts.slot_wal_keep_mb >= 0 {
        findings.push(Finding::doubtful(
            "publisher: max_slot_wal_keep_size",
            format!(
                "publisher has max_slot_wal_keep_size = {} MB",
                facts.slot_wal_keep_mb
            ),
            "A producer that falls further behind loses its slot.",
            Some("Set it to what the publisher's disk can bear.".to_owned()),
        ));
    }
    if facts.idle_slot_timeout > 0 {
        findings.push(Finding::doubtful(
            "publisher: idle_replication_slot_timeout",
            format!(
                "publisher has idle_replication_slot_timeout = {} s",
                facts.idle_slot_timeout
            ),
            "A producer that is away for longer loses its slot.",
            Some("Set it to 0, or to more than the producer is ever away.".to_owned()),
        ));
    }
    findings
}

async fn publication_findings(sql: &Sql, facts: &Facts, config: &Config) -> Vec<Finding> {
    const SUBJECT: &str = "publisher: publication";
    let names = &config.publisher.publications;
    let stop = match publisher::publications(sql, facts, names).await {
        Ok(found) => publisher::unpublished(names, &found),
        Err(error) => Some(policy::stop(&error, "publisher")),
    };
    let mut findings = vec![Finding::of(SUBJECT, stop)];
    findings.extend(filter_finding(sql, names).await);
    match publisher::unidentified(sql, names).await {
        Ok(tables) if tables.is_empty() => {}
        Ok(tables) => findings.push(Finding::doubtful(
            "publisher: replica identity",
            format!(
                "published tables have no replica identity: {}",
                tables.join(", ")
            ),
            "The publisher itself refuses UPDATE and DELETE on them while they are published.",
            Some("Give them a primary key, or ALTER TABLE … REPLICA IDENTITY.".to_owned()),
        )),
        Err(error) => {
            let stop = policy::stop(&error, "publisher");
            findings.push(Finding::bad("publisher: replica identity", stop));
        }
    }
    findings
}

/// Row filters that a value stored apart may pass by.
async fn filter_finding(sql: &Sql, names: &[String]) -> Option<Finding> {
    const SUBJECT: &str = "publisher: row filters";
    match publisher::filtered(sql, names).await {
        Ok(tables) if tables.is_empty() => None,
        Ok(tables) => Some(Finding::doubtful(
            SUBJECT,
            format!(
                "tables with a row filter may hold large values: {}",
                tables.join(", ")
            ),
            "An UPDATE that brings a row into the filter, and leaves a large value as it was, does \
             not carry that value: the stream stops there by name.",
            Some("ALTER TABLE … REPLICA IDENTITY FULL, or publish it without a filter.".to_owned()),
        )),
        Err(error) => Some(Finding::bad(SUBJECT, policy::stop(&error, "publisher"))),
    }
}

async fn slot_findings(sql: &Sql, facts: &Facts, config: &Config) -> Vec<Finding> {
    const SUBJECT: &str = "publisher: slot";
    let name = &config.publisher.slot;
    match slot::inspect(sql, name).await {
        Ok(Some(slot)) => {
            vec![Finding::of(
                SUBJECT,
                slot::unfit(Some(&slot), name, &facts.database),
            )]
        }
        Ok(None) => vec![Finding::of(SUBJECT, slot::no_room(facts))],
        Err(error) => vec![Finding::bad(SUBJECT, policy::stop(&error, "publisher"))],
    }
}

async fn kafka_findings(config: &Config) -> Vec<Finding> {
    let (kafka, limits) = (&config.kafka, &config.limits);
    let found = match topic::inspect(kafka).await {
        Ok(found) => found,
        Err(stop) => return vec![Finding::bad("kafka: connection", stop)],
    };
    let mut findings = vec![Finding::good("kafka: connection")];
    findings.extend(topic::findings(found.as_ref(), kafka, limits));
    if found.is_some() {
        findings.push(lane_finding(config).await);
    }
    findings
}

/// Reading is a right of its own, which the producer needs to find its place in the log.
async fn lane_finding(config: &Config) -> Finding {
    let stop = match LaneReader::new(&config.kafka) {
        Ok(reader) => {
            let end = reader.end().await;
            reader.close().await;
            end.err().map(policy::once)
        }
        Err(failure) => Some(policy::once(failure)),
    };
    Finding::of("kafka: reading the lane", stop)
}

/// Why the registry cannot be used, if it cannot.
pub async fn registry(config: &Config) -> Option<Stop> {
    match SchemaRegistry::new(&config.registry, &config.kafka.topic) {
        Ok(registry) => registry.reach().await.err().map(policy::once),
        Err(stop) => Some(stop),
    }
}
