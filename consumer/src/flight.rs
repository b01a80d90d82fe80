//! What is in flight on one session: units, and the answers that are due.
//!
//! The session answers in the order in which it was asked, so one queue of steps says what each
//! answer belongs to. Only CommandComplete, ParseComplete and CloseComplete are waited for; other
//! answers carry nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use walbraid_apply::failure::Place;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::missing::Missing;
use walbraid_apply::statement::Expect;
use walbraid_apply::unit::UnitId;
use walbraid_schemas::lsn::Lsn;

/// Rows not found that one unit reports by name; the rest is only counted.
const MISSING_NAMED_MAX: usize = 20;

/// An answer that is due.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// ParseComplete of the statement of this number.
    Parsed(u64),
    /// ParseComplete of the unnamed statement.
    ParsedUnnamed,
    /// CloseComplete of the statement of this number.
    Closed(u64),
    /// CommandComplete of BEGIN.
    Begin,
    /// CommandComplete of a change's statement.
    Change {
        place: Place,
        operation: Operation,
        expect: Expect,
        /// None for TRUNCATE, which has several.
        mapped: Option<Arc<Mapped>>,
    },
    /// CommandComplete of the progress row.
    Progress,
    /// CommandComplete of COMMIT.
    Commit,
}

/// What a change was, for counting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    Insert,
    Update,
    Delete,
    Truncate,
}

/// A unit that was begun and is not committed.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) unit: UnitId,
    pub(crate) run: u64,
    pub(crate) counts: Counts,
    pub(crate) missing: Vec<(Missing, Place)>,
    /// For messages: the transactions, each with the number of changes up to its end.
    pub(crate) transactions: Vec<(u32, Lsn)>,
    pub(crate) begun_at: Instant,
    /// Since when all of it that has arrived is answered, while more is to come from the log.
    pub(crate) rests_since: Option<Instant>,
    /// How long it rested before.
    pub(crate) rested: Duration,
    /// How long the session was busy with it, once it is through with its statements.
    pub(crate) busy_us: Option<u64>,
}

/// Rows that a unit wrote or did not find.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) inserts: u64,
    pub(crate) updates: u64,
    pub(crate) deletes: u64,
    pub(crate) truncates: u64,
    pub(crate) missing_updates: u64,
    pub(crate) missing_deletes: u64,
}

/// The steps whose answers are due, in order.
#[derive(Debug, Default)]
pub(crate) struct Due {
    steps: VecDeque<Step>,
}

impl Due {
    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    pub(crate) fn front(&self) -> Option<&Step> {
        self.steps.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The step that an error belongs to: a statement that could not be prepared is that of the
    /// change it was prepared for.
    pub(crate) fn failed(&self) -> Option<Step> {
        let change = |step: &&Step| matches!(step, Step::Change { .. });
        let first = self.steps.front()?;
        let preparing = matches!(
            first,
            Step::Parsed(_) | Step::ParsedUnnamed | Step::Closed(_)
        );
        let step = if preparing {
            self.steps.iter().find(change)?
        } else {
            first
        };
        Some(step.clone())
    }

    /// Gives up all that is due; the numbers of statements whose state on the session is unknown.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        let unknown = |step: Step| match step {
            Step::Parsed(id) | Step::Closed(id) => Some(id),
            _ => None,
        };
        self.steps.drain(..).filter_map(unknown).collect()
    }
}

impl Flight {
    /// The session is through with the unit's statements: how long it was busy with them, in
    /// microseconds. It was free since then, if that is later than the unit was begun. While the
    /// unit rested, the log was waited for and not the server.
    pub(crate) fn through(&mut self, free_since: &mut Instant, now: Instant) -> u64 {
        self.goes_on(now);
        *self.busy_us.get_or_insert_with(|| {
            let from = self.begun_at.max(*free_since);
            *free_since = now;
            let busy = now.duration_since(from).saturating_sub(self.rested);
            u64::try_from(busy.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// All of it that has arrived is answered.
    pub(crate) fn rests(&mut self, now: Instant) {
        self.rests_since.get_or_insert(now);
    }

    /// More of it has arrived.
    pub(crate) fn goes_on(&mut self, now: Instant) {
        if let Some(since) = self.rests_since.take() {
            self.rested += now.duration_since(since);
        }
    }

    /// Takes in the answer to a change's statement; what was missing if that is how it went.
    pub(crate) fn changed(
        &mut self,
        operation: Operation,
        expect: Expect,
        mapped: Option<&Mapped>,
        place: Place,
        rows: u64,
    ) {
        match operation {
            Operation::Insert => self.counts.inserts += rows,
            Operation::Update => self.counts.updates += rows,
            Operation::Delete => self.counts.deletes += rows,
            Operation::Truncate => self.counts.truncates += 1,
        }
        if rows > 0 || expect == Expect::Anything {
            return;
        }
        match expect {
            Expect::DeletedRow => self.counts.missing_deletes += 1,
            _ => self.counts.missing_updates += 1,
        }
        if self.missing.len() < MISSING_NAMED_MAX
            && let Some(missing) = mapped.and_then(|mapped| Missing::new(expect, mapped))
        {
            self.missing.push((missing, place));
        }
    }

    /// Rows that were not found.
    pub(crate) fn missing_count(&self) -> u64 {
        self.counts.missing_updates + self.counts.missing_deletes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a unit was begun, when its session became free, when it rested, when it was through;
    /// how long its session was busy with it. Milliseconds.
    type Case = (u64, u64, &'static [(u64, u64)], u64, u64);

    fn flight(begun_at: Instant) -> Flight {
        Flight {
            unit: UnitId(1),
            run: 1,
            counts: Counts::default(),
            missing: Vec::new(),
            transactions: Vec::new(),
            begun_at,
            rests_since: None,
            rested: Duration::ZERO,
            busy_us: None,
        }
    }

    #[test]
    fn a_session_is_busy_while_the_server_is_waited_for() {
        const CASES: &[Case] = &[
            (10, 0, &[], 15, 5),
            (10, 12, &[], 15, 3),
            (10, 0, &[(12, 112)], 115, 5),
            (10, 12, &[(13, 113), (114, 214)], 216, 4),
            (10, 0, &[(12, 112)], 112, 2),
        ];
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        for &(begun, free, rests, through, busy) in CASES {
            let (mut flight, mut free_since) = (flight(at(begun)), at(free));
            for &(from, to) in rests {
                flight.rests(at(from));
                flight.rests(at(to));
                // What arrives last may end it at once.
                if to < through {
                    flight.goes_on(at(to));
                }
            }
            let busy_us = flight.through(&mut free_since, at(through));
            assert_eq!(busy_us, busy * 1_000, "{begun} {free} {rests:?} {through}");
            assert_eq!(free_since, at(through));
            assert_eq!(flight.through(&mut free_since, at(1_000)), busy_us);
        }
    }
}
