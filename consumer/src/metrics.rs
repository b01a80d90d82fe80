//! What a consumer counts, for Prometheus.
//!
//! Counters and gauges are atomics that their users hold; nothing here decides anything. All carry
//! the stream and, where one has several, the lane.

mod dependence;

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use self::dependence::DependenceFamilies;
pub use self::dependence::DependenceMetrics;
use crate::policy::Cause;

/// Labels of a lane.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LaneLabels {
    stream: String,
    lane: u32,
}

/// A lane and an operation.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OperationLabels {
    stream: String,
    lane: u32,
    operation: Operation,
}

/// A lane and a cause of retries.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CauseLabels {
    stream: String,
    lane: u32,
    cause: &'static str,
}

/// Operations on rows, as they are counted.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
#[allow(non_camel_case_types, missing_docs)]
pub enum Operation {
    insert,
    update,
    delete,
    truncate,
}

/// All metrics of a consumer, by lane.
#[derive(Clone, Debug)]
pub struct Metrics {
    stream: String,
    transactions: Family<LaneLabels, Counter>,
    units: Family<LaneLabels, Counter>,
    group_size: Family<LaneLabels, Histogram, fn() -> Histogram>,
    rows: Family<OperationLabels, Counter>,
    missing: Family<OperationLabels, Counter>,
    retries: Family<CauseLabels, Counter>,
    lag_ms: Family<LaneLabels, Gauge>,
    lag_bytes: Family<LaneLabels, Gauge>,
    applied_lsn: Family<LaneLabels, Gauge<u64, AtomicU64>>,
    flushed_lsn: Family<LaneLabels, Gauge<u64, AtomicU64>>,
    committed_offset: Family<LaneLabels, Gauge>,
    buffer_bytes: Family<LaneLabels, Gauge>,
    old_values_reads: Family<LaneLabels, Counter>,
    old_values_failed: Family<LaneLabels, Counter>,
    old_values_rows: Family<LaneLabels, Counter>,
    old_values_time: Family<LaneLabels, Counter>,
    old_values_unknown: Family<LaneLabels, Counter>,
    running: Family<LaneLabels, Gauge>,
    workers: Family<LaneLabels, Gauge>,
    dependence: DependenceFamilies,
}

/// The metrics of one lane.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    /// Publisher transactions applied.
    pub transactions: Counter,
    /// Target transactions committed.
    pub units: Counter,
    /// Publisher transactions in a target transaction.
    pub group_size: Histogram,
    /// Rows inserted.
    pub inserts: Counter,
    /// Rows updated.
    pub updates: Counter,
    /// Rows deleted.
    pub deletes: Counter,
    /// TRUNCATEs.
    pub truncates: Counter,
    /// Rows to be updated that were not found.
    pub missing_updates: Counter,
    /// Rows to be deleted that were not found.
    pub missing_deletes: Counter,
    /// Age of the newest transaction applied while there is more; 0 when there is none.
    pub lag_ms: Gauge,
    /// Publisher WAL between what was read and what was applied.
    pub lag_bytes: Gauge,
    /// End LSN of the newest transaction applied.
    pub applied_lsn: Gauge<u64, AtomicU64>,
    /// End LSN of the newest transaction the subscriber has flushed.
    pub flushed_lsn: Gauge<u64, AtomicU64>,
    /// The offset committed to the group.
    pub committed_offset: Gauge<i64, AtomicI64>,
    /// Bytes of records that are buffered.
    pub buffer_bytes: Gauge,
    /// Reads of old values.
    pub old_values_reads: Counter,
    /// Those that failed.
    pub old_values_failed: Counter,
    /// Rows that were read for their old values.
    pub old_values_rows: Counter,
    /// How long the subscriber took to answer, microseconds.
    pub old_values_time: Counter,
    /// Changes whose old values were not known.
    pub old_values_unknown: Counter,
    /// 1 while the lane is applied by this process.
    pub running: Gauge,
    /// Connections that apply.
    pub workers: Gauge,
    retries: Family<CauseLabels, Counter>,
    dependence: DependenceFamilies,
    labels: LaneLabels,
}

