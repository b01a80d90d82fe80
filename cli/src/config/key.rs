//! Every key of the configuration file that is ours, in one table.
//!
//! Owns names, kinds, limits, defaults and units. docs/configuration.md must list exactly these,
//! with the same defaults and units; a test compares them. What a value means is said there; what
//! is done with it is in [`super`]. Properties of librdkafka are in [`super::kafka`].

/// One key.
pub(crate) struct Key {
    /// Section and name, as written with `--set`: `publisher.url`.
    pub(crate) name: &'static str,
    /// What may be typed.
    pub(crate) kind: Kind,
    /// What holds when nothing is typed.
    pub(crate) presence: Presence,
    /// The unit of the value, or "" where there is none.
    pub(crate) unit: &'static str,
}

/// What may be typed for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text that is not empty.
    Text,
    /// One text or a list of them.
    List,
    /// `true` or `false`.
    Flag,
    /// A whole number between two limits, both allowed.
    Integer {
        /// The smallest value allowed.
        min: i64,
        /// The largest value allowed.
        max: i64,
    },
    /// A whole number between two limits, or a word that leaves it to walbraid.
    IntegerOr {
        /// The word.
        word: &'static str,
        /// The smallest value allowed.
        min: i64,
        /// The largest value allowed.
        max: i64,
    },
    /// One of some words.
    Choice(&'static [&'static str]),
}

/// What holds when nothing is typed for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing: the key must be there.
    Required,
    /// The key has no value; the documentation says what that means.
    Optional,
    /// This text, as if typed.
    Default(&'static str),
}

use Kind::{Choice, Flag, Integer, List, Text};
use Presence::{Default, Optional, Required};

