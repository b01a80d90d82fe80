//! A place of its own for a test: a database on the subscriber, a topic, a stream that is set up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_consumer::config::{Apply, Kafka, Registry as RegistryConfig, Subscriber};
use walbraid_consumer::metrics::Metrics;
use walbraid_consumer::status::LaneStatus;
use walbraid_consumer::stream::{self, Stream};
use walbraid_consumer::{Config, schema, status};
use walbraid_schemas::{Incarnation, Lsn, Stop};
use walbraid_wire::{ConnectOptions, Environment, Sql, sql};

use crate::log::Log;

/// Where the stream of every test starts.
pub(crate) const START: Lsn = Lsn(0x100_0000);

/// A Kafka in this process.
pub(crate) type Cluster = MockCluster<'static, DefaultProducerContext>;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Bed {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) sql: Sql,
    pub(crate) log: Log,
    pub(crate) kafka: String,
    pub(crate) registry: String,
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: eval \"$(bin/stack env)\" before"))
}

/// The URL with another database.
pub(crate) fn with_database(url: &str, database: &str) -> String {
    let at = url.rfind('/').unwrap();
    format!("{}/{database}", &url[..at])
}

pub(crate) async fn connect(url: &str) -> Sql {
    let options = ConnectOptions::parse(url, &Environment::empty()).unwrap();
    sql(&options, &[]).await.unwrap()
}

impl Bed {
    /// A bed with these tables on the subscriber.
    pub(crate) async fn new(test: &str, tables: &str) -> Self {
        let kafka = variable("WALBRAID_KAFKA");
        Self::on(test, tables, kafka, async |kafka, name| {
            create_topic(kafka, name).await;
        })
        .await
    }

    /// The same with a Kafka of its own, which the test can take away.
    pub(crate) async fn on_mock(test: &str, tables: &str, cluster: &Cluster) -> Self {
        let kafka = cluster.bootstrap_servers();
        Self::on(test, tables, kafka, async |_, name| {
            cluster.create_topic(name, 1, 1).unwrap();
        })
        .await
    }

    async fn on(
        test: &str,
        tables: &str,
        kafka: String,
        make_topic: impl AsyncFnOnce(&str, &str),
    ) -> Self {
        // RUST_LOG=walbraid_consumer=debug shows what happens.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("c{}_{number}_{test}", std::process::id());
        let server = variable("WALBRAID_SUBSCRIBER_URL");
        let admin = connect(&server).await;
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        let url = with_database(&server, &name);
        let sql = connect(&url).await;
        sql.batch_execute(tables).await.unwrap();
        let registry = variable("WALBRAID_REGISTRY_URL");
        make_topic(&kafka, &name).await;
        let incarnation = Incarnation(*uuid::Uuid::new_v4().as_bytes());
        schema::install(&sql).await.unwrap();
        let stream = a_stream(&name, incarnation);
        stream::announce(&sql, &stream).await.unwrap();
        stream::create(&sql, &stream, 1).await.unwrap();
        let log = Log::new(&kafka, &registry, &name, incarnation, START).await;
        Self {
            name,
            url,
            sql,
            log,
            kafka,
            registry,
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            stream: self.name.clone(),
            subscriber: Subscriber {
                connect: ConnectOptions::parse(&self.url, &Environment::empty()).unwrap(),
                statement_timeout_ms: 0,
                lock_timeout_ms: 10_000,
                answer_timeout_ms: 30_000,
            },
            kafka: Kafka {
                properties: BTreeMap::from([
                    ("bootstrap.servers".to_owned(), self.kafka.clone()),
                    ("session.timeout.ms".to_owned(), "6000".to_owned()),
                ]),
                topic: self.name.clone(),
                group_id: None,
            },
            registry: RegistryConfig {
                urls: vec![self.registry.clone()],
                user: None,
                password: None,
                ca_file: None,
                timeout_ms: 5_000,
            },
            apply: Apply::default(),
            shutdown_timeout_ms: 10_000,
        }
    }

    /// A consumer that runs.
    pub(crate) fn consume(&self) -> Consumer {
        self.consume_with(self.config())
    }

    pub(crate) fn consume_with(&self, config: Config) -> Consumer {
        let metrics = Metrics::new(&self.name, &mut Registry::default());
        self.consume_counted(config, metrics)
    }

