//! `walbraid status`: where each lane of the stream is.
//!
//! Put together from what each server knows: the slot (what the producer has confirmed, whether it
//! is read), the end of the log (what is published, the last words of a producer that stopped), the
//! lane's row and lock on the subscriber (what is applied and flushed, whether anyone applies). The
//! names of the JSON form are stable.
//!
//! A lane has one state, the first of these that holds: `stopped` (consumer or producer met
//! something a person must mend), `down` (one of them does not run), then the consumer's own word.

use std::time::SystemTime;

use serde_json::{Value, json};
use walbraid_consumer::policy::Failure;
use walbraid_consumer::status::{self, LaneStatus};
use walbraid_consumer::{fence, schema, stream};
use walbraid_producer::{lane, slot};
use walbraid_schemas::{Body, Lsn, Notice, Stop};

use crate::config::Config;
use crate::output::{json as print_json, line};
use crate::session::{self, OrStop, Session};
use crate::time;

/// A lane and all that is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) row: LaneStatus,
    pub(crate) consumer: Runs,
    pub(crate) producer: Runs,
    pub(crate) notice: Option<Notice>,
    pub(crate) published_lsn: Option<Lsn>,
    pub(crate) confirmed_lsn: Option<Lsn>,
    pub(crate) publisher_lsn: Lsn,
    pub(crate) publisher_now: SystemTime,
}

/// Whether a side runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    Yes,
    No,
}

/// Prints the status.
pub(crate) async fn run(config: &Config, json: bool) -> Result<(), Stop> {
    let lanes = read(config).await?;
    if json {
        let lanes: Vec<Value> = lanes.iter().map(|lane| lane.json(&config.stream)).collect();
        print_json(&json!({ "stream": config.stream, "lanes": lanes }));
        return Ok(());
    }
    lanes.iter().for_each(|lane| lane.print(&config.stream));
    Ok(())
}

/// The lanes of the configured stream.
pub(crate) async fn read(config: &Config) -> Result<Vec<Lane>, Stop> {
    let subscriber = session::subscriber(config, "walbraid status").await?;
    schema::require(&subscriber)
        .await
        .map_err(Failure::into_stop)?;
    let stream = stream::require(&subscriber, &config.stream)
        .await
        .map_err(Failure::into_stop)?;
    let publisher = session::publisher(config, "walbraid status").await?;
    let row = publisher
        .query_one(
            "SELECT pg_catalog.pg_current_wal_lsn(), pg_catalog.clock_timestamp()",
            &[],
        )
        .await
        .or_stop("publisher")?;
    let publisher_lsn = Lsn(row.get::<_, tokio_postgres::types::PgLsn>(0).into());
    let publisher_now = row.get(1);
    let slot = slot::inspect(&publisher, &stream.slot)
        .await
        .or_stop("publisher")?;
    let producer = match slot.as_ref().is_some_and(|slot| slot.active_pid.is_some()) {
        true => Runs::Yes,
        false => Runs::No,
    };
    let mut lanes = Vec::new();
    for row in status::read(&subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?
    {
        let mut kafka = config.producer.kafka.clone();
        kafka.lane = i32::try_from(row.lane).unwrap_or_default();
        let newest = lane::inspect(&kafka)
            .await?
            .newest
            .map(|found| found.envelope);
        let consumer = match is_held(&subscriber, &stream.name, kafka.lane).await? {
            true => Runs::Yes,
            false => Runs::No,
        };
        lanes.push(Lane {
            row,
            consumer,
            producer,
            published_lsn: newest.as_ref().map(|e| e.end_lsn.max(e.previous_end_lsn)),
            notice: newest.and_then(|envelope| match envelope.body {
                Body::Notice(notice) => Some(notice),
                _ => None,
            }),
            confirmed_lsn: slot.as_ref().and_then(|slot| slot.confirmed_flush_lsn),
            publisher_lsn,
            publisher_now,
        });
    }
    Ok(lanes)
}

/// Whether any session holds the lane's lock: a consumer runs.
pub(crate) async fn is_held(subscriber: &Session, stream: &str, lane: i32) -> Result<bool, Stop> {
    let sql = "SELECT EXISTS (
                   SELECT FROM walbraid.lanes l
                   JOIN pg_catalog.pg_locks k ON k.locktype = 'advisory' AND k.granted
                    AND k.classid = $3::int4::oid AND k.objid = l.id::oid
                    AND k.database = (SELECT oid FROM pg_catalog.pg_database
                                      WHERE datname = pg_catalog.current_database())
                   WHERE l.stream = $1 AND l.lane = $2)";
    let row = subscriber
        .query_one(sql, &[&stream, &lane, &fence::LOCK_CLASS])
        .await;
    Ok(row.or_stop("subscriber")?.get(0))
}

