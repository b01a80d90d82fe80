//! Reading a lane's records: a client, and a thread that polls it.
//!
//! The thread hands batches to a bounded channel and waits when it is full; librdkafka's own queue,
//! bounded too, then stops asking the broker. Nothing is lost by stopping: a reader is told where
//! to start, and a new start is a new run of the thread.
//!
//! Payloads are copied out of librdkafka once, so that a record's life is the unit's and not the
//! client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::chain::{Position, Side};
use walbraid_schemas::{envelope, frame};

use crate::client::{Clients, ReaderContext};
use crate::policy::Failure;
use crate::seek::{Search, Seen, Start, Wanted};
use crate::topic;

/// Records handed over at once, at most.
const BATCH_RECORDS_MAX: usize = 512;

/// Bytes handed over at once, but for a record that is larger alone.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Batches on their way.
const BATCHES_MAX: usize = 4;

/// How long one poll waits, and so how soon the thread hears that it is to stop.
const POLL_MS: u64 = 100;

/// How long a look at one record waits for it.
const LOOK_MS: u64 = 5_000;

/// How long a question to Kafka waits in all, and in one piece.
const QUESTION_MS: u64 = 10_000;
const PIECE_MS: u64 = 1_000;

/// How often a Kafka that is in trouble is asked whether that is over.
const ASK_AGAIN_MS: u64 = 1_000;

/// A record of the lane.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Its value.
    pub payload: Bytes,
}

/// What the thread hands over.
#[derive(Debug)]
pub enum Batch {
    /// Records, in the order of their offsets.
    Records(Vec<Record>),
    /// The offset to read next is not in the log.
    OutOfRange,
    /// The client is in trouble; it goes on trying, unless the error is definite.
    Trouble(KafkaError),
    /// The trouble is over, whether there is something to read or not.
    Answered,
}

/// A client that reads one lane.
pub struct Reader {
    consumer: Arc<BaseConsumer<ReaderContext>>,
    clients: Clients,
    topic: String,
    partition: i32,
}

/// A run of the reader's thread.
pub struct Run {
    /// What it reads.
    pub batches: mpsc::Receiver<Batch>,
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

impl Run {
    /// Stops the thread and waits for it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // Frees a thread that waits for room.
        self.batches.close();
        while self.batches.recv().await.is_some() {}
        let _ = (&mut self.thread).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Reader {
    /// A client for one partition.
    pub fn open(clients: &Clients, topic: &str, partition: i32) -> Result<Self, Failure> {
        let consumer = clients.reader().create_with_context(ReaderContext)?;
        let (clients, topic) = (clients.clone(), topic.to_owned());
        Ok(Self {
            consumer: Arc::new(consumer),
            clients,
            topic,
            partition,
        })
    }

    /// Starts the thread at an offset.
    pub fn start(&self, offset: i64) -> Result<Run, Failure> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, self.partition, Offset::Offset(offset))?;
        self.consumer.assign(&list)?;
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        let stop = CancellationToken::new();
        let thread = tokio::task::spawn_blocking({
            let (consumer, stop) = (Arc::clone(&self.consumer), stop.clone());
            let (topic, partition) = (self.topic.clone(), self.partition);
            move || {
                let answers = || {
                    let piece = Duration::from_millis(PIECE_MS);
                    let asked = consumer.fetch_watermarks(&topic, partition, piece);
                    asked.is_ok()
                };
                run(&consumer, &stop, &sender, answers);
                // An error only says that the client has nothing assigned, which is wanted.
                let _ = consumer.unassign();
            }
        });
        Ok(Run {
            batches,
            stop,
            thread,
        })
    }

    /// The log's first offset, and the one behind its last.
    pub async fn ends(&self) -> Result<(i64, i64), Failure> {
        let (topic, partition) = (self.topic.clone(), self.partition);
        self.ask(move |consumer, piece| consumer.fetch_watermarks(&topic, partition, piece))
            .await
    }

