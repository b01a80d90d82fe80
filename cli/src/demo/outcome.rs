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

/// Whether the promises were kept.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All tables are equal and the money was always whole.
    Equal,
    /// They are not.
    Broken(Stop),
}

impl Verdict {
    /// As a command's result.
    pub(super) fn into_result(self) -> Result<(), Stop> {
        match self {
            Self::Equal => Ok(()),
            Self::Broken(stop) => Err(stop),
        }
    }
}

/// What the load and those who watched it found.
pub(super) struct Outcome {
    /// How long the load ran.
    pub(super) load: Duration,
    /// How long it took until the subscriber had it all.
    pub(super) drain: Duration,
    /// When the consumer was killed, if it was.
    pub(super) killed: Option<Instant>,
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
            let by = |killed| seen >= killed && beat.committed <= killed + recovery;
            self.killed.is_some_and(by)
        };
        let calm = beats.iter().filter(|beat| !disturbed(beat));
        let mut calm: Vec<Duration> = calm.map(|beat| beat.latency).collect();
        let longest = beats
            .iter()
            .map(|beat| beat.latency)
            .max()
            .unwrap_or_default();
        let ms = |latency: Duration| latency.as_secs_f64() * 1_000.0;
        let without = match self.killed {
            Some(_) => format!(", without the {RECOVERY_S} s after the kill"),
            None => String::new(),
        };
        line(format_args!(
            "commit→visible p50 {:.1} ms, p99 {:.1} ms ({} samples{without}); longest of all \
             {:.0} ms",
            ms(probe::quantile(&mut calm, 0.5)),
            ms(probe::quantile(&mut calm, 0.99)),
            grouped(calm.len() as u64),
            ms(longest)
        ));
    }

    /// Prints how each table compares, and judges all of it.
    pub(super) fn judge(&self, tables: &[Comparison]) -> Verdict {
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
        let broken = |message: String| Verdict::Broken(Stop::new(StopKind::Internal, message));
        if !different.is_empty() {
            return broken(format!("tables differ: {}", different.join(", ")));
        }
        let audit = &self.found.audit;
        if !audit.broken.is_empty() || audit.looks == 0 {
            let message = "the second reader did not see the shop's money whole at every look";
            return broken(message.to_owned());
        }
        line("both sides are equal");
        Verdict::Equal
    }
}
