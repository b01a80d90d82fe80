//! The reader's state machine. The rule and the hazards stand in [`super`].
//!
//! One call a record, in rising offsets; the answer says what the record is. A reader that
//! stopped stays stopped: it gives the same answer for ever.

use super::refusal::{self, Refusal};
use super::{Position, Side};
use crate::envelope::NO_CLAIM;
use crate::{Body, Claim, Envelope, Lsn, Part, Stop};

/// Where a reader is put before its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Somewhere in the log.
    Offset,
    /// At the log's first record: there is nothing further back.
    LogStart,
}

/// The answer to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The parts kept of an unfinished link are void: throw them away, then look at the verdict.
    pub voided: bool,
    /// What the record is.
    pub verdict: Verdict,
}

/// What a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A part of the next link; more follow. Keep it.
    Part,
    /// The part that makes the next link whole. Keep it; with the link goes this position.
    Link(Position),
    /// No further link ends up to this LSN.
    Quiet(Lsn),
    /// A claim that is now the newest.
    Claim,
    /// What the newest claim's writer stopped for; true until the next claim.
    Notice,
    /// Nothing to do.
    Nothing(Nothing),
    /// The reader started too far on: start it again further back ([`Reader::restart`]). Offset
    /// `position.claim_offset` is far enough, or the log's start.
    SeekBack,
    /// The lane cannot be read on.
    Stop(Stop),
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// What it says was known.
    Repeat,
    /// Its claim is not the newest.
    Void,
    /// It is of an older life of the stream.
    Foreign,
}

/// Reads a lane: records in, links out.
#[derive(Clone, Debug)]
pub struct Reader {
    position: Position,
    covered: Lsn,
    newest: Newest,
    /// Another view than P's was newest since P was taken.
    view_changed: bool,
    run: Option<Run>,
    /// Whether the record at hand ended a run that was not whole.
    voided: bool,
    place: Place,
    start: Start,
    first_offset: Option<i64>,
    last_offset: i64,
}

/// The newest claim, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Newest {
    offset: i64,
    options_hash: Option<i64>,
    confirmed: Option<Lsn>,
}

/// The link whose parts are arriving.
#[derive(Clone, Copy, Debug)]
struct Run {
    commit_lsn: Lsn,
    next_number: u32,
}

/// What the reader knows of the place it started at.
#[derive(Clone, Debug)]
enum Place {
    /// Nothing yet.
    Unknown(Start),
    /// Started before P's claim, which must come by.
    BeforeClaim,
    /// Started at or before the place where P was taken.
    Following,
    /// Started at the log's first record, which followed P: older claims may be gone.
    FollowingFromLogStart,
    /// Asked to be started further back.
    TooFar,
    /// Stopped.
    Stopped(Stop),
}

impl Reader {
    /// A reader that stands at `position`.
    pub fn new(position: Position, start: Start) -> Reader {
        Reader {
            position,
            covered: position.end_lsn,
            newest: Newest {
                offset: position.claim_offset,
                options_hash: position.options_hash,
                confirmed: None,
            },
            view_changed: position.options_hash.is_none(),
            run: None,
            voided: false,
            place: Place::Unknown(start),
            start,
            first_offset: None,
            last_offset: -1,
        }
    }

    /// Puts the reader at another offset of the log. Its position stays; parts that were kept of
    /// an unfinished link are void.
    pub fn restart(&mut self, start: Start) {
        *self = Reader::new(self.position, start);
    }

    /// Where the reader stands: behind the last whole link.
    pub fn position(&self) -> Position {
        self.position
    }

    /// K: no link ends between the position and this LSN.
    pub fn quiet_until(&self) -> Lsn {
        self.covered
    }

    /// The newest claim that is known; -1 when none is.
    pub fn newest_claim_offset(&self) -> i64 {
        self.newest.offset
    }

    /// Whether the reader knows that it started early enough, and has not stopped.
    pub fn is_following(&self) -> bool {
        matches!(self.place, Place::Following | Place::FollowingFromLogStart)
    }

