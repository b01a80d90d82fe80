//! What the analyzer found, for Prometheus: the counts of `walbraid explain` as counters.
//!
//! The engine counts; here the difference to the last look is added, so that the counters go on
//! when another engine begins to count.

use std::collections::HashMap;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use walbraid_apply::conflict::Dependence;
use walbraid_apply::engine::Tally;
use walbraid_apply::footprint::{SerialReason, SpaceId};

use super::LaneLabels;

/// A lane and what was found of a transaction.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DependenceLabels {
    stream: String,
    lane: u32,
    dependence: &'static str,
}

/// A lane and a key.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KeyLabels {
    stream: String,
    lane: u32,
    key: String,
}

/// A lane, a table and why it was serial.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SerialLabels {
    stream: String,
    lane: u32,
    table: String,
    reason: &'static str,
}

/// The counters of all lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct DependenceFamilies {
    transactions: Family<DependenceLabels, Counter>,
    waits: Family<KeyLabels, Counter>,
    serial: Family<SerialLabels, Counter>,
    busy: Family<LaneLabels, Counter>,
}

impl DependenceFamilies {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "dependence_transactions",
            "Transactions by what was found of their dependence; IN_ORDER: on one connection",
            self.transactions.clone(),
        );
        registry.register(
            "waits",
            "Transactions that waited for an earlier one, by the key that both touch",
            self.waits.clone(),
        );
        registry.register(
            "serial_transactions",
            "Transactions that ran alone or touched a table or index as a whole, and why",
            self.serial.clone(),
        );
        registry.register(
            "busy_microseconds",
            "How long connections were busy with what is committed",
            self.busy.clone(),
        );
    }
}

/// The counters of a lane, and what of an engine's counts is in them.
#[derive(Debug)]
pub struct DependenceMetrics {
    families: DependenceFamilies,
    labels: LaneLabels,
    told: Told,
}

#[derive(Debug, Default)]
struct Told {
    transactions: HashMap<&'static str, u64>,
    waits: HashMap<SpaceId, u64>,
    serial: HashMap<(SpaceId, SerialReason), u64>,
    busy_us: u64,
}

impl DependenceMetrics {
    pub(super) fn new(families: &DependenceFamilies, labels: LaneLabels) -> Self {
        Self {
            families: families.clone(),
            labels,
            told: Told::default(),
        }
    }

    /// Counts what is new.
    pub(crate) fn count(&mut self, tally: &Tally) {
        let Self {
            families,
            labels: LaneLabels { stream, lane },
            told,
        } = self;
        let lane = *lane;
        let named = Dependence::ALL.iter().map(|dependence| dependence.name());
        let looked_at = named.zip(tally.transactions);
        for (dependence, now) in looked_at.chain([("IN_ORDER", tally.in_order)]) {
            add(&mut told.transactions, dependence, now, |new| {
                let stream = stream.clone();
                let labels = DependenceLabels {
                    stream,
                    lane,
                    dependence,
                };
                families.transactions.get_or_create(&labels).inc_by(new);
            });
        }
        for (space, waited) in tally.keys() {
            add(&mut told.waits, space, waited.transactions, |new| {
                let labels = KeyLabels {
                    stream: stream.clone(),
                    lane,
                    key: waited.key.name.to_string(),
                };
                families.waits.get_or_create(&labels).inc_by(new);
            });
        }
        for (space, reason, serial) in tally.serial() {
            let of = (space, reason.clone());
            add(&mut told.serial, of, serial.transactions, |new| {
                let table = serial.of.as_ref().map(|of| of.table_name.to_string());
                let labels = SerialLabels {
                    stream: stream.clone(),
                    lane,
                    table: table.unwrap_or_default(),
                    reason: reason.name(),
                };
                families.serial.get_or_create(&labels).inc_by(new);
            });
        }
        let busy = families.busy.get_or_create(&self.labels);
        busy.inc_by(tally.busy_us - told.busy_us);
        told.busy_us = tally.busy_us;
    }
}

fn add<K: Eq + Hash>(told: &mut HashMap<K, u64>, key: K, now: u64, count: impl FnOnce(u64)) {
    let before = told.entry(key).or_default();
    if now > *before {
        count(now - *before);
        *before = now;
    }
}
