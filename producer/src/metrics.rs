//! What the producer counts and shows.
//!
//! Owns the metrics and their names (`walbraid_producer_…`). They are set where the pipeline acts,
//! never read by it.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use walbraid_schemas::Lsn;

/// What the producer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum State {
    /// Reaching publisher, Kafka and registry, and waiting for the slot.
    Connecting,
    /// Writing its claim and looking for the slot's place in the log.
    Claiming,
    /// Carrying transactions.
    Streaming,
    /// Carrying nothing because Kafka does not acknowledge.
    Stalled,
    /// Waiting before the next try after a transient failure.
    Waiting,
    /// Ended.
    Stopped,
}

impl State {
    const ALL: [State; 6] = [
        State::Connecting,
        State::Claiming,
        State::Streaming,
        State::Stalled,
        State::Waiting,
        State::Stopped,
    ];
}

/// Why something was tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Cause {
    /// The publisher's connection.
    Publisher,
    /// The slot is held by another walsender.
    Slot,
    /// Kafka.
    Kafka,
    /// Another producer claimed the lane.
    Claim,
    /// The schema registry.
    Registry,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: Cause,
}

type LsnGauge = Gauge<u64, AtomicU64>;

/// The producer's metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) transactions: Counter,
    pub(crate) rows: Counter,
    pub(crate) bytes: Counter,
    pub(crate) records: Counter,
    pub(crate) heartbeats: Counter,
    pub(crate) claims: Counter,
    pub(crate) schemas: Counter,
    pub(crate) pending_records: LsnGauge,
    pub(crate) pending_bytes: LsnGauge,
    received_lsn: LsnGauge,
    published_lsn: LsnGauge,
    confirmed_lsn: LsnGauge,
    lag_bytes: LsnGauge,
    retries: Family<CauseLabel, Counter>,
    state: Family<StateLabel, Gauge>,
}

impl Metrics {
    /// Makes the metrics of a stream known to `registry`.
    pub(crate) fn register(registry: &mut Registry, stream: &str) -> Metrics {
        let metrics = Metrics::default();
        let labels = [("stream".into(), stream.to_owned().into())];
        let registry = registry
            .sub_registry_with_prefix("walbraid_producer")
            .sub_registry_with_labels(labels.into_iter());
        let counters = [
            (
                "transactions",
                "Links written to the log",
                &metrics.transactions,
            ),
            ("rows", "Row changes written to the log", &metrics.rows),
            (
                "bytes",
                "Bytes of records written to the log",
                &metrics.bytes,
            ),
            ("records", "Records written to the log", &metrics.records),
            (
                "heartbeats",
                "Heartbeats written to the log",
                &metrics.heartbeats,
            ),
            ("claims", "Claims written to the log", &metrics.claims),
            ("schemas", "Table schemas registered", &metrics.schemas),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let gauges = [
            (
                "pending_records",
                "Records not yet acknowledged",
                &metrics.pending_records,
            ),
            (
                "pending_bytes",
                "Memory of records not yet acknowledged",
                &metrics.pending_bytes,
            ),
            (
                "received_lsn",
                "WAL received from the publisher",
                &metrics.received_lsn,
            ),
            (
                "published_lsn",
                "WAL handed to Kafka",
                &metrics.published_lsn,
            ),
            (
                "confirmed_lsn",
                "WAL confirmed to the publisher",
                &metrics.confirmed_lsn,
            ),
            (
                "lag_bytes",
                "WAL received and not yet confirmed",
                &metrics.lag_bytes,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "retries",
            "Tries after transient failures",
            metrics.retries.clone(),
        );
        registry.register(
            "state",
            "1 for what the producer is doing",
            metrics.state.clone(),
        );
        metrics.set_state(State::Connecting);
        metrics
    }

    pub(crate) fn set_state(&self, now: State) {
        for state in State::ALL {
            let gauge = self.state.get_or_create(&StateLabel { state });
            gauge.set(i64::from(state == now));
        }
    }

    pub(crate) fn retry(&self, cause: Cause) {
        self.retries.get_or_create(&CauseLabel { cause }).inc();
    }

    pub(crate) fn set_received(&self, lsn: Lsn) {
        self.received_lsn.set(lsn.0);
        self.set_lag();
    }

    pub(crate) fn set_published(&self, lsn: Lsn) {
        self.published_lsn.set(lsn.0);
    }

    pub(crate) fn set_confirmed(&self, lsn: Lsn) {
        self.confirmed_lsn.set(lsn.0);
        self.set_lag();
    }

    fn set_lag(&self) {
        let lag = self
            .received_lsn
            .get()
            .saturating_sub(self.confirmed_lsn.get());
        self.lag_bytes.set(lag);
    }
}
