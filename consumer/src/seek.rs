//! Where in the log to start reading for a position: seek by LSN.
//!
//! The subscriber's progress is the truth; the offset that the group holds is a hint, which may be
//! ahead (a subscriber restored or failed over is behind its own offsets) or behind. Whether a
//! record stands at or before the place where a position was reached is the chain's to say
//! (`Position::side_of`); along rising offsets the answers are "at or before", then "after", so
//! the place is searched for: from the hint backwards by growing steps, then by halves.
//!
//! Any start at or before the place is right; an earlier one only costs reading. Two are always
//! right: the position's own claim, and the log's first record.

use walbraid_schemas::chain::Side;

/// Records that are read through rather than searched for.
const CLOSE_ENOUGH: i64 = 128;

/// A record that tells on which side of the place it stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen {
    /// Its offset; at or above the one that was asked for.
    pub offset: i64,
    /// Its side: not `Unsaid`.
    pub side: Side,
}

/// What a search wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The first record at or behind this offset that tells its side.
    Look(i64),
    /// Start reading here.
    Start(Start),
}

/// Where to start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Start {
    /// The offset.
    pub offset: i64,
    /// Nothing older is in the log.
    pub is_beginning: bool,
}

/// A search for the offset to start from: ask [`Search::wanted`] for an offset to look at, tell it
/// what stands there, until it answers with a start.
#[derive(Debug)]
pub struct Search {
    /// The log's first offset.
    beginning: i64,
    /// May be started from.
    low: i64,
    /// May not be started from, or is the log's end.
    high: i64,
    /// How far before `high` the next look is; nothing when halves are looked at.
    step: Option<i64>,
    looking_at: i64,
}

impl Search {
    /// A search in the log's offsets `[beginning, end)` for a position under that claim.
    pub fn new(claim_offset: i64, beginning: i64, end: i64, hint: Option<i64>) -> Self {
        let low = claim_offset.clamp(beginning, end);
        let high = hint.filter(|hint| (low..=end).contains(hint));
        Self {
            beginning,
            low,
            high: high.unwrap_or(end),
            step: Some(1),
            looking_at: low,
        }
    }

    /// The next step.
    pub fn wanted(&mut self) -> Wanted {
        let between = self.high - self.low;
        self.looking_at = match self.step {
            Some(step) if step < between => self.high - step,
            // What is close is read through; a look costs more.
            _ if between <= CLOSE_ENOUGH => return Wanted::Start(self.start()),
            _ => self.low + between / 2,
        };
        Wanted::Look(self.looking_at)
    }

    /// What stands at or behind the offset that was asked for; `None` when nothing does.
    pub fn seen(&mut self, seen: Option<Seen>) {
        match seen {
            Some(Seen {
                offset,
                side: Side::AtOrBefore,
            }) => {
                self.low = self.low.max(offset);
                self.step = None;
            }
            _ => {
                self.step = self.step.map(|step| step.saturating_mul(8));
                self.high = self.high.min(self.looking_at);
            }
        }
    }

    /// Where to start after a start proved too late.
    pub fn back(claim_offset: i64, beginning: i64) -> Start {
        let offset = claim_offset.max(beginning);
        Start {
            offset,
            is_beginning: offset == beginning,
        }
    }

    fn start(&self) -> Start {
        Start {
            offset: self.low,
            is_beginning: self.low == self.beginning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: i64 = 100_000;

    /// Searches a log of `END` records in which the position was reached at `place`; every third
    /// record does not tell its side.
    fn search(place: i64, claim_offset: i64, hint: Option<i64>) -> (Start, usize) {
        let mut search = Search::new(claim_offset, 10, END, hint);
        for looks in 0.. {
            match search.wanted() {
                Wanted::Start(start) => return (start, looks),
                Wanted::Look(asked) => {
                    let seen = (asked..END).find(|offset| offset % 3 != 1).map(|offset| {
                        let side = if offset <= place {
                            Side::AtOrBefore
                        } else {
                            Side::After
                        };
                        Seen { offset, side }
                    });
                    search.seen(seen);
                }
            }
        }
        unreachable!("the search ends")
    }

    fn check(place: i64, claim_offset: i64, hint: Option<i64>, looks_max: usize) {
        let (start, looks) = search(place, claim_offset, hint);
        let floor = claim_offset.max(10);
        assert!(
            start.offset <= place.max(floor),
            "{place} {hint:?}: {start:?}"
        );
        assert!(
            place - start.offset <= CLOSE_ENOUGH,
            "{place} {hint:?}: {start:?}"
        );
        assert!(looks <= looks_max, "{place} {hint:?}: {looks} looks");
        assert_eq!(start.is_beginning, start.offset == 10);
    }

    #[test]
    fn starts_at_or_before_the_place_and_close_to_it() {
        for place in [10, 11, 500, 50_000, 99_998, 99_999] {
            check(place, -1, None, 20);
        }
    }

    #[test]
    fn a_hint_that_fits_costs_a_look_or_two() {
        check(49_999, -1, Some(50_000), 2);
        check(49_990, -1, Some(50_000), 3);
    }

    #[test]
    fn a_hint_ahead_of_the_subscriber_is_not_followed() {
        check(500, -1, Some(90_000), 20);
        check(500, 400, Some(90_000), 20);
    }

    #[test]
    fn a_hint_that_is_not_in_the_log_is_no_hint() {
        check(500, -1, Some(END + 5), 20);
        check(500, -1, Some(3), 20);
    }

    #[test]
    fn a_claim_close_to_the_place_needs_no_look() {
        let (start, _) = search(50_010, 50_000, Some(50_020));
        assert!(start.offset >= 50_000);
    }

    #[test]
    fn an_empty_log() {
        let mut search = Search::new(-1, 7, 7, Some(7));
        assert_eq!(
            search.wanted(),
            Wanted::Start(Start {
                offset: 7,
                is_beginning: true
            })
        );
    }

    #[test]
    fn back_goes_to_the_claim_or_to_the_beginning() {
        assert_eq!(
            Search::back(500, 10),
            Start {
                offset: 500,
                is_beginning: false
            }
        );
        assert_eq!(
            Search::back(-1, 10),
            Start {
                offset: 10,
                is_beginning: true
            }
        );
    }
}