const fn key(name: &'static str, kind: Kind, presence: Presence, unit: &'static str) -> Key {
    Key {
        name,
        kind,
        presence,
        unit,
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Integer { min, max }
}

const WORKERS_MAX: i64 = 64;
const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 86_400_000;

/// The sections, in the order of the documentation.
pub(crate) const SECTIONS: &[&str] = &[
    "publisher",
    "kafka",
    "registry",
    "subscriber",
    "producer",
    "consumer",
    "metrics",
];

/// The keys, in the order of the documentation.
pub(crate) const KEYS: &[Key] = &[
    key("stream", Text, Required, ""),
    key("publisher.url", Text, Required, ""),
    key("publisher.publication", List, Required, ""),
    key("publisher.slot", Text, Required, ""),
    key("publisher.two_phase", Flag, Default("false"), ""),
    key(
        "publisher.streaming",
        Choice(&["off", "on", "parallel"]),
        Default("off"),
        "",
    ),
    key("publisher.failover", Flag, Default("false"), ""),
    key(
        "publisher.origin",
        Choice(&["any", "none"]),
        Default("any"),
        "",
    ),
    key(
        "publisher.slot_lock_timeout_ms",
        int(0, DAY_MS),
        Default("30000"),
        "ms",
    ),
    key("kafka.topic", Text, Required, ""),
    key("kafka.partitions", int(1, 1), Default("1"), "partitions"),
    key(
        "kafka.replication_factor",
        int(-1, 32_767),
        Default("-1"),
        "replicas",
    ),
    key("kafka.retention_ms", int(-1, i64::MAX), Default("-1"), "ms"),
    key("registry.url", List, Required, ""),
    key("registry.username", Text, Optional, ""),
    key("registry.password", Text, Optional, ""),
    key("registry.ca_file", Text, Optional, ""),
    key(
        "registry.timeout_ms",
        int(100, 600_000),
        Default("10000"),
        "ms",
    ),
    key("subscriber.url", Text, Required, ""),
    key(
        "producer.record_bytes_max",
        int(1, GIB - MIB),
        Optional,
        "bytes",
    ),
    key(
        "producer.publish_memory_bytes",
        int(MIB, 64 * GIB),
        Default("67108864"),
        "bytes",
    ),
    key(
        "producer.receive_buffer_bytes",
        int(64 * KIB, GIB),
        Default("4194304"),
        "bytes",
    ),
    key(
        "producer.status_interval_ms",
        int(100, 60_000),
        Default("1000"),
        "ms",
    ),
    key(
        "producer.heartbeat_interval_ms",
        int(100, HOUR_MS),
        Default("1000"),
        "ms",
    ),
    key(
        "producer.heartbeat_idle_interval_ms",
        int(1_000, DAY_MS),
        Default("300000"),
        "ms",
    ),
    key(
        "producer.receive_timeout_ms",
        int(1_000, DAY_MS),
        Default("60000"),
        "ms",
    ),
    key(
        "producer.stall_warning_ms",
        int(100, DAY_MS),
        Default("5000"),
        "ms",
    ),
    key(
        "producer.retry_backoff_max_ms",
        int(100, HOUR_MS),
        Default("10000"),
        "ms",
    ),
    key(
        "producer.shutdown_timeout_ms",
        int(0, HOUR_MS),
        Default("5000"),
        "ms",
    ),
    key(
        "consumer.workers",
        Kind::IntegerOr {
            word: "auto",
            min: 1,
            max: WORKERS_MAX,
        },
        Default("1"),
        "sessions",
    ),
    key(
        "consumer.workers_total",
        int(1, WORKERS_MAX),
        Optional,
        "sessions",
    ),
    key("consumer.parallel_safe", List, Optional, ""),
    key("consumer.resolver", Flag, Default("true"), ""),
    key(
        "consumer.group",
        int(1, 100_000),
        Default("256"),
        "transactions",
    ),
    key(
        "consumer.on_missing",
        Choice(&["skip", "error"]),
        Default("skip"),
        "",
    ),
    key(
        "consumer.ack",
        Choice(&["flushed", "applied", "replicated"]),
        Default("flushed"),
        "",
    ),
    key("consumer.truncate_cascade", Flag, Default("false"), ""),
    key(
        "consumer.memory_bytes",
        int(8 * MIB, 64 * GIB),
        Default("67108864"),
        "bytes",
    ),
    key(
        "consumer.flush_interval_ms",
        int(1, 10_000),
        Default("10"),
        "ms",
    ),
    key(
        "consumer.lock_timeout_ms",
        int(0, DAY_MS),
        Default("10000"),
        "ms",
    ),
    key(
        "consumer.statement_timeout_ms",
        int(0, DAY_MS),
        Default("0"),
        "ms",
    ),
    key(
        "consumer.answer_timeout_ms",
        int(0, DAY_MS),
        Default("30000"),
        "ms",
    ),
    key(
        "consumer.run_idle_timeout_ms",
        int(1_000, DAY_MS),
        Default("60000"),
        "ms",
    ),
    key(
        "consumer.shutdown_timeout_ms",
        int(0, HOUR_MS),
        Default("5000"),
        "ms",
    ),
    key("metrics.listen", Text, Optional, ""),
];

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../docs/configuration.md");

    /// The cells of the rows between two markers.
    fn rows(marker: &str) -> Vec<Vec<&'static str>> {
        let (from, to) = (format!("<!-- {marker} -->"), format!("<!-- /{marker} -->"));
        let text = DOCUMENTATION
            .split(&from)
            .nth(1)
            .expect("begins")
            .split(&to)
            .next();
        let lines = text
            .expect("ends")
            .lines()
            .filter(|line| line.starts_with("| `"));
        lines
            .map(|line| line.split('|').map(str::trim).collect())
            .collect()
    }

    #[test]
    fn the_documentation_lists_exactly_the_keys_there_are() {
        let documented: Vec<(String, String, String)> = rows("keys")
            .iter()
            .map(|cells| {
                let [_, name, _, default, unit, effect, _] = cells[..] else {
                    panic!(
                        "a row has other cells than key, value, default, unit, effect: {cells:?}"
                    )
                };
                assert!(
                    effect.len() > 10 && effect.ends_with('.'),
                    "{name}: {effect}"
                );
                (name.replace('`', ""), default.to_owned(), unit.to_owned())
            })
            .collect();
        let known: Vec<(String, String, String)> = KEYS
            .iter()
            .map(|key| {
                let default = match key.presence {
                    Required => "required",
                    Optional => "none",
                    Default(text) => text,
                };
                (key.name.to_owned(), default.to_owned(), key.unit.to_owned())
            })
            .collect();
        assert_eq!(documented, known);
    }

    #[test]
    fn every_key_is_in_a_section_there_is() {
        for key in KEYS {
            let section = key.name.split_once('.').map(|(section, _)| section);
            assert!(
                section.is_none_or(|name| SECTIONS.contains(&name)),
                "{}",
                key.name
            );
        }
    }
}
