//! A record's Kafka key and headers.
//!
//! They repeat what the envelope says, as text, for people and for programs that look at a lane
//! without Avro (and for a seek, which can go by them). The envelope is the truth: a reader of
//! the chain never needs a header.

use crate::{Body, Envelope, Incarnation};

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
        (CLAIM_OFFSET, envelope.claim_offset.to_string()),
        (SEQ, envelope.seq.to_string()),
        (END_LSN, envelope.end_lsn.to_string()),
        (PREVIOUS_END_LSN, envelope.previous_end_lsn.to_string()),
    ]
}

/// The key of every record of a stream: `stream/incarnation`.
pub fn key(stream: &str, incarnation: Incarnation) -> String {
    format!("{stream}/{incarnation}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heartbeat, Lsn};

    #[test]
    fn text_of_a_record() {
        let record = Envelope {
            incarnation: Incarnation([0x1F; 16]),
            timeline: 1,
            claim_offset: -1,
            options_hash: 0,
            seq: 12,
            end_lsn: Lsn(0x16_B374_D848),
            previous_end_lsn: Lsn(0),
            body: Body::Heartbeat(Heartbeat {}),
        };
        let headers = of(&record).map(|(name, value)| format!("{name}={value}"));
        let expected = [
            "walbraid.kind=heartbeat",
            "walbraid.claim-offset=-1",
            "walbraid.seq=12",
            "walbraid.end-lsn=16/B374D848",
            "walbraid.previous-end-lsn=0/0",
        ];
        assert_eq!(headers, expected);
        let key = key("shop", record.incarnation);
        assert_eq!(key, "shop/1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f");
    }
}
