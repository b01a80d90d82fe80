//! Records out to Kafka, delivery reports back.
//!
//! Owns the librdkafka client of one claim and the queue of its reports. Does not own what a report
//! means (`progress`), nor when to send (`pipeline`). A client is used for one claim only: after a
//! failure it is closed, which throws away what it still had queued, and the next claim gets a new
//! one. What the old client had in flight may still arrive; behind the newer claim it is void.
//!
//! The queue of reports is unbounded in type and bounded in fact: one report for each record that
//! is pending, and the pipeline bounds those.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use tokio::sync::mpsc;

/// How long a fatal error waits for the report of the record that caused it.
const FATAL_REPORTS: Duration = Duration::from_secs(1);

/// What the client has to say.
#[derive(Debug)]
pub(crate) enum Report {
    /// Kafka acknowledged a record.
    Acknowledged {
        /// The record's sequence number.
        sequence: u64,
        /// Its offset, unless the broker had it already.
        offset: Option<i64>,
    },
    /// A record is lost to this client; nothing behind it is appended.
    Failed(RDKafkaErrorCode),
    /// The client can do no more.
    Fatal {
        /// The cause.
        code: RDKafkaErrorCode,
        /// In librdkafka's words.
        reason: String,
    },
    /// The client goes on by itself; worth a word only if records stall.
    Trouble {
        /// The cause.
        code: RDKafkaErrorCode,
        /// In librdkafka's words.
        reason: String,
    },
}

/// Why a record was not taken.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The client's queue is full: wait for reports.
    Full,
    /// Anything else.
    Failed(RDKafkaErrorCode),
}

/// A record ready for the log.
pub(crate) struct Record<'a> {
    /// Stream and incarnation.
    pub key: &'a [u8],
    /// The headers.
    pub headers: OwnedHeaders,
    /// The framed envelope.
    pub payload: &'a [u8],
}

/// The writing client of one claim.
pub(crate) struct Writer {
    producer: ThreadedProducer<Reports>,
    topic: String,
    lane: i32,
    reports: mpsc::UnboundedReceiver<Report>,
    closing: Arc<AtomicBool>,
}

impl Writer {
    /// Makes a client. It connects by itself; nothing is tried here.
    pub(crate) fn new(config: &ClientConfig, topic: &str, lane: i32) -> Result<Writer, KafkaError> {
        let (sender, reports) = mpsc::unbounded_channel();
        let closing = Arc::new(AtomicBool::new(false));
        let context = Reports {
            sender,
            closing: Arc::clone(&closing),
        };
        let producer = ThreadedProducer::from_config_and_context(config, context)?;
        Ok(Writer {
            producer,
            topic: topic.to_owned(),
            lane,
            reports,
            closing,
        })
    }

    /// Hands a record to the client, which copies it.
    pub(crate) fn send(&self, sequence: u64, record: Record<'_>) -> Result<(), Unsent> {
        let base: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.topic, sequence as usize)
                .partition(self.lane)
                .key(record.key)
                .headers(record.headers)
                .payload(record.payload);
        match self.producer.send(base) {
            Ok(()) => Ok(()),
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => Err(Unsent::Full),
                Some(code) => Err(Unsent::Failed(code)),
                None => Err(Unsent::Failed(RDKafkaErrorCode::InvalidArgument)),
            },
        }
    }

    /// The next report; waits for it. Loses nothing when dropped.
    pub(crate) async fn report(&mut self) -> Report {
        match self.reports.recv().await {
            Some(report) => report,
            // The sender lives in the client, which lives as long as we do.
            None => std::future::pending().await,
        }
    }

    /// The next report if there is one.
    pub(crate) fn try_report(&mut self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// What is behind a fatal error: the record that failed says more than that the client gave up.
    pub(crate) async fn behind_fatal(
        &mut self,
        code: RDKafkaErrorCode,
        reason: String,
    ) -> (RDKafkaErrorCode, String) {
        let failed = async {
            loop {
                if let Report::Failed(code) = self.report().await {
                    return code;
                }
            }
        };
        match tokio::time::timeout(FATAL_REPORTS, failed).await {
            Ok(failed) => (failed, reason),
            Err(_) => (code, reason),
        }
    }

    /// Ends the client, throwing away what it had queued. Waits for its threads, elsewhere than on
    /// the runtime's own.
    pub(crate) async fn close(self) {
        self.closing.store(true, Ordering::Relaxed);
        let ended = tokio::task::spawn_blocking(move || drop(self)).await;
        if let Err(error) = ended {
            tracing::error!("Kafka client could not be closed: {error}");
        }
    }
}

