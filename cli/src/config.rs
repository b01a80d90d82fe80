//! The configuration: one file for both sides, read in two steps.
//!
//! First what was typed ([`typed`]: file, then environment, then `--set`), then what is right
//! ([`validated`]). All violations of both steps are reported together, because a person who mends
//! a file does not want to learn of its errors one by one. Nothing here opens a connection or a
//! file: reading the text is the caller's, and so are tests without either.
//!
//! Invariants: a [`Config`] exists only if every key was right; no text made here shows a password.

mod kafka;
mod key;
mod nearest;
mod property;
mod typed;
mod validated;
mod value;

use std::fmt;
use std::path::Path;

use walbraid_wire::Environment;

pub(crate) use validated::Config;

/// One thing that is wrong with what was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Where it was typed; none for a key that is missing or clashes with another.
    source: Option<typed::Source>,
    /// What is wrong, naming the key.
    message: String,
    /// What to do, as a sentence.
    hint: Option<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        write!(f, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({})", hint.trim_end_matches('.')),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct Invalid {
    file: String,
    violations: Vec<Violation>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, file) = (self.violations.len(), &self.file);
        let errors = if count == 1 { "error" } else { "errors" };
        write!(f, "ERROR:  configuration \"{file}\" has {count} {errors}")?;
        for violation in &self.violations {
            write!(f, "\nDETAIL:  {violation}")?;
        }
        write!(
            f,
            "\nHINT:  Every key is described in docs/configuration.md."
        )
    }
}

impl Invalid {
    /// The file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Everything that is wrong.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

/// Reads the file and all that overrides it.
pub(crate) fn load(path: &Path, arguments: &[String]) -> Result<Config, Invalid> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Invalid {
        file: file.clone(),
        violations: vec![Violation {
            source: None,
            message: format!("cannot read the file: {error}"),
            hint: Some("Name it with --config.".to_owned()),
        }],
    })?;
    // A variable whose name or value is no UTF-8 cannot be one of ours.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    parse(
        &file,
        &text,
        environment,
        arguments,
        &Environment::of_process(),
    )
}

/// The same without touching anything: all inputs are arguments.
pub(crate) fn parse(
    file: &str,
    text: &str,
    environment: impl IntoIterator<Item = (String, String)>,
    arguments: &[String],
    surroundings: &Environment,
) -> Result<Config, Invalid> {
    let typed = typed::read(text, environment, arguments.iter().map(String::as_str));
    validated::validate(typed, surroundings).map_err(|violations| Invalid {
        file: file.to_owned(),
        violations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest configuration there is.
    pub(crate) const SMALLEST: &str = r#"
stream = "shop"
[publisher]
url = "postgres://publisher/shop"
publication = "shop"
slot = "walbraid_shop"
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
topic = "walbraid.shop"
[registry]
url = "http://127.0.0.1:8081"
[subscriber]
url = "postgres://subscriber/shop"
"#;

    fn read(text: &str, arguments: &[&str]) -> Result<Config, Invalid> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        parse(
            "walbraid.toml",
            text,
            [],
            &arguments,
            &Environment::empty().with_user("me"),
        )
    }

    fn with(arguments: &[&str]) -> Result<Config, Invalid> {
        read(SMALLEST, arguments)
    }

    #[test]
    fn the_smallest_configuration_is_right() {
        let config = with(&[]).expect("right");
        assert_eq!(config.stream, "shop");
        assert_eq!(config.producer.publisher.publications, ["shop"]);
        assert_eq!(config.producer.kafka.topic, "walbraid.shop");
        assert_eq!(config.producer.kafka.retention_ms, -1);
        assert_eq!(config.producer.limits.record_bytes_max, None);
        assert_eq!(config.consumer.subscriber.connect.database(), "shop");
    }

    #[test]
    fn an_empty_file_names_every_missing_key_at_once() {
        let invalid = read("", &[]).expect_err("wrong");
        let text = invalid.to_string();
        let missing = [
            "stream",
            "publisher.url",
            "publisher.publication",
            "publisher.slot",
        ];
        let more = [
            "kafka.topic",
            "kafka.bootstrap.servers",
            "registry.url",
            "subscriber.url",
        ];
        for name in missing.iter().chain(&more) {
            assert!(
                text.contains(&format!("key \"{name}\" is missing")),
                "{name}: {text}"
            );
        }
        assert!(text.contains("has 8 errors"), "{text}");
    }

    #[test]
    fn names_and_values_are_refused_together() {
        let text = SMALLEST.replace("stream", "steram");
        let arguments = ["consumer.group=0", "kafka.acks=1"];
        let text = read(&text, &arguments).expect_err("wrong").to_string();
        for part in [
            "line 2: unknown key \"steram\" (Perhaps you meant \"stream\")",
            "key \"stream\" is missing",
            "--set: key \"consumer.group\" is between 1 and 100000 transactions, not 0",
            "--set: Kafka property \"acks\" must be \"all\", not \"1\"",
            "has 4 errors",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_refused() {
        let check = |argument: &str, part: &str| match with(&[argument]) {
            Ok(_) => panic!("{argument} was taken"),
            Err(invalid) => {
                assert_eq!(invalid.violations.len(), 1, "{invalid}");
                assert!(invalid.to_string().contains(part), "{argument}: {invalid}");
            }
        };
        check("stream=a b", "key \"stream\"");
        check("stream=", "is empty");
        check("publisher.slot=Shop", "key \"publisher.slot\"");
        check("publisher.two_phase=true", "key \"publisher.two_phase\"");
        check("publisher.two_phase=perhaps", "true or false");
        check("publisher.streaming=on", "key \"publisher.streaming\"");
        check("publisher.streaming=maybe", "off, on or parallel");
        check(
            "publisher.url=postgres://subscriber/shop",
            "the same server and database",
        );
        check("producer.status_interval_ms=soon", "a whole number");
        check("publisher.publication=a,,b", "publisher.publication");
        check("kafka.topic=a/b", "key \"kafka.topic\"");
        check("kafka.retention_ms=0", "key \"kafka.retention_ms\"");
        check(
            "kafka.retention_ms=2000",
            "producer.heartbeat_idle_interval_ms",
        );
        check(
            "kafka.replication_factor=0",
            "key \"kafka.replication_factor\"",
        );
        check("kafka.partitions=2", "key \"kafka.partitions\"");
        check("registry.url=ftp://x", "key \"registry.url\"");
        check("registry.username=me", "registry.password");
        check(
            "producer.record_bytes_max=100000000",
            "producer.publish_memory_bytes",
        );
        check(
            "publisher.url=postgres://h/d?sslmod=require",
            "key \"publisher.url\"",
        );
        check("consumer.on_missing=shrug", "skip or error");
        check("consumer.answer_timeout_ms=1999", "0 or at least 2000");
        check("producer.record_bytes_max=1024", "at least 16384");
        check("metrics.listen=9187", "key \"metrics.listen\"");
    }

    #[test]
    fn what_is_taken() {
        let check = |argument: &str| {
            if let Err(invalid) = with(&[argument]) {
                panic!("{argument}: {invalid}");
            }
        };
        check("publisher.publication=a,b");
        check("kafka.retention_ms=604800000");
        check("kafka.replication_factor=3");
        check("kafka.compression.codec=zstd");
        check("consumer.on_missing=error");
        check("consumer.group=1");
        check("consumer.answer_timeout_ms=0");
        check("producer.record_bytes_max=16384");
        check("metrics.listen=127.0.0.1:0");
        check("metrics.listen=[::1]:9187");
    }
}
