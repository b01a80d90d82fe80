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
use tokio_postgres::types::PgLsn;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::status::{self, LaneStatus};
use walbraid_consumer::{fence, schema, stream};
use walbraid_producer::lane;
use walbraid_producer::slot::{self, Slot};
use walbraid_schemas::{Body, Lsn, Notice, Stop};

use crate::config::Config;
use crate::output::{json as print_json, line};
use crate::progress;
use crate::session::{self, OrStop, Session};
use crate::time;

/// A lane and all that is known of it.
#[derive(Debug, Clone)]
struct Lane {
    row: LaneStatus,
    consumer: Runs,
    producer: Runs,
    notice: Option<Notice>,
    published_lsn: Option<Lsn>,
    confirmed_lsn: Option<Lsn>,
    /// Where the publisher's WAL is, and its clock.
    publisher: Option<(Lsn, SystemTime)>,
}

/// Whether a side runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Yes,
    No,
    Unknown,
}

impl Runs {
    fn known(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Unknown => None,
        }
    }
}

impl From<bool> for Runs {
    fn from(runs: bool) -> Self {
        if runs { Self::Yes } else { Self::No }
    }
}

/// What the publisher says.
struct Publisher {
    lsn: Lsn,
    now: SystemTime,
    slot: Option<Slot>,
}

/// Prints the status. A server that is away leaves gaps, which are then the command's error.
pub(crate) async fn run(config: &Config, json: bool) -> Result<(), Stop> {
    let (lanes, away) = read(config).await?;
    if json {
        let lanes: Vec<Value> = lanes.iter().map(|lane| lane.json(&config.stream)).collect();
        let away: Vec<&str> = away.iter().map(|stop| stop.message.as_str()).collect();
        print_json(&json!({ "stream": config.stream, "lanes": lanes, "away": away }));
    } else {
        lanes.iter().for_each(|lane| lane.print(&config.stream));
    }
    away.into_iter().next().map_or(Ok(()), Err)
}

