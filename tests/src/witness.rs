//! A witness of the order of commits: a writer of dense counters on the publisher, and a reader
//! that looks at them on the subscriber for as long as a pipeline is there, whatever fails.
//!
//! The writer's transaction `n` puts `n` into two of three tables, and every third one moves a row
//! that it shares with the others of its kind: most of them depend on nothing, so that only the
//! order of commits keeps them in order. What the reader sees in one snapshot must be a prefix:
//! as many numbers as the newest says, twice as many rows, and the row where the newest third one
//! left it.
//!
//! Both outlive servers that are away. A commit of unknown outcome is looked up before the next.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::session::Session;
use crate::wait::moment;

/// The schema of its tables, which nobody else compares: they are written all the time.
pub const SCHEMA: &str = "witness";

const TABLES: &str = "
    DROP SCHEMA IF EXISTS witness CASCADE; CREATE SCHEMA witness;
    CREATE TABLE witness.t0 (n bigint PRIMARY KEY); CREATE TABLE witness.t1 (n bigint PRIMARY KEY);
    CREATE TABLE witness.t2 (n bigint PRIMARY KEY);
    CREATE TABLE witness.newest (one int PRIMARY KEY, n bigint)";

/// Whether a prefix is seen, how far it reaches, and what is seen.
const LOOK: &str = "
    WITH seen AS (SELECT n FROM witness.t0 UNION ALL SELECT n FROM witness.t1
                  UNION ALL SELECT n FROM witness.t2),
         sums AS (SELECT count(*) AS rows, count(DISTINCT n) AS numbers, coalesce(max(n), 0) AS n,
                         coalesce((SELECT n FROM witness.newest), 0) AS third
                  FROM seen)
    SELECT rows = 2 * n AND numbers = n AND third = n / 3 * 3, n, sums FROM sums";

/// Between two transactions, between two looks, and before a server is tried again.
const WRITE_MS: u64 = 200;
const LOOK_MS: u64 = 25;
const AGAIN_MS: u64 = 50;

/// Transactions that are there when a witness has started: all its tables are in the log.
const FIRST: i64 = 3;

/// A writer and a reader at work; both end with it.
pub struct Witness {
    subscriber_url: String,
    written: Arc<AtomicI64>,
    reading: Reading,
    tasks: [JoinHandle<()>; 2],
}

/// What the reader has seen.
#[derive(Clone, Default)]
struct Reading {
    looks: Arc<AtomicU64>,
    broken: Arc<Mutex<Option<String>>>,
}

impl Witness {
    /// Makes its tables anew on both sides; before the stream begins.
    pub async fn prepare(publisher: &Session, subscriber: &Session) {
        publisher.run(TABLES).await;
        subscriber.run(TABLES).await;
    }

    /// Begins to write and to look.
    pub async fn start(publisher_url: &str, subscriber_url: &str) -> Self {
        let writer = Session::open(publisher_url).await;
        for n in 1..=FIRST {
            writer.run(&transaction(n)).await;
        }
        let written = Arc::new(AtomicI64::new(FIRST));
        let reading = Reading::default();
        let first = reading.look(&Session::open(subscriber_url).await).await;
        assert!(first.is_some(), "the subscriber cannot be looked at");
        let tasks = [
            tokio::spawn(write(publisher_url.to_owned(), Arc::clone(&written))),
            tokio::spawn(reading.clone().run(subscriber_url.to_owned())),
        ];
        Self {
            subscriber_url: subscriber_url.to_owned(),
            written,
            reading,
            tasks,
        }
    }

    /// The newest transaction whose commit has returned.
    pub fn written(&self) -> i64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Fails the test unless the subscriber has transaction `n`.
    pub async fn assert_arrived(&self, n: i64) {
        let session = Session::open(&self.subscriber_url).await;
        let seen = self.reading.look(&session).await;
        assert!(seen >= Some(n), "{n} was waited for, {seen:?} is there");
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let looks = self.reading.looks.load(Ordering::Relaxed);
        assert!(looks > 1, "the reader never looked, its start aside");
        let gone = self.tasks.iter().any(JoinHandle::is_finished);
        assert!(!gone, "the writer or the reader has failed");
        let broken = self.reading.broken.lock().unwrap().take();
        for task in &self.tasks {
            task.abort();
        }
        assert!(
            broken.is_none(),
            "what a reader saw in look {looks} is no prefix of the publisher's commits: {broken:?}"
        );
    }
}

/// Transaction `n`.
fn transaction(n: i64) -> String {
    let (one, other) = (n % 3, (n + 1) % 3);
    let third = match one {
        0 if n == FIRST => format!("INSERT INTO witness.newest VALUES (1, {n});"),
        0 => format!("UPDATE witness.newest SET n = {n};"),
        _ => String::new(),
    };
    format!(
        "BEGIN; INSERT INTO witness.t{one} VALUES ({n}); \
         INSERT INTO witness.t{other} VALUES ({n}); {third} COMMIT"
    )
}

async fn write(url: String, written: Arc<AtomicI64>) {
    loop {
        let Some((session, mut n)) = resume(&url).await else {
            moment(Duration::from_millis(AGAIN_MS)).await;
            continue;
        };
        loop {
            written.fetch_max(n, Ordering::Relaxed);
            moment(Duration::from_millis(WRITE_MS)).await;
            n += 1;
            if session.batch_execute(&transaction(n)).await.is_err() {
                break;
            }
        }
    }
}

/// A session, and the newest transaction that the publisher has.
async fn resume(url: &str) -> Option<(Session, i64)> {
    let session = Session::try_open(url).await.ok()?;
    let rows = session.try_rows(LOOK).await.ok()?;
    let n = rows[0][1].as_ref()?.parse().unwrap();
    Some((session, n))
}

impl Reading {
    async fn run(self, url: String) {
        loop {
            if let Ok(session) = Session::try_open(&url).await {
                while self.look(&session).await.is_some() {
                    moment(Duration::from_millis(LOOK_MS)).await;
                }
            }
            moment(Duration::from_millis(AGAIN_MS)).await;
        }
    }

    /// How far the subscriber is; none if it cannot be asked.
    async fn look(&self, session: &Session) -> Option<i64> {
        let rows = session.try_rows(LOOK).await.ok()?;
        let [Some(is_prefix), Some(n), Some(seen)] = rows[0].as_slice() else {
            panic!("a look gives three values, not {rows:?}");
        };
        self.looks.fetch_add(1, Ordering::Relaxed);
        if is_prefix != "t" {
            let mut broken = self.broken.lock().unwrap();
            broken.get_or_insert_with(|| format!("rows, numbers, newest, newest third: {seen}"));
        }
        Some(n.parse().unwrap())
    }
}
