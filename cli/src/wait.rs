//! `walbraid wait`: until the subscriber has flushed a WAL position of the publisher.
//!
//! Two things can say that it has: the lane's row, which the consumer writes about once a second
//! and which also knows up to where the publisher has nothing more; and, sooner, the progress that
//! each target transaction leaves, with the lane's origins, which the subscriber flushes when it is
//! asked for them. All lanes must have reached it.
//!
//! A pipeline that stopped ends the wait; one that merely does not run may be started, so that
//! only the time-out ends it. A stop that was there before the call may be mended already and its
//! process be starting again: it ends the wait only if it stays for a while, or when the time is
//! over. A server that is away for a while is waited for as well.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_postgres::types::PgLsn;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::reason::Reason;
use walbraid_consumer::schema;
use walbraid_consumer::status::{self, LaneStatus};
use walbraid_consumer::stream::{self, Stream};
use walbraid_producer::{lane, slot};
use walbraid_schemas::{Body, Lsn, Stop, StopKind};

use crate::args;
use crate::config::Config;
use crate::output::line;
use crate::progress;
use crate::refusal;
use crate::session::{self, OrStop, Session};

const POLL_MS: u64 = 50;
/// How often the end of the log is looked at for the last words of a producer.
const LOG_POLL_MS: u64 = 3_000;
const RECONNECT_MS: u64 = 500;
/// How long a stop from before the call may stand until a process started again clears it.
const OLD_STOP_MS: u64 = 5_000;
/// How old the lane's row can be: what it says of a stop meanwhile is from before the call.
const ROW_AGE_MS: u64 = 1_500;

/// Runs the command and says what was reached.
pub(crate) async fn run(config: &Config, options: &args::Wait) -> Result<(), Stop> {
    let reached = wait(config, options.lsn, options.timeout).await?;
    line(format_args!("flushed {reached}"));
    Ok(())
}

/// Waits until every lane has flushed `lsn` (default: where the publisher's WAL is now).
pub(crate) async fn wait(
    config: &Config,
    lsn: Option<Lsn>,
    timeout: Option<Duration>,
) -> Result<Lsn, Stop> {
    let began = Instant::now();
    let subscriber = session::subscriber(config, "walbraid wait").await?;
    schema::require(&subscriber)
        .await
        .map_err(Failure::into_stop)?;
    let stream = stream::require(&subscriber, &config.stream)
        .await
        .map_err(Failure::into_stop)?;
    let lsn = match lsn {
        Some(lsn) => lsn,
        None => publisher_lsn(config).await?,
    };
    let waiting = Waiting {
        config,
        stream,
        lsn,
    };
    let reached = waiting.until_reached(subscriber);
    let Some(timeout) = timeout else {
        return reached.await.map(|()| lsn);
    };
    let left = timeout.saturating_sub(began.elapsed());
    match tokio::time::timeout(left, reached).await {
        Ok(reached) => reached.map(|()| lsn),
        Err(_) => Err(waiting.timed_out(timeout).await),
    }
}

/// Bytes of the longest header of a WAL page (`SizeOfXLogLongPHD` in xlog_internal.h).
const WAL_PAGE_HEADER_BYTES: u64 = 40;

/// Where the publisher's next WAL record will be inserted: behind all that is committed, also by
/// sessions with `synchronous_commit = off`, whose records are not written yet.
async fn publisher_lsn(config: &Config) -> Result<Lsn, Stop> {
    let publisher = session::publisher(config, "walbraid wait").await?;
    let sql = "SELECT pg_catalog.pg_current_wal_insert_lsn(), \
               pg_catalog.current_setting('wal_block_size')::bigint";
    let row = publisher.query_one(sql, &[]).await.or_stop("publisher")?;
    let block_bytes = u64::try_from(row.get::<_, i64>(1)).unwrap_or(1).max(1);
    Ok(behind_the_last_record(
        row.get::<_, PgLsn>(0).into(),
        block_bytes,
    ))
}