    /// Says what the record at `offset` is.
    pub fn offer(&mut self, offset: i64, record: &Envelope) -> Step {
        self.voided = false;
        let verdict = match self.judge(offset, record) {
            Ok(verdict) => verdict,
            Err(Refusal::SeekBack) => self.too_far(),
            Err(Refusal::Stop(_)) if self.is_in_doubt() => self.too_far(),
            Err(Refusal::Stop(stop)) => {
                self.void_run();
                self.place = Place::Stopped(stop.clone());
                Verdict::Stop(stop)
            }
        };
        Step {
            voided: self.voided,
            verdict,
        }
    }

    fn too_far(&mut self) -> Verdict {
        self.void_run();
        self.place = Place::TooFar;
        Verdict::SeekBack
    }

    /// Only a record under P's claim says where the reader started, and a zombie may have written
    /// it (hazard 15): what does not fit is no fact before it was read from P's claim on.
    fn is_in_doubt(&self) -> bool {
        let claim_offset = self.position.claim_offset;
        matches!(self.place, Place::Following)
            && self.start == Start::Offset
            && claim_offset != NO_CLAIM
            && self.first_offset.is_some_and(|first| first > claim_offset)
    }

    fn judge(&mut self, offset: i64, record: &Envelope) -> Result<Verdict, Refusal> {
        match &self.place {
            Place::Stopped(stop) => return Err(Refusal::Stop(stop.clone())),
            Place::TooFar => return Err(Refusal::SeekBack),
            _ => {}
        }
        if offset <= self.last_offset {
            return Err(refusal::out_of_order(offset, self.last_offset));
        }
        self.last_offset = offset;
        self.first_offset.get_or_insert(offset);
        self.expect_own_claim(offset, record)?;

        let writer = writer_of(offset, record);
        if writer > offset || (writer == offset && !matches!(record.body, Body::Claim(_))) {
            return Err(refusal::impossible_claim(offset, writer));
        }
        if writer < self.newest.offset {
            return Ok(Verdict::Nothing(Nothing::Void));
        }
        if record.incarnation != self.position.incarnation {
            return self.foreign(offset, record);
        }
        if let Body::Claim(claim) = &record.body {
            return self.claim(offset, record, claim);
        }
        if let Place::Unknown(start) = self.place
            && let Some(verdict) = self.settle(offset, record, start)?
        {
            return Ok(verdict);
        }
        self.expect_newest(offset, record)?;
        match &record.body {
            Body::Claim(_) => Ok(Verdict::Claim),
            Body::Notice(_) => Ok(Verdict::Notice),
            Body::Heartbeat(_) => self.heartbeat(offset, record),
            Body::Part(part) => self.part(offset, record, part),
        }
    }

    /// A reader that started at or before P's claim must find it at its offset (hazard 14).
    fn expect_own_claim(&mut self, offset: i64, record: &Envelope) -> Result<(), Refusal> {
        let claim_offset = self.position.claim_offset;
        if matches!(self.place, Place::Unknown(_)) && offset <= claim_offset {
            self.place = Place::BeforeClaim;
        }
        if matches!(self.place, Place::BeforeClaim) && offset >= claim_offset {
            let found = offset == claim_offset
                && matches!(record.body, Body::Claim(_))
                && record.incarnation == self.position.incarnation
                && self
                    .position
                    .options_hash
                    .is_none_or(|hash| hash == record.options_hash);
            if !found {
                return Err(refusal::own_claim_missing(&self.position));
            }
            self.place = Place::Following;
        }
        Ok(())
    }

    /// A record of another incarnation that its claim does not void (hazard 13).
    fn foreign(&mut self, offset: i64, record: &Envelope) -> Result<Verdict, Refusal> {
        match self.place {
            Place::Unknown(start) if self.position.claim_offset == NO_CLAIM => match start {
                Start::LogStart => Ok(Verdict::Nothing(Nothing::Foreign)),
                Start::Offset => Err(Refusal::SeekBack),
            },
            _ => Err(refusal::other_incarnation(
                offset,
                record.incarnation,
                &self.position,
            )),
        }
    }