impl Metrics {
    /// Registers all metrics.
    pub fn new(stream: &str, registry: &mut Registry) -> Self {
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 12));
        let metrics = Self {
            stream: stream.to_owned(),
            transactions: Family::default(),
            units: Family::default(),
            group_size: Family::new_with_constructor(buckets),
            rows: Family::default(),
            missing: Family::default(),
            retries: Family::default(),
            lag_ms: Family::default(),
            lag_bytes: Family::default(),
            applied_lsn: Family::default(),
            flushed_lsn: Family::default(),
            committed_offset: Family::default(),
            buffer_bytes: Family::default(),
            old_values_reads: Family::default(),
            old_values_failed: Family::default(),
            old_values_rows: Family::default(),
            old_values_time: Family::default(),
            old_values_unknown: Family::default(),
            running: Family::default(),
            workers: Family::default(),
            dependence: DependenceFamilies::default(),
        };
        let registry = registry.sub_registry_with_prefix("walbraid_consumer");
        metrics.register(registry);
        metrics.register_old_values(registry);
        metrics.dependence.register(registry);
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "transactions",
            "Publisher transactions applied and committed",
            self.transactions.clone(),
        );
        registry.register("units", "Target transactions committed", self.units.clone());
        registry.register(
            "unit_transactions",
            "Publisher transactions in one target transaction",
            self.group_size.clone(),
        );
        registry.register("rows", "Rows written, by operation", self.rows.clone());
        registry.register(
            "missing_rows",
            "Rows to be updated or deleted that were not found",
            self.missing.clone(),
        );
        registry.register("retries", "Retries, by cause", self.retries.clone());
        registry.register(
            "lag_milliseconds",
            "Age of the newest transaction applied while more is waiting",
            self.lag_ms.clone(),
        );
        registry.register(
            "lag_bytes",
            "Publisher WAL read from the log and not yet applied",
            self.lag_bytes.clone(),
        );
        registry.register(
            "applied_lsn",
            "End LSN of the newest transaction applied",
            self.applied_lsn.clone(),
        );
        registry.register(
            "flushed_lsn",
            "End LSN of the newest transaction flushed by the subscriber",
            self.flushed_lsn.clone(),
        );
        registry.register(
            "committed_offset",
            "Offset committed to the consumer group",
            self.committed_offset.clone(),
        );
        registry.register(
            "buffer_bytes",
            "Bytes of records read and not yet committed",
            self.buffer_bytes.clone(),
        );
        registry.register(
            "running",
            "1 while this process applies the lane, 0 while it stands by",
            self.running.clone(),
        );
        registry.register(
            "workers",
            "Connections that apply the lane",
            self.workers.clone(),
        );
    }

    fn register_old_values(&self, registry: &mut Registry) {
        registry.register(
            "old_values_reads",
            "Reads of old values that are not in the log",
            self.old_values_reads.clone(),
        );
        registry.register(
            "old_values_failed_reads",
            "Reads of old values that failed",
            self.old_values_failed.clone(),
        );
        registry.register(
            "old_values_rows",
            "Rows read for their old values",
            self.old_values_rows.clone(),
        );
        registry.register(
            "old_values_microseconds",
            "Time that the subscriber took to answer reads of old values",
            self.old_values_time.clone(),
        );
        registry.register(
            "old_values_unknown",
            "Changes whose old values were not known, so that others waited for them",
            self.old_values_unknown.clone(),
        );
    }

    /// The metrics of a lane.
    pub fn lane(&self, lane: u32) -> LaneMetrics {
        let labels = LaneLabels {
            stream: self.stream.clone(),
            lane,
        };
        let rows = |operation| {
            let stream = self.stream.clone();
            OperationLabels {
                stream,
                lane,
                operation,
            }
        };
        LaneMetrics {
            transactions: self.transactions.get_or_create_owned(&labels),
            units: self.units.get_or_create_owned(&labels),
            group_size: self.group_size.get_or_create_owned(&labels),
            inserts: self.rows.get_or_create_owned(&rows(Operation::insert)),
            updates: self.rows.get_or_create_owned(&rows(Operation::update)),
            deletes: self.rows.get_or_create_owned(&rows(Operation::delete)),
            truncates: self.rows.get_or_create_owned(&rows(Operation::truncate)),
            missing_updates: self.missing.get_or_create_owned(&rows(Operation::update)),
            missing_deletes: self.missing.get_or_create_owned(&rows(Operation::delete)),
            lag_ms: self.lag_ms.get_or_create_owned(&labels),
            lag_bytes: self.lag_bytes.get_or_create_owned(&labels),
            applied_lsn: self.applied_lsn.get_or_create_owned(&labels),
            flushed_lsn: self.flushed_lsn.get_or_create_owned(&labels),
            committed_offset: self.committed_offset.get_or_create_owned(&labels),
            buffer_bytes: self.buffer_bytes.get_or_create_owned(&labels),
            old_values_reads: self.old_values_reads.get_or_create_owned(&labels),
            old_values_failed: self.old_values_failed.get_or_create_owned(&labels),
            old_values_rows: self.old_values_rows.get_or_create_owned(&labels),
            old_values_time: self.old_values_time.get_or_create_owned(&labels),
            old_values_unknown: self.old_values_unknown.get_or_create_owned(&labels),
            running: self.running.get_or_create_owned(&labels),
            workers: self.workers.get_or_create_owned(&labels),
            retries: self.retries.clone(),
            dependence: self.dependence.clone(),
            labels,
        }
    }
}

impl LaneMetrics {
    /// Counters of dependence, for an engine that begins to count.
    pub(crate) fn dependence(&self) -> DependenceMetrics {
        DependenceMetrics::new(&self.dependence, self.labels.clone())
    }

    /// Counts a retry.
    pub fn retried(&self, cause: Cause) {
        self.retried_times(cause.name(), 1);
    }

    /// Counts retries of a cause by its name.
    pub fn retried_times(&self, cause: &'static str, times: u64) {
        if times > 0 {
            let LaneLabels { stream, lane } = self.labels.clone();
            self.retries
                .get_or_create(&CauseLabels {
                    stream,
                    lane,
                    cause,
                })
                .inc_by(times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_exposed_by_stream_and_lane() {
        let mut registry = Registry::default();
        let metrics = Metrics::new("shop", &mut registry);
        let lane = metrics.lane(0);
        lane.transactions.inc_by(3);
        lane.inserts.inc();
        lane.retried(Cause::Lock);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "walbraid_consumer_transactions_total{stream=\"shop\",lane=\"0\"} 3",
            "walbraid_consumer_rows_total{stream=\"shop\",lane=\"0\",operation=\"insert\"} 1",
            "walbraid_consumer_retries_total{stream=\"shop\",lane=\"0\",cause=\"lock\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
