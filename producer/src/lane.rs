//! The lane read by offset: a range of it, or its newest record.
//!
//! Owns a librdkafka consumer that joins no group and commits nothing. Does not judge what the
//! records say (`tail`, and `pipeline` at a jump of offsets).
//!
//! Records are read as they stand, uncommitted ones of a foreign transactional producer too: an
//! open transaction must not keep us waiting, and seeing one claim too many does no harm. Bytes
//! that are no envelope are passed over: the reader of the log stops at them by name, the writer
//! only needs its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use walbraid_schemas::{Envelope, Lsn, Stop, StopKind, envelope, frame};

use crate::config::Kafka;
use crate::kafka;
use crate::policy::{self, Failure};
use crate::publish::log_line;

/// Without a record for so long, the read of a producer has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a question about the topic waits.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a client is waited for.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);

/// How many records are looked at for the newest one of ours: few, as they may be large; then more.
const NEWEST_RECORDS: [i64; 2] = [4, 256];

/// Reads one lane.
pub(crate) struct LaneReader {
    consumer: Arc<BaseConsumer<Quiet>>,
    topic: String,
    lane: i32,
    patience: Duration,
}

/// A record of the lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its offset.
    pub offset: i64,
    /// Its key, if it is text.
    pub key: Option<String>,
    /// The schema's id in the registry.
    pub schema_id: i32,
    /// What it says.
    pub envelope: Envelope,
}

/// Where a lane begins and ends, and its newest record.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneEnd {
    /// Offsets held, the end excluded.
    pub offsets: Range<i64>,
    /// The newest record that is an envelope, if any of the last ones is.
    pub newest: Option<Found>,
    /// The highest LSN that one of the last records speaks of.
    pub published_lsn: Option<Lsn>,
}

impl LaneEnd {
    fn see(&mut self, found: Found) {
        let Envelope {
            end_lsn,
            previous_end_lsn,
            ..
        } = found.envelope;
        let spoken = end_lsn.max(previous_end_lsn);
        // Claims and notices speak of none.
        if !spoken.is_invalid() {
            self.published_lsn = self.published_lsn.max(Some(spoken));
        }
        self.newest = Some(found);
    }
}

/// Looks at the end of the lane, for as long as a producer would.
pub async fn inspect(kafka: &Kafka) -> Result<LaneEnd, Stop> {
    inspect_within(kafka, READ_TIMEOUT).await
}

/// Looks at the end of the lane; Kafka has so long for each answer.
pub async fn inspect_within(kafka: &Kafka, patience: Duration) -> Result<LaneEnd, Stop> {
    let mut reader = LaneReader::new(kafka).map_err(policy::once)?;
    reader.patience = patience;
    let end = reader.end().await.map_err(policy::once);
    reader.close().await;
    end
}

impl LaneReader {
    pub(crate) fn new(kafka: &Kafka) -> Result<LaneReader, Failure> {
        let config = kafka::reader(kafka)?;
        let consumer = BaseConsumer::from_config_and_context(&config, Quiet)
            .map_err(|error| policy::kafka_call(&error, &kafka.topic))?;
        Ok(LaneReader {
            consumer: Arc::new(consumer),
            topic: kafka.topic.clone(),
            lane: kafka.lane,
            patience: READ_TIMEOUT,
        })
    }

    /// Whether Kafka knows the topic; fails when it does not answer.
    pub(crate) async fn is_there(&self) -> Result<bool, Failure> {
        let topic = self.topic.clone();
        let asked = self
            .blocking(move |consumer, _| {
                let metadata = consumer.fetch_metadata(Some(&topic), QUESTION_TIMEOUT)?;
                let found = metadata.topics().iter().find(|one| one.name() == topic);
                Ok(found.is_some_and(|one| !one.partitions().is_empty()))
            })
            .await?;
        asked.map_err(|error| policy::kafka_call(&error, &self.topic))
    }

    /// The offsets that the lane holds.
    pub(crate) async fn offsets(&self) -> Result<Range<i64>, Failure> {
        let (topic, lane, patience) = (self.topic.clone(), self.lane, self.patience);
        let asked = self
            .blocking(move |consumer, _| consumer.fetch_watermarks(&topic, lane, patience))
            .await?;
        let (low, high) = asked.map_err(|error| policy::kafka_call(&error, &self.topic))?;
        Ok(low..high)
    }

    /// Where the lane begins and ends, and its newest record.
    pub(crate) async fn end(&self) -> Result<LaneEnd, Failure> {
        let offsets = self.offsets().await?;
        let mut end = LaneEnd {
            offsets: offsets.clone(),
            newest: None,
            published_lsn: None,
        };
        for records in NEWEST_RECORDS {
            let from = offsets.start.max(offsets.end - records);
            end = self.fold(from..offsets.end, end, LaneEnd::see).await?;
            if end.newest.is_some() && end.published_lsn.is_some() {
                break;
            }
        }
        Ok(end)
    }

