//! The line a second: how many transactions are where, and how far behind the subscriber is.
//!
//! All of it is asked of the servers, but for "in the log", which the producer counts: what has
//! been committed, what a reader of the subscriber sees of it, and the age of the newest
//! transaction it sees against the newest on the publisher.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::PgLsn;
use walbraid_schemas::Stop;

use super::load::Load;
use crate::config::Config;
use crate::session::{self, OrStop, Session};

const METRIC: &str = "walbraid_producer_transactions_total";
const FETCH_TIMEOUT_MS: u64 = 500;

const COMMITTED: &str = "
SELECT (SELECT sum(done) FROM walbraid_demo.shopper)::bigint
       + (SELECT sum(beat) FROM walbraid_demo.probe)::bigint,
       (SELECT extract(epoch FROM max(at))::float8 FROM walbraid_demo.shopper),
       pg_catalog.pg_current_wal_lsn()";

const APPLIED: &str = "
SELECT coalesce((SELECT sum(done) FROM walbraid_demo.shopper)::bigint
                + (SELECT sum(beat) FROM walbraid_demo.probe)::bigint, 0),
       (SELECT extract(epoch FROM max(at))::float8 FROM walbraid_demo.shopper),
       (SELECT max(p.end_lsn) FROM walbraid.progress p JOIN walbraid.lanes l ON l.id = p.lane_id
        WHERE l.stream = $1)";

/// The board and what it asks.
pub(super) struct Board {
    publisher: Session,
    subscriber: Session,
    stream: String,
    http: reqwest::Client,
    /// The producer's log tells where its metrics are.
    log: Option<PathBuf>,
    began: Instant,
    /// What there was when it began: transactions committed, and in the log.
    before: (i64, Option<u64>),
}

impl Board {
    /// A board that counts from now on.
    pub(super) async fn open(config: &Config, log: Option<PathBuf>) -> Result<Self, Stop> {
        let mut board = Self {
            publisher: session::publisher(config, "walbraid board").await?,
            subscriber: session::subscriber(config, "walbraid board").await?,
            stream: config.stream.clone(),
            http: reqwest::Client::new(),
            log,
            began: Instant::now(),
            before: (0, None),
        };
        board.before = (board.committed().await?.get(0), board.in_the_log().await);
        Ok(board)
    }

    /// The line of this second.
    pub(super) async fn show(&self, load: &Load) -> Result<String, Stop> {
        let applied = self.subscriber.query_one(APPLIED, &[&self.stream]).await;
        let applied = applied.or_stop("subscriber")?;
        let in_the_log = self.in_the_log().await;
        let committed = self.committed().await?;
        let since = |row: &Row| {
            let count = row.get::<_, i64>(0).saturating_sub(self.before.0);
            grouped(count.max(0).unsigned_abs())
        };
        let in_the_log = match (in_the_log, self.before.1) {
            (Some(now), Some(before)) => grouped(now.saturating_sub(before)),
            _ => "?".to_owned(),
        };
        let newest: f64 = committed.get::<_, Option<f64>>(1).unwrap_or_default();
        let seen: f64 = applied.get::<_, Option<f64>>(1).unwrap_or(newest);
        let lsn = |row: &Row| row.get::<_, Option<PgLsn>>(2).map_or(0, u64::from);
        Ok(format!(
            "{:>4} s  committed {:>9}  in the log {in_the_log:>9}  applied {:>9}  lag {:>6} ms \
             {:>9}  rolled back {}",
            self.began.elapsed().as_secs(),
            since(&committed),
            since(&applied),
            ((newest - seen).max(0.0) * 1_000.0).round(),
            bytes(lsn(&committed).saturating_sub(lsn(&applied))),
            grouped(load.rolled_back.load(Ordering::Relaxed)),
        ))
    }

    async fn committed(&self) -> Result<Row, Stop> {
        self.publisher
            .query_one(COMMITTED, &[])
            .await
            .or_stop("publisher")
    }

    /// What the producer counts; none while it cannot be asked.
    async fn in_the_log(&self) -> Option<u64> {
        let log = std::fs::read_to_string(self.log.as_ref()?).ok()?;
        let (_, address) = log.split_once("metrics are served at ")?;
        let address = address.split_whitespace().next()?;
        let timeout = Duration::from_millis(FETCH_TIMEOUT_MS);
        let response = self.http.get(address).timeout(timeout).send().await.ok()?;
        count(&response.text().await.ok()?)
    }
}

fn count(metrics: &str) -> Option<u64> {
    let line = metrics.lines().find(|line| line.starts_with(METRIC))?;
    line.split_whitespace().last()?.parse().ok()
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} B"),
        10_240..10_485_760 => format!("{} kB", count / 1_024),
        _ => format!("{} MB", count / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let check = |number, text: &str| assert_eq!(grouped(number), text);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
    }

    #[test]
    fn bytes_are_short() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(20_480), "20 kB");
        assert_eq!(bytes(20 << 20), "20 MB");
    }

    #[test]
    fn the_producers_count_is_found() {
        let text = "# HELP x\nwalbraid_producer_transactions_total{stream=\"demo\"} 42\n# EOF\n";
        assert_eq!(count(text), Some(42));
        assert_eq!(count(""), None);
    }
}
