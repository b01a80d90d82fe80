//! A lane and all that is known of it: the state it is in, why, how far it is, and its two forms.
//!
//! A lane has one state, the first of these that holds: `stopped` (consumer or producer met
//! something a person must mend, or a producer would if it were started), `down` (one of them does
//! not run), `retrying` (the consumer is silent, or something away is waited for), then what the
//! consumer itself says.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use walbraid_consumer::reason::Reason;
use walbraid_consumer::status::LaneStatus;
use walbraid_schemas::{Lsn, Notice, Stop};

use crate::output::line;
use crate::time;

/// A row that is older is not the word of a consumer that is well: it writes one every second.
const UNHEARD_MS: u64 = 15_000;

/// A lane and all that is known of it.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) row: LaneStatus,
    pub(super) consumer: Runs,
    pub(super) producer: Runs,
    pub(super) notice: Option<Notice>,
    /// What a producer would not start for, where none runs.
    pub(super) refusal: Option<Stop>,
    /// Why Kafka or the registry cannot be asked from here.
    pub(super) away: Option<String>,
    /// Whether it is Kafka.
    pub(super) kafka_is_away: bool,
    pub(super) published_lsn: Option<Lsn>,
    pub(super) confirmed_lsn: Option<Lsn>,
    /// Where the publisher's WAL is, and its clock.
    pub(super) publisher: Option<(Lsn, SystemTime)>,
}

/// Whether a side runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
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

/// Whose reason it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// The lane's, as its consumer or the look at both sides tells it.
    Lane(Reason),
    /// The producer's, which stopped or would not start.
    Producer(Reason),
}

impl Why {
    fn told(&self) -> &Reason {
        match self {
            Self::Lane(reason) | Self::Producer(reason) => reason,
        }
    }

    /// All in one text, for programs that want no more than one.
    fn text(&self) -> String {
        match self {
            Self::Lane(reason) => match &reason.detail {
                Some(detail) => format!("{}. {detail}", reason.message),
                None => reason.message.clone(),
            },
            Self::Producer(reason) => {
                let message = Some(format!("producer: {}", reason.message));
                let parts = [message, reason.detail.clone(), reason.hint.clone()];
                parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// The lines of the form for people.
    fn lines(&self) -> String {
        match self {
            Self::Lane(reason) => reason.text(),
            Self::Producer(reason) => format!("producer: {}", reason.text()),
        }
    }
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
    fn why(&self) -> Option<Why> {
        if self.row.stop_kind.is_some() {
            return self.row.reason.clone().map(Why::Lane);
        }
        if let Some(notice) = &self.notice {
            return Some(Why::Producer(notice.into()));
        }
        if let Some(refusal) = &self.refusal {
            return Some(Why::Producer(refusal.into()));
        }
        let own = |text: &str| Some(Why::Lane(Reason::of(text)));
        match (self.consumer, self.producer) {
            (Runs::No, Runs::Yes | Runs::Unknown) if self.waits_for_kafka() => {
                self.row.reason.clone().map(Why::Lane)
            }
            (Runs::No, Runs::No) => own("neither producer nor consumer runs"),
            (Runs::No, _) => own("no consumer runs"),
            (_, Runs::No) => own("no producer runs"),
            _ => match (self.unheard(), self.waits_for()) {
                (Some(age), _) => own(&format!(
                    "the consumer holds the lane and was last heard of {} s ago",
                    age.as_secs()
                )),
                (None, Some(away)) => own(away),
                (None, None) => self.row.reason.clone().map(Why::Lane),
            },
        }
    }

    /// The consumer that holds the lane, if one does: the row names the last that did.
    fn member(&self) -> Option<&str> {
        let member = self.row.member.as_deref();
        member.filter(|_| self.consumer == Runs::Yes)
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

    /// As JSON; the names are stable.
    pub(super) fn json(&self, stream: &str) -> Value {
        let row = &self.row;
        let why = self.why();
        let told = why.as_ref().map(Why::told);
        json!({
            "stream": stream,
            "lane": row.lane,
            "state": self.state(),
            "since": time::rfc3339(row.since),
            "reason": why.as_ref().map(Why::text),
            "detail": told.and_then(|told| told.detail.as_ref()),
            "hint": told.and_then(|told| told.hint.as_ref()),
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
            "consumer": self.member(),
            "last_consumer": row.member,
        })
    }

    /// As text, for people.
    pub(super) fn print(&self, stream: &str) {
        let row = &self.row;
        line(format_args!(
            "stream {stream} lane {}: {} since {}",
            row.lane,
            self.state(),
            time::rfc3339(row.since)
        ));
        if let Some(why) = self.why() {
            let text = why.lines();
            text.lines().for_each(|text| line(format_args!("  {text}")));
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
                "transactions",
                format!("{} applied", row.transactions_applied),
            ),
            ("consumer", self.member().unwrap_or("none").to_owned()),
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
            let why = lane.why().map(|why| why.text());
            assert_eq!((lane.state(), why.as_deref()), (state, reason));
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
            lane.row.reason = Some(Reason::of("Kafka: away"));
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
            lane.row.reason = Some(Reason::of("null value"));
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

    #[test]
    fn what_helps_is_told_in_both_forms() {
        let check = |change: fn(&mut Lane), lines: &str| {
            let mut lane = lane();
            change(&mut lane);
            assert_eq!(lane.why().unwrap().lines(), lines);
            let json = lane.json("shop");
            assert_eq!(
                (&json["detail"], &json["hint"]),
                (&json!("So."), &json!("Do."))
            );
        };
        let stopped = |lane: &mut Lane| {
            lane.row.stop_kind = Some("row-refused".to_owned());
            lane.row.reason = Some(Reason::parse("null value\nDETAIL:  So.\nHINT:  Do."));
        };
        check(stopped, "null value\nDETAIL:  So.\nHINT:  Do.");
        let refused = |lane: &mut Lane| {
            let stop = Stop::new(StopKind::TopicMissing, "no topic");
            lane.refusal = Some(stop.detail("So.").hint("Do."));
        };
        check(refused, "producer: no topic\nDETAIL:  So.\nHINT:  Do.");
    }

    #[test]
    fn a_consumer_that_is_gone_is_not_named_as_if_it_were_there() {
        let check = |consumer, named: Value| {
            let mut lane = lane();
            lane.row.member = Some("host 7".to_owned());
            lane.consumer = consumer;
            let json = lane.json("shop");
            assert_eq!(
                (&json["consumer"], &json["last_consumer"]),
                (&named, &json!("host 7"))
            );
        };
        check(Runs::Yes, json!("host 7"));
        check(Runs::No, Value::Null);
    }
}
