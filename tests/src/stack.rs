//! The servers a test runs on.
//!
//! - `shared`: one stack for all tests of a run. Nobody may stop its servers. `WALBRAID_…_URL`
//!   name it; without them `bin/stack up` brings up the repository's own, which stays up.
//! - `exclusive`: a stack whose servers may be killed, held by one test at a time.
//! - `own`: a stack of chosen PostgreSQL versions, gone when the test is over.
//!
//! With `WALBRAID_STACK=containers` the shared stack is made of containers (`containers`).

mod containers;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::session::Session;
use crate::workspace::root;

/// One server of a stack, by the name `bin/stack` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The PostgreSQL that is read.
    Publisher,
    /// The PostgreSQL that is written.
    Subscriber,
    /// The broker.
    Kafka,
    /// The Schema Registry.
    Registry,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
            Self::Kafka => "kafka",
            Self::Registry => "registry",
        }
    }
}

/// Where the servers are.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Superuser URL of the publisher.
    pub publisher_url: String,
    /// Superuser URL of the subscriber.
    pub subscriber_url: String,
    /// `bootstrap.servers`.
    pub kafka: String,
    /// Base URL of the registry's Confluent API.
    pub registry_url: String,
}

/// Keeps what a stack stands on for as long as the stack is used.
#[allow(dead_code, reason = "held for their drop")]
enum Keeper {
    /// Somebody else's, or left running.
    Nobody,
    /// Held by a lock until the test is over.
    Lock(File),
    /// Ended with this value.
    Directory(TempDir),
    /// Ended with the last user.
    Containers(Arc<containers::Containers>),
}

/// A stack in use.
pub struct Stack {
    /// Where its servers are.
    pub addresses: Addresses,
    directory: Option<PathBuf>,
    keeper: Keeper,
    /// Whether the publisher has settings of one test.
    configured: AtomicBool,
}

impl Stack {
    /// The stack that all tests of this run share.
    pub async fn shared() -> Self {
        static SHARED: OnceCell<(Addresses, Option<PathBuf>)> = OnceCell::const_new();
        if std::env::var("WALBRAID_STACK").is_ok_and(|kind| kind == "containers") {
            let containers = containers::Containers::shared().await;
            let addresses = containers.addresses().clone();
            return Self {
                addresses,
                directory: None,
                keeper: Keeper::Containers(containers),
                configured: AtomicBool::new(false),
            };
        }
        let (addresses, directory) = SHARED
            .get_or_init(|| async {
                let variables: HashMap<_, _> = std::env::vars().collect();
                if let Some(addresses) = read_addresses(&variables) {
                    return (
                        addresses,
                        variables.get("WALBRAID_STACK_DIR").map(PathBuf::from),
                    );
                }
                let directory = root().join(".stack");
                (
                    blocking(move || up(&directory, &[])).await,
                    Some(root().join(".stack")),
                )
            })
            .await
            .clone();
        Self {
            addresses,
            directory,
            keeper: Keeper::Nobody,
            configured: AtomicBool::new(false),
        }
    }

    /// The stack whose servers may be stopped and killed; all of them run.
    pub async fn exclusive() -> Self {
        let named = std::env::var_os("WALBRAID_TEST_FAULT_DIR").map(PathBuf::from);
        let directory = named.unwrap_or_else(|| root().join(".stack-fault"));
        let (addresses, lock) = blocking({
            let directory = directory.clone();
            move || {
                std::fs::create_dir_all(&directory).unwrap();
                let lock = File::create(directory.join("in-use")).unwrap();
                lock.lock().unwrap();
                (up(&directory, &[]), lock)
            }
        })
        .await;
        Self {
            addresses,
            directory: Some(directory),
            keeper: Keeper::Lock(lock),
            configured: AtomicBool::new(false),
        }
    }