    /// A claim that is the newest now, or P's own.
    fn claim(&mut self, offset: i64, record: &Envelope, claim: &Claim) -> Result<Verdict, Refusal> {
        match self.place {
            Place::Unknown(Start::Offset) => return Err(Refusal::SeekBack),
            Place::Unknown(Start::LogStart) => {}
            _ if offset == self.position.claim_offset => {}
            _ if claim.confirmed_lsn > self.covered => {
                return Err(refusal::claim_above(
                    offset,
                    claim.confirmed_lsn,
                    self.covered,
                ));
            }
            _ => {}
        }
        self.adopt(Newest {
            offset,
            options_hash: Some(record.options_hash),
            confirmed: Some(claim.confirmed_lsn),
        });
        Ok(Verdict::Claim)
    }

    /// Makes a claim the newest.
    fn adopt(&mut self, newest: Newest) {
        self.void_run();
        self.view_changed |= newest.options_hash != self.position.options_hash;
        self.newest = newest;
    }

    fn void_run(&mut self) {
        self.voided |= self.run.take().is_some();
    }

    /// The first records of a reader that does not know its place yet (hazards 8, 9, 10). Nothing
    /// is returned for a record that settles it and is still to be judged.
    fn settle(
        &mut self,
        offset: i64,
        record: &Envelope,
        start: Start,
    ) -> Result<Option<Verdict>, Refusal> {
        match (self.position.side_of(offset, record), start) {
            (Side::AtOrBefore, _) => {
                self.place = Place::Following;
                if record.claim_offset != NO_CLAIM {
                    return Ok(None);
                }
                if record.end_lsn != self.position.end_lsn {
                    return Err(refusal::other_start(record.end_lsn, self.position.end_lsn));
                }
                // Setup's heartbeat: what claims stand before it are those of older lives.
                self.newest.offset = offset;
                Ok(Some(Verdict::Nothing(Nothing::Repeat)))
            }
            (Side::Unsaid, _) => Ok(Some(match record.body {
                Body::Notice(_) => Verdict::Notice,
                _ => Verdict::Nothing(Nothing::Void),
            })),
            (Side::After, Start::Offset) => Err(Refusal::SeekBack),
            (Side::After, Start::LogStart) => self.settle_at_log_start(offset, record),
        }
    }

    fn settle_at_log_start(
        &mut self,
        offset: i64,
        record: &Envelope,
    ) -> Result<Option<Verdict>, Refusal> {
        if record.claim_offset > self.newest.offset {
            self.adopt(proven_by(record));
        }
        let p = self.position.end_lsn;
        let known = match &record.body {
            Body::Notice(_) => return Ok(Some(Verdict::Notice)),
            Body::Part(part) => part.commit_lsn < p,
            _ => record.end_lsn <= p,
        };
        if known {
            return Ok(Some(Verdict::Nothing(Nothing::Repeat)));
        }
        let same_view = self
            .position
            .options_hash
            .is_none_or(|hash| hash == record.options_hash);
        let begun_before = matches!(&record.body, Body::Part(part) if part.number > 0);
        if record.previous_end_lsn != p || !same_view || begun_before {
            return Err(refusal::truncated(offset, record, &self.position));
        }
        self.place = Place::FollowingFromLogStart;
        Ok(None)
    }

    /// A record's claim must have come by before it, with the same options.
    fn expect_newest(&mut self, offset: i64, record: &Envelope) -> Result<(), Refusal> {
        if record.claim_offset > self.newest.offset {
            let gone = self
                .first_offset
                .is_some_and(|first| record.claim_offset < first);
            match self.place {
                Place::FollowingFromLogStart if gone => self.adopt(proven_by(record)),
                // It was a zombie that said where we are (hazard 15).
                Place::Following if gone => return Err(Refusal::SeekBack),
                _ => return Err(refusal::impossible_claim(offset, record.claim_offset)),
            }
        }
        match self.newest.options_hash {
            Some(hash) if hash != record.options_hash => {
                Err(refusal::other_options(offset, record.claim_offset))
            }
            _ => Ok(()),
        }
    }

