//! What Kafka alone takes: records of a topic of its own, written by the clock and read back,
//! beside what is measured. A pause that both have is the broker's (a virtual machine that compiles
//! or collects, a disk), not the pipeline's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio::task::JoinHandle;
use walbraid_tests::topic::Topic;

use crate::summary::Samples;

const LAST: Duration = Duration::from_secs(5);
/// Records of the first seconds are not counted: they wait for the topic's leader, as those of the
/// pipeline's warm-up wait for the registry.
const WARM_UP: Duration = Duration::from_secs(5);

/// Records under way.
pub(crate) struct Canary {
    stopping: Arc<AtomicBool>,
    writer: JoinHandle<()>,
    reader: JoinHandle<Samples>,
    topic: Topic,
}

impl Canary {
    /// Starts to write that many records a second.
    pub(crate) async fn start(kafka: &str, per_second: u64) -> Self {
        let topic = Topic {
            kafka: kafka.to_owned(),
            name: format!("canary-{}", std::process::id()),
        };
        topic.delete().await;
        topic.create(1).await;
        let stopping = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let consumer = consumer(&topic);
        let producer: BaseProducer = client(kafka)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            .create()
            .unwrap();
        let (name, stop) = (topic.name.clone(), Arc::clone(&stopping));
        let writer = tokio::spawn(write(producer, name, per_second, began, stop));
        let stop = Arc::clone(&stopping);
        let reader = tokio::task::spawn_blocking(move || read(&consumer, began, &stop));
        Self {
            stopping,
            writer,
            reader,
            topic,
        }
    }

    /// Ends it: the milliseconds that each record behind the warm-up took.
    pub(crate) async fn finish(self) -> Samples {
        self.stopping.store(true, Ordering::Relaxed);
        self.writer.await.unwrap();
        let samples = self.reader.await.unwrap();
        self.topic.delete().await;
        samples
    }
}

fn client(kafka: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka);
    config
}

fn consumer(topic: &Topic) -> BaseConsumer {
    let consumer: BaseConsumer = client(&topic.kafka)
        .set("group.id", "canary")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "100")
        .create()
        .unwrap();
    let mut place = TopicPartitionList::new();
    place
        .add_partition_offset(&topic.name, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&place).unwrap();
    consumer
}

/// A record holds when it was written, in microseconds since `began`.
async fn write(
    producer: BaseProducer,
    topic: String,
    per_second: u64,
    began: Instant,
    stop: Arc<AtomicBool>,
) {
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let now = u64::try_from(began.elapsed().as_micros()).unwrap();
        let value = now.to_be_bytes();
        let record = BaseRecord::<[u8], [u8]>::to(&topic).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.poll(Duration::ZERO);
    }
    producer.flush(LAST).unwrap();
}

fn read(consumer: &BaseConsumer, began: Instant, stop: &AtomicBool) -> Samples {
    let mut samples = Samples::default();
    while !stop.load(Ordering::Relaxed) {
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let bytes = message.payload().and_then(|value| value.try_into().ok());
        let written = Duration::from_micros(u64::from_be_bytes(bytes.unwrap()));
        if written >= WARM_UP {
            samples.push((began.elapsed().saturating_sub(written)).as_secs_f64() * 1000.0);
        }
    }
    samples
}
