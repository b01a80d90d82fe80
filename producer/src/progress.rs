//! What may be confirmed to the publisher: the acknowledged prefix of what was sent.
//!
//! Owns the queue of records handed to Kafka since our claim, in the order in which they were sent,
//! and the newest LSN up to which all of them are acknowledged. Pure: delivery reports come in,
//! a step comes out; it reads no lane and sends nothing.
//!
//! Invariants:
//!
//! 1. Nothing is covered by the confirmed LSN before every record sent before it is acknowledged.
//! 2. Nothing is covered while the offsets of the acknowledged records are not dense since our
//!    claim: a missing offset may be a foreign claim, and what we wrote behind it is void. The
//!    caller reads the lane there and calls [`Progress::step_over`].
//! 3. A report can lack its offset (the broker had the batch already). Such records wait for the
//!    next one with an offset: if it lies just as far behind as their number says, all are dense.
//!
//! Why a queue and not a counter: reports may arrive out of order, and parts of a transaction cover
//! nothing until the last of them is acknowledged.

use std::collections::VecDeque;

use walbraid_schemas::Lsn;

/// Records sent and not yet confirmed, and how far is confirmed.
#[derive(Debug)]
pub(crate) struct Progress {
    confirmed: Lsn,
    expected_offset: i64,
    first_sequence: u64,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
}

#[derive(Debug)]
struct Pending {
    covers: Option<Lsn>,
    bytes: usize,
    report: Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Outstanding,
    At(i64),
    Somewhere,
}

/// What the reports that are in allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing new; wait for reports.
    Wait,
    /// Everything up to this LSN is acknowledged.
    Confirm(Lsn),
    /// Offsets between `expected` and `found` hold records of others: read the lane there.
    Jump {
        /// Offset that the next record should have had.
        expected: i64,
        /// Offset that it has.
        found: i64,
    },
    /// All that is pending is acknowledged without an offset: send one more record to learn it.
    Unplaced,
}

impl Progress {
    /// Progress of a claim at `claim_offset`, made when the slot stood at `confirmed`.
    pub(crate) fn new(claim_offset: i64, confirmed: Lsn) -> Progress {
        Progress {
            confirmed,
            expected_offset: claim_offset + 1,
            first_sequence: 0,
            pending: VecDeque::new(),
            pending_bytes: 0,
        }
    }

    /// The LSN up to which everything is acknowledged.
    pub(crate) fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// Number of records sent and not yet confirmed.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of the records sent and not yet confirmed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The sequence number that the next record sent gets.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first_sequence + self.pending.len() as u64
    }

    /// Notes a record handed to Kafka, which covers WAL up to `covers` once it is acknowledged.
    /// Returns its sequence number, which its delivery report carries back.
    pub(crate) fn sent(&mut self, covers: Option<Lsn>, bytes: usize) -> u64 {
        let sequence = self.next_sequence();
        self.pending_bytes += bytes;
        self.pending.push_back(Pending {
            covers,
            bytes,
            report: Report::Outstanding,
        });
        sequence
    }

    /// Notes that Kafka acknowledged the record `sequence`, at `offset` if the report named it.
    ///
    /// A report for a record that is not pending is a broken invariant of the client library and
    /// is said so by `false`.
    #[must_use]
    pub(crate) fn acknowledged(&mut self, sequence: u64, offset: Option<i64>) -> bool {
        let Some(index) = sequence.checked_sub(self.first_sequence) else {
            return false;
        };
        match self.pending.get_mut(index as usize) {
            Some(pending) if pending.report == Report::Outstanding => {
                pending.report = offset.map_or(Report::Somewhere, Report::At);
                true
            }
            _ => false,
        }
    }

    /// Goes as far as the reports allow.
    pub(crate) fn step(&mut self) -> Step {
        let mut newest = None;
        let stop = loop {
            match self.leading_run() {
                Run::Dense(count) => newest = self.take(count).or(newest),
                Run::Open => break Step::Wait,
                Run::Jump { expected, found } => break Step::Jump { expected, found },
                Run::Unplaced => break Step::Unplaced,
            }
        };
        match newest {
            Some(lsn) => Step::Confirm(lsn),
            None => stop,
        }
    }

    /// The lane was read up to `found` and holds no foreign claim there: the records up to the one
    /// at `found` count as dense.
    pub(crate) fn step_over(&mut self, found: i64) -> Step {
        let count = self
            .pending
            .iter()
            .position(|p| p.report == Report::At(found));
        match count {
            Some(index) => {
                self.expected_offset = found - index as i64;
                self.step()
            }
            None => Step::Wait,
        }
    }

    fn leading_run(&self) -> Run {
        for (unplaced, pending) in self.pending.iter().enumerate() {
            match pending.report {
                Report::Outstanding => return Run::Open,
                Report::Somewhere => {}
                Report::At(offset) if offset == self.expected_offset + unplaced as i64 => {
                    return Run::Dense(unplaced + 1);
                }
                Report::At(found) => {
                    let expected = self.expected_offset;
                    return Run::Jump { expected, found };
                }
            }
        }
        match self.pending.is_empty() {
            true => Run::Open,
            false => Run::Unplaced,
        }
    }

    fn take(&mut self, count: usize) -> Option<Lsn> {
        let mut newest = None;
        for pending in self.pending.drain(..count) {
            self.pending_bytes -= pending.bytes;
            newest = pending.covers.or(newest);
        }
        self.first_sequence += count as u64;
        self.expected_offset += count as i64;
        if let Some(lsn) = newest {
            assert!(
                lsn >= self.confirmed,
                "confirmed LSN {} would go back to {lsn}",
                self.confirmed
            );
            self.confirmed = lsn;
        }
        newest
    }
}

