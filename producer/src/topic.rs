//! The topic: made, looked at, removed.
//!
//! Owns what a topic must be to serve as a log (deleted by retention, never compacted; as many
//! partitions as configured) and what it allows to a record. Does not write or read records.
//!
//! A topic is never made by accident: clients of ours do not ask brokers to make one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use walbraid_decode::encoder::RECORD_BYTES_MIN;
use walbraid_schemas::{Stop, StopKind};

use crate::config::{Kafka, Limits};
use crate::finding::Finding;
use crate::kafka::{self, FRAMING_BYTES, RECORD_BYTES_DEFAULT};
use crate::policy::{self, Failure};
use crate::publish::log_line;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const SEEN_PAUSE: Duration = Duration::from_millis(50);

/// A topic as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topic {
    /// Its partitions.
    pub partitions: i32,
    /// Copies of each partition, the fewest.
    pub replication_factor: i32,
    /// Brokers of the cluster.
    pub brokers: usize,
    /// `cleanup.policy`, if it may be seen.
    pub cleanup_policy: Option<String>,
    /// `retention.ms`, if it may be seen.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`, if it may be seen.
    pub retention_bytes: Option<i64>,
    /// `max.message.bytes`, if it may be seen.
    pub max_message_bytes: Option<usize>,
    /// `min.insync.replicas`, if it may be seen.
    pub min_insync_replicas: Option<i32>,
}

/// Looks at the topic; none if it does not exist.
pub async fn inspect(kafka: &Kafka) -> Result<Option<Topic>, Stop> {
    look(kafka).await.map_err(policy::once)
}

/// As [`inspect`], telling transient failures apart.
pub(crate) async fn look(kafka: &Kafka) -> Result<Option<Topic>, Failure> {
    let admin = Arc::new(Admin::new(kafka)?);
    let Some(mut topic) = metadata(&admin, kafka).await? else {
        return Ok(None);
    };
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let resource = [ResourceSpecifier::Topic(&kafka.topic)];
    match admin.client.describe_configs(&resource, &options).await {
        Ok(results) => {
            for config in results.into_iter().flatten() {
                topic.read_config(|name| config.get(name)?.value.clone());
            }
        }
        // A user that may not describe the topic's settings can still write to it.
        Err(error) => tracing::debug!("settings of topic {} unknown: {error}", kafka.topic),
    }
    admin.close().await;
    Ok(Some(topic))
}

impl Topic {
    fn read_config(&mut self, get: impl Fn(&str) -> Option<String>) {
        fn number<T: std::str::FromStr>(text: Option<String>) -> Option<T> {
            text.and_then(|text| text.parse().ok())
        }
        self.cleanup_policy = get("cleanup.policy");
        self.retention_ms = number(get("retention.ms"));
        self.retention_bytes = number(get("retention.bytes"));
        self.max_message_bytes = number(get("max.message.bytes"));
        self.min_insync_replicas = number(get("min.insync.replicas"));
    }

    /// The longest payload of a record: what the user says, else what the topic takes.
    pub(crate) fn record_bytes_max(&self, limits: &Limits) -> usize {
        let allowed = self
            .max_message_bytes
            .map_or(usize::MAX, |b| b.saturating_sub(FRAMING_BYTES));
        limits
            .record_bytes_max
            .unwrap_or(RECORD_BYTES_DEFAULT.min(allowed))
    }
}

