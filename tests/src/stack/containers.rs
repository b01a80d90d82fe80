//! The shared stack made of containers, through `testcontainers`.
//!
//! Containers live as long as some test of the process uses them: a static would never be dropped
//! and would leave them behind. They are started by the blocking runner because they outlive the
//! runtime of the test that starts them; for the same reason they are dropped on a thread of their
//! own.

use std::sync::{Arc, Weak};
use std::thread;

use testcontainers_modules::kafka::apache;
use testcontainers_modules::postgres::Postgres;
use testcontainers_modules::testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers_modules::testcontainers::runners::SyncRunner;
use testcontainers_modules::testcontainers::{Container, GenericImage, ImageExt};
use tokio::sync::Mutex;

use super::{Addresses, blocking};
use crate::wait::{PATIENCE, until};

const POSTGRES_TAG: &str = "18";
const KAFKA_TAG: &str = "4.4.0";
const REGISTRY: (&str, &str) = ("apicurio/apicurio-registry", "3.3.3");
const REGISTRY_PORT: u16 = 8080;
const HOST: &str = "127.0.0.1";

const SETTINGS: &[&str] = &[
    "wal_level=logical",
    "max_connections=400",
    "max_wal_senders=100",
    "max_replication_slots=400",
    "max_active_replication_origins=400",
    "max_prepared_transactions=100",
    "track_commit_timestamp=on",
];

/// Four containers and where they listen.
pub(super) struct Containers {
    addresses: Addresses,
    running: Option<Running>,
}

struct Running {
    _publisher: Container<Postgres>,
    _subscriber: Container<Postgres>,
    _kafka: Container<apache::Kafka>,
    _registry: Container<GenericImage>,
}

impl Containers {
    /// The containers in use, or new ones.
    pub(super) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Containers>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(containers) = shared.upgrade() {
            return containers;
        }
        let containers = Arc::new(blocking(Self::start).await);
        let subjects = format!("{}/subjects", containers.addresses.registry_url);
        until("the registry answers", PATIENCE, async || {
            reqwest::get(&subjects).await.ok()?.error_for_status().ok()
        })
        .await;
        *shared = Arc::downgrade(&containers);
        containers
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    fn start() -> Self {
        let publisher = thread::spawn(start_postgres);
        let subscriber = thread::spawn(start_postgres);
        let kafka = thread::spawn(start_kafka);
        let registry = thread::spawn(start_registry);
        let (publisher, publisher_url) = publisher.join().unwrap();
        let (subscriber, subscriber_url) = subscriber.join().unwrap();
        let (kafka, bootstrap) = kafka.join().unwrap();
        let (registry, registry_url) = registry.join().unwrap();
        Self {
            addresses: Addresses {
                publisher_url,
                subscriber_url,
                kafka: bootstrap,
                registry_url,
            },
            running: Some(Running {
                _publisher: publisher,
                _subscriber: subscriber,
                _kafka: kafka,
                _registry: registry,
            }),
        }
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        let running = self.running.take();
        // The blocking runner's own runtime cannot be entered from a thread that is in another.
        drop(thread::spawn(move || drop(running)).join());
    }
}

fn start_postgres() -> (Container<Postgres>, String) {
    let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
    let container = Postgres::default()
        .with_host_auth()
        .with_tag(POSTGRES_TAG)
        .with_cmd(settings)
        .start()
        .expect("PostgreSQL does not start");
    let port = container.get_host_port_ipv4(5432).unwrap();
    (
        container,
        format!("postgres://postgres@{HOST}:{port}/postgres"),
    )
}

fn start_kafka() -> (Container<apache::Kafka>, String) {
    let container = apache::Kafka::default()
        .with_jvm_image()
        .with_tag(KAFKA_TAG)
        .with_env_var("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        .with_env_var("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
        .with_env_var("KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS", "1000")
        .with_env_var("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
        .with_env_var("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
        .start()
        .expect("Kafka does not start");
    let port = container.get_host_port_ipv4(apache::KAFKA_PORT).unwrap();
    (container, format!("{HOST}:{port}"))
}

fn start_registry() -> (Container<GenericImage>, String) {
    let (name, tag) = REGISTRY;
    let container = GenericImage::new(name, tag)
        .with_exposed_port(REGISTRY_PORT.tcp())
        .with_wait_for(WaitFor::Nothing)
        .start()
        .expect("the registry does not start");
    let port = container.get_host_port_ipv4(REGISTRY_PORT).unwrap();
    (container, format!("http://{HOST}:{port}/apis/ccompat/v7"))
}