enum Run {
    Open,
    Dense(usize),
    Jump { expected: i64, found: i64 },
    Unplaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim at offset 10, records sent with what they cover, then reports and steps expected.
    fn check(covers: &[u64], reports: &[(u64, Option<i64>, Step)]) {
        let mut progress = Progress::new(10, Lsn(100));
        for lsn in covers {
            progress.sent((*lsn > 0).then_some(Lsn(*lsn)), 7);
        }
        for (sequence, offset, expected) in reports {
            assert!(progress.acknowledged(*sequence, *offset));
            assert_eq!(progress.step(), *expected, "after the report of {sequence}");
        }
    }

    #[test]
    fn confirms_the_dense_prefix_only() {
        let confirm = |lsn| Step::Confirm(Lsn(lsn));
        check(
            &[110, 120, 130],
            &[
                (0, Some(11), confirm(110)),
                (2, Some(13), Step::Wait),
                (1, Some(12), confirm(130)),
            ],
        );
    }

    #[test]
    fn parts_cover_nothing_before_the_last() {
        check(
            &[0, 0, 150],
            &[
                (0, Some(11), Step::Wait),
                (1, Some(12), Step::Wait),
                (2, Some(13), Step::Confirm(Lsn(150))),
            ],
        );
    }

    #[test]
    fn a_jump_holds_the_confirmation_back() {
        let jump = Step::Jump {
            expected: 12,
            found: 14,
        };
        check(
            &[110, 120],
            &[(0, Some(11), Step::Confirm(Lsn(110))), (1, Some(14), jump)],
        );
    }

    #[test]
    fn a_jump_that_was_read_is_stepped_over() {
        let mut progress = Progress::new(10, Lsn(100));
        progress.sent(Some(Lsn(110)), 1);
        progress.sent(Some(Lsn(120)), 1);
        assert!(progress.acknowledged(0, Some(15)));
        assert!(progress.acknowledged(1, Some(16)));
        assert_eq!(
            progress.step(),
            Step::Jump {
                expected: 11,
                found: 15
            }
        );
        assert_eq!(progress.step_over(15), Step::Confirm(Lsn(120)));
        assert_eq!((progress.pending(), progress.pending_bytes()), (0, 0));
    }

    #[test]
    fn reports_without_an_offset_are_placed_by_the_next_one() {
        check(
            &[110, 120, 130],
            &[
                (0, None, Step::Wait),
                (1, None, Step::Wait),
                (2, Some(13), Step::Confirm(Lsn(130))),
            ],
        );
        check(&[110], &[(0, None, Step::Unplaced)]);
        let jump = Step::Jump {
            expected: 11,
            found: 13,
        };
        check(&[110, 120], &[(0, None, Step::Wait), (1, Some(13), jump)]);
    }

    #[test]
    fn a_second_report_of_a_record_is_refused() {
        let mut progress = Progress::new(10, Lsn(100));
        progress.sent(Some(Lsn(110)), 1);
        assert!(progress.acknowledged(0, Some(11)));
        assert!(!progress.acknowledged(0, Some(11)));
        assert!(!progress.acknowledged(1, Some(12)));
    }
}
