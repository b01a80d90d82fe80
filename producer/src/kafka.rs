//! librdkafka's properties: what is forced, what is derived, what stays the user's.
//!
//! Owns the client configurations of the producer process and the refusal of properties that would
//! break a guarantee. Does not own a client.
//!
//! Why each property is forced:
//!
//! - `acks=all`, `enable.idempotence`, at most 5 requests in flight: what is acknowledged is on all
//!   in-sync replicas, once, in the order in which it was sent.
//! - `message.timeout.ms=0`: with a time-out librdkafka gives a record up and appends the next one,
//!   which is a hole in the log. We wait, and stop reading the publisher meanwhile.
//! - `enable.gapless.guarantee`: a record that fails for good is fatal to the client, so that
//!   nothing sent after it is appended. A new client with a new claim goes on from the slot.
//! - `queue.buffering.*`: the queue is part of the memory budget.
//! - `allow.auto.create.topics=false`: a topic that is missing is said so, never made by accident
//!   with the broker's retention.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use walbraid_schemas::{Stop, StopKind};

use crate::config::{Kafka, Limits};

/// What librdkafka keeps for a record beside its payload: the message, its headers, its key.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 1_024;

/// What a record of one message needs beside its payload on the wire: batch header, key, headers.
pub(crate) const FRAMING_BYTES: usize = 1_024;

/// Longest record where neither the user nor the topic says something smaller.
pub(crate) const RECORD_BYTES_DEFAULT: usize = 900_000;

/// Pause in which records gather for one request. Below a millisecond librdkafka spins, and without
/// a pause it is woken for each record: measured at 9 k transactions/s, 47 µs of CPU a transaction
/// with 0, 37 with 0.5, 26 with 1, 20 with 5.
const LINGER_MS: &str = "1";

/// Longest pause between two tries to reach a broker, unless the user says otherwise.
const RECONNECT_MAX_MS: &str = "2000";

struct Forced {
    names: &'static [&'static str],
    value: &'static str,
    same: &'static [&'static str],
    reason: &'static str,
}

const FORCED: &[Forced] = &[
    Forced {
        names: &["acks", "request.required.acks"],
        value: "all",
        same: &["-1"],
        reason: "Nothing may be confirmed to the publisher before all in-sync replicas have it.",
    },
    Forced {
        names: &["enable.idempotence"],
        value: "true",
        same: &[],
        reason: "Without it a retried record can be written twice or out of order.",
    },
    Forced {
        names: &["enable.gapless.guarantee"],
        value: "true",
        same: &[],
        reason: "Without it records behind a failed one are appended: a hole in the log.",
    },
    Forced {
        names: &["message.timeout.ms", "delivery.timeout.ms"],
        value: "0",
        same: &[],
        reason: "With a time-out a record is given up and the next appended: a hole in the log.",
    },
    Forced {
        names: &["retries", "message.send.max.retries"],
        value: "2147483647",
        same: &[],
        reason: "A record that is given up is a hole in the log.",
    },
    Forced {
        names: &["queuing.strategy"],
        value: "fifo",
        same: &[],
        reason: "The log is in commit order.",
    },
    Forced {
        names: &["delivery.report.only.error"],
        value: "false",
        same: &[],
        reason: "Delivery reports are what confirms WAL to the publisher.",
    },
    Forced {
        names: &["allow.auto.create.topics"],
        value: "false",
        same: &[],
        reason: "A topic made by accident has the broker's retention; \"walbraid setup\" makes it.",
    },
];

/// Properties that have a setting of ours in their place.
const DERIVED: &[(&[&str], &str)] = &[
    (
        &["queue.buffering.max.kbytes", "queue.buffering.max.messages"],
        "The queue is part of the memory budget: set \"producer.publish_memory_bytes\".",
    ),
    (
        &["message.max.bytes", "batch.size"],
        "The size of records follows from the topic: set \"producer.record_bytes_max\".",
    ),
    (
        &["transactional.id"],
        "The log needs no Kafka transactions: its chain tells what is whole and whose it is.",
    ),
];