    fn heartbeat(&mut self, offset: i64, record: &Envelope) -> Result<Verdict, Refusal> {
        let (previous, end) = (record.previous_end_lsn, record.end_lsn);
        if previous > end {
            return Err(refusal::inconsistent(offset, record));
        }
        if previous > self.covered {
            return Err(refusal::gap(offset, record, self.covered));
        }
        if end <= self.covered {
            return Ok(Verdict::Nothing(Nothing::Repeat));
        }
        self.expect_explained(offset, record)?;
        if self.run.is_some_and(|run| end > run.commit_lsn) {
            return Err(refusal::diverged(offset, record, &self.position));
        }
        self.covered = end;
        Ok(Verdict::Quiet(end))
    }

    fn part(&mut self, offset: i64, record: &Envelope, part: &Part) -> Result<Verdict, Refusal> {
        let end_fits = if part.last {
            part.commit_lsn < record.end_lsn
        } else {
            record.end_lsn.is_invalid()
        };
        if !end_fits || record.previous_end_lsn > part.commit_lsn {
            return Err(refusal::inconsistent(offset, record));
        }
        if part.commit_lsn < self.covered {
            // WAL records do not overlap: what starts below K ends at or below it.
            if record.end_lsn > self.covered {
                return Err(refusal::diverged(offset, record, &self.position));
            }
            return Ok(Verdict::Nothing(Nothing::Repeat));
        }
        match self.run {
            Some(run) if run.commit_lsn != part.commit_lsn => {
                return Err(refusal::diverged(offset, record, &self.position));
            }
            Some(run) if part.number > 0 && part.number < run.next_number => {
                return Ok(Verdict::Nothing(Nothing::Repeat));
            }
            Some(run) if part.number == run.next_number => {}
            _ if part.number == 0 => self.begin(offset, record)?,
            _ => {
                return Err(refusal::part_missing(
                    offset,
                    part,
                    self.run.map(|run| run.next_number),
                ));
            }
        }
        if part.last {
            return Ok(Verdict::Link(self.take(record)));
        }
        self.run = Some(Run {
            commit_lsn: part.commit_lsn,
            next_number: part.number + 1,
        });
        Ok(Verdict::Part)
    }

    /// A run that may be taken begins, or begins again.
    fn begin(&mut self, offset: i64, record: &Envelope) -> Result<(), Refusal> {
        if record.previous_end_lsn > self.covered {
            return Err(refusal::gap(offset, record, self.covered));
        }
        self.expect_explained(offset, record)?;
        self.void_run();
        Ok(())
    }

    /// A link is whole.
    fn take(&mut self, record: &Envelope) -> Position {
        self.run = None;
        self.covered = record.end_lsn;
        self.view_changed = false;
        self.position = Position {
            incarnation: record.incarnation,
            end_lsn: record.end_lsn,
            claim_offset: record.claim_offset,
            options_hash: Some(record.options_hash),
        };
        self.position
    }

    /// Rule 5: what passes over P must be explained by a new claim (hazards 5, 6, 7).
    fn expect_explained(&self, offset: i64, record: &Envelope) -> Result<(), Refusal> {
        let p = self.position.end_lsn;
        let explained = record.previous_end_lsn >= p
            || (self.newest.offset != self.position.claim_offset
                && (self.view_changed || self.newest.confirmed.is_some_and(|c| c >= p)));
        if explained {
            Ok(())
        } else {
            Err(refusal::diverged(offset, record, &self.position))
        }
    }
}

/// The claim under which a record was written.
fn writer_of(offset: i64, record: &Envelope) -> i64 {
    match record.body {
        Body::Claim(_) => offset,
        _ => record.claim_offset,
    }
}

/// A claim known only from a record under it.
fn proven_by(record: &Envelope) -> Newest {
    Newest {
        offset: record.claim_offset,
        options_hash: Some(record.options_hash),
        confirmed: None,
    }
}