/// At the start of a page the insert position lies behind the page's header, which nobody flushes
/// before the next record: the last record ends at the page's start.
fn behind_the_last_record(insert: u64, block_bytes: u64) -> Lsn {
    match insert % block_bytes {
        header @ 1..=WAL_PAGE_HEADER_BYTES => Lsn(insert - header),
        _ => Lsn(insert),
    }
}

/// What the log said of the producer.
enum Heard {
    /// Nothing: Kafka did not answer.
    Nothing(String),
    /// No word of a stop.
    Log,
}

struct Waiting<'a> {
    config: &'a Config,
    stream: Stream,
    lsn: Lsn,
}

impl Waiting<'_> {
    async fn until_reached(&self, subscriber: Session) -> Result<(), Stop> {
        let mut session = Some(subscriber);
        let old_rows_end = Instant::now() + Duration::from_millis(ROW_AGE_MS);
        let old_stops_end = Instant::now() + Duration::from_millis(OLD_STOP_MS);
        let mut log_due = old_stops_end;
        let mut old_stops: Vec<(u32, SystemTime)> = Vec::new();
        loop {
            let looked = match session.take() {
                Some(subscriber) => self
                    .look(&subscriber)
                    .await
                    .map(|lanes| (subscriber, lanes)),
                None => match session::subscriber(self.config, "walbraid wait").await {
                    Ok(subscriber) => self
                        .look(&subscriber)
                        .await
                        .map(|lanes| (subscriber, lanes)),
                    Err(stop) => Err(stop),
                },
            };
            let pause = match looked {
                Ok((subscriber, lanes)) => {
                    if lanes.iter().all(|(_, reached)| *reached >= self.lsn) {
                        return Ok(());
                    }
                    if Instant::now() < old_rows_end {
                        let stopped = lanes.iter().filter(|(row, _)| row.stop_kind.is_some());
                        old_stops.extend(stopped.map(|(row, _)| (row.lane, row.since)));
                    }
                    if Instant::now() >= old_stops_end {
                        old_stops.clear();
                    }
                    let stopped = |(row, _): &(LaneStatus, Lsn)| {
                        self.stopped(row)
                            .filter(|_| !old_stops.contains(&(row.lane, row.since)))
                    };
                    if let Some(stop) = lanes.iter().find_map(stopped) {
                        return Err(stop);
                    }
                    session = Some(subscriber);
                    POLL_MS
                }
                Err(stop) if stop.kind == StopKind::ServerUnreachable => {
                    tracing::debug!("subscriber is away: {}", stop.message);
                    RECONNECT_MS
                }
                Err(stop) => return Err(stop),
            };
            if Instant::now() >= log_due {
                if let Heard::Nothing(why) = self.last_words().await? {
                    tracing::debug!("the log is away: {why}");
                }
                log_due = Instant::now() + Duration::from_millis(LOG_POLL_MS);
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// The lanes, and what each has reached.
    async fn look(&self, subscriber: &Session) -> Result<Vec<(LaneStatus, Lsn)>, Stop> {
        let rows = status::read(subscriber, &self.stream.name)
            .await
            .map_err(Failure::into_stop)?;
        if rows.is_empty() {
            let message = format!("stream \"{}\" has no lanes", self.stream.name);
            return Err(Stop::new(StopKind::NotSetUp, message).hint("Run walbraid setup."));
        }
        let mut lanes = Vec::with_capacity(rows.len());
        for row in rows {
            let mut reached = row.reached_lsn();
            if reached < self.lsn {
                let flushed = progress::flushed(subscriber, &self.stream, row.lane).await;
                reached = reached.max(flushed.unwrap_or_default());
            }
            lanes.push((row, reached));
        }
        Ok(lanes)
    }

    fn stopped(&self, row: &LaneStatus) -> Option<Stop> {
        let kind = row.stop_kind.as_deref()?;
        let name = &self.stream.name;
        let message = format!(
            "stream \"{name}\" lane {} stopped before {}: {kind}",
            row.lane, self.lsn
        );
        Some(because(message, row.reason.clone().unwrap_or_default()))
    }

    /// Fails if the newest record of a lane is the notice of a producer that stopped, or if Kafka
    /// says that there is no lane for us.
    async fn last_words(&self) -> Result<Heard, Stop> {
        let kafka = &self.config.producer.kafka;
        let newest = match lane::inspect_within(kafka, refusal::PATIENCE).await {
            Ok(end) => end.newest,
            Err(stop) if refusal::is_definite(stop.kind) => {
                let kind = stop.kind.name();
                return Err(self.producer_stopped(kind, (&stop).into()));
            }
            Err(stop) => return Ok(Heard::Nothing(stop.message)),
        };
        let Some(Body::Notice(notice)) = newest.map(|found| found.envelope.body) else {
            return Ok(Heard::Log);
        };
        Err(self.producer_stopped(&notice.kind, (&notice).into()))
    }

    fn producer_stopped(&self, kind: &str, reason: Reason) -> Stop {
        let (name, lsn) = (&self.stream.name, self.lsn);
        let message = format!("producer of stream \"{name}\" stopped before {lsn}: {kind}");
        because(message, reason)
    }

    /// A producer that does not run, and would not start.
    async fn refused(&self) -> Option<Stop> {
        let publisher = session::publisher(self.config, "walbraid wait")
            .await
            .ok()?;
        let slot = slot::inspect(&publisher, &self.stream.slot).await.ok()?;
        if slot.is_some_and(|slot| slot.active_pid.is_some()) {
            return None;
        }
        let stop = refusal::of_topic(self.config).await?;
        let kind = stop.kind.name();
        Some(self.producer_stopped(kind, (&stop).into()))
    }

    /// The time is over: a pipeline that stopped says more than the clock.
    async fn timed_out(&self, timeout: Duration) -> Stop {
        let name = &self.stream.name;
        let message = format!(
            "stream \"{name}\" has not flushed {} within {} s",
            self.lsn,
            timeout.as_secs_f64()
        );
        let stop = Stop::new(StopKind::WaitTimedOut, message);
        let Ok(subscriber) = session::subscriber(self.config, "walbraid wait").await else {
            return stop;
        };
        match self.look(&subscriber).await {
            Ok(lanes) => {
                if let Some(stop) = lanes.iter().find_map(|(row, _)| self.stopped(row)) {
                    return stop;
                }
                let mut detail: Vec<String> = lanes
                    .iter()
                    .map(|(row, reached)| format!("Lane {} is at {reached}.", row.lane))
                    .collect();
                match self.last_words().await {
                    Err(stop) => return stop,
                    Ok(Heard::Nothing(why)) => {
                        detail.push(format!(
                            "Kafka did not answer whether the producer stopped: {why}."
                        ));
                    }
                    Ok(Heard::Log) => {
                        if let Some(stop) = self.refused().await {
                            return stop;
                        }
                    }
                }
                stop.detail(detail.join(" "))
            }
            Err(_) => stop,
        }
    }
}

/// That the pipeline stopped, with the stop's own message in DETAIL and what helps it in HINT.
fn because(message: String, reason: Reason) -> Stop {
    let parts = [Some(reason.message), reason.detail];
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    Stop {
        kind: StopKind::PipelineStopped,
        message,
        detail: (!parts.is_empty()).then(|| parts.join("\n")),
        hint: reason.hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_told_with_what_helps_it() {
        let check = |reason: &str, detail: Option<&str>, hint: Option<&str>| {
            let stop = because("stopped".to_owned(), Reason::parse(reason));
            assert_eq!(
                (stop.detail.as_deref(), stop.hint.as_deref()),
                (detail, hint)
            );
        };
        check("", None, None);
        check("null value", Some("null value"), None);
        check(
            "null value\nDETAIL:  So.\nHINT:  Do.",
            Some("null value\nSo."),
            Some("Do."),
        );
    }

    #[test]
    fn a_page_header_is_not_waited_for() {
        let check = |insert, expected| {
            assert_eq!(
                behind_the_last_record(insert, 8192),
                Lsn(expected),
                "{insert:#x}"
            );
        };
        check(0x200_0000, 0x200_0000);
        check(0x200_0018, 0x200_0000);
        check(0x200_0028, 0x200_0000);
        check(0x200_2018, 0x200_2000);
        check(0x200_0080, 0x200_0080);
        check(0x200_1ff8, 0x200_1ff8);
    }
}
