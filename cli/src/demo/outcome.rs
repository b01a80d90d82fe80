//! What a demo found, told and judged.

use std::time::Duration;

use tokio::time::Instant;
use walbraid_schemas::{Stop, StopKind};

use super::board::grouped;
use super::compare::Comparison;
use super::crowd::Found;
use super::probe::{self, Beat};
use crate::output::line;

/// Beats committed so long after the kill may still be late because of it.
const RECOVERY_S: u64 = 5;

/// What the load and those who watched it found.
pub(super) struct Outcome {
    /// How long the load ran.
    pub(super) load: Duration,
    /// How long it took until the subscriber had it all.
    pub(super) drain: Duration,
    /// When the consumer was killed.
    pub(super) killed: Instant,
    /// The rest.
    pub(super) found: Found,
}

impl Outcome {
    /// Prints rates, latencies and what the second reader saw.
    pub(super) fn tell(&self) {
        let Found {
            committed,
            rolled_back,
            audit,
            ..
        } = &self.found;
        let seconds = self.load.as_secs_f64();
        line(format_args!(
            "\ntransactions   {} committed in {seconds:.1} s ({:.0}/s), {} rolled back; drained in \
             {:.1} s",
            grouped(*committed),
            *committed as f64 / seconds,
            grouped(*rolled_back),
            self.drain.as_secs_f64()
        ));
        self.tell_latencies();
        line(format_args!(
            "second reader  {} looks at all money: {}",
            grouped(audit.looks),
            if audit.broken.is_empty() {
                "always whole"
            } else {
                "BROKEN"
            }
        ));
        audit
            .broken
            .iter()
            .for_each(|look| line(format_args!("               {look}")));
    }

    fn tell_latencies(&self) {
        let beats = &self.found.beats;
        let recovery = Duration::from_secs(RECOVERY_S);
        let disturbed = |beat: &Beat| {
            let seen = beat.committed + beat.latency;
            seen >= self.killed && beat.committed <= self.killed + recovery
        };
        let calm = beats.iter().filter(|beat| !disturbed(beat));
        let mut calm: Vec<Duration> = calm.map(|beat| beat.latency).collect();
        let longest = beats
            .iter()
            .map(|beat| beat.latency)
            .max()
            .unwrap_or_default();
        let ms = |latency: Duration| latency.as_secs_f64() * 1_000.0;
        line(format_args!(
            "commit→visible p50 {:.1} ms, p99 {:.1} ms ({} samples, without the {RECOVERY_S} s \
             after the kill); longest of all {:.0} ms",
            ms(probe::quantile(&mut calm, 0.5)),
            ms(probe::quantile(&mut calm, 0.99)),
            grouped(calm.len() as u64),
            ms(longest)
        ));
    }

    /// Prints how each table compares; an error unless all are equal and the money was whole.
    pub(super) fn judge(&self, tables: &[Comparison]) -> Result<(), Stop> {
        for table in tables {
            let verdict = table.difference.as_deref().unwrap_or("equal");
            let rows = grouped(table.rows.unsigned_abs());
            line(format_args!(
                "{:<14} {rows:>9} rows  {verdict}",
                table.table
            ));
        }
        let different: Vec<&str> = tables
            .iter()
            .filter(|t| t.difference.is_some())
            .map(|t| t.table)
            .collect();
        if !different.is_empty() {
            let message = format!("tables differ: {}", different.join(", "));
            return Err(Stop::new(StopKind::Internal, message));
        }
        let audit = &self.found.audit;
        if !audit.broken.is_empty() || audit.looks == 0 {
            let message = "the second reader did not see the shop's money whole at every look";
            return Err(Stop::new(StopKind::Internal, message));
        }
        line("both sides are equal");
        Ok(())
    }
}
