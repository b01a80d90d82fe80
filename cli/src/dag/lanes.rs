//! The worker lanes of a recording over time: one bar an attempt.
//!
//! A worker is sent further units while it is busy; it takes them up one after the other, so a bar
//! begins when the attempt was sent, or when the one before it on the same worker ended.

use walbraid_consumer::recording::Recording;

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It committed.
    Committed,
    /// It was rolled back.
    Undone,
    /// It had not ended when the recording did.
    Open,
}

/// An attempt on its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    /// Number of the unit.
    pub(super) unit: usize,
    /// The worker.
    pub(super) worker: usize,
    /// When the worker took it up.
    pub(super) from_ms: u64,
    /// When its statements were through: from here on it waited for its turn and committed.
    pub(super) counted_ms: u64,
    /// When it ended.
    pub(super) to_ms: u64,
    /// How it went.
    pub(super) outcome: Outcome,
}

/// The bars of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    /// In the order in which they were taken up.
    pub(super) bars: Vec<Bar>,
    /// How many workers there are.
    pub(super) workers: usize,
    /// When the first begins.
    pub(super) from_ms: u64,
    /// When the last ends; after `from_ms`.
    pub(super) to_ms: u64,
}

impl Lanes {
    /// The lanes of a recording; none if nothing was sent in it.
    pub(super) fn of(recording: &Recording) -> Option<Self> {
        let units = recording.units.iter();
        let attempts = units.flat_map(|unit| unit.attempts.iter().map(|one| (unit.unit, one)));
        let mut attempts: Vec<_> = attempts.collect();
        attempts.sort_by_key(|(unit, attempt)| (attempt.sent_ms, *unit));
        let workers = attempts.iter().map(|(_, one)| one.worker + 1).max()?;
        let mut busy_until = vec![0; workers];
        let mut bars = Vec::with_capacity(attempts.len());
        for (unit, attempt) in attempts {
            let busy_until = &mut busy_until[attempt.worker];
            let to_ms = attempt.ended_ms.unwrap_or(recording.duration_ms);
            let from_ms = attempt.sent_ms.max(*busy_until).min(to_ms);
            let counted_ms = attempt.counted_ms.unwrap_or(to_ms);
            *busy_until = to_ms.max(*busy_until);
            bars.push(Bar {
                unit,
                worker: attempt.worker,
                from_ms,
                counted_ms: counted_ms.clamp(from_ms, to_ms),
                to_ms,
                outcome: match attempt.end.as_str() {
                    "committed" => Outcome::Committed,
                    "open" => Outcome::Open,
                    _ => Outcome::Undone,
                },
            });
        }
        let from_ms = bars.iter().map(|bar| bar.from_ms).min()?;
        let to_ms = bars.iter().map(|bar| bar.to_ms).max()?;
        Some(Self {
            bars,
            workers,
            from_ms,
            to_ms: to_ms.max(from_ms + 1),
        })
    }

    /// The place of a time, as a share of the whole.
    pub(super) fn place(&self, ms: u64) -> f64 {
        let all_ms = self.to_ms - self.from_ms;
        let place_ms = ms.clamp(self.from_ms, self.to_ms) - self.from_ms;
        place_ms as f64 / all_ms as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::tests::{idle, recorded};

    #[test]
    fn bars_of_a_worker_do_not_overlap() {
        let mut recording = recorded().recording;
        // Sent while the first was still there.
        recording.units[1].attempts[1].sent_ms = 102;
        let lanes = Lanes::of(&recording).unwrap();
        let times = |bar: &Bar| (bar.unit, bar.worker, bar.from_ms, bar.counted_ms, bar.to_ms);
        let bars: Vec<_> = lanes.bars.iter().map(times).collect();
        assert_eq!(
            bars,
            [
                (1, 0, 100, 104, 110),
                (2, 1, 100, 103, 105),
                (2, 0, 110, 120, 120),
                (3, 1, 115, 140, 140),
            ]
        );
        assert_eq!((lanes.workers, lanes.from_ms, lanes.to_ms), (2, 100, 140));
        assert_eq!(Lanes::of(&idle().recording), None);
    }
}