/// What makes the topic useless as a log.
pub fn unfit(topic: Option<&Topic>, kafka: &Kafka, limits: &Limits) -> Option<Stop> {
    let name = &kafka.topic;
    let Some(topic) = topic else {
        return Some(
            Stop::new(
                StopKind::TopicMissing,
                format!("topic \"{name}\" does not exist"),
            )
            .hint("Run \"walbraid setup\" to make it."),
        );
    };
    if topic.partitions != kafka.partitions {
        let message = format!(
            "topic \"{name}\" has {} partitions, {} are configured",
            topic.partitions, kafka.partitions
        );
        return Some(
            Stop::new(StopKind::TopicMismatch, message)
                .hint("Name another topic, or set the number of lanes to what the topic has."),
        );
    }
    if let Some(policy) = topic
        .cleanup_policy
        .as_deref()
        .filter(|policy| *policy != "delete")
    {
        let message = format!("topic \"{name}\" has cleanup.policy \"{policy}\"");
        return Some(
            Stop::new(StopKind::TopicMismatch, message)
                .detail("Compaction removes records that the log needs.")
                .hint("Set cleanup.policy of the topic to \"delete\"."),
        );
    }
    let record_bytes_max = topic.record_bytes_max(limits);
    if record_bytes_max < RECORD_BYTES_MIN {
        let message = format!("records of {record_bytes_max} bytes are too small to be of use");
        return Some(
            Stop::new(StopKind::RecordTooLarge, message)
                .detail(format!("At least {RECORD_BYTES_MIN} bytes are needed."))
                .hint("Raise \"producer.record_bytes_max\", or the topic's max.message.bytes."),
        );
    }
    let needed = record_bytes_max + FRAMING_BYTES;
    let allowed = topic
        .max_message_bytes
        .filter(|allowed| *allowed < needed)?;
    let message = format!("records of {needed} bytes are too large for topic \"{name}\"");
    Some(
        Stop::new(StopKind::RecordTooLarge, message)
            .detail(format!("Its max.message.bytes is {allowed}."))
            .hint("Lower \"producer.record_bytes_max\", or raise the topic's max.message.bytes."),
    )
}

/// Makes the topic. False if it was there already; what it is then is for [`unfit`] to say.
pub async fn create(kafka: &Kafka) -> Result<bool, Stop> {
    let admin = Arc::new(Admin::new(kafka).map_err(policy::once)?);
    if metadata(&admin, kafka)
        .await
        .map_err(policy::once)?
        .is_some()
    {
        return Ok(false);
    }
    let retention_ms = kafka.retention_ms.to_string();
    let topic = NewTopic::new(
        &kafka.topic,
        kafka.partitions,
        TopicReplication::Fixed(kafka.replication_factor),
    )
    .set("cleanup.policy", "delete")
    .set("retention.ms", &retention_ms)
    .set("retention.bytes", "-1");
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let results = admin.client.create_topics([&topic], &options).await;
    let created = results.map_err(|error| policy::once(admin.failure(&error, kafka)))?;
    let made = match created.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
        Some(Err((name, code))) => {
            let stop = policy::once(policy::kafka(code, &code.to_string(), &name));
            Err(stop.detail(format!("The topic could not be made: {code}.")))
        }
        Some(Ok(_)) | None => seen(&admin, kafka)
            .await
            .map_err(policy::once)
            .map(|()| true),
    };
    admin.close().await;
    made
}

/// Waits until a topic that was made is known to the broker that is asked for it: for moments after
/// it was made it may not be. What still is not there then is for the caller to find missing.
async fn seen(admin: &Arc<Admin>, kafka: &Kafka) -> Result<(), Failure> {
    let end = Instant::now() + REQUEST_TIMEOUT;
    while metadata(admin, kafka).await?.is_none() && Instant::now() < end {
        tokio::time::sleep(SEEN_PAUSE).await;
    }
    Ok(())
}

/// Removes the topic with all it holds. True if there was one.
pub async fn drop(kafka: &Kafka) -> Result<bool, Stop> {
    let admin = Arc::new(Admin::new(kafka).map_err(policy::once)?);
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let results = admin.client.delete_topics(&[&kafka.topic], &options).await;
    let deleted = results.map_err(|error| policy::once(admin.failure(&error, kafka)))?;
    admin.close().await;
    match deleted.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) | None => Ok(false),
        Some(Err((name, code))) => Err(policy::once(policy::kafka(code, &code.to_string(), &name))),
        Some(Ok(_)) => Ok(true),
    }
}

