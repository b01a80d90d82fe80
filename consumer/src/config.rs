//! What a consumer is told. The command line fills it in; here nothing is parsed.
//!
//! One memory budget is split: half for what is read and not committed, of which a single
//! transaction may take half before it is applied while it arrives, and a quarter for what
//! librdkafka holds.

use std::collections::BTreeMap;
use std::time::Duration;

pub use walbraid_apply::coordinator::OnMissing;
use walbraid_apply::engine;
pub use walbraid_apply::pace::Workers;
use walbraid_apply::rule::BackOff;
use walbraid_apply::scheduler::InFlightLimits;
use walbraid_apply::window::GroupLimits;
pub use walbraid_schemas::registry::Registry;
use walbraid_wire::ConnectOptions;

pub use crate::flusher::Ack;

/// What a touched key costs in the conflict hash, about; the hash may hold as many as would take a
/// budget of their own.
const CONFLICT_KEY_BYTES: usize = 128;

/// Everything a consumer of one stream is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The stream's name.
    pub stream: String,
    /// The subscriber.
    pub subscriber: Subscriber,
    /// The log.
    pub kafka: Kafka,
    /// Where schemas are read.
    pub registry: Registry,
    /// How it is applied.
    pub apply: Apply,
    /// How long a stop waits for what is in flight.
    pub shutdown_timeout_ms: u64,
}

/// The subscriber and its sessions.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// How to reach it.
    pub connect: ConnectOptions,
    /// Limit of a statement; 0 for none.
    pub statement_timeout_ms: u64,
    /// Limit of a wait for a lock; 0 for none.
    pub lock_timeout_ms: u64,
    /// How long the side session may be without an answer; 0 for ever.
    pub answer_timeout_ms: u64,
}

impl Subscriber {
    /// How to reach it for a session that asks what is answered in moments. A worker's session must
    /// not be lost for a statement that takes long and lets what is sent behind it lie.
    pub(crate) fn side(&self) -> ConnectOptions {
        let connect = self.connect.clone();
        match self.answer_limit() {
            Some(limit) => connect.with_default_tcp_user_timeout(limit),
            None => connect,
        }
    }

    /// How long the side session may be without an answer.
    pub(crate) fn answer_limit(&self) -> Option<Duration> {
        (self.answer_timeout_ms > 0).then(|| Duration::from_millis(self.answer_timeout_ms))
    }

    /// How long the opening of a worker's session may take, in which it may wait for a lock.
    pub(crate) fn open_limit(&self) -> Option<Duration> {
        let limit = self.answer_limit().filter(|_| self.lock_timeout_ms > 0)?;
        Some(limit + Duration::from_millis(self.lock_timeout_ms))
    }
}

/// The log.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// librdkafka's properties as the user wrote them.
    pub properties: BTreeMap<String, String>,
    /// The topic.
    pub topic: String,
    /// The consumer group; `walbraid.<stream>` unless told otherwise.
    pub group_id: Option<String>,
}

/// How transactions are applied.
#[derive(Clone, Debug)]
pub struct Apply {
    /// Sessions that apply a lane.
    pub workers: Workers,
    /// Tables, as `schema.table`, whose triggers and functions are declared to touch nothing that
    /// conflict keys would have to know of.
    pub parallel_safe: Vec<String>,
    /// Old values that are not on the wire are read from the subscriber, where several workers
    /// apply.
    pub resolver: bool,
    /// Publisher transactions in one target transaction while the lane lags, at most; 1 keeps every
    /// commit of the publisher.
    pub group_transactions_max: usize,
    /// What is done about a row that is not found.
    pub on_missing: OnMissing,
    /// What an offset waits for before it is committed.
    pub ack: Ack,
    /// Lets TRUNCATE reach tables that reference the truncated ones.
    pub truncate_cascade: bool,
    /// How often the subscriber is asked to flush, while there is something to flush.
    pub flush_interval_ms: u64,
    /// Memory for records, in all.
    pub memory_bytes: usize,
    /// A transaction that is applied while it arrives and has not grown for so long is rolled back.
    pub run_idle_timeout_ms: u64,
}

impl Default for Apply {
    fn default() -> Self {
        Self {
            workers: Workers::Fixed(1),
            parallel_safe: Vec::new(),
            resolver: true,
            group_transactions_max: 256,
            on_missing: OnMissing::Skip,
            ack: Ack::Flushed,
            truncate_cascade: false,
            flush_interval_ms: 10,
            memory_bytes: 64 << 20,
            run_idle_timeout_ms: 60_000,
        }
    }
}

impl Config {
    /// The consumer group.
    pub fn group_id(&self) -> String {
        self.kafka
            .group_id
            .clone()
            .unwrap_or_else(|| format!("walbraid.{}", self.stream))
    }

    /// What librdkafka may hold.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.apply.memory_bytes / 4
    }

    pub(crate) fn shutdown_timeout(&self) -> Duration {
        Duration::from_millis(self.shutdown_timeout_ms)
    }

    pub(crate) fn engine(&self) -> engine::Config {
        let apply = &self.apply;
        let in_flight_bytes = (apply.memory_bytes / 8).clamp(256 << 10, 8 << 20);
        engine::Config {
            stream: self.stream.clone(),
            workers: apply.workers,
            conflict_keys_max: apply.memory_bytes / CONFLICT_KEY_BYTES,
            resolver: apply.resolver,
            on_missing: apply.on_missing,
            group: GroupLimits {
                transactions_max: apply.group_transactions_max,
                bytes_max: (in_flight_bytes / 4).min(1 << 20),
            },
            in_flight: InFlightLimits {
                units_max: 8,
                bytes_max: in_flight_bytes,
            },
            transaction_memory_bytes: apply.memory_bytes / 4,
            buffer_bytes_max: apply.memory_bytes / 2,
            run_idle_timeout_ms: apply.run_idle_timeout_ms,
            back_off: BackOff {
                first_ms: 20,
                max_ms: 10_000,
            },
        }
    }
}