    /// A consumer that runs, and counts here.
    pub(crate) fn consume_counted(&self, config: Config, metrics: Metrics) -> Consumer {
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                let end = walbraid_consumer::run_with(config, metrics, stop).await;
                if let Err(stop) = &end {
                    println!("{stop}");
                }
                end
            }
        });
        Consumer { stop, task }
    }

    pub(crate) async fn lane(&self) -> LaneStatus {
        status::read(&self.sql, &self.name).await.unwrap().remove(0)
    }

    /// Waits until everything that was written is durable on the subscriber.
    pub(crate) async fn drained(&self) {
        let end = self.log.end_lsn();
        self.until(&format!("flushed_lsn is {end}"), async || {
            self.lane().await.reached_lsn() >= end
        })
        .await;
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            assert!(
                started.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// One value of one row, as text.
    pub(crate) async fn value(&self, query: &str) -> String {
        let row = self
            .sql
            .query_one(&format!("SELECT ({query})::text"), &[])
            .await
            .unwrap();
        row.get::<_, Option<String>>(0)
            .unwrap_or_else(|| "NULL".to_owned())
    }

    /// Makes a plain role with the documented rights and, with `{role}` for its name, those of
    /// `more`; the configuration that connects as it. None on a server where applying takes a
    /// superuser.
    pub(crate) async fn plain_role(&self, more: &str) -> Option<Config> {
        let version = self.sql.server_version().number();
        if version < 150_000 {
            return None;
        }
        let role = &self.name;
        let mut rights = vec![format!("CREATE ROLE {role} LOGIN PASSWORD '{role}';")];
        rights.extend(schema::rights_sql(role, version));
        rights.push(more.replace("{role}", role));
        self.sql.batch_execute(&rights.join(" ")).await.unwrap();
        let mut config = self.config();
        let url = self
            .url
            .replacen("postgres@", &format!("{role}:{role}@"), 1);
        config.subscriber.connect = ConnectOptions::parse(&url, &Environment::empty()).unwrap();
        Some(config)
    }

    /// Drops the plain role.
    pub(crate) async fn drop_plain_role(&self) {
        let role = &self.name;
        let clean = format!(
            "DROP OWNED BY {role}; \
             REVOKE ALL ON PARAMETER session_replication_role FROM {role}; DROP ROLE {role}"
        );
        self.sql.batch_execute(&clean).await.unwrap();
    }

    /// Drops what was made.
    pub(crate) async fn done(self) {
        let server = variable("WALBRAID_SUBSCRIBER_URL");
        // A server process holds its origin until it has ended, a moment after its session.
        self.until("no session of the lane is left", async || {
            let sessions = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE 'walbraid %'";
            self.value(sessions).await == "0"
        })
        .await;
        stream::remove(&self.sql, &self.name).await.unwrap();
        let left = self.value("SELECT count(*) FROM walbraid.progress").await;
        assert_eq!(
            left, "0",
            "rows of progress stay when the stream is removed"
        );
        let _ = self.sql.close().await;
        let admin = connect(&server).await;
        admin
            .batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await
            .unwrap();
    }
}

pub(crate) fn a_stream(name: &str, incarnation: Incarnation) -> Stream {
    Stream {
        name: name.to_owned(),
        incarnation,
        publisher_system_identifier: "7000000000000000001".to_owned(),
        publisher_database: "shop".to_owned(),
        slot: "walbraid_shop".to_owned(),
        topic: name.to_owned(),
        start_lsn: START,
    }
}

async fn create_topic(kafka: &str, name: &str) {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .create()
        .unwrap();
    let topic = NewTopic::new(name, 1, TopicReplication::Fixed(1));
    let made = admin
        .create_topics([&topic], &AdminOptions::new())
        .await
        .unwrap();
    made[0].as_ref().unwrap();
}

/// A consumer in this process.
pub(crate) struct Consumer {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Stop>>,
}

impl Consumer {
    /// Tells it to stop, and waits for the end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// Waits until it stops by itself.
    pub(crate) async fn stopped(self) -> Stop {
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap_err()
    }

    /// Ends it as a kill does: nothing is finished.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
