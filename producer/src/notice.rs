//! The last word of a producer that stops: why.
//!
//! Owns whether the lane should hear of a stop, by which the consumer's side can say why nothing
//! arrives. It is an attempt, never an obligation: what stopped the producer may be what keeps the
//! notice away. A producer that found another one at work says nothing: the stream did not stop. Of
//! a topic that is gone or not ours to write, `wait` and `status` learn by looking themselves.

use std::time::Duration;

use walbraid_schemas::{Stop, StopKind};

use crate::claimed::Terms;
use crate::publish::Writer;
use crate::record;

/// How long the attempt may take.
pub(crate) const TIME: Duration = Duration::from_secs(5);

/// Whether the lane should hear of this stop.
pub(crate) fn concerns_lane(kind: StopKind) -> bool {
    !matches!(
        kind,
        StopKind::SlotInUse
            | StopKind::Usage
            | StopKind::TopicMissing
            | StopKind::TopicMismatch
            | StopKind::KafkaUnreachable
            | StopKind::KafkaAuthorization
    )
}

/// Writes the notice, under the claim at `claim_offset`.
pub(crate) async fn write(terms: &Terms, mut writer: Writer, claim_offset: i64, stop: &Stop) {
    let written = record::write_notice(terms, &mut writer, claim_offset, stop);
    match tokio::time::timeout(TIME, written).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => tracing::debug!("notice not written: {failure:?}"),
        Err(_) => tracing::debug!("notice not written: Kafka did not acknowledge it in time"),
    }
    writer.close().await;
}
