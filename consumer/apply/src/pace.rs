//! How many connections work, and how large their units are.
//!
//! One pipelined connection is the fastest way to apply work that is cheap for the server
//! (measured: more connections only add round trips between commits). More pay when a transaction
//! *waits* in the server: for cold pages, locks, triggers. That is seen from outside as time: a
//! transaction that takes far longer than its statements cost. What a distant server adds is not in
//! that figure: on a pipelined connection the next unit's statements are there already.
//!
//! So a worker reports, with each commit, how long its connection was busy with the unit. What a
//! transaction may cost without waiting is known to about a factor of two (measured: 40–60 µs with
//! four changes, on one machine); the bounds leave room for slower ones, and lie a factor of two
//! apart, so that the pool does not swing.

/// How many workers a lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// As many, always.
    Fixed(usize),
    /// One, and up to so many while measured waiting says that they pay.
    Auto {
        /// The largest number.
        most: usize,
    },
}

impl Workers {
    /// The largest number of workers at any time.
    pub fn most(self) -> usize {
        match self {
            Self::Fixed(workers) | Self::Auto { most: workers } => workers.max(1),
        }
    }

    /// How many there are at the start.
    pub fn initial(self) -> usize {
        match self {
            Self::Fixed(workers) => workers.max(1),
            Self::Auto { .. } => 1,
        }
    }
}

/// What a transaction costs a server that need not wait, at most: what it costs by itself, and for
/// each change. Microseconds.
const CHEAP_US: (f64, f64) = (150.0, 40.0);

/// A worker more for each of these in a transaction's time. Microseconds.
const PER_WORKER_US: f64 = 250.0;

/// A unit on several connections is to take about so long, microseconds: long beside the round trip
/// of its commit, short enough that two units seldom touch the same row.
const UNIT_US: f64 = 2_000.0;

/// Weight of the newest unit in the averages.
const WEIGHT: f64 = 1.0 / 16.0;

/// Cheap units in a row after which other connections leave.
const CHEAP_UNITS: u32 = 64;

/// Measures units, and says how the next ones are to run.
#[derive(Debug)]
pub struct Pace {
    workers: Workers,
    /// Averages over units, of one transaction.
    transaction_us: Option<f64>,
    changes: f64,
    effective: usize,
    cheap_units: u32,
}

impl Pace {
    /// Nothing is measured yet.
    pub fn new(workers: Workers) -> Self {
        Self {
            workers,
            transaction_us: None,
            changes: 0.0,
            effective: workers.initial(),
            cheap_units: 0,
        }
    }

    /// A unit of so many transactions and changes kept its connection busy for that time;
    /// `behind` while others wait.
    pub fn worked(&mut self, transactions: usize, changes: usize, busy_us: u64, behind: bool) {
        let transactions = transactions.max(1) as f64;
        let (us, changes) = (busy_us as f64 / transactions, changes as f64 / transactions);
        let before = self.transaction_us.unwrap_or(us);
        self.transaction_us = Some(before + (us - before) * WEIGHT);
        self.changes += (changes - self.changes) * WEIGHT;
        let Workers::Auto { most } = self.workers else {
            return;
        };
        let cheap_us = CHEAP_US.0 + CHEAP_US.1 * self.changes;
        let average_us = self.transaction_us.unwrap_or_default();
        if average_us < cheap_us {
            self.cheap_units += 1;
            if self.cheap_units >= CHEAP_UNITS {
                self.effective = 1;
            }
            return;
        }
        self.cheap_units = 0;
        if average_us > 2.0 * cheap_us && behind {
            let wanted = (average_us / PER_WORKER_US).ceil().min(most as f64) as usize;
            self.effective = self.effective.max(wanted);
        }
    }

    /// How many workers are to work.
    pub fn workers(&self) -> usize {
        self.effective
    }

    /// How many transactions one unit may take while so many workers work, of at most `most`.
    pub fn group(&self, workers: usize, most: usize) -> usize {
        if workers == 1 {
            return most;
        }
        let fitting = self.transaction_us.map_or(1.0, |us| UNIT_US / us.max(1.0));
        (fitting as usize).clamp(1, most.max(1))
    }

    /// Time that a transaction keeps its connection busy, microseconds; none before the first.
    pub fn transaction_us(&self) -> Option<u64> {
        self.transaction_us.map(|us| us as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Workers = Workers::Auto { most: 8 };

    fn after(pace: &mut Pace, units: usize, transaction_us: u64, behind: bool) -> usize {
        for _ in 0..units {
            pace.worked(4, 16, 4 * transaction_us, behind);
        }
        pace.workers()
    }

    #[test]
    fn workers_join_when_transactions_wait_and_leave_when_they_do_not() {
        let mut pace = Pace::new(AUTO);
        assert_eq!(after(&mut pace, 200, 60, true), 1);
        assert_eq!(
            after(&mut pace, 200, 2_000, false),
            1,
            "nobody waits for more"
        );
        assert_eq!(after(&mut pace, 10, 2_000, true), 8);
        assert_eq!(
            after(&mut pace, 200, 400, true),
            8,
            "between the bounds nothing changes"
        );
        assert_eq!(after(&mut pace, 200, 60, true), 1);
        assert_eq!(after(&mut pace, 200, 1_000, true), 4);
    }

    #[test]
    fn a_fixed_number_is_kept() {
        let mut pace = Pace::new(Workers::Fixed(3));
        assert_eq!(after(&mut pace, 200, 60, true), 3);
        assert_eq!(after(&mut pace, 200, 9_000, true), 3);
    }

    #[test]
    fn units_are_small_where_transactions_take_long() {
        let mut pace = Pace::new(Workers::Fixed(4));
        assert_eq!(pace.group(4, 256), 1, "nothing is known yet");
        after(&mut pace, 200, 2_000, true);
        assert_eq!(pace.group(4, 256), 1);
        after(&mut pace, 400, 50, true);
        assert!(
            (30..=40).contains(&pace.group(4, 256)),
            "{}",
            pace.group(4, 256)
        );
        assert_eq!(pace.group(4, 8), 8);
        assert_eq!(
            Pace::new(AUTO).group(1, 256),
            256,
            "one connection takes what it gets"
        );
    }
}