const IN_FLIGHT: [&str; 2] = ["max.in.flight.requests.per.connection", "max.in.flight"];

/// Properties of a consumer, which the shared section may hold and a producer does not know.
const CONSUMER_ONLY: &[&str] = &[
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "coordinator.query.interval.ms",
    "max.poll.interval.ms",
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "fetch.wait.max.ms",
    "fetch.queue.backoff.ms",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.error.backoff.ms",
    "isolation.level",
    "enable.partition.eof",
    "check.crcs",
];

/// Properties of a producer, which a reader of the lane does not know.
const PRODUCER_ONLY: &[&str] = &[
    "linger.ms",
    "queue.buffering.max.ms",
    "queue.buffering.backpressure.threshold",
    "compression.codec",
    "compression.type",
    "compression.level",
    "batch.num.messages",
    "batch.size",
    "sticky.partitioning.linger.ms",
    "transaction.timeout.ms",
    "request.timeout.ms",
    "partitioner",
];

/// A property that the user set and that would break a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The property, spelt as the user did.
    pub property: String,
    /// What is wrong with it, as a lower-case message.
    pub message: String,
    /// Why, as a sentence.
    pub reason: &'static str,
}

/// The properties of `properties` that the producer cannot accept; empty when all are fine.
pub fn refusals(properties: &BTreeMap<String, String>) -> Vec<Refusal> {
    properties
        .iter()
        .filter_map(|(name, value)| refusal(name, value.trim()))
        .collect()
}

fn refusal(name: &str, value: &str) -> Option<Refusal> {
    let refuse = |message: String, reason| {
        let property = name.to_owned();
        Some(Refusal {
            property,
            message,
            reason,
        })
    };
    if let Some(forced) = FORCED.iter().find(|f| f.names.contains(&name)) {
        if value.eq_ignore_ascii_case(forced.value) || forced.same.contains(&value) {
            return None;
        }
        let message = format!(
            "Kafka property \"{name}\" must be \"{}\", not \"{value}\"",
            forced.value
        );
        return refuse(message, forced.reason);
    }
    if let Some((_, reason)) = DERIVED.iter().find(|(names, _)| names.contains(&name)) {
        return refuse(format!("Kafka property \"{name}\" cannot be set"), *reason);
    }
    if IN_FLIGHT.contains(&name) && !matches!(value.parse::<u32>(), Ok(1..=5)) {
        return refuse(
            format!("Kafka property \"{name}\" must be between 1 and 5, not \"{value}\""),
            "An idempotent producer keeps the order of at most five requests in flight.",
        );
    }
    None
}

/// Configuration of the client that writes records of at most `record_bytes_max`.
pub(crate) fn producer(
    kafka: &Kafka,
    limits: &Limits,
    record_bytes_max: usize,
) -> Result<ClientConfig, Stop> {
    let mut config = base(kafka, CONSUMER_ONLY)?;
    for forced in FORCED {
        for name in forced.names {
            config.remove(name);
        }
        config.set(forced.names[0], forced.value);
    }
    if !IN_FLIGHT
        .iter()
        .any(|name| kafka.properties.contains_key(*name))
    {
        config.set(IN_FLIGHT[0], "5");
    }
    let linger = ["linger.ms", "queue.buffering.max.ms"];
    if !linger
        .iter()
        .any(|name| kafka.properties.contains_key(*name))
    {
        config.set("linger.ms", LINGER_MS);
    }
    // The pipeline itself counts what is pending and stops reading in time; librdkafka's own limit
    // is the second wall behind it, never reached in a healthy process.
    let queue_bytes = limits.publish_memory_bytes.max(record_bytes_max) * 2;
    let request_bytes = record_bytes_max + FRAMING_BYTES;
    config
        .set(
            "queue.buffering.max.kbytes",
            (queue_bytes / 1_024 + 1).to_string(),
        )
        .set(
            "queue.buffering.max.messages",
            (queue_bytes / RECORD_OVERHEAD_BYTES + 16).to_string(),
        )
        .set("message.max.bytes", request_bytes.max(1_000).to_string())
        .set("batch.size", request_bytes.to_string());
    Ok(config)
}