impl Lane {
    /// The state: see the module's text.
    pub(crate) fn state(&self) -> &str {
        if self.row.stop_kind.is_some() || self.notice.is_some() {
            "stopped"
        } else if self.consumer == Runs::No || self.producer == Runs::No {
            "down"
        } else {
            &self.row.state
        }
    }

    /// Why it is in that state, where there is more to say.
    pub(crate) fn reason(&self) -> Option<String> {
        if self.row.stop_kind.is_some() {
            return self.row.reason.clone();
        }
        if let Some(notice) = &self.notice {
            let mut text = format!("producer: {}", notice.message);
            for part in [&notice.detail, &notice.hint].into_iter().flatten() {
                text.push('\n');
                text.push_str(part);
            }
            return Some(text);
        }
        match (self.consumer, self.producer) {
            (Runs::No, Runs::No) => Some("neither producer nor consumer runs".to_owned()),
            (Runs::No, Runs::Yes) => Some("no consumer runs".to_owned()),
            (Runs::Yes, Runs::No) => Some("no producer runs".to_owned()),
            (Runs::Yes, Runs::Yes) => self.row.reason.clone(),
        }
    }

    /// The name of what it stopped for.
    pub(crate) fn stop_kind(&self) -> Option<&str> {
        let producer = self.notice.as_ref().map(|notice| notice.kind.as_str());
        self.row.stop_kind.as_deref().or(producer)
    }

    /// WAL of the publisher that the subscriber has not applied, as far as it is not known to hold
    /// nothing for this lane.
    pub(crate) fn lag_bytes(&self) -> u64 {
        let reached = self.row.applied_lsn.max(self.row.quiet_until_lsn);
        self.publisher_lsn.bytes_since(reached)
    }

