//! What was typed, checked: the values of all keys, each of them right and all of them together.
//!
//! Owns the rules between keys and the filling of what producer and consumer are told. Does not
//! know files or variables beyond the name of the place a value came from, nor how the text of one
//! value is read ([`super::value`]). Collects violations and never stops at the first: a reader of
//! a wrong value returns the kind's empty one, so that the checks after it go on; such a value
//! never leaves [`validate`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use walbraid_consumer::config as consumer;
use walbraid_producer::config::{self as producer, RECORD_BYTES_MIN};
use walbraid_schemas::Registry;
use walbraid_wire::{ConnectOptions, Environment};

use super::Violation;
use super::kafka::{self, Properties};
use super::key::{self, Presence};
use super::typed::{Entry, Raw, Source, Typed};
use super::value::Value;

/// Workers of all lanes of a process, unless told otherwise: two sessions less than the ten
/// origins that a subscriber lets be in use at a time by its own default.
const WORKERS_TOTAL: usize = 8;

/// The shortest time to wait for an answer: the subscriber itself waits a second for a lock.
const ANSWER_MS_MIN: i64 = 2_000;

/// A configuration that is right as far as it can be known without asking a server.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The stream's name.
    pub(crate) stream: String,
    /// What the producer is told.
    pub(crate) producer: producer::Config,
    /// What the consumer is told.
    pub(crate) consumer: consumer::Config,
    /// Where metrics and health are served, if anywhere.
    pub(crate) listen: Option<SocketAddr>,
}

/// Checks everything; the violations of names come first.
pub(crate) fn validate(typed: Typed, surroundings: &Environment) -> Result<Config, Vec<Violation>> {
    let mut check = Check {
        entries: typed.entries,
        violations: typed.violations,
    };
    // Every key by itself first, in the order of the documentation.
    key::KEYS.iter().for_each(|key| drop(check.value(key.name)));
    let stream = check.text("stream");
    let publisher = check.connect("publisher.url", surroundings);
    let subscriber = check.connect("subscriber.url", surroundings);
    let properties = check.properties();
    let kafka = check.kafka(&properties);
    let registry = check.registry();
    let (limits, intervals) = (check.limits(), check.intervals());
    let apply = check.apply();
    let listen = check.listen();
    check.names();
    check.refused_options();
    check.between_keys();
    let publisher = publisher.map(|connect| check.publisher(connect));
    let subscriber = subscriber.map(|connect| check.subscriber(connect));
    let shutdown_timeout_ms = check.number("consumer.shutdown_timeout_ms");
    match (publisher, subscriber) {
        (Some(publisher), Some(subscriber)) if check.violations.is_empty() => Ok(Config {
            consumer: consumer::Config {
                stream: stream.clone(),
                subscriber,
                kafka: consumer::Kafka {
                    properties: properties.for_consumer(),
                    topic: kafka.topic.clone(),
                    group_id: properties.get("group.id").map(str::to_owned),
                },
                registry: registry.clone(),
                apply,
                shutdown_timeout_ms,
            },
            producer: producer::Config {
                stream: stream.clone(),
                publisher,
                kafka,
                registry,
                limits,
                intervals,
            },
            stream,
            listen,
        }),
        _ => Err(check.violations),
    }
}

/// The values being checked.
struct Check {
    entries: BTreeMap<String, Entry>,
    violations: Vec<Violation>,
}

impl Check {
    fn connect(&mut self, name: &str, surroundings: &Environment) -> Option<ConnectOptions> {
        let url = self.text(name);
        if url.is_empty() {
            return None;
        }
        match ConnectOptions::parse(&url, surroundings) {
            Ok(options) => Some(options),
            Err(error) => {
                let message = format!("key \"{name}\": {error}");
                self.refuse(Some(name), message, error.hint());
                None
            }
        }
    }

    fn publisher(&mut self, connect: ConnectOptions) -> producer::Publisher {
        // Status updates go out all the time; a walsender that is busy lets them lie for hours
        // before its buffer is full.
        let silence_ms = self.number("producer.receive_timeout_ms");
        producer::Publisher {
            connect: connect.with_default_tcp_user_timeout(Duration::from_millis(silence_ms)),
            publications: self.list("publisher.publication"),
            slot: self.text("publisher.slot"),
            failover: self.flag("publisher.failover"),
            local_origin_only: self.text("publisher.origin") == "none",
            slot_lock_timeout_ms: self.number("publisher.slot_lock_timeout_ms"),
        }
    }

