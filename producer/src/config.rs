//! What the producer is told, validated before it gets here.
//!
//! Owns the producer's settings as plain fields with their unit in the name, and the few rules that
//! tie them to each other. Does not own their spelling in a file, their defaults' documentation, or
//! the environment: the command line does that, and fills these fields. Connection strings and
//! librdkafka properties pass through; what would break a guarantee is refused in `kafka`.

use std::collections::BTreeMap;

pub use walbraid_decode::encoder::RECORD_BYTES_MIN;
pub use walbraid_schemas::Registry;
use walbraid_wire::ConnectOptions;

/// Everything one producer is told: one stream, one slot, one lane.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stream's name.
    pub stream: String,
    /// The publisher and what is read there.
    pub publisher: Publisher,
    /// The log.
    pub kafka: Kafka,
    /// Where schemas are registered.
    pub registry: Registry,
    /// What bounds memory and records.
    pub limits: Limits,
    /// What happens how often.
    pub intervals: Intervals,
}

/// The publisher and what is read there.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// How to reach the database that holds the slot.
    pub connect: ConnectOptions,
    /// The publications, at least one.
    pub publications: Vec<String>,
    /// The slot.
    pub slot: String,
    /// Made with `failover`, so that a stand-by of 17 or newer keeps it.
    pub failover: bool,
    /// Leave out what the publisher itself received from elsewhere.
    pub local_origin_only: bool,
    /// How long the creation of a slot waits for open transactions of the publisher.
    pub slot_lock_timeout_ms: u32,
}

/// The log.
#[derive(Debug, Clone)]
pub struct Kafka {
    /// librdkafka's properties as the user wrote them.
    pub properties: BTreeMap<String, String>,
    /// The topic.
    pub topic: String,
    /// The lane: the partition this producer writes.
    pub lane: i32,
    /// How many partitions the topic has.
    pub partitions: i32,
    /// How many copies a new topic gets; `-1` leaves it to the broker.
    pub replication_factor: i32,
    /// Retention of a new topic; `-1` keeps everything.
    pub retention_ms: i64,
}

/// What bounds memory and records.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Records handed to Kafka and not yet acknowledged, with what librdkafka adds to each.
    pub publish_memory_bytes: usize,
    /// The socket's receive buffer towards the walsender.
    pub receive_buffer_bytes: usize,
    /// Longest record; without it the topic's own limit less its framing, at most 900 kB.
    pub record_bytes_max: Option<usize>,
}

/// What happens how often.
#[derive(Debug, Clone)]
pub struct Intervals {
    /// Standby status updates; well below the publisher's `wal_sender_timeout`.
    pub status_interval_ms: u64,
    /// Heartbeats while nothing is pending and the publisher's WAL moves.
    pub heartbeat_interval_ms: u64,
    /// Heartbeats while nothing moves at all; below a quarter of the topic's retention.
    pub heartbeat_idle_interval_ms: u64,
    /// Silence of the publisher after which the connection counts as lost.
    pub receive_timeout_ms: u64,
    /// Unacknowledged for so long, Kafka counts as stalled and a warning says so.
    pub stall_warning_ms: u64,
    /// Longest pause between two tries after a transient failure.
    pub retry_backoff_max_ms: u64,
    /// How long a stop waits for what is in flight.
    pub shutdown_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            publish_memory_bytes: 64 << 20,
            receive_buffer_bytes: 4 << 20,
            record_bytes_max: None,
        }
    }
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals {
            status_interval_ms: 1_000,
            heartbeat_interval_ms: 1_000,
            heartbeat_idle_interval_ms: 300_000,
            receive_timeout_ms: 60_000,
            stall_warning_ms: 5_000,
            retry_backoff_max_ms: 10_000,
            shutdown_timeout_ms: 5_000,
        }
    }
}
