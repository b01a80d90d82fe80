//! `walbraid status`: where each lane of the stream is.
//!
//! Put together from what each server knows: the slot (what the producer has confirmed, whether it
//! is read), the end of the log (what is published, the last words of a producer that stopped), the
//! lane's row and lock on the subscriber (what is applied and flushed, whether anyone applies). The
//! names of the JSON form are stable.
//!
//! A lane has one state, the first of these that holds: `stopped` (consumer or producer met
//! something a person must mend, or a producer would if it were started), `down` (one of them does
//! not run), `retrying` (the consumer is silent, or something away is waited for), then what the
//! consumer itself says.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio_postgres::types::PgLsn;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::status::{self, LaneStatus};
use walbraid_consumer::{holder, schema, stream};
use walbraid_producer::lane;
use walbraid_producer::slot::{self, Slot};
use walbraid_schemas::{Body, Envelope, Lsn, Notice, Stop};

use crate::config::Config;
use crate::output::{json as print_json, line};
use crate::progress;
use crate::refusal;
use crate::session::{self, OrStop};
use crate::time;

/// A row that is older is not the word of a consumer that is well: it writes one every second.
const UNHEARD_MS: u64 = 15_000;

/// A lane and all that is known of it.
#[derive(Debug, Clone)]
struct Lane {
    row: LaneStatus,
    consumer: Runs,
    producer: Runs,
    notice: Option<Notice>,
    /// What a producer would not start for, where none runs.
    refusal: Option<Stop>,
    /// Why Kafka or the registry cannot be asked from here.
    away: Option<String>,
    /// Whether it is Kafka.
    kafka_is_away: bool,
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
    let holders = holder::holders(&subscriber, &stream.name).await;
    let holders = holders.map_err(Failure::into_stop)?;
    let registry = unreachable_registry(config).await;
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
        let (newest, kafka_away) = match lane::inspect_within(&kafka, refusal::PATIENCE).await {
            Ok(end) => (end.newest.map(|found| found.envelope), None),
            Err(stop) => (None, Some(stop)),
        };
        let producer = publisher.as_ref().map_or(Runs::Unknown, |publisher| {
            let slot = publisher.slot.as_ref();
            slot.is_some_and(|slot| slot.active_pid.is_some()).into()
        });
        let refusal = match (producer, &newest) {
            (Runs::Yes, _)
            | (
                _,
                Some(Envelope {
                    body: Body::Notice(_),
                    ..
                }),
            ) => None,
            _ => refusal::of_topic(config).await,
        };
        let away_message = kafka_away.as_ref().or(registry.as_ref());
        lanes.push(Lane {
            consumer: holders.iter().any(|holder| holder.lane == row.lane).into(),
            producer,
            refusal,
            away: away_message.map(|stop| stop.message.clone()),
            kafka_is_away: kafka_away.is_some(),
            row,
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
        away.extend(kafka_away);
    }
    away.extend(registry);
    Ok((lanes, away))
}

/// Why the registry cannot be used, if it cannot.
async fn unreachable_registry(config: &Config) -> Option<Stop> {
    let mut producer = config.producer.clone();
    let patience_ms = u64::try_from(refusal::PATIENCE.as_millis()).unwrap_or(u64::MAX);
    producer.registry.timeout_ms = producer.registry.timeout_ms.min(patience_ms);
    walbraid_producer::check::registry(&producer).await
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

impl Lane {
    /// The state: see the module's text.
    fn state(&self) -> &str {
        if self.row.stop_kind.is_some() || self.notice.is_some() || self.refusal.is_some() {
            "stopped"
        } else if self.producer == Runs::No || self.consumer == Runs::No && !self.waits_for_kafka()
        {
            "down"
        } else if self.unheard().is_some() || self.waits_for().is_some() {
            "retrying"
        } else {
            &self.row.state
        }
    }

    /// The consumer gave the lane up because of a Kafka that is away, and will take it again.
    fn waits_for_kafka(&self) -> bool {
        self.kafka_is_away && self.row.state == "retrying"
    }

    /// For how long the consumer, whose sessions are there, has not written the lane's row.
    fn unheard(&self) -> Option<Duration> {
        let held = self.consumer == Runs::Yes;
        (held && self.row.age >= Duration::from_millis(UNHEARD_MS)).then_some(self.row.age)
    }

    /// What is away, while the consumer knows of no trouble and yet something waits: the producer
    /// may need what the consumer does not.
    fn waits_for(&self) -> Option<&str> {
        let waits = self.row.state == "running" && self.lag_bytes() != Some(0);
        self.away.as_deref().filter(|_| waits)
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
        if let Some(refusal) = &self.refusal {
            return Some(format!("producer: {}", refusal::text(refusal.clone())));
        }
        match (self.consumer, self.producer) {
            (Runs::No, Runs::Yes | Runs::Unknown) if self.waits_for_kafka() => {
                self.row.reason.clone()
            }
            (Runs::No, Runs::No) => Some("neither producer nor consumer runs".to_owned()),
            (Runs::No, _) => Some("no consumer runs".to_owned()),
            (_, Runs::No) => Some("no producer runs".to_owned()),
            _ => match (self.unheard(), self.waits_for()) {
                (Some(age), _) => Some(format!(
                    "the consumer holds the lane and was last heard of {} s ago",
                    age.as_secs()
                )),
                (None, Some(away)) => Some(away.to_owned()),
                (None, None) => self.row.reason.clone(),
            },
        }
    }

    /// The name of what it stopped for.
    fn stop_kind(&self) -> Option<&str> {
        let notice = self.notice.as_ref().map(|notice| notice.kind.as_str());
        let refusal = self.refusal.as_ref().map(|stop| stop.kind.name());
        self.row.stop_kind.as_deref().or(notice).or(refusal)
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
    use walbraid_schemas::StopKind;

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
            refusal: None,
            away: None,
            kafka_is_away: false,
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
        check(
            |lane| lane.row.age = Duration::from_secs(40),
            "retrying",
            Some("the consumer holds the lane and was last heard of 40 s ago"),
        );
        let given_up = |lane: &mut Lane| {
            lane.consumer = Runs::No;
            lane.kafka_is_away = true;
            lane.row.state = "retrying".to_owned();
            lane.row.reason = Some("Kafka: away".to_owned());
        };
        check(given_up, "retrying", Some("Kafka: away"));
        let away = |lane: &mut Lane| lane.away = Some("registry: away".to_owned());
        check(away, "retrying", Some("registry: away"));
        let away_and_idle = |lane: &mut Lane| {
            lane.away = Some("registry: away".to_owned());
            lane.row.quiet_until_lsn = Lsn(120);
        };
        check(away_and_idle, "running", None);
        let compacted = |lane: &mut Lane| {
            lane.producer = Runs::No;
            let kind = StopKind::TopicMismatch;
            lane.refusal = Some(Stop::new(kind, "topic \"t\" is compacted"));
        };
        check(
            compacted,
            "stopped",
            Some("producer: topic \"t\" is compacted"),
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
