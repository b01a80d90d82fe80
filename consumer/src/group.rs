//! Membership in the consumer group: which lanes are ours, and the offsets committed for them.
//!
//! The member is polled by a thread of its own, so that neither a slow subscriber nor a full buffer
//! can make Kafka believe it dead. It pauses whatever it is assigned: it never fetches (see
//! `client`). Its rebalance callback runs inside the poll; on a revocation it waits there until the
//! pipeline has finished or rolled back what is in flight and released the lane, so that a healthy
//! hand-over needs no fence. The wait is bounded: the fence is what makes it safe.
//!
//! librdkafka tells of a group that is out of reach, and not that it is back, unless the member had
//! to join anew meanwhile; nor does it call back about offsets. So a group in trouble is asked for
//! an offset, again and again.
//!
//! Membership is static by default: a member that comes back under its name within the session
//! time-out gets its lanes back without a rebalance. The name is the host's, and a number that a
//! lock file keeps apart from other members on the same host and gives back after a crash.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use rdkafka::bindings::rd_kafka_resp_err_t as RespErr;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Clients, log_line};
use crate::policy::Failure;

/// How long a revocation waits for a lane to be released.
const RELEASE_WAIT_MS: u64 = 60_000;

/// How long one poll of the member's thread waits.
const POLL_MS: u64 = 100;

/// How often a group in trouble is asked, and how long.
const ASK_MS: u64 = 1_000;

/// Members on one host that can be told apart by number.
const MEMBERS_PER_HOST_MAX: u32 = 64;

/// What the group tells the pipeline.
#[derive(Debug)]
pub enum Membership {
    /// These partitions are ours.
    Assigned(Vec<i32>),
    /// These are ours no longer; dropping `released` tells that nothing of them is in flight.
    Revoked {
        /// The partitions.
        partitions: Vec<i32>,
        /// Whether the group gave us up already, so that others may be writing.
        lost: bool,
        /// To be dropped when the lanes are released.
        released: std_mpsc::SyncSender<()>,
    },
    /// The group, which was in trouble, answers.
    Answered,
    /// The member cannot go on, or Kafka is out of reach.
    Trouble(KafkaError),
}

/// The member of the group.
pub struct Group {
    consumer: Arc<BaseConsumer<MemberContext>>,
    topic: String,
    poller: Option<JoinHandle<()>>,
    stop: CancellationToken,
    // Held, not read: the lock on it is this member's number on this host.
    _place: Option<File>,
}

impl Group {
    /// Subscribes to the topic. What happens is sent to `events`.
    pub fn join(
        clients: &Clients,
        topic: &str,
        events: mpsc::UnboundedSender<Membership>,
    ) -> Result<Self, Failure> {
        let named = clients.properties.contains_key("group.instance.id");
        let place = if named {
            None
        } else {
            Place::take(&place_directory(), &clients.group_id)
        };
        let instance = place.as_ref().map(|place| place.instance_id(&host_name()));
        tracing::debug!(
            instance = instance.as_deref(),
            "joining group {}",
            clients.group_id
        );
        let context = MemberContext {
            events,
            in_trouble: AtomicBool::new(false),
        };
        let consumer: BaseConsumer<MemberContext> = clients
            .member(instance.as_deref())
            .create_with_context(context)?;
        consumer.subscribe(&[topic])?;
        let consumer = Arc::new(consumer);
        let stop = CancellationToken::new();
        let poller = tokio::task::spawn_blocking({
            let (consumer, stop) = (Arc::clone(&consumer), stop.clone());
            let topic = topic.to_owned();
            move || poll(&consumer, &topic, &stop)
        });
        let topic = topic.to_owned();
        let _place = place.map(|place| place.file);
        Ok(Self {
            consumer,
            topic,
            poller: Some(poller),
            stop,
            _place,
        })
    }

    /// Commits an offset without waiting. A commit that is refused is of no harm: offsets are
    /// hints.
    pub fn commit(&self, partition: i32, offset: i64) -> KafkaResult<()> {
        self.consumer
            .commit(&self.one(partition, offset)?, CommitMode::Async)
    }

    /// Commits an offset and waits for the group's answer, which also tells whether this member is
    /// still the partition's owner in the group's eyes.
    pub async fn commit_and_ask(&self, partition: i32, offset: i64) -> KafkaResult<()> {
        let list = self.one(partition, offset)?;
        let consumer = Arc::clone(&self.consumer);
        tokio::task::spawn_blocking(move || consumer.commit(&list, CommitMode::Sync))
            .await
            .unwrap_or(Err(KafkaError::Canceled))
    }

    /// The offset committed for a partition, when there is one.
    pub async fn committed(&self, partition: i32, wait: Duration) -> KafkaResult<Option<i64>> {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        let consumer = Arc::clone(&self.consumer);
        let list = tokio::task::spawn_blocking(move || consumer.committed_offsets(list, wait))
            .await
            .unwrap_or(Err(KafkaError::Canceled))?;
        Ok(list
            .elements()
            .first()
            .and_then(|element| element.offset().to_raw())
            .filter(|offset| *offset >= 0))
    }

