//! Where the servers are, and how to get a session on one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use walbraid_wire::{ConnectOptions, Connection, Environment, Error, Replication, Startup};

/// No answer of a healthy server takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A variable of `bin/stack env`.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; run `bin/stack up` and `eval \"$(bin/stack env)\"`")
    })
}

pub(crate) fn publisher() -> ConnectOptions {
    parse(&variable("WALBRAID_PUBLISHER_URL"))
}

pub(crate) fn subscriber() -> ConnectOptions {
    parse(&variable("WALBRAID_SUBSCRIBER_URL"))
}

/// The publisher by other parameters than its URL has, behind `host`, `port` and `dbname`.
pub(crate) fn publisher_with(parameters: &str) -> ConnectOptions {
    parse(&format!("{} {parameters}", publisher_place()))
}

/// `host`, `port` and `dbname` of the publisher.
pub(crate) fn publisher_place() -> String {
    let url = variable("WALBRAID_PUBLISHER_URL");
    let rest = url.split_once('@').expect("a URL with a user").1;
    let (place, database) = rest.split_once('/').expect("a URL with a database");
    let (host, port) = place.split_once(':').expect("a URL with a port");
    format!("host={host} port={port} dbname={database}")
}

/// A file of the stack.
pub(crate) fn stack_file(relative: &str) -> PathBuf {
    PathBuf::from(variable("WALBRAID_STACK_DIR")).join(relative)
}

/// Reads a connection string with nothing around it.
pub(crate) fn parse(text: &str) -> ConnectOptions {
    ConnectOptions::parse(text, &Environment::empty().with_user("nobody"))
        .unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) async fn connect(options: &ConnectOptions) -> Result<Connection, Error> {
    within(Connection::connect(options, &Startup::default())).await
}

pub(crate) async fn session(options: &ConnectOptions) -> Connection {
    connect(options)
        .await
        .unwrap_or_else(|error| panic!("{options}: {error}"))
}

pub(crate) async fn walsender(options: &ConnectOptions) -> Connection {
    let startup = Startup {
        replication: Replication::Database,
        ..Startup::default()
    };
    within(Connection::connect(options, &startup))
        .await
        .unwrap()
}

/// A test that waits longer than this has found a hang.
pub(crate) async fn within<T>(operation: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, operation)
        .await
        .expect("nothing came within the patience")
}

/// A name that no other test and no other run has.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{}_{count}", std::process::id())
}

/// Runs statements, one simple query.
pub(crate) async fn run(connection: &mut Connection, sql: &str) -> Vec<walbraid_wire::TextRow> {
    within(connection.simple_query(sql))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Waits until a backend sleeps in `pg_sleep`.
pub(crate) async fn until_asleep(pid: i32) {
    let mut other = session(&publisher()).await;
    let sleeping =
        format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
    while run(&mut other, &sleeping).await.is_empty() {
        tokio::task::yield_now().await;
    }
}
