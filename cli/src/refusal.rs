//! Why a producer would not start, for those who find none running.
//!
//! A producer that stops leaves a notice in the lane, and that is its last word; but not where the
//! topic is what is wrong: it is gone, may not be written, or would not keep what is written. Then
//! whoever asks looks for himself. Kafka has a few seconds to answer; what it does not say in that
//! time is not known.

use std::time::Duration;

use walbraid_producer::topic;
use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;

/// How long Kafka is asked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What is wrong with the topic, if anything is that a person must mend.
pub(crate) async fn of_topic(config: &Config) -> Option<Stop> {
    let (kafka, limits) = (&config.producer.kafka, &config.producer.limits);
    match tokio::time::timeout(PATIENCE, topic::inspect(kafka)).await {
        Ok(Ok(found)) => topic::unfit(found.as_ref(), kafka, limits),
        Ok(Err(stop)) => Some(stop).filter(|stop| is_definite(stop.kind)),
        Err(_) => None,
    }
}

/// Whether an error of Kafka says what a person must mend.
pub(crate) fn is_definite(kind: StopKind) -> bool {
    matches!(kind, StopKind::TopicMissing | StopKind::KafkaAuthorization)
}