/// The lanes of the configured stream, and why some of it is not known. The subscriber must be
/// there: the stream stands in it.
async fn read(config: &Config) -> Result<(Vec<Lane>, Vec<Stop>), Stop> {
    let subscriber = session::subscriber(config, "walbraid status").await?;
    schema::require(&subscriber)
        .await
        .map_err(Failure::into_stop)?;
    let stream = stream::require(&subscriber, &config.stream)
        .await
        .map_err(Failure::into_stop)?;
    let mut away = Vec::new();
    let publisher = match ask_publisher(config, &stream.slot).await {
        Ok(publisher) => Some(publisher),
        Err(stop) => {
            away.push(stop);
            None
        }
    };
    let mut lanes = Vec::new();
    for mut row in status::read(&subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?
    {
        // The row may be a second old.
        let applied = progress::applied(&subscriber, &stream.name, row.lane).await?;
        row.applied_lsn = row.applied_lsn.max(applied.unwrap_or_default());
        let mut kafka = config.producer.kafka.clone();
        kafka.lane = i32::try_from(row.lane).unwrap_or_default();
        let newest = match lane::inspect(&kafka).await {
            Ok(end) => end.newest.map(|found| found.envelope),
            Err(stop) => {
                away.push(stop);
                None
            }
        };
        lanes.push(Lane {
            consumer: is_held(&subscriber, &stream.name, kafka.lane).await?.into(),
            row,
            producer: publisher.as_ref().map_or(Runs::Unknown, |publisher| {
                publisher
                    .slot
                    .as_ref()
                    .is_some_and(|slot| slot.active_pid.is_some())
                    .into()
            }),
            published_lsn: newest.as_ref().map(|e| e.end_lsn.max(e.previous_end_lsn)),
            notice: newest.and_then(|envelope| match envelope.body {
                Body::Notice(notice) => Some(notice),
                _ => None,
            }),
            confirmed_lsn: publisher
                .as_ref()
                .and_then(|publisher| publisher.slot.as_ref()?.confirmed_flush_lsn),
            publisher: publisher
                .as_ref()
                .map(|publisher| (publisher.lsn, publisher.now)),
        });
    }
    Ok((lanes, away))
}

async fn ask_publisher(config: &Config, slot: &str) -> Result<Publisher, Stop> {
    let publisher = session::publisher(config, "walbraid status").await?;
    let sql = "SELECT pg_catalog.pg_current_wal_lsn(), pg_catalog.clock_timestamp()";
    let row = publisher.query_one(sql, &[]).await.or_stop("publisher")?;
    Ok(Publisher {
        lsn: Lsn(row.get::<_, PgLsn>(0).into()),
        now: row.get(1),
        slot: slot::inspect(&publisher, slot).await.or_stop("publisher")?,
    })
}

/// Whether any session holds the lane's lock: a consumer runs.
async fn is_held(subscriber: &Session, stream: &str, lane: i32) -> Result<bool, Stop> {
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
    fn state(&self) -> &str {
        if self.row.stop_kind.is_some() || self.notice.is_some() {
            "stopped"
        } else if self.consumer == Runs::No || self.producer == Runs::No {
            "down"
        } else {
            &self.row.state
        }
    }

    /// Why it is in that state, where there is more to say.
    fn reason(&self) -> Option<String> {
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
            (Runs::No, _) => Some("no consumer runs".to_owned()),
            (_, Runs::No) => Some("no producer runs".to_owned()),
            _ => self.row.reason.clone(),
        }
    }

    /// The name of what it stopped for.
    fn stop_kind(&self) -> Option<&str> {
        let producer = self.notice.as_ref().map(|notice| notice.kind.as_str());
        self.row.stop_kind.as_deref().or(producer)
    }

    /// WAL of the publisher that the subscriber has not applied, as far as it is not known to hold
    /// nothing for this lane.
    fn lag_bytes(&self) -> Option<u64> {
        Some(self.publisher?.0.bytes_since(self.seen()))
    }

    /// Age of the newest transaction applied, by the publisher's clock, while more is waiting in
    /// the log or the producer does not carry what the publisher commits; 0 otherwise.
    fn lag_ms(&self) -> Option<u64> {
        let (publisher_lsn, now) = self.publisher?;
        let waiting = self
            .published_lsn
            .is_none_or(|published| published > self.seen());
        if publisher_lsn <= self.seen() || !waiting && self.producer == Runs::Yes {
            return Some(0);
        }
        let age = now.duration_since(self.row.applied_commit_time?);
        Some(age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Up to where the lane is applied or known to hold nothing.
    fn seen(&self) -> Lsn {
        self.row.applied_lsn.max(self.row.quiet_until_lsn)
    }

    fn json(&self, stream: &str) -> Value {
        let row = &self.row;
        json!({
            "stream": stream,
            "lane": row.lane,
            "state": self.state(),
            "since": time::rfc3339(row.since),
            "reason": self.reason(),
            "stop": self.stop_kind(),
            "publisher_lsn": self.publisher.map(|(lsn, _)| lsn),
            "published_lsn": self.published_lsn,
            "confirmed_lsn": self.confirmed_lsn,
            "applied_lsn": row.applied_lsn,
            "flushed_lsn": row.flushed_lsn,
            "quiet_until_lsn": row.quiet_until_lsn,
            "lag_bytes": self.lag_bytes(),
            "lag_ms": self.lag_ms(),
            "transactions_applied": row.transactions_applied,
            "applied_commit_time": row.applied_commit_time.map(time::rfc3339),
            "producer_running": self.producer.known(),
            "consumer_running": self.consumer.known(),
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
        let known = |value: Option<u64>| {
            value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
        };
        for (name, value) in [
            ("publisher", lsn(self.publisher.map(|(lsn, _)| lsn))),
            ("published", lsn(self.published_lsn)),
            ("confirmed", lsn(self.confirmed_lsn)),
            ("applied", row.applied_lsn.to_string()),
            ("flushed", row.flushed_lsn.to_string()),
            ("quiet until", row.quiet_until_lsn.to_string()),
            (
                "lag",
                format!(
                    "{} ms, {} bytes",
                    known(self.lag_ms()),
                    known(self.lag_bytes())
                ),
            ),
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
            publisher: Some((Lsn(120), now)),
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
        check(|lane| lane.published_lsn = None, Some(2_000));
        check(|lane| lane.publisher = None, None);
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