/// Hears the client and passes on what it says.
struct Reports {
    sender: mpsc::UnboundedSender<Report>,
    closing: Arc<AtomicBool>,
}

impl Reports {
    fn pass(&self, report: Report) {
        // Nobody listens once the writer is being closed.
        let _ = self.sender.send(report);
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        let code = error
            .rdkafka_error_code()
            .unwrap_or(RDKafkaErrorCode::Unknown);
        let reason = reason.to_owned();
        self.pass(match code {
            RDKafkaErrorCode::Fatal => Report::Fatal { code, reason },
            _ => Report::Trouble { code, reason },
        });
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, sequence: usize) {
        self.pass(match result {
            Ok(message) => Report::Acknowledged {
                sequence: sequence as u64,
                offset: Some(message.offset()).filter(|offset| *offset >= 0),
            },
            Err((error, _)) => Report::Failed(
                error
                    .rdkafka_error_code()
                    .unwrap_or(RDKafkaErrorCode::Unknown),
            ),
        });
    }
}

/// librdkafka's own lines: of use to whoever looks into it, never the place where we tell a stop.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Debug => tracing::trace!(target: "librdkafka", "{facility}: {message}"),
        _ => tracing::debug!(target: "librdkafka", "{facility}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::config::{Kafka, Limits};
    use crate::kafka;

    const RECORDS: u64 = 200;

    /// Sends records to a cluster that answers the first produce requests with `errors`, and
    /// returns the offsets acknowledged, in the order of the records, and the first failure.
    fn sent(errors: &[RDKafkaRespErr]) -> (Vec<Option<i64>>, Option<RDKafkaErrorCode>) {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        cluster.request_errors(RDKafkaApiKey::Produce, errors);
        let kafka = Kafka {
            properties: BTreeMap::from([(
                "bootstrap.servers".to_owned(),
                cluster.bootstrap_servers(),
            )]),
            topic: "t".to_owned(),
            lane: 0,
            partitions: 1,
            replication_factor: 1,
            retention_ms: -1,
        };
        let config = kafka::producer(&kafka, &Limits::default(), 100_000).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut writer = Writer::new(&config, "t", 0).unwrap();
            for sequence in 0..RECORDS {
                let headers = OwnedHeaders::new();
                let record = Record {
                    key: b"k",
                    headers,
                    payload: b"payload",
                };
                writer.send(sequence, record).unwrap();
            }
            let all = tokio::time::timeout(Duration::from_secs(60), reports(&mut writer)).await;
            all.expect("the client reports on every record")
        })
    }

    async fn reports(writer: &mut Writer) -> (Vec<Option<i64>>, Option<RDKafkaErrorCode>) {
        let mut offsets = BTreeMap::new();
        while (offsets.len() as u64) < RECORDS {
            match writer.report().await {
                Report::Acknowledged { sequence, offset } => {
                    assert!(offsets.insert(sequence, offset).is_none());
                }
                Report::Failed(code) => return (offsets.into_values().collect(), Some(code)),
                Report::Fatal { .. } | Report::Trouble { .. } => {}
            }
        }
        (offsets.into_values().collect(), None)
    }

    #[test]
    fn what_passes_leaves_the_records_dense_and_in_order() {
        use RDKafkaRespErr as Error;
        let expected: Vec<_> = (0..RECORDS as i64).map(Some).collect();
        for errors in [
            &[][..],
            &[Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 3],
            &[Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 3],
            &[Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT; 2],
        ] {
            assert_eq!(sent(errors), (expected.clone(), None), "{errors:?}");
        }
    }

    #[test]
    fn behind_a_record_that_is_refused_nothing_is_appended() {
        use RDKafkaRespErr as Error;
        for (error, code) in [
            (
                Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                RDKafkaErrorCode::MessageSizeTooLarge,
            ),
            (
                Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                RDKafkaErrorCode::TopicAuthorizationFailed,
            ),
        ] {
            assert_eq!(sent(&[error]), (Vec::new(), Some(code)));
        }
    }
}