    /// A stack of its own, with these major versions of PostgreSQL.
    pub async fn own(publisher: u32, subscriber: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().to_owned();
        let addresses = blocking(move || {
            let (publisher, subscriber) = (publisher.to_string(), subscriber.to_string());
            let versions = [
                "--publisher-version",
                &publisher,
                "--subscriber-version",
                &subscriber,
            ];
            up(&path, &versions)
        })
        .await;
        let path = directory.path().to_owned();
        Self {
            addresses,
            directory: Some(path),
            keeper: Keeper::Directory(directory),
            configured: AtomicBool::new(false),
        }
    }

    /// Starts a server that does not run, and waits until it is ready.
    pub async fn start(&self, server: Server) {
        self.control("start", server).await;
    }

    /// Stops a server cleanly.
    pub async fn stop(&self, server: Server) {
        self.control("stop", server).await;
    }

    /// Kills a server with all its processes at once.
    pub async fn kill(&self, server: Server) {
        self.control("kill", server).await;
    }

    /// Restarts the publisher with other settings, which end with this value.
    pub async fn configure_publisher(&self, settings: &[(&str, &str)]) {
        self.configured.store(true, Ordering::Relaxed);
        let publisher = Session::open(&self.addresses.publisher_url).await;
        for (name, value) in settings {
            let set = format!("ALTER SYSTEM SET {name} = '{value}'");
            publisher.run(&set).await;
        }
        drop(publisher);
        self.stop(Server::Publisher).await;
        self.start(Server::Publisher).await;
    }

    async fn control(&self, action: &'static str, server: Server) {
        assert!(
            !matches!(self.keeper, Keeper::Nobody),
            "the servers of the shared stack are not to be touched"
        );
        let directory = self.directory.clone().expect("a stack made by bin/stack");
        blocking(move || drop(run(&directory, action, &[server.name()]))).await;
    }

    /// The process id of a server of a stack made by `bin/stack`.
    pub fn pid(&self, server: Server) -> u32 {
        let directory = self.directory.as_ref().expect("a stack made by bin/stack");
        let path = directory.join(format!("{}.pid", server.name()));
        let text = std::fs::read_to_string(&path).expect("the server runs");
        text.trim().parse().expect("a process id")
    }

    /// Files of TLS, where the stack has a directory.
    pub fn tls_directory(&self) -> PathBuf {
        self.directory
            .as_ref()
            .expect("a stack made by bin/stack")
            .join("tls")
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        match (&self.keeper, &self.directory) {
            (Keeper::Directory(directory), _) => drop(run(directory.path(), "down", &[])),
            // Whoever is next starts it, with the settings of the stack.
            (Keeper::Lock(_), Some(directory)) if *self.configured.get_mut() => {
                let settings = directory.join("home/publisher/postgresql.auto.conf");
                drop(run(directory, "stop", &[Server::Publisher.name()]));
                std::fs::write(settings, "").unwrap();
            }
            _ => {}
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn up(directory: &Path, options: &[&str]) -> Addresses {
    run(directory, "up", options);
    let variables = run(directory, "env", &[])
        .lines()
        .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('\'').to_owned()))
        .collect();
    read_addresses(&variables).expect("bin/stack env names every server")
}

fn run(directory: &Path, action: &str, options: &[&str]) -> String {
    let output = Command::new(root().join("bin/stack"))
        .arg(action)
        .arg("--dir")
        .arg(directory)
        .args(options)
        .output()
        .expect("bin/stack cannot be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "bin/stack {action} failed: {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn read_addresses(variables: &HashMap<String, String>) -> Option<Addresses> {
    Some(Addresses {
        publisher_url: variables.get("WALBRAID_PUBLISHER_URL")?.clone(),
        subscriber_url: variables.get("WALBRAID_SUBSCRIBER_URL")?.clone(),
        kafka: variables.get("WALBRAID_KAFKA")?.clone(),
        registry_url: variables.get("WALBRAID_REGISTRY_URL")?.clone(),
    })
}
