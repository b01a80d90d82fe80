//! The `[kafka]` section: the topic as we want it, and librdkafka's properties.
//!
//! Owns which properties may be set. A property passes through untouched unless a promise or a
//! memory bound stands on its value: those are forced, and typing another value is refused (the
//! forced one may be typed, it changes nothing). The producer knows which those are for itself; the
//! rest stand here. Whether a value is right librdkafka says itself: each is tried on a
//! configuration object of the linked library, which opens no connection.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::property::{self, Scope};

/// What may be typed for a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Anything librdkafka takes.
    Free,
    /// This value; the reason as a sentence.
    Forced(&'static str, &'static str),
    /// Nothing: it is derived, or named otherwise; the reason as a sentence.
    Refused(&'static str),
}

const OFFSETS: &str = "Offsets are committed behind what the subscriber has flushed.";
const RESET: &str = "An offset that is out of range is looked up by LSN, never guessed.";
const QUEUE: &str = "It follows from consumer.memory_bytes.";
const MEMBERS: &str = "Members of the group are static, of the classic protocol.";

/// The rules beside the producer's own.
fn rule(name: &str) -> Rule {
    match name {
        "enable.auto.commit" | "auto.commit.enable" | "enable.auto.offset.store" => {
            Rule::Forced("false", OFFSETS)
        }
        "auto.offset.reset" => Rule::Forced("error", RESET),
        "enable.partition.eof" => Rule::Forced("false", "The consumer has no use for it."),
        "auto.commit.interval.ms"
        | "offset.store.method"
        | "offset.store.path"
        | "offset.store.sync.interval.ms" => Rule::Refused(OFFSETS),
        "queued.max.messages.kbytes"
        | "queued.min.messages"
        | "fetch.max.bytes"
        | "fetch.message.max.bytes"
        | "max.partition.fetch.bytes"
        | "receive.message.max.bytes" => Rule::Refused(QUEUE),
        "group.protocol" | "group.protocol.type" | "group.remote.assignor" => {
            Rule::Refused(MEMBERS)
        }
        "transaction.timeout.ms" => Rule::Refused("The log needs no Kafka transactions."),
        "metadata.broker.list" => Rule::Refused("Write \"bootstrap.servers\"."),
        "topic.blacklist" => Rule::Refused("One topic is written and read: kafka.topic."),
        _ => Rule::Free,
    }
}

/// Why a name that librdkafka has is no property a file can set, if it is such a name.
pub(crate) fn no_text(name: &str) -> Option<String> {
    let handle = name.ends_with("_cb")
        || [
            "opaque",
            "interceptors",
            "default_topic_conf",
            "enabled_events",
            "msg_order_cmp",
        ]
        .contains(&name);
    if handle {
        return Some("It is a handle of the library, not a value.".to_owned());
    }
    ["plugin.library.paths", "log.queue", "builtin.features"]
        .contains(&name)
        .then(|| "It belongs to the program that embeds the library.".to_owned())
}

/// The properties that were typed, all of them right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    values: BTreeMap<String, String>,
}

/// What is wrong with one property.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The name, without the section.
    pub(crate) name: String,
    /// What is wrong; never shows the value of a secret.
    pub(crate) message: String,
    /// Why, as a sentence.
    pub(crate) hint: Option<String>,
}

impl Properties {
    /// Takes the properties that are right and says what is wrong with the others.
    pub(crate) fn validate(typed: BTreeMap<String, String>) -> (Self, Vec<Refusal>) {
        let mut refusals = Vec::new();
        let mut values = BTreeMap::new();
        for (name, value) in typed {
            match refusal(&name, &value) {
                Some(refusal) => refusals.push(refusal),
                None => drop(values.insert(name, value)),
            }
        }
        (Self { values }, refusals)
    }

    /// The value of one property, if it was typed.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// What a producer takes.
    pub(crate) fn for_producer(&self) -> BTreeMap<String, String> {
        self.without(Scope::Consumer)
    }

    /// What a consumer takes.
    pub(crate) fn for_consumer(&self) -> BTreeMap<String, String> {
        self.without(Scope::Producer)
    }

