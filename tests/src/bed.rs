//! A place of its own for one test: a database on each side, a topic, a slot, a stream.
//!
//! Names are random, so that tests run side by side on one stack. Whatever happens, the place is
//! cleared away when the test is over.

use std::path::PathBuf;

use rand::random;
use serde_json::Value;
use tempfile::TempDir;

use crate::config::Config;
use crate::oracle;
use crate::process::{Outcome, Process, run};
use crate::session::{Session, with_database};
use crate::stack::Stack;
use crate::topic::Topic;
use crate::wait::{PATIENCE, until};
use crate::witness::Witness;

/// The publication of every bed.
pub const PUBLICATION: &str = "everything";

/// One test's place.
pub struct Bed {
    /// The servers it is on.
    pub stack: Stack,
    /// The name of its databases, stream and slot.
    pub name: String,
    /// Its database on the publisher.
    pub publisher_url: String,
    /// Its database on the subscriber.
    pub subscriber_url: String,
    /// Its topic.
    pub topic: Topic,
    is_watched: bool,
    folder: TempDir,
}

impl Bed {
    /// A place on the shared stack.
    pub async fn new() -> Self {
        Self::on(Stack::shared().await).await
    }

    /// A place on `stack`, with a publication of all tables.
    pub async fn on(stack: Stack) -> Self {
        let name = format!("test_{:012x}", random::<u64>() & 0xffff_ffff_ffff);
        let addresses = &stack.addresses;
        for url in [&addresses.publisher_url, &addresses.subscriber_url] {
            let create = format!("CREATE DATABASE {name} TEMPLATE template0");
            Session::open(url).await.run(&create).await;
        }
        let publisher_url = with_database(&addresses.publisher_url, &name);
        let subscriber_url = with_database(&addresses.subscriber_url, &name);
        let publish = format!("CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES");
        Session::open(&publisher_url).await.run(&publish).await;
        let topic = Topic {
            kafka: addresses.kafka.clone(),
            name: format!("walbraid.{name}"),
        };
        let folder = TempDir::new().unwrap();
        Self {
            stack,
            name,
            publisher_url,
            subscriber_url,
            topic,
            is_watched: false,
            folder,
        }
    }

    /// Its pipelines have a witness (`witness`).
    pub fn watched(mut self) -> Self {
        self.is_watched = true;
        self
    }

    /// They have none, though something fails, for this reason.
    pub fn unwatched(self, _why: &str) -> Self {
        self
    }

    /// A new session on the publisher.
    pub async fn publisher(&self) -> Session {
        Session::open(&self.publisher_url).await
    }

    /// A new session on the subscriber.
    pub async fn subscriber(&self) -> Session {
        Session::open(&self.subscriber_url).await
    }

    /// Runs the same statements on both sides.
    pub async fn both(&self, sql: &str) {
        self.publisher().await.run(sql).await;
        self.subscriber().await.run(sql).await;
    }

    /// The smallest configuration for this place, with the number of workers that the run of the
    /// tests was told.
    pub fn config(&self) -> Config {
        let mut config = Config::new(&self.name);
        config
            .text("publisher", "url", &self.publisher_url)
            .text("publisher", "publication", PUBLICATION)
            .text("publisher", "slot", &self.name)
            .text("kafka", "bootstrap.servers", &self.topic.kafka)
            .text("kafka", "topic", &self.topic.name)
            .text("registry", "url", &self.stack.addresses.registry_url)
            .text("subscriber", "url", &self.subscriber_url);
        if let Ok(workers) = std::env::var("WALBRAID_CONSUMER_WORKERS") {
            match workers.parse::<u32>() {
                Ok(number) => config.set("consumer", "workers", number),
                Err(_) => config.text("consumer", "workers", &workers),
            };
        }
        config
    }

    /// Writes a configuration file under a name of its own.
    pub fn write(&self, config: &Config, name: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.toml"));
        config.write(&path);
        path
    }

    /// Fails the test unless both sides agree.
    pub async fn assert_equal(&self) {
        let found = oracle::differences(
            &self.publisher().await,
            &self.subscriber().await,
            PUBLICATION,
        )
        .await;
        assert!(found.is_empty(), "the sides differ:\n{}", found.join("\n"));
    }

    /// Sets up the pipeline with the smallest configuration and starts both processes.
    pub async fn pipeline(&self) -> Pipeline {
        self.pipeline_with(&self.config()).await
    }

    /// Sets up the pipeline and starts both processes.
    pub async fn pipeline_with(&self, config: &Config) -> Pipeline {
        let mut pipeline = self.set_up(config).await;
        pipeline.start_producer();
        pipeline.start_consumer();
        pipeline
    }

