//! What a producer's first record says its predecessor is.
//!
//! A producer that holds the slot and has claimed goes back through the log from its claim, to a
//! record that ends exactly at the slot's confirmed LSN C. There is one: C was confirmed for a
//! record that stands in the log. A link there is the predecessor itself; a heartbeat there names
//! it.
//!
//! Whether that record counted at its place does not matter, so the way back is short. What it
//! names lies at or below C, and C at or below what every reader has covered, so it can never
//! look like a gap; and readers take a new claim's word for where it begins (rule 5).

use crate::{Body, Envelope, Incarnation, Lsn, Stop, StopKind};

/// Goes back through the log, from the newest record to the oldest.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    incarnation: Incarnation,
    confirmed: Lsn,
}

/// What a record says on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailStep {
    /// Found: the first link's previous end LSN.
    Found(Lsn),
    /// Go on to the record before.
    GoOn,
}

impl Tail {
    /// Looks for a record of the stream that ends at the slot's confirmed LSN.
    pub fn new(incarnation: Incarnation, confirmed: Lsn) -> Tail {
        Tail {
            incarnation,
            confirmed,
        }
    }

    /// Looks at the next record on the way back.
    pub fn offer(&self, record: &Envelope) -> TailStep {
        if record.incarnation != self.incarnation || record.end_lsn != self.confirmed {
            return TailStep::GoOn;
        }
        match &record.body {
            Body::Part(part) if part.last => TailStep::Found(record.end_lsn),
            Body::Heartbeat(_) => TailStep::Found(record.previous_end_lsn),
            Body::Part(_) | Body::Claim(_) | Body::Notice(_) => TailStep::GoOn,
        }
    }

    /// The log's start was reached and nothing found.
    pub fn not_found(&self) -> Stop {
        Stop::new(
            StopKind::SlotAheadOfLog,
            format!(
                "the slot is confirmed up to {}, but the log is not",
                self.confirmed
            ),
        )
        .detail("No record of the lane ends at that LSN.")
        .hint("Kafka lost acknowledged records, or the slot was advanced by someone else.")
    }
}
