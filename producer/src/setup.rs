//! What the set-up of a stream does on the producer's side of the log.
//!
//! Owns the first record of a new incarnation. It is written when the slot has just been made: no
//! link ends up to the slot's consistent point, and what follows it is the log.

use walbraid_schemas::{Incarnation, Lsn, Stop};

use crate::claimed::{Life, Terms};
use crate::config::Config;
use crate::kafka;
use crate::policy::{self, Failure};
use crate::publish::Writer;
use crate::record;
use crate::registry::SchemaRegistry;
use crate::topic;

/// Writes the first record of a new incarnation, and registers its schema.
pub async fn first_heartbeat(
    config: &Config,
    incarnation: Incarnation,
    timeline: u32,
    consistent_point: Lsn,
) -> Result<(), Stop> {
    let life = Life {
        incarnation,
        timeline,
        options_hash: 0,
    };
    write(config, life, consistent_point)
        .await
        .map_err(policy::once)
}

/// Fails if the registry does not answer as one.
pub async fn reach_registry(config: &Config) -> Result<(), Stop> {
    let registry = SchemaRegistry::new(&config.registry, &config.kafka.topic)?;
    registry.reach().await.map_err(policy::once)
}

/// Removes the topic's subjects from the registry and returns their names.
pub async fn drop_subjects(config: &Config) -> Result<Vec<String>, Stop> {
    let registry = SchemaRegistry::new(&config.registry, &config.kafka.topic)?;
    registry.remove_subjects().await.map_err(policy::once)
}

async fn write(config: &Config, life: Life, consistent_point: Lsn) -> Result<(), Failure> {
    let Config { kafka, limits, .. } = config;
    let topic = topic::look(kafka).await?;
    if let Some(stop) = topic::unfit(topic.as_ref(), kafka, limits) {
        return Err(stop.into());
    }
    let registry = SchemaRegistry::new(&config.registry, &kafka.topic)?;
    let terms = Terms::new(config, life, registry.envelope().await?);
    let record_bytes_max = topic.unwrap_or_default().record_bytes_max(limits);
    let client = kafka::producer(kafka, limits, record_bytes_max)?;
    let mut writer = Writer::new(&client, &kafka.topic, kafka.lane)
        .map_err(|error| policy::kafka_call(&error, &kafka.topic))?;
    let written = record::write_first(&terms, &mut writer, consistent_point).await;
    writer.close().await;
    written
}