    fn without(&self, other: Scope) -> BTreeMap<String, String> {
        self.values
            .iter()
            .filter(|(name, _)| property::scope(name).is_some_and(|scope| scope != other))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

fn refusal(name: &str, value: &str) -> Option<Refusal> {
    let refuse = |message: String, hint: Option<&str>| {
        Some(Refusal {
            name: name.to_owned(),
            message,
            hint: hint.map(str::to_owned),
        })
    };
    let one = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    if let Some(refusal) = walbraid_producer::kafka::refusals(&one).into_iter().next() {
        return refuse(refusal.message, Some(refusal.reason));
    }
    match rule(name) {
        Rule::Free => {}
        Rule::Forced(forced, _) if value == forced => {}
        Rule::Forced(forced, reason) => {
            let message =
                format!("Kafka property \"{name}\" must be \"{forced}\", not \"{value}\"");
            return refuse(message, Some(reason));
        }
        Rule::Refused(reason) => {
            return refuse(
                format!("Kafka property \"{name}\" cannot be set"),
                Some(reason),
            );
        }
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(_, reason, _, _)) if !secret(name) => refuse(
            format!("Kafka property \"{name}\" is refused by librdkafka: {reason}"),
            None,
        ),
        Err(_) => refuse(
            format!("Kafka property \"{name}\" is refused by librdkafka"),
            None,
        ),
    }
}

/// Whether the value of a property must not be shown.
fn secret(name: &str) -> bool {
    [
        "password",
        "secret",
        "passphrase",
        ".pem",
        "sasl.oauthbearer.config",
    ]
    .iter()
    .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(name: &str, value: &str) -> (Properties, Vec<Refusal>) {
        Properties::validate(BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn what_may_be_set() {
        let check = |name, value, allowed: bool| {
            let (properties, refusals) = validate(name, value);
            assert_eq!(refusals.is_empty(), allowed, "{name}={value}: {refusals:?}");
            assert_eq!(properties.get(name).is_some(), allowed, "{name}={value}");
        };
        check("linger.ms", "5", true);
        check("linger.ms", "five", false);
        check("compression.codec", "zstd", true);
        check("compression.codec", "zip", false);
        check("security.protocol", "sasl_ssl", true);
        check("sasl.mechanisms", "SCRAM-SHA-512", true);
        check("acks", "all", true);
        check("acks", "-1", true);
        check("acks", "1", false);
        check("enable.idempotence", "false", false);
        check("message.timeout.ms", "300000", false);
        check("auto.offset.reset", "earliest", false);
        check("enable.auto.commit", "true", false);
        check("transactional.id", "x", false);
        check("queued.min.messages", "5", false);
        check("group.id", "mine", true);
        check("max.in.flight", "5", true);
        check("max.in.flight", "6", false);
    }

    #[test]
    fn each_client_gets_its_own() {
        let typed = [
            ("bootstrap.servers", "h:1"),
            ("linger.ms", "1"),
            ("group.id", "g"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (properties, refusals) = Properties::validate(BTreeMap::from(typed));
        assert_eq!(refusals, []);
        let names = |properties: BTreeMap<String, String>| -> Vec<String> {
            properties.into_keys().collect()
        };
        assert_eq!(
            names(properties.for_producer()),
            ["bootstrap.servers", "linger.ms"]
        );
        assert_eq!(
            names(properties.for_consumer()),
            ["bootstrap.servers", "group.id"]
        );
    }

    #[test]
    fn the_documentation_lists_what_is_forced() {
        let text = include_str!("../../../docs/configuration.md");
        let (_, text) = text.split_once("<!-- properties -->").expect("begins");
        let (text, _) = text.split_once("<!-- /properties -->").expect("ends");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let documented: Vec<&str> = cells
            .flat_map(|cell| cell.split(','))
            .map(|name| name.trim().trim_matches('`'))
            .collect();
        for name in &documented {
            assert!(property::scope(name).is_some(), "{name} is no property");
            assert!(
                refusal(name, "no such value").is_some(),
                "{name} may be set"
            );
        }
        for (name, _) in property::all().filter(|(name, _)| rule(name) != Rule::Free) {
            assert!(documented.contains(&name), "{name} is not documented");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (_, refusals) = validate("ssl.key.password", "hunter2\0");
        assert!(
            refusals
                .iter()
                .all(|refusal| !refusal.message.contains("hunter2"))
        );
    }
}