    /// The record at one offset, if it is there and an envelope.
    pub(crate) async fn at(&self, offset: i64) -> Result<Option<Found>, Failure> {
        let keep = |one: &mut Option<Found>, found| *one = Some(found);
        self.fold(offset..offset + 1, None, keep).await
    }

    /// Gives each envelope of a range to `each`, in order, and returns what was gathered. The range
    /// must lie within the lane.
    pub(crate) async fn fold<S: Send + 'static>(
        &self,
        range: Range<i64>,
        gathered: S,
        each: impl Fn(&mut S, Found) + Send + 'static,
    ) -> Result<S, Failure> {
        if range.is_empty() {
            return Ok(gathered);
        }
        let (topic, lane, patience) = (self.topic.clone(), self.lane, self.patience);
        self.blocking(move |consumer, cancelled| {
            let read = Read {
                consumer,
                cancelled,
                topic: &topic,
                lane,
                range,
                patience,
            };
            read.run(gathered, each)
        })
        .await?
    }

    /// Ends the client's threads elsewhere than on the runtime's own; one that does not end soon is
    /// left to itself.
    pub(crate) async fn close(self) {
        let ending = tokio::task::spawn_blocking(move || drop(self));
        if let Ok(Err(error)) = tokio::time::timeout(CLOSE_TIMEOUT, ending).await {
            tracing::error!("Kafka client could not be closed: {error}");
        }
    }

    /// Runs a call of librdkafka that blocks; it ends soon after the caller lost interest.
    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&BaseConsumer<Quiet>, &AtomicBool) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelOnDrop(Arc::clone(&cancelled));
        let consumer = Arc::clone(&self.consumer);
        let result = tokio::task::spawn_blocking(move || call(&consumer, &cancelled)).await;
        drop(guard);
        result.map_err(|error| {
            Failure::Definite(Stop::new(
                StopKind::Internal,
                format!("read of the lane: {error}"),
            ))
        })
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Read<'a> {
    consumer: &'a BaseConsumer<Quiet>,
    cancelled: &'a AtomicBool,
    topic: &'a str,
    lane: i32,
    range: Range<i64>,
    patience: Duration,
}

impl Read<'_> {
    fn run<S>(self, mut gathered: S, each: impl Fn(&mut S, Found)) -> Result<S, Failure> {
        let failed = |error: KafkaError| policy::kafka_call(&error, self.topic);
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(self.topic, self.lane, Offset::Offset(self.range.start))
            .map_err(failed)?;
        self.consumer.assign(&assignment).map_err(failed)?;
        let result = self.records(&mut gathered, each);
        self.consumer.unassign().map_err(failed)?;
        result.map(|()| gathered)
    }

    fn records<S>(&self, gathered: &mut S, each: impl Fn(&mut S, Found)) -> Result<(), Failure> {
        let mut heard = Instant::now();
        while !self.cancelled.load(Ordering::Relaxed) {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    let offset = message.offset();
                    if self.range.contains(&offset)
                        && let Some((schema_id, envelope)) = message.payload().and_then(envelope_of)
                    {
                        let key = message
                            .key()
                            .and_then(|key| String::from_utf8(key.to_vec()).ok());
                        each(
                            gathered,
                            Found {
                                offset,
                                key,
                                schema_id,
                                envelope,
                            },
                        );
                    }
                    if offset + 1 >= self.range.end {
                        return Ok(());
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
                Some(Err(error)) => self.bearable(error)?,
                None => {}
            }
            if heard.elapsed() > self.patience {
                let code = RDKafkaErrorCode::OperationTimedOut;
                let reason = format!("no record within {} s", self.patience.as_secs_f64());
                return Err(policy::kafka(code, &reason, self.topic));
            }
        }
        Err(Failure::Shutdown)
    }

    /// Errors that the client mends by itself, or that do not matter without a group.
    fn bearable(&self, error: KafkaError) -> Result<(), Failure> {
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::PollExceeded,
            ) => Ok(()),
            _ => Err(policy::kafka_call(&error, self.topic)),
        }
    }
}

fn envelope_of(payload: &[u8]) -> Option<(i32, Envelope)> {
    let (schema_id, datum) = frame::split(payload).ok()?;
    let envelope = envelope::decode(&Bytes::copy_from_slice(datum)).ok()?;
    Some((schema_id, envelope))
}

struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", "{error}: {reason}");
    }
}

impl ConsumerContext for Quiet {}