    /// Asks Kafka in pieces, so that a question that nobody waits for any more soon ends.
    async fn ask<T, Q>(&self, question: Q) -> Result<T, Failure>
    where
        T: Send + 'static,
        Q: Fn(&BaseConsumer<ReaderContext>, Duration) -> KafkaResult<T> + Send + 'static,
    {
        let consumer = Arc::clone(&self.consumer);
        let given_up = CancellationToken::new();
        let _guard = given_up.clone().drop_guard();
        let asked = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            loop {
                let answer = question(&consumer, Duration::from_millis(PIECE_MS));
                let again = answer.as_ref().is_err_and(is_unanswered)
                    && began.elapsed() < Duration::from_millis(QUESTION_MS)
                    && !given_up.is_cancelled();
                if !again {
                    return answer;
                }
            }
        });
        Ok(asked.await.unwrap_or(Err(KafkaError::Canceled))?)
    }

    /// How many partitions the topic has; 0 when there is no such topic.
    pub async fn partitions(&self) -> Result<usize, Failure> {
        let topic = self.topic.clone();
        self.ask(move |consumer, piece| {
            let metadata = consumer.fetch_metadata(Some(&topic), piece)?;
            let found = metadata.topics().iter().find(|one| one.name() == topic);
            Ok(found.map_or(0, |one| one.partitions().len()))
        })
        .await
    }

    /// Finds where to start for a position.
    pub async fn seek(&self, position: Position, hint: Option<i64>) -> Result<Start, Failure> {
        let (beginning, end) = self.ends().await?;
        if end == 0 {
            return Err(Failure::Definite(topic::emptied(&self.topic)));
        }
        let mut search = Search::new(position.claim_offset, beginning, end, hint);
        let consumer: BaseConsumer<ReaderContext> =
            self.clients.looker().create_with_context(ReaderContext)?;
        let given_up = CancellationToken::new();
        let _guard = given_up.clone().drop_guard();
        let looker = Looker {
            consumer,
            topic: self.topic.clone(),
            partition: self.partition,
            end,
            given_up,
        };
        let search = tokio::task::spawn_blocking(move || {
            loop {
                match search.wanted() {
                    Wanted::Start(start) => return Ok(start),
                    Wanted::Look(offset) => search.seen(looker.look(&position, offset)?),
                }
            }
        });
        search.await.unwrap_or(Err(Failure::Shutdown))
    }

    /// Closes the client.
    pub async fn close(self) {
        let consumer = self.consumer;
        let _ = tokio::task::spawn_blocking(move || drop(consumer)).await;
    }
}

fn run(
    consumer: &BaseConsumer<ReaderContext>,
    stop: &CancellationToken,
    sender: &mpsc::Sender<Batch>,
    answers: impl Fn() -> bool,
) {
    let wait = Duration::from_millis(POLL_MS);
    let mut in_trouble_since: Option<Instant> = None;
    while !stop.is_cancelled() {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut trouble = None;
        let mut next = consumer.poll(wait);
        while let Some(polled) = next {
            match polled {
                Ok(message) => {
                    let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
                    bytes += payload.len();
                    batch.push(Record {
                        offset: message.offset(),
                        payload,
                    });
                }
                Err(error) => {
                    trouble = Some(error);
                    break;
                }
            }
            if batch.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX {
                break;
            }
            next = consumer.poll(Duration::ZERO);
        }
        if !batch.is_empty() {
            in_trouble_since = None;
            if sender.blocking_send(Batch::Records(batch)).is_err() {
                return;
            }
        }
        let Some(error) = trouble else {
            let asks = in_trouble_since
                .is_some_and(|since| since.elapsed() >= Duration::from_millis(ASK_AGAIN_MS));
            if asks {
                in_trouble_since = (!answers()).then(Instant::now);
                if in_trouble_since.is_none() && sender.blocking_send(Batch::Answered).is_err() {
                    return;
                }
            }
            continue;
        };
        in_trouble_since = Some(Instant::now());
        let out_of_range = is_out_of_range(&error);
        let told = if out_of_range {
            Batch::OutOfRange
        } else {
            Batch::Trouble(error)
        };
        if sender.blocking_send(told).is_err() || out_of_range {
            return;
        }
    }
}

/// Whether a question was not answered in its time, or nobody was there to be asked.
fn is_unanswered(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::OperationTimedOut
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::RequestTimedOut
        )
    )
}

fn is_out_of_range(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::OffsetOutOfRange | Code::AutoOffsetReset)
    )
}

/// Looks at single records.
struct Looker {
    consumer: BaseConsumer<ReaderContext>,
    topic: String,
    partition: i32,
    end: i64,
    /// Nobody waits for the answer any more.
    given_up: CancellationToken,
}

impl Looker {
    /// The first record at or behind `offset` that tells on which side of the position it stands.
    fn look(&self, position: &Position, offset: i64) -> Result<Option<Seen>, Failure> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, self.partition, Offset::Offset(offset))?;
        self.consumer.assign(&list)?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(LOOK_MS) {
            if self.given_up.is_cancelled() {
                return Err(Failure::Shutdown);
            }
            match self.consumer.poll(Duration::from_millis(POLL_MS)) {
                Some(Ok(message)) => {
                    let seen = seen(position, &message);
                    if seen.is_some() || message.offset() + 1 >= self.end {
                        return Ok(seen);
                    }
                }
                // Retention went past it while it was looked for: nothing stands there.
                Some(Err(error)) if is_out_of_range(&error) => return Ok(None),
                Some(Err(error)) => match Failure::from(error) {
                    Failure::Transient(_) => {}
                    definite => return Err(definite),
                },
                None => {}
            }
        }
        Ok(None)
    }
}

/// The record's side, when it can be read and tells one.
fn seen(position: &Position, message: &BorrowedMessage<'_>) -> Option<Seen> {
    let payload = Bytes::copy_from_slice(message.payload()?);
    let (_, datum) = frame::split(&payload).ok()?;
    let envelope = envelope::decode(&payload.slice_ref(datum)).ok()?;
    let offset = message.offset();
    match position.side_of(offset, &envelope) {
        Side::Unsaid => None,
        side => Some(Seen { offset, side }),
    }
}
