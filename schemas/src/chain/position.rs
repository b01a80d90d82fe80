//! Where a reader stands, and on which side of it a record lies.
//!
//! A position is what a consumer keeps in the same target transaction as a link's rows. It does
//! not move at claims, only at links: so a reader that starts from it comes by the claims again.

use crate::envelope::NO_CLAIM;
use crate::{Body, Envelope, Incarnation, Lsn};

/// Where a reader stands: behind the last link it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The life of the stream.
    pub incarnation: Incarnation,
    /// P: the end of the last link taken, or the stream's start.
    pub end_lsn: Lsn,
    /// The claim under which that link was written; -1 at the stream's start.
    pub claim_offset: i64,
    /// That claim's options; nothing at the stream's start.
    pub options_hash: Option<i64>,
}

/// Whether a reader that starts at a record starts early enough for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The record stands at or before the place where the position was reached: start here, or
    /// further on.
    AtOrBefore,
    /// It may stand behind that place: start further back.
    After,
    /// It does not tell; look at the record behind it.
    Unsaid,
}

impl Position {
    /// The position of a reader that has taken nothing yet.
    pub fn start(incarnation: Incarnation, start_lsn: Lsn) -> Position {
        Position {
            incarnation,
            end_lsn: start_lsn,
            claim_offset: NO_CLAIM,
            options_hash: None,
        }
    }

    /// On which side of this position the record at `offset` lies. Along rising offsets the
    /// answers are `AtOrBefore`, then `After`, with `Unsaid` anywhere: a binary search finds a
    /// start. Offsets up to `claim_offset` are always early enough.
    pub fn side_of(&self, offset: i64, record: &Envelope) -> Side {
        if offset <= self.claim_offset {
            return Side::AtOrBefore;
        }
        if matches!(record.body, Body::Claim(_)) || record.claim_offset > self.claim_offset {
            return Side::After;
        }
        if record.incarnation != self.incarnation || record.claim_offset < self.claim_offset {
            return Side::Unsaid;
        }
        let early = match &record.body {
            // Setup's heartbeat is where a reader that has taken nothing was put.
            Body::Heartbeat(_) if self.claim_offset == NO_CLAIM => true,
            Body::Heartbeat(_) => record.previous_end_lsn < self.end_lsn,
            Body::Part(part) => part.commit_lsn < self.end_lsn,
            Body::Claim(_) | Body::Notice(_) => return Side::Unsaid,
        };
        if early { Side::AtOrBefore } else { Side::After }
    }
}