    /// Age of the newest transaction applied, by the publisher's clock, while more is waiting in the
    /// log or the producer does not carry what the publisher commits; 0 otherwise.
    pub(crate) fn lag_ms(&self) -> Option<u64> {
        let reached = self.row.applied_lsn.max(self.row.quiet_until_lsn);
        let waiting = self
            .published_lsn
            .is_some_and(|published| published > reached);
        if self.lag_bytes() == 0 || !waiting && self.producer == Runs::Yes {
            return Some(0);
        }
        let age = self
            .publisher_now
            .duration_since(self.row.applied_commit_time?);
        Some(age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
    }

    fn json(&self, stream: &str) -> Value {
        let row = &self.row;
        let runs = |runs: Runs| runs == Runs::Yes;
        json!({
            "stream": stream,
            "lane": row.lane,
            "state": self.state(),
            "since": time::rfc3339(row.since),
            "reason": self.reason(),
            "stop": self.stop_kind(),
            "publisher_lsn": self.publisher_lsn,
            "published_lsn": self.published_lsn,
            "confirmed_lsn": self.confirmed_lsn,
            "applied_lsn": row.applied_lsn,
            "flushed_lsn": row.flushed_lsn,
            "quiet_until_lsn": row.quiet_until_lsn,
            "lag_bytes": self.lag_bytes(),
            "lag_ms": self.lag_ms(),
            "transactions_applied": row.transactions_applied,
            "applied_commit_time": row.applied_commit_time.map(time::rfc3339),
            "producer_running": runs(self.producer),
            "consumer_running": runs(self.consumer),
            "consumer": row.member,
        })
    }

    fn print(&self, stream: &str) {
        let row = &self.row;
        line(format_args!(
            "stream {stream} lane {}: {} since {}",
            row.lane,
            self.state(),
            time::rfc3339(row.since)
        ));
        if let Some(reason) = self.reason() {
            reason
                .lines()
                .for_each(|text| line(format_args!("  {text}")));
        }
        let lsn = |lsn: Option<Lsn>| lsn.map_or_else(|| "unknown".to_owned(), |l| l.to_string());
        let lag = self
            .lag_ms()
            .map_or_else(|| "unknown".to_owned(), |ms| format!("{ms} ms"));
        for (name, value) in [
            ("publisher", self.publisher_lsn.to_string()),
            ("published", lsn(self.published_lsn)),
            ("confirmed", lsn(self.confirmed_lsn)),
            ("applied", row.applied_lsn.to_string()),
            ("flushed", row.flushed_lsn.to_string()),
            ("quiet until", row.quiet_until_lsn.to_string()),
            ("lag", format!("{lag}, {} bytes", self.lag_bytes())),
            (
                "applied",
                format!("{} transactions", row.transactions_applied),
            ),
            (
                "consumer",
                row.member.clone().unwrap_or_else(|| "none".to_owned()),
            ),
        ] {
            line(format_args!("  {name:<12} {value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lane() -> Lane {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        Lane {
            row: LaneStatus {
                lane: 0,
                state: "running".to_owned(),
                since: now,
                reason: None,
                stop_kind: None,
                applied_lsn: Lsn(100),
                flushed_lsn: Lsn(90),
                quiet_until_lsn: Lsn(90),
                applied_commit_time: Some(now - Duration::from_secs(2)),
                transactions_applied: 7,
                member: None,
                age: Duration::ZERO,
            },
            consumer: Runs::Yes,
            producer: Runs::Yes,
            notice: None,
            published_lsn: Some(Lsn(100)),
            confirmed_lsn: Some(Lsn(100)),
            publisher_lsn: Lsn(120),
            publisher_now: now,
        }
    }

    #[test]
    fn lag_in_time_is_only_while_something_waits() {
        let check = |change: fn(&mut Lane), ms| {
            let mut lane = lane();
            change(&mut lane);
            assert_eq!(lane.lag_ms(), ms);
        };
        check(|_| {}, Some(0));
        check(|lane| lane.published_lsn = Some(Lsn(110)), Some(2_000));
        check(|lane| lane.producer = Runs::No, Some(2_000));
        check(
            |lane| {
                lane.published_lsn = Some(Lsn(110));
                lane.row.quiet_until_lsn = Lsn(110);
            },
            Some(0),
        );
        check(
            |lane| {
                lane.published_lsn = Some(Lsn(110));
                lane.row.applied_commit_time = None;
            },
            None,
        );
    }

    #[test]
    fn the_first_reason_wins() {
        let check = |change: fn(&mut Lane), state: &str, reason: Option<&str>| {
            let mut lane = lane();
            change(&mut lane);
            assert_eq!((lane.state(), lane.reason().as_deref()), (state, reason));
        };
        check(|_| {}, "running", None);
        check(
            |lane| lane.consumer = Runs::No,
            "down",
            Some("no consumer runs"),
        );
        check(
            |lane| lane.producer = Runs::No,
            "down",
            Some("no producer runs"),
        );
        let refused = |lane: &mut Lane| {
            lane.consumer = Runs::No;
            lane.row.stop_kind = Some("row-refused".to_owned());
            lane.row.reason = Some("null value".to_owned());
        };
        check(refused, "stopped", Some("null value"));
        let notice = |lane: &mut Lane| {
            lane.producer = Runs::No;
            lane.notice = Some(Notice {
                kind: "slot-missing".to_owned(),
                message: "slot \"a\" does not exist".to_owned(),
                detail: None,
                hint: Some("Run setup.".to_owned()),
            });
        };
        check(
            notice,
            "stopped",
            Some("producer: slot \"a\" does not exist\nRun setup."),
        );
    }
}