    fn kafka(&mut self, properties: &Properties) -> producer::Kafka {
        producer::Kafka {
            properties: properties.for_producer(),
            topic: self.text("kafka.topic"),
            lane: 0,
            partitions: self.number("kafka.partitions"),
            replication_factor: self.number("kafka.replication_factor"),
            retention_ms: self.number("kafka.retention_ms"),
        }
    }

    fn properties(&mut self) -> Properties {
        let mut typed = BTreeMap::new();
        for (name, entry) in &self.entries {
            let Some(property) = name.strip_prefix("kafka.") else {
                continue;
            };
            if key::find(name).is_none() {
                typed.insert(property.to_owned(), entry.raw.spelled());
            }
        }
        if !typed.contains_key("bootstrap.servers") {
            self.refuse(
                None,
                "key \"kafka.bootstrap.servers\" is missing".to_owned(),
                None,
            );
        }
        let (properties, refusals) = Properties::validate(typed);
        for kafka::Refusal {
            name,
            message,
            hint,
        } in refusals
        {
            let source = self.source(&format!("kafka.{name}"));
            self.violations.push(Violation {
                source,
                message,
                hint,
            });
        }
        properties
    }

    fn registry(&mut self) -> Registry {
        let urls = self.list("registry.url");
        if urls
            .iter()
            .any(|url| !url.starts_with("http://") && !url.starts_with("https://"))
        {
            let message = "key \"registry.url\" begins with http:// or https://".to_owned();
            self.refuse(Some("registry.url"), message, None);
        }
        let user = self.optional("registry.username");
        let password = self.optional("registry.password");
        if user.is_some() != password.is_some() {
            let message = "\"registry.username\" and \"registry.password\" go together".to_owned();
            self.refuse(None, message, None);
        }
        let ca_file = self.optional("registry.ca_file").map(Into::into);
        let timeout_ms = self.number("registry.timeout_ms");
        Registry {
            urls,
            user,
            password,
            ca_file,
            timeout_ms,
        }
    }

    fn limits(&mut self) -> producer::Limits {
        let given = self.given("producer.record_bytes_max");
        producer::Limits {
            publish_memory_bytes: self.number("producer.publish_memory_bytes"),
            receive_buffer_bytes: self.number("producer.receive_buffer_bytes"),
            record_bytes_max: given.then(|| self.number("producer.record_bytes_max")),
        }
    }

    fn intervals(&mut self) -> producer::Intervals {
        producer::Intervals {
            status_interval_ms: self.number("producer.status_interval_ms"),
            heartbeat_interval_ms: self.number("producer.heartbeat_interval_ms"),
            heartbeat_idle_interval_ms: self.number("producer.heartbeat_idle_interval_ms"),
            receive_timeout_ms: self.number("producer.receive_timeout_ms"),
            stall_warning_ms: self.number("producer.stall_warning_ms"),
            retry_backoff_max_ms: self.number("producer.retry_backoff_max_ms"),
            shutdown_timeout_ms: self.number("producer.shutdown_timeout_ms"),
        }
    }

    fn subscriber(&mut self, connect: ConnectOptions) -> consumer::Subscriber {
        consumer::Subscriber {
            connect,
            statement_timeout_ms: self.number("consumer.statement_timeout_ms"),
            lock_timeout_ms: self.number("consumer.lock_timeout_ms"),
            answer_timeout_ms: self.number("consumer.answer_timeout_ms"),
        }
    }

    fn apply(&mut self) -> consumer::Apply {
        consumer::Apply {
            workers: self.workers(),
            parallel_safe: self.list("consumer.parallel_safe"),
            resolver: self.flag("consumer.resolver"),
            group_transactions_max: self.number("consumer.group"),
            on_missing: match self.text("consumer.on_missing").as_str() {
                "error" => consumer::OnMissing::Error,
                _ => consumer::OnMissing::Skip,
            },
            ack: match self.text("consumer.ack").as_str() {
                "applied" => consumer::Ack::Applied,
                "replicated" => consumer::Ack::Replicated,
                _ => consumer::Ack::Flushed,
            },
            truncate_cascade: self.flag("consumer.truncate_cascade"),
            flush_interval_ms: self.number("consumer.flush_interval_ms"),
            memory_bytes: self.number("consumer.memory_bytes"),
            run_idle_timeout_ms: self.number("consumer.run_idle_timeout_ms"),
        }
    }