    /// Leaves: stops polling, waits for the thread, closes the client.
    pub async fn leave(mut self) {
        self.stop.cancel();
        if let Some(poller) = self.poller.take() {
            let _ = poller.await;
        }
        let consumer = Arc::clone(&self.consumer);
        // The last one closes the client, which waits for the broker.
        let _ = tokio::task::spawn_blocking(move || {
            drop(self);
            drop(consumer);
        })
        .await;
    }

    fn one(&self, partition: i32, offset: i64) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, partition, Offset::Offset(offset))?;
        Ok(list)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whether the answer to a commit says that the group has given this member or partition up.
pub fn is_given_up(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::UnknownMemberId
                | Code::IllegalGeneration
                | Code::RebalanceInProgress
                | Code::FencedInstanceId
                | Code::AssignmentLost
        )
    )
}

fn poll(consumer: &BaseConsumer<MemberContext>, topic: &str, stop: &CancellationToken) {
    let context = consumer.context();
    let pause = Duration::from_millis(ASK_MS);
    let mut asked = Instant::now();
    let mut has_answered = false;
    while !stop.is_cancelled() {
        // A record can only have been fetched before the pause; it is not ours to read.
        if let Some(Err(error)) = consumer.poll(Duration::from_millis(POLL_MS)) {
            context.trouble(error);
        }
        // Errors from before the answer may have waited in the queue: one more poll takes them.
        if std::mem::take(&mut has_answered) && !context.in_trouble.load(Ordering::Relaxed) {
            let _ = context.events.send(Membership::Answered);
        }
        if context.in_trouble.load(Ordering::Relaxed) && asked.elapsed() >= pause {
            let mut list = TopicPartitionList::new();
            list.add_partition(topic, 0);
            if consumer.committed_offsets(list, pause).is_ok() {
                context.in_trouble.store(false, Ordering::Relaxed);
                has_answered = true;
            }
            asked = Instant::now();
        }
    }
}

/// Carries what librdkafka calls back to the pipeline.
pub struct MemberContext {
    events: mpsc::UnboundedSender<Membership>,
    in_trouble: AtomicBool,
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka: {reason}");
        self.trouble(error);
    }
}

impl ConsumerContext for MemberContext {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        code: RespErr,
        list: &mut TopicPartitionList,
    ) {
        let result = match code {
            RespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assigned(consumer, list),
            _ => self.revoked(consumer, list),
        };
        if let Err(error) = result {
            self.trouble(error);
        }
    }
}

impl MemberContext {
    fn trouble(&self, error: KafkaError) {
        self.in_trouble.store(true, Ordering::Relaxed);
        let _ = self.events.send(Membership::Trouble(error));
    }

    fn assigned(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &mut TopicPartitionList,
    ) -> KafkaResult<()> {
        // With an offset given, librdkafka does not ask for the committed one.
        list.set_all_offsets(Offset::Beginning)?;
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(list)?,
            _ => consumer.assign(list)?,
        }
        consumer.pause(list)?;
        let partitions = partitions(list);
        if !partitions.is_empty() {
            let _ = self.events.send(Membership::Assigned(partitions));
        }
        Ok(())
    }

    fn revoked(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) -> KafkaResult<()> {
        let (released, wait) = std_mpsc::sync_channel(1);
        let partitions = partitions(list);
        let lost = consumer.assignment_lost();
        if !partitions.is_empty() {
            let _ = self.events.send(Membership::Revoked {
                partitions,
                lost,
                released,
            });
            // An error is the dropped sender: released. A time-out leaves the rest to the fence.
            let _ = wait.recv_timeout(Duration::from_millis(RELEASE_WAIT_MS));
        }
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
            _ => consumer.unassign(),
        }
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<i32> {
    list.elements()
        .iter()
        .map(|element| element.partition())
        .collect()
}

/// A member's number on its host, held by a lock on a file.
struct Place {
    number: u32,
    file: File,
}

impl Place {
    fn take(directory: &Path, group_id: &str) -> Option<Self> {
        std::fs::create_dir_all(directory).ok()?;
        let group = group_id.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
        (0..MEMBERS_PER_HOST_MAX).find_map(|number| {
            let path = directory.join(format!("{group}-{number}.lock"));
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .ok()?;
            file.try_lock().ok()?;
            Some(Self { number, file })
        })
    }

    fn instance_id(&self, host: &str) -> String {
        format!("walbraid-{host}-{}", self.number)
    }
}

fn place_directory() -> PathBuf {
    let user = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_default();
    std::env::temp_dir().join(format!("walbraid-{user}"))
}

pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_on_one_host_have_numbers_of_their_own_and_give_them_back() {
        let directory = std::env::temp_dir().join(format!("walbraid-place-{}", std::process::id()));
        let first = Place::take(&directory, "shop").unwrap();
        let second = Place::take(&directory, "shop").unwrap();
        assert_eq!((first.number, second.number), (0, 1));
        drop(first);
        assert_eq!(
            Place::take(&directory, "shop").unwrap().instance_id("h"),
            "walbraid-h-0"
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
