//! A stream of its own for one test, the producer as a task, and the links that the lane holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rdkafka::Message;
use rdkafka::message::OwnedMessage;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_producer::{Config, config, first_heartbeat, slot, topic};
use walbraid_schemas::chain::{Position, Reader, Start, Verdict};
use walbraid_schemas::{Body, Envelope, Incarnation, LinkKind, Lsn, Part, Stop, envelope, frame};
use walbraid_tests::bed::{Bed, PUBLICATION};
use walbraid_tests::session::Session;
use walbraid_tests::stack::Stack;
use walbraid_tests::wait::{PATIENCE, until};
use walbraid_wire::{ConnectOptions, Environment};

/// A stream that is set up.
pub(crate) struct Place {
    pub(crate) bed: Bed,
    pub(crate) config: Config,
    pub(crate) start: Position,
}

/// A link of the lane, as the chain's reader takes it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) kind: LinkKind,
    pub(crate) xid: u32,
    pub(crate) end_lsn: Lsn,
    pub(crate) parts: u32,
    pub(crate) changes: usize,
}

/// A producer that runs as a task.
pub(crate) struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Stop>>,
    registry: Registry,
}

impl Place {
    /// A stream on the shared stack, with these tables.
    pub(crate) async fn new(tables: &str) -> Place {
        Place::on(Stack::shared().await, tables).await
    }

    /// A stream on a stack, with these tables.
    pub(crate) async fn on(stack: Stack, tables: &str) -> Place {
        let bed = Bed::on(stack).await;
        bed.publisher().await.run(tables).await;
        let config = config(&bed);
        let start = set_up(&config).await;
        Place { bed, config, start }
    }

    /// Starts a producer.
    pub(crate) fn run(&self) -> Running {
        self.run_with(self.config.clone())
    }

    /// Starts a producer that is told something else.
    pub(crate) fn run_with(&self, config: Config) -> Running {
        let shutdown = CancellationToken::new();
        let mut registry = Registry::default();
        let running = walbraid_producer::run(config, &mut registry, shutdown.clone());
        Running {
            shutdown,
            task: tokio::spawn(running),
            registry,
        }
    }

    /// A session on the publisher.
    pub(crate) async fn publisher(&self) -> Session {
        self.bed.publisher().await
    }

    /// Every record of the lane.
    pub(crate) async fn records(&self) -> Vec<(i64, Envelope)> {
        self.bed
            .topic
            .records()
            .await
            .iter()
            .map(|m| (m.offset(), envelope_of(m)))
            .collect()
    }

    /// The links of the lane, read from its start; panics where the chain's reader stops.
    pub(crate) async fn links(&self) -> Vec<Link> {
        links(self.start, &self.records().await)
    }

    /// Waits until the lane holds the transactions `xids`, in this order and nothing else, each
    /// once.
    pub(crate) async fn holds(&self, xids: &[u32]) {
        let found = self.gets(xids.len()).await;
        let found: Vec<u32> = found.iter().map(|link| link.xid).collect();
        assert_eq!(found, xids);
    }

    /// Waits until the lane holds so many links.
    pub(crate) async fn gets(&self, count: usize) -> Vec<Link> {
        until("all links are in the log", PATIENCE, async || {
            Some(self.links().await).filter(|links| links.len() >= count)
        })
        .await
    }

    /// How many parts of links the lane holds, repeats and void ones too.
    pub(crate) async fn parts(&self) -> usize {
        let is_part = |record: &&(i64, Envelope)| matches!(record.1.body, Body::Part(_));
        self.records().await.iter().filter(is_part).count()
    }

    /// Where the slot stands.
    pub(crate) async fn confirmed(&self) -> Lsn {
        let question = format!(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{}'",
            self.config.publisher.slot
        );
        self.publisher()
            .await
            .value(&question)
            .await
            .parse()
            .unwrap()
    }

    /// Waits until the slot stands at or behind `lsn`.
    pub(crate) async fn confirms(&self, lsn: Lsn) {
        until("the slot is confirmed", PATIENCE, async || {
            (self.confirmed().await >= lsn).then_some(())
        })
        .await;
    }
}

