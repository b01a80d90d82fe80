//! What the lane says before we claim it.
//!
//! Owns the look at the lane's newest record and at the claim it was written under, and the
//! question whether that log belongs to this stream and this publisher. It is asked before a claim
//! is written: a producer that was pointed at the wrong server or the wrong topic must do no harm.

use walbraid_schemas::{Body, Claim, Incarnation, Stop, StopKind};

use crate::config::{Config, Kafka};
use crate::lane::LaneReader;
use crate::policy::Failure;

/// What the lane says.
#[derive(Debug, Clone)]
pub(crate) struct Before {
    /// The life of the stream that the lane is in.
    pub incarnation: Incarnation,
    /// The schema's id under which the newest record was written.
    pub envelope_schema_id: i32,
    /// The timeline of the newest record.
    pub timeline: u32,
    /// The claim offset that the newest record names.
    pub claim_offset: i64,
    /// The options of that claim.
    pub options_hash: i64,
    /// The claim itself, unless `setup` wrote the record or retention removed the claim.
    pub claim: Option<Claim>,
}

/// Looks at the newest record of the lane and at its claim.
pub(crate) async fn read(reader: &LaneReader, config: &Config) -> Result<Before, Failure> {
    let end = reader.end().await?;
    let Some(newest) = end.newest else {
        return Err(not_set_up(config, end.offsets.is_empty()).into());
    };
    if let Some(stop) = foreign_stream(newest.key.as_deref(), config) {
        return Err(stop.into());
    }
    let envelope_schema_id = newest.schema_id;
    let envelope = newest.envelope;
    let (claim_offset, claim) = match envelope.body {
        Body::Claim(claim) => (newest.offset, Some(claim)),
        _ if end.offsets.contains(&envelope.claim_offset) => {
            let found = reader.at(envelope.claim_offset).await?;
            let claim = found.and_then(|found| match found.envelope.body {
                Body::Claim(claim) => Some(claim),
                _ => None,
            });
            (envelope.claim_offset, claim)
        }
        _ => (envelope.claim_offset, None),
    };
    Ok(Before {
        incarnation: envelope.incarnation,
        envelope_schema_id,
        timeline: envelope.timeline,
        claim_offset,
        options_hash: envelope.options_hash,
        claim,
    })
}

fn not_set_up(config: &Config, empty: bool) -> Stop {
    let Kafka { topic, lane, .. } = &config.kafka;
    let (kind, message) = match empty {
        true => (
            StopKind::NotSetUp,
            format!("lane {lane} of topic \"{topic}\" is empty"),
        ),
        false => (
            StopKind::TopicMismatch,
            format!("lane {lane} of topic \"{topic}\" holds no records of walbraid"),
        ),
    };
    Stop::new(kind, message)
        .detail("The first record of a lane is written when the slot is made.")
        .hint("Run \"walbraid setup\".")
}

/// A lane that serves another stream, as its records' key says.
fn foreign_stream(key: Option<&str>, config: &Config) -> Option<Stop> {
    let (stream, _) = key?.rsplit_once('/')?;
    if stream == config.stream {
        return None;
    }
    let Kafka { topic, lane, .. } = &config.kafka;
    let message = format!("lane {lane} of topic \"{topic}\" belongs to stream \"{stream}\"");
    Some(
        Stop::new(StopKind::TopicMismatch, message)
            .detail(format!(
                "This producer carries stream \"{}\".",
                config.stream
            ))
            .hint("Give each stream a topic of its own."),
    )
}

impl Before {
    /// Whether the log was written from another server or database.
    pub(crate) fn foreign(&self, system_identifier: &str, database: &str) -> Option<Stop> {
        let claim = self.claim.as_ref()?;
        if claim.system_identifier != system_identifier {
            let message = format!(
                "the log was written from the server with system identifier {}, this one has \
                 {system_identifier}",
                claim.system_identifier
            );
            return Some(
                Stop::new(StopKind::Timeline, message)
                    .detail("A server with another identifier is another server, or one made anew.")
                    .hint("Connect to the former publisher, or set the stream up anew."),
            );
        }
        if claim.database != database {
            let message = format!(
                "the log was written from database \"{}\", this one is \"{database}\"",
                claim.database
            );
            return Some(
                Stop::new(StopKind::SlotForeign, message)
                    .hint("Connect to the former database, or set the stream up anew."),
            );
        }
        None
    }
}