/// What is to be said about the topic before a producer runs.
pub fn findings(topic: Option<&Topic>, kafka: &Kafka, limits: &Limits) -> Vec<Finding> {
    let mut findings = vec![Finding::of("kafka: topic", unfit(topic, kafka, limits))];
    let Some(topic) = topic else {
        return findings;
    };
    let name = &kafka.topic;
    if topic.replication_factor < 2 {
        findings.push(Finding::doubtful(
            "kafka: replication factor",
            format!("topic \"{name}\" has one copy"),
            "Records that Kafka acknowledged are lost with the disk of one broker.",
            Some("Use three brokers and a replication factor of 3.".to_owned()),
        ));
    }
    if topic.min_insync_replicas == Some(1) {
        findings.push(Finding::doubtful(
            "kafka: min.insync.replicas",
            format!("topic \"{name}\" has min.insync.replicas = 1"),
            "A record counts as acknowledged when a single broker has it.",
            Some("Set min.insync.replicas to 2 with three copies.".to_owned()),
        ));
    }
    let limited = topic.retention_ms.is_some_and(|ms| ms >= 0)
        || topic.retention_bytes.is_some_and(|bytes| bytes >= 0);
    if limited {
        findings.push(Finding::doubtful(
            "kafka: retention",
            format!("topic \"{name}\" removes records by age or size"),
            "A consumer that is away for longer finds a gap and stops.",
            Some("Set retention.ms and retention.bytes to -1, or watch the lag.".to_owned()),
        ));
    }
    findings
}

async fn metadata(admin: &Arc<Admin>, kafka: &Kafka) -> Result<Option<Topic>, Failure> {
    let asked = Arc::clone(admin);
    let name = kafka.topic.clone();
    let answer = tokio::task::spawn_blocking(move || {
        let metadata = asked
            .client
            .inner()
            .fetch_metadata(Some(&name), REQUEST_TIMEOUT)?;
        let found = metadata.topics().iter().find(|topic| topic.name() == name);
        let brokers = metadata.brokers().len();
        Ok::<_, KafkaError>(found.map(|topic| {
            let copies = topic.partitions().iter().map(|p| p.replicas().len()).min();
            let stands = Topic {
                partitions: topic.partitions().len() as i32,
                replication_factor: copies.unwrap_or(0) as i32,
                brokers,
                ..Topic::default()
            };
            (topic.error().map(RDKafkaErrorCode::from), stands)
        }))
    })
    .await
    .map_err(|error| Stop::new(StopKind::Internal, format!("metadata of Kafka: {error}")))?;
    match answer.map_err(|error| admin.failure(&error, kafka))? {
        None | Some((Some(RDKafkaErrorCode::UnknownTopicOrPartition), _)) => Ok(None),
        Some((Some(code), _)) => Err(policy::kafka(code, &code.to_string(), &kafka.topic)),
        Some((None, topic)) => Ok(Some(topic)),
    }
}

/// A client for questions about the cluster, which remembers why it cannot reach it.
struct Admin {
    client: AdminClient<Heard>,
    heard: Trouble,
}

type Trouble = Arc<Mutex<Option<(RDKafkaErrorCode, String)>>>;

impl Admin {
    fn new(kafka: &Kafka) -> Result<Admin, Failure> {
        let heard = Trouble::default();
        let config = kafka::admin(kafka)?;
        let context = Heard(Arc::clone(&heard));
        let client = AdminClient::from_config_and_context(&config, context)
            .map_err(|error| policy::kafka_call(&error, &kafka.topic))?;
        Ok(Admin { client, heard })
    }

    /// The failure behind an error: what the client heard last says more than "timed out".
    fn failure(&self, error: &KafkaError, kafka: &Kafka) -> Failure {
        let heard = self
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match heard {
            Some((code, reason)) => policy::kafka(code, &reason, &kafka.topic),
            None => policy::kafka_call(error, &kafka.topic),
        }
    }

    /// Ends the client's threads elsewhere than on the runtime's own.
    async fn close(self: Arc<Self>) {
        let ended = tokio::task::spawn_blocking(move || std::mem::drop(self)).await;
        if let Err(error) = ended {
            tracing::error!("Kafka client could not be closed: {error}");
        }
    }
}

struct Heard(Trouble);

impl ClientContext for Heard {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error
            .rdkafka_error_code()
            .unwrap_or(RDKafkaErrorCode::Unknown);
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // That all brokers are down follows from the error before it, which says why.
        if code != RDKafkaErrorCode::AllBrokersDown || heard.is_none() {
            *heard = Some((code, reason.to_owned()));
        }
    }
}
