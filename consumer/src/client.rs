//! The two Kafka clients of a consumer: what they are told, and what they say to the log.
//!
//! The **member** belongs to the group and commits offsets; it never fetches. The **reader**
//! fetches one lane from an offset it is given; it never joins. So a rebalance cannot disturb a
//! fetch in flight, a seek cannot disturb membership, and a full buffer downstream simply stops the
//! reader while the member goes on to be polled.
//!
//! The user's librdkafka properties pass through; those that a guarantee rests on are forced, and
//! the reader's queues are derived from the memory budget.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

/// Properties the consumer sets itself; a configuration that names one is refused.
pub const FORCED: &[&str] = &[
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
];

/// A record larger than this is not asked for: brokers answer with at least one record anyway, so
/// the bound is librdkafka's own for a whole response.
const RESPONSE_OVERHEAD_BYTES: usize = 64 * 1024;

/// What both clients are built from.
#[derive(Clone, Debug)]
pub struct Clients {
    /// librdkafka properties of the user.
    pub properties: BTreeMap<String, String>,
    /// The consumer group.
    pub group_id: String,
    /// What librdkafka may hold of fetched records, in its queue and in a response.
    pub queue_bytes: usize,
}

impl Clients {
    /// The configuration of the group's member.
    pub fn member(&self, instance_id: Option<&str>) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("session.timeout.ms", "10000")
            .set("heartbeat.interval.ms", "2000");
        config.set("partition.assignment.strategy", "cooperative-sticky");
        if let Some(id) = instance_id {
            config.set("group.instance.id", id);
        }
        self.shared(&mut config);
        // It holds nothing, should a broker send it something before it has paused.
        config
            .set("queued.max.messages.kbytes", "1")
            .set("queued.min.messages", "1");
        config
    }

    /// The configuration of a lane's reader.
    pub fn reader(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        // A full queue is looked at again after this pause; the default of a second starves the
        // worker whenever the backlog is larger than the queue.
        config
            .set("fetch.queue.backoff.ms", "5")
            .set("fetch.error.backoff.ms", "100");
        config.set("fetch.wait.max.ms", "100");
        self.shared(&mut config);
        let response = (self.queue_bytes / 2).clamp(256 * 1024, 32 * 1024 * 1024);
        let queue = (self.queue_bytes / 2 / 1024).max(256);
        config.set("queued.max.messages.kbytes", queue.to_string());
        // librdkafka refuses a fetch smaller than what its producer side could write.
        config.set("message.max.bytes", response.to_string());
        config.set("fetch.max.bytes", response.to_string());
        config.set("fetch.message.max.bytes", response.to_string());
        let receive = (response + RESPONSE_OVERHEAD_BYTES).max(100_000_000);
        config.set("receive.message.max.bytes", receive.to_string());
        config.remove("group.instance.id");
        config
    }

    /// The configuration of a client that looks at single records: it fetches little at a time.
    pub fn looker(&self) -> ClientConfig {
        let mut config = self.reader();
        config
            .set("message.max.bytes", "65536")
            .set("fetch.message.max.bytes", "65536")
            .set("fetch.max.bytes", "65536");
        config
            .set("queued.min.messages", "1")
            .set("queued.max.messages.kbytes", "64");
        config
    }

    fn shared(&self, config: &mut ClientConfig) {
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        config.set("group.id", &self.group_id);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("enable.partition.eof", "false");
        config.set("auto.offset.reset", "error");
        config.set("allow.auto.create.topics", "false");
        if !self.properties.contains_key("client.id") {
            config.set("client.id", "walbraid-consumer");
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
    }
}

/// When librdkafka last told of a broker that it lost or does not reach, whichever client it was.
static LAST_BROKER_FAILURE: Mutex<Option<Instant>> = Mutex::new(None);

/// Broker failures closer together than this are of one outage. librdkafka tells of each try.
const OUTAGE_QUIET: Duration = Duration::from_secs(120);

/// Passes a librdkafka log line on. Of an outage's lines only the first: it names the address and
/// the system's reason; that it began and is over is told by `policy::Retry`.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    // What ends a client is told by whoever makes another, or stops.
    let is_told = match facility {
        "FATAL" => true,
        "FAIL" | "REQTMOUT" => !begins_outage(&LAST_BROKER_FAILURE, Instant::now()),
        _ => false,
    };
    if is_told {
        tracing::debug!(facility, "librdkafka: {message}");
        return;
    }
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice => {
            tracing::info!(facility, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(facility, "librdkafka: {message}");
        }
    }
}

/// Whether a broker failure at this time is the first for a while; remembers it either way.
fn begins_outage(last: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let before = last.replace(now);
    before.is_none_or(|before| now.saturating_duration_since(before) > OUTAGE_QUIET)
}

/// The reader's context: it only listens to the log.
#[derive(Debug, Default)]
pub struct ReaderContext;

impl ClientContext for ReaderContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka: {reason}");
    }
}

impl ConsumerContext for ReaderContext {}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(properties: &[(&str, &str)]) -> Clients {
        let own = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        Clients {
            properties: properties.iter().map(own).collect(),
            group_id: "walbraid.shop".to_owned(),
            queue_bytes: 16 << 20,
        }
    }

    #[test]
    fn what_a_guarantee_rests_on_is_forced() {
        let unsafe_wish = clients(&[
            ("enable.auto.commit", "true"),
            ("auto.offset.reset", "latest"),
        ]);
        for config in [unsafe_wish.member(Some("a")), unsafe_wish.reader()] {
            assert_eq!(config.get("enable.auto.commit"), Some("false"));
            assert_eq!(config.get("auto.offset.reset"), Some("error"));
        }
    }

    #[test]
    fn what_the_user_says_passes_through() {
        let config = clients(&[("session.timeout.ms", "45000"), ("client.id", "me")]).member(None);
        assert_eq!(config.get("session.timeout.ms"), Some("45000"));
        assert_eq!(config.get("client.id"), Some("me"));
        assert_eq!(config.get("group.instance.id"), None);
    }

    #[test]
    fn every_property_that_is_set_is_in_the_documentation() {
        let text = include_str!("../../docs/configuration.md");
        for config in [clients(&[]).member(Some("a")), clients(&[]).reader()] {
            for name in config.config_map().keys() {
                assert!(text.contains(&format!("`{name}`")), "{name}");
            }
        }
    }

    #[test]
    fn an_outage_is_told_once_however_often_a_broker_is_tried() {
        let (last, began) = (Mutex::new(None), Instant::now());
        let told: Vec<u64> = [0, 1, 30, 60, 179, 300, 301]
            .into_iter()
            .filter(|second| begins_outage(&last, began + Duration::from_secs(*second)))
            .collect();
        assert_eq!(told, [0, 300]);
    }

    #[test]
    fn the_readers_queues_stay_inside_the_budget() {
        let config = clients(&[]).reader();
        let queue: usize = config
            .get("queued.max.messages.kbytes")
            .unwrap()
            .parse()
            .unwrap();
        let response: usize = config.get("fetch.max.bytes").unwrap().parse().unwrap();
        assert!(queue * 1024 + response <= 16 << 20);
    }
}