impl Running {
    /// The value of a metric, by its name behind the prefix, over all its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let start = format!("walbraid_producer_{name}{{");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Ends the producer the way a signal does.
    pub(crate) async fn end(self) -> Result<(), Stop> {
        self.shutdown.cancel();
        self.task.await.unwrap()
    }

    /// Ends the producer as a crash does: nothing more is sent or confirmed.
    pub(crate) async fn crash(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// Waits for the producer to stop by itself.
    pub(crate) async fn stopped(self) -> Stop {
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("the producer stops").unwrap().unwrap_err()
    }
}

/// The configuration of a bed's producer.
fn config(bed: &Bed) -> Config {
    let addresses = &bed.stack.addresses;
    let connect = ConnectOptions::parse(&bed.publisher_url, &Environment::empty()).unwrap();
    let bootstrap = ("bootstrap.servers".to_owned(), addresses.kafka.clone());
    Config {
        stream: bed.name.clone(),
        publisher: config::Publisher {
            connect,
            publications: vec![PUBLICATION.to_owned()],
            slot: bed.name.clone(),
            failover: false,
            local_origin_only: false,
            slot_lock_timeout_ms: 60_000,
        },
        kafka: config::Kafka {
            properties: BTreeMap::from([bootstrap]),
            topic: bed.topic.name.clone(),
            lane: 0,
            partitions: 1,
            replication_factor: 1,
            retention_ms: -1,
        },
        registry: config::Registry {
            urls: vec![addresses.registry_url.clone()],
            ..config::Registry::default()
        },
        limits: config::Limits::default(),
        intervals: config::Intervals {
            status_interval_ms: 100,
            heartbeat_interval_ms: 200,
            ..config::Intervals::default()
        },
    }
}

/// Makes topic, slot and first record; returns where a reader starts.
pub(crate) async fn set_up(config: &Config) -> Position {
    topic::create(&config.kafka).await.unwrap();
    let start_lsn = slot::create(&config.publisher).await.unwrap();
    let incarnation = Incarnation(rand::random());
    first_heartbeat(config, incarnation, 1, start_lsn)
        .await
        .unwrap();
    Position::start(incarnation, start_lsn)
}

/// Commits `count` transactions one after the other; returns their xids.
pub(crate) async fn insert(session: &Session, table: &str, count: usize) -> Vec<u32> {
    let insert =
        format!("INSERT INTO {table} DEFAULT VALUES RETURNING pg_current_xact_id()::xid::text");
    let mut xids = Vec::new();
    for _ in 0..count {
        xids.push(session.value(&insert).await.parse().unwrap());
    }
    xids
}

/// The publisher's WAL position.
pub(crate) async fn wal(session: &Session) -> Lsn {
    session
        .value("SELECT pg_current_wal_lsn()")
        .await
        .parse()
        .unwrap()
}

fn envelope_of(message: &OwnedMessage) -> Envelope {
    let (_, datum) = frame::split(message.payload().unwrap()).unwrap();
    envelope::decode(&Bytes::copy_from_slice(datum)).unwrap()
}

fn links(start: Position, records: &[(i64, Envelope)]) -> Vec<Link> {
    let mut reader = Reader::new(start, Start::LogStart);
    let mut links = Vec::new();
    let mut open: Vec<&Part> = Vec::new();
    for (offset, envelope) in records {
        let step = reader.offer(*offset, envelope);
        if step.voided {
            open.clear();
        }
        match (step.verdict, &envelope.body) {
            (Verdict::Part, Body::Part(part)) => open.push(part),
            (Verdict::Link(_), Body::Part(part)) => {
                open.push(part);
                links.push(Link {
                    kind: part.kind,
                    xid: part.xid,
                    end_lsn: envelope.end_lsn,
                    parts: open.len() as u32,
                    changes: open.drain(..).map(|part| part.changes.len()).sum(),
                });
            }
            (Verdict::Stop(stop), _) => panic!("offset {offset}: {stop}"),
            (Verdict::SeekBack, _) => panic!("offset {offset}: seek back from the log's start"),
            _ => {}
        }
    }
    links
}