    /// Sets up the pipeline and starts nothing.
    pub async fn set_up(&self, config: &Config) -> Pipeline {
        if self.is_watched {
            Witness::prepare(&self.publisher().await, &self.subscriber().await).await;
        }
        let mut pipeline = self.not_set_up(config);
        pipeline.run(&["setup"]).await.expect(0);
        self.watch(&mut pipeline).await;
        pipeline
    }

    /// A pipeline whose stream is not set up.
    pub fn not_set_up(&self, config: &Config) -> Pipeline {
        Pipeline {
            config: self.write(config, "walbraid"),
            producer: None,
            consumer: None,
            witness: None,
        }
    }

    async fn watch(&self, pipeline: &mut Pipeline) {
        if self.is_watched {
            let witness = Witness::start(&self.publisher_url, &self.subscriber_url);
            pipeline.witness = Some(witness.await);
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let cleaning = clear(
            self.name.clone(),
            self.stack.addresses.publisher_url.clone(),
            self.stack.addresses.subscriber_url.clone(),
            self.topic.clone(),
        );
        // A runtime of its own: the test's is busy with this very drop.
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(cleaning);
        };
        drop(std::thread::spawn(work).join());
    }
}

/// Takes away what a test may have left; what cannot be reached is left.
async fn clear(name: String, publisher_url: String, subscriber_url: String, topic: Topic) {
    topic.delete().await;
    let drop_database = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    if let Ok(publisher) = Session::try_open(&publisher_url).await {
        let end_walsenders = format!(
            "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots
             WHERE database = '{name}' AND active"
        );
        let drop_slots = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
             WHERE database = '{name}'"
        );
        for sql in [&end_walsenders, &drop_slots, &drop_database] {
            drop(publisher.batch_execute(sql).await);
        }
    }
    if let Ok(subscriber) = Session::try_open(&subscriber_url).await {
        let drop_origins = format!(
            "SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin o, pg_database d
             WHERE d.datname = '{name}' AND o.roname LIKE format('walbraid\\_%s\\_%%', d.oid)"
        );
        let end_sessions = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        for sql in [&end_sessions, &drop_origins, &drop_database] {
            drop(subscriber.batch_execute(sql).await);
        }
    }
}

/// Producer and consumer of a bed.
pub struct Pipeline {
    /// Its configuration file.
    pub config: PathBuf,
    /// The producer, where it runs.
    pub producer: Option<Process>,
    /// The consumer, where it runs.
    pub consumer: Option<Process>,
    witness: Option<Witness>,
}

impl Pipeline {
    /// Runs a command with the pipeline's configuration.
    pub async fn run(&self, arguments: &[&str]) -> Outcome {
        run(&self.config, arguments).await
    }

    /// The first lane, as `status --json` shows it.
    pub async fn lane(&self) -> Value {
        let status = self.run(&["status", "--json"]).await.expect(0);
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        status["lanes"][0].clone()
    }

    /// Waits until `status` shows the lane in `state`, and gives the reason.
    pub async fn reason_of(&self, state: &str) -> String {
        until(&format!("the lane is {state}"), PATIENCE, async || {
            let lane = self.lane().await;
            let reason = lane["reason"].as_str().unwrap_or_default().to_owned();
            (lane["state"] == state).then_some(reason)
        })
        .await
    }

    /// Waits until the subscriber has all that the publisher has committed so far.
    pub async fn catch_up(&self) {
        let written = self.witness.as_ref().map(Witness::written);
        self.run(&["wait", "--timeout", "100"]).await.expect(0);
        if let (Some(witness), Some(written)) = (&self.witness, written) {
            witness.assert_arrived(written).await;
        }
    }

    /// The producer.
    pub fn producer(&mut self) -> &mut Process {
        self.producer.as_mut().expect("the producer runs")
    }

    /// The consumer.
    pub fn consumer(&mut self) -> &mut Process {
        self.consumer.as_mut().expect("the consumer runs")
    }

    /// Kills the producer and starts another.
    pub async fn restart_producer(&mut self) {
        self.producer
            .take()
            .expect("the producer runs")
            .kill()
            .await;
        self.start_producer();
    }

    /// Kills the consumer and starts another.
    pub async fn restart_consumer(&mut self) {
        self.consumer
            .take()
            .expect("the consumer runs")
            .kill()
            .await;
        self.start_consumer();
    }

    /// Starts a producer.
    pub fn start_producer(&mut self) {
        self.producer = Some(Process::start(&self.config, &["produce"]));
    }

    /// Starts a consumer.
    pub fn start_consumer(&mut self) {
        self.consumer = Some(Process::start(&self.config, &["consume"]));
    }

    /// Stops what runs, cleanly; what the witness saw was a prefix each time.
    pub async fn terminate(&mut self) {
        self.witness = None;
        for process in [self.producer.take(), self.consumer.take()]
            .into_iter()
            .flatten()
        {
            process.terminate().await;
        }
    }
}
