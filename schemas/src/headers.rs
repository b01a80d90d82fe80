//! A record's Kafka key and headers.
//!
//! They repeat what the envelope says, as text, for people and for programs that look at a lane
//! without Avro (and for a seek, which can go by them). The envelope is the truth: a reader of
//! the chain never needs a header.

use std::fmt::Write as _;

use crate::{Body, Envelope, Incarnation, Lsn};

/// `claim`, `heartbeat`, `notice`, `part`: see [`kind_of`].
pub const KIND: &str = "walbraid.kind";
/// The writer's claim offset, decimal.
pub const CLAIM_OFFSET: &str = "walbraid.claim-offset";
/// The record's number under its claim, decimal.
pub const SEQ: &str = "walbraid.seq";
/// The end LSN, as `X/X`.
pub const END_LSN: &str = "walbraid.end-lsn";
/// The previous end LSN, as `X/X`.
pub const PREVIOUS_END_LSN: &str = "walbraid.previous-end-lsn";

/// The value of the header [`KIND`].
pub fn kind_of(envelope: &Envelope) -> &'static str {
    match envelope.body {
        Body::Claim(_) => "claim",
        Body::Heartbeat(_) => "heartbeat",
        Body::Notice(_) => "notice",
        Body::Part(_) => "part",
    }
}

/// All headers of a record, name and value. Values are ASCII.
pub fn of(envelope: &Envelope) -> [(&'static str, String); 5] {
    [
        (KIND, kind_of(envelope).to_owned()),
        (CLAIM_OFFSET, number(envelope.claim_offset)),
        (SEQ, number(envelope.seq)),
        (END_LSN, lsn(envelope.end_lsn)),
        (PREVIOUS_END_LSN, lsn(envelope.previous_end_lsn)),
    ]
}

/// The key of every record of a stream: `stream/incarnation`.
pub fn key(stream: &str, incarnation: Incarnation) -> String {
    format!("{stream}/{incarnation}")
}

fn number(value: i64) -> String {
    value.to_string()
}

fn lsn(value: Lsn) -> String {
    let mut text = String::with_capacity(17);
    // Writing into a String cannot fail.
    let _ = write!(text, "{value}");
    text
}