    /// The workers of one lane; "auto" may be as many as there may be in all.
    fn workers(&mut self) -> consumer::Workers {
        match self.value("consumer.workers") {
            Some(Value::Integer(number)) => {
                consumer::Workers::Fixed(usize::try_from(number).unwrap_or(1))
            }
            _ => consumer::Workers::Auto {
                most: self.workers_total(),
            },
        }
    }

    fn workers_total(&mut self) -> usize {
        let fixed = match self.value("consumer.workers") {
            Some(Value::Integer(number)) => usize::try_from(number).unwrap_or(1),
            _ => 1,
        };
        match self.value("consumer.workers_total") {
            Some(Value::Integer(number)) => usize::try_from(number).unwrap_or(1),
            _ => fixed.max(WORKERS_TOTAL),
        }
    }

    fn listen(&mut self) -> Option<SocketAddr> {
        let address = self.optional("metrics.listen")?.parse().ok();
        if address.is_none() {
            let message = "key \"metrics.listen\" is no address and port".to_owned();
            let hint = "Write for example 127.0.0.1:9187, or [::]:9187 for every interface.";
            self.refuse(Some("metrics.listen"), message, Some(hint));
        }
        address
    }

    /// Names that servers are particular about.
    fn names(&mut self) {
        let word = |name: &str, more: &str, longest: usize| {
            name.len() <= longest
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if !word(&self.text("stream"), "_-", 63) {
            let message = "key \"stream\" has other characters than letters, digits, _ and -, or \
                           more than 63";
            self.refuse(Some("stream"), message.to_owned(), None);
        }
        let slot = self.text("publisher.slot");
        if !word(&slot, "_", 63) || slot.chars().any(|c| c.is_ascii_uppercase()) {
            let message = "key \"publisher.slot\" has other characters than lower-case letters, \
                           digits and _, or more than 63";
            let hint = "PostgreSQL refuses such a slot.";
            self.refuse(Some("publisher.slot"), message.to_owned(), Some(hint));
        }
        let topic = self.text("kafka.topic");
        if !word(&topic, "._-", 249) || [".", ".."].contains(&topic.as_str()) {
            let message = "key \"kafka.topic\" has other characters than letters, digits, ., _ \
                           and -, or more than 249";
            let hint = "Kafka refuses such a topic.";
            self.refuse(Some("kafka.topic"), message.to_owned(), Some(hint));
        }
    }

    /// Values that the publisher knows and this version does not take.
    fn refused_options(&mut self) {
        if self.flag("publisher.two_phase") {
            let message = "key \"publisher.two_phase\" is false in this version".to_owned();
            let hint = "A prepared transaction is carried when it is committed.";
            self.refuse(Some("publisher.two_phase"), message, Some(hint));
        }
        if !["", "off"].contains(&self.text("publisher.streaming").as_str()) {
            let message = "key \"publisher.streaming\" is off in this version".to_owned();
            let hint = "A large transaction is carried when it is committed.";
            self.refuse(Some("publisher.streaming"), message, Some(hint));
        }
    }

    /// Keys that contradict each other.
    fn between_keys(&mut self) {
        let publisher = self.text("publisher.url");
        if !publisher.is_empty() && publisher == self.text("subscriber.url") {
            let message = "\"publisher.url\" and \"subscriber.url\" name the same server and \
                           database";
            self.refuse(None, message.to_owned(), None);
        }
        if self.number::<i64>("kafka.replication_factor") == 0 {
            let message = "key \"kafka.replication_factor\" cannot be 0".to_owned();
            let hint = "Write -1 for the broker's default.";
            self.refuse(Some("kafka.replication_factor"), message, Some(hint));
        }
        let heartbeat = self.number::<i64>("producer.heartbeat_idle_interval_ms");
        match self.number::<i64>("kafka.retention_ms") {
            ..0 => {}
            0 => {
                let message = "key \"kafka.retention_ms\" cannot be 0".to_owned();
                let hint = "Write -1 for no limit.";
                self.refuse(Some("kafka.retention_ms"), message, Some(hint));
            }
            retention if heartbeat > retention / 4 => {
                let message = "\"producer.heartbeat_idle_interval_ms\" is above a quarter of \
                               \"kafka.retention_ms\"";
                let hint = "Retention would empty the log of an idle publisher.";
                self.refuse(None, message.to_owned(), Some(hint));
            }
            _ => {}
        }
        self.record_bytes();
        let workers = self.workers().most();
        if workers > self.workers_total() {
            let message = "\"consumer.workers\" is more than \"consumer.workers_total\"".to_owned();
            let hint = "One lane alone would pass what all lanes may have.";
            self.refuse(Some("consumer.workers"), message, Some(hint));
        }
        let answer_timeout_ms = self.number::<i64>("consumer.answer_timeout_ms");
        if (1..ANSWER_MS_MIN).contains(&answer_timeout_ms) {
            let message =
                format!("key \"consumer.answer_timeout_ms\" is 0 or at least {ANSWER_MS_MIN}");
            let hint = "A subscriber that is only busy must not be taken for dead.";
            self.refuse(Some("consumer.answer_timeout_ms"), message, Some(hint));
        }
    }

    /// The same bounds as where records are made.
    fn record_bytes(&mut self) {
        let name = "producer.record_bytes_max";
        if self.given(name) && self.number::<usize>(name) < RECORD_BYTES_MIN {
            let message = format!("key \"{name}\" is at least {RECORD_BYTES_MIN}");
            let hint = "In smaller records the names of a table alone could fill one.";
            self.refuse(Some(name), message, Some(hint));
        }
        if self.given("producer.record_bytes_max")
            && self.number::<i64>("producer.record_bytes_max")
                > self.number::<i64>("producer.publish_memory_bytes")
        {
            let message =
                "\"producer.record_bytes_max\" is above \"producer.publish_memory_bytes\"";
            self.refuse(None, message.to_owned(), None);
        }
    }

    fn given(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    fn source(&self, name: &str) -> Option<Source> {
        self.entries.get(name).map(|entry| entry.source.clone())
    }

    fn optional(&mut self, name: &str) -> Option<String> {
        self.given(name).then(|| self.text(name))
    }

    fn text(&mut self, name: &str) -> String {
        match self.value(name) {
            Some(Value::Text(text)) => text,
            _ => String::new(),
        }
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::List(items)) => items,
            _ => Vec::new(),
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Flag(true)))
    }

    /// A number of the limits that its key has; they are within the type that is asked for.
    fn number<N: TryFrom<i64> + Default>(&mut self, name: &str) -> N {
        match self.value(name) {
            Some(Value::Integer(number)) => N::try_from(number).unwrap_or_default(),
            _ => N::default(),
        }
    }

    /// The value of a key, or none where it is missing or wrong, which is then in the violations.
    fn value(&mut self, name: &str) -> Option<Value> {
        let key = key::find(name)?;
        let (raw, source) = match (self.entries.get(name), key.presence) {
            (Some(entry), _) => (entry.raw.clone(), Some(entry.source.clone())),
            (None, Presence::Default(text)) => (Raw::Text(text.to_owned()), None),
            (None, Presence::Optional) => return None,
            (None, Presence::Required) => {
                self.refuse(None, format!("key \"{name}\" is missing"), None);
                return None;
            }
        };
        match Value::read(key, raw) {
            Ok(value) => Some(value),
            Err(message) => {
                self.once(Violation {
                    source,
                    message,
                    hint: None,
                });
                None
            }
        }
    }

    fn refuse(&mut self, name: Option<&str>, message: String, hint: Option<&str>) {
        let source = name.and_then(|name| self.source(name));
        self.once(Violation {
            source,
            message,
            hint: hint.map(str::to_owned),
        });
    }

    /// A key is read by more than one check; what is wrong with it is said once.
    fn once(&mut self, violation: Violation) {
        if !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}
