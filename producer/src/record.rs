//! One record of the lane: its framing, its headers, and the writing of one alone.
//!
//! Owns how an envelope becomes what Kafka is given, and the records that are written outside of
//! the loop: setup's first heartbeat, the claim, the notice. Each of these is waited for.

use rdkafka::message::{Header, OwnedHeaders};
use walbraid_schemas::{
    Body, Claim, Envelope, Heartbeat, Lsn, Notice, Stop, StopKind, envelope, frame, headers,
};

use crate::claimed::Terms;
use crate::metrics::Cause;
use crate::policy::{self, Failure};
use crate::publish::{Record, Report, Unsent, Writer};

/// Writes the claim and waits until Kafka acknowledged it, as long as it takes; returns its offset.
pub(crate) async fn write_claim(
    terms: &Terms,
    writer: &mut Writer,
    claim: Claim,
) -> Result<i64, Failure> {
    let envelope = plain(terms, envelope::NO_CLAIM, Body::Claim(claim));
    let offset = write_alone(terms, writer, &envelope, true).await?;
    offset.ok_or_else(|| Failure::Transient {
        cause: Cause::Kafka,
        stop: Stop::new(
            StopKind::KafkaUnreachable,
            "Kafka acknowledged a claim without its offset",
        ),
    })
}

/// Writes one record and waits for its report. What must be written is waited for without end, so a
/// stall is told.
async fn write_alone(
    terms: &Terms,
    writer: &mut Writer,
    envelope: &Envelope,
    must: bool,
) -> Result<Option<i64>, Failure> {
    let key = headers::key(&terms.stream, terms.life.incarnation);
    let mut payload = Vec::new();
    fill(&mut payload, terms.envelope_schema_id, envelope)?;
    let record = Record {
        key: key.as_bytes(),
        headers: headers_of(envelope),
        payload: &payload,
    };
    writer
        .send(0, record)
        .map_err(|unsent| self::unsent(unsent, &terms.topic))?;
    acknowledged(terms, writer, must).await
}

/// Waits for the report of the only record that is pending. With too few replicas, say, librdkafka
/// tries for ever, and somebody has to hear of it.
async fn acknowledged(
    terms: &Terms,
    writer: &mut Writer,
    must: bool,
) -> Result<Option<i64>, Failure> {
    let stalled = tokio::time::sleep(terms.stall_warning);
    tokio::pin!(stalled);
    let mut warned = false;
    loop {
        let report = tokio::select! {
            report = writer.report() => report,
            () = &mut stalled, if must && !warned => {
                warned = true;
                tracing::warn!("Kafka does not acknowledge a record; waiting until it does");
                continue;
            }
        };
        match report {
            Report::Acknowledged { offset, .. } => {
                if warned {
                    tracing::info!("Kafka acknowledges records again");
                }
                return Ok(offset);
            }
            Report::Failed(code) => {
                return Err(policy::kafka(code, &code.to_string(), &terms.topic));
            }
            Report::Fatal { code, reason } => {
                let (code, reason) = writer.behind_fatal(code, reason).await;
                return Err(policy::kafka(code, &reason, &terms.topic));
            }
            Report::Trouble { code, reason } => {
                if let definite @ Failure::Definite(_) = policy::kafka(code, &reason, &terms.topic)
                {
                    return Err(definite);
                }
                tracing::debug!("Kafka client: {reason}");
            }
        }
    }
}

/// Frames and encodes an envelope into `buffer`.
pub(crate) fn fill(
    buffer: &mut Vec<u8>,
    schema_id: i32,
    envelope: &Envelope,
) -> Result<(), Failure> {
    buffer.clear();
    frame::write(schema_id, buffer);
    envelope::encode(envelope, buffer)
        .map_err(|error| Failure::Definite(Stop::new(StopKind::Internal, error.to_string())))
}

/// The headers of a record.
pub(crate) fn headers_of(envelope: &Envelope) -> OwnedHeaders {
    headers::of(envelope)
        .iter()
        .fold(OwnedHeaders::new_with_capacity(5), |all, (key, value)| {
            all.insert(Header {
                key,
                value: Some(value.as_str()),
            })
        })
}

/// What it means that a record was not taken.
pub(crate) fn unsent(unsent: Unsent, topic: &str) -> Failure {
    match unsent {
        Unsent::Full => Failure::Transient {
            cause: Cause::Kafka,
            stop: Stop::new(
                StopKind::KafkaUnreachable,
                "the queue of the Kafka client is full",
            ),
        },
        Unsent::Failed(code) => policy::kafka(code, &code.to_string(), topic),
    }
}

/// Writes the first record of a new incarnation: nothing ended up to the slot's consistent point.
pub(crate) async fn write_first(
    terms: &Terms,
    writer: &mut Writer,
    consistent_point: Lsn,
) -> Result<(), Failure> {
    let envelope = Envelope {
        end_lsn: consistent_point,
        previous_end_lsn: consistent_point,
        ..plain(terms, envelope::NO_CLAIM, Body::Heartbeat(Heartbeat {}))
    };
    write_alone(terms, writer, &envelope, true)
        .await
        .map(|_| ())
}

/// Writes why a producer stops.
pub(crate) async fn write_notice(
    terms: &Terms,
    writer: &mut Writer,
    claim_offset: i64,
    stop: &Stop,
) -> Result<(), Failure> {
    let envelope = plain(terms, claim_offset, Body::Notice(Notice::from(stop)));
    write_alone(terms, writer, &envelope, false)
        .await
        .map(|_| ())
}

/// A record that speaks of no interval of the WAL.
fn plain(terms: &Terms, claim_offset: i64, body: Body) -> Envelope {
    Envelope {
        incarnation: terms.life.incarnation,
        timeline: terms.life.timeline,
        claim_offset,
        options_hash: terms.life.options_hash,
        seq: 0,
        end_lsn: Lsn::INVALID,
        previous_end_lsn: Lsn::INVALID,
        body,
    }
}