/// Configuration of a client that reads the lane by offset; it joins no group.
pub(crate) fn reader(kafka: &Kafka) -> Result<ClientConfig, Stop> {
    let mut config = base(kafka, CONSUMER_ONLY)?;
    for name in PRODUCER_ONLY {
        config.remove(name);
    }
    for name in FORCED.iter().flat_map(|f| f.names) {
        config.remove(name);
    }
    config
        .set("group.id", format!("walbraid-producer-{}", kafka.topic))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("isolation.level", "read_uncommitted")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "8192");
    Ok(config)
}

/// Configuration of a client that asks about the cluster and its topics.
pub(crate) fn admin(kafka: &Kafka) -> Result<ClientConfig, Stop> {
    let mut config = base(kafka, CONSUMER_ONLY)?;
    config.set("allow.auto.create.topics", "false");
    Ok(config)
}

fn base(kafka: &Kafka, without: &[&str]) -> Result<ClientConfig, Stop> {
    if let Some(refusal) = refusals(&kafka.properties).into_iter().next() {
        return Err(Stop::new(StopKind::Usage, refusal.message).detail(refusal.reason));
    }
    let mut config = ClientConfig::new();
    config
        .set("client.id", "walbraid-producer")
        .set("reconnect.backoff.max.ms", RECONNECT_MAX_MS);
    for (name, value) in &kafka.properties {
        if !without.contains(&name.as_str()) {
            config.set(name, value);
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, expected: Option<&str>) {
        let properties = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let refusals = refusals(&properties);
        let message = refusals.first().map(|r| r.message.as_str());
        assert_eq!(message, expected, "{name} = {value}");
    }

    #[test]
    fn what_contradicts_a_forced_property_is_refused() {
        check("acks", "all", None);
        check("acks", "-1", None);
        check("linger.ms", "20", None);
        check("compression.type", "zstd", None);
        check("max.in.flight", "5", None);
        check(
            "acks",
            "1",
            Some("Kafka property \"acks\" must be \"all\", not \"1\""),
        );
        check(
            "delivery.timeout.ms",
            "5000",
            Some("Kafka property \"delivery.timeout.ms\" must be \"0\", not \"5000\""),
        );
        check(
            "max.in.flight",
            "6",
            Some("Kafka property \"max.in.flight\" must be between 1 and 5, not \"6\""),
        );
        check(
            "queue.buffering.max.kbytes",
            "10",
            Some("Kafka property \"queue.buffering.max.kbytes\" cannot be set"),
        );
    }

    #[test]
    fn the_forced_values_win_and_aliases_do_not_fight() {
        let kafka = Kafka {
            properties: BTreeMap::from([
                ("bootstrap.servers".to_owned(), "127.0.0.1:1".to_owned()),
                ("request.required.acks".to_owned(), "-1".to_owned()),
                ("group.id".to_owned(), "g".to_owned()),
            ]),
            topic: "t".to_owned(),
            lane: 0,
            partitions: 1,
            replication_factor: 1,
            retention_ms: -1,
        };
        let config = producer(&kafka, &Limits::default(), 900_000).unwrap();
        let expected = [
            ("acks", Some("all")),
            ("request.required.acks", None),
            ("message.timeout.ms", Some("0")),
            ("enable.gapless.guarantee", Some("true")),
            ("max.in.flight.requests.per.connection", Some("5")),
            ("group.id", None),
        ];
        for (name, value) in expected {
            assert_eq!(config.get(name), value, "{name}");
        }
        assert!(config.create_native_config().is_ok());
    }

    #[test]
    fn every_property_that_is_set_is_in_the_documentation() {
        let text = include_str!("../../docs/configuration.md");
        let kafka = Kafka {
            properties: BTreeMap::new(),
            topic: "t".to_owned(),
            lane: 0,
            partitions: 1,
            replication_factor: 1,
            retention_ms: -1,
        };
        for config in [producer(&kafka, &Limits::default(), 1), admin(&kafka)] {
            for name in config.unwrap().config_map().keys() {
                assert!(text.contains(&format!("`{name}`")), "{name}");
            }
        }
    }
}
