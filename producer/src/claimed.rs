//! A lane under our claim: envelopes out, confirmed LSN back.
//!
//! Owns the writing client of one claim, what is pending there, where the chain stands, and when a
//! heartbeat is due. Does not read the publisher (`pipeline`).
//!
//! Bounds: while the records pending take more than the budget, [`ClaimedLane::has_room`] is false
//! and the pipeline stops reading the publisher; a transaction's parts wait for room one by one.
//!
//! Confirmed is only what [`Progress`] allows. At a jump of offsets the lane is read between the
//! record expected and the one found: a claim there is another producer's, which makes everything
//! we wrote behind it void, and ends this claim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use tokio_util::sync::CancellationToken;
use walbraid_decode::LinkPart;
use walbraid_schemas::{
    Body, Change, Envelope, Heartbeat, Incarnation, Lsn, Stop, StopKind, headers,
};

use crate::config::Config;
use crate::heartbeat::Heartbeats;
use crate::kafka::RECORD_OVERHEAD_BYTES;
use crate::lane::LaneReader;
use crate::metrics::{Cause, Metrics, State};
use crate::policy::{self, Failure};
use crate::progress::{Progress, Step};
use crate::publish::{Record, Report, Unsent, Writer};
use crate::question::Question;
use crate::record;
use crate::status::Teller;

/// What every record of a claim says of the stream's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub incarnation: Incarnation,
    pub timeline: u32,
    pub options_hash: i64,
}

/// What every record of a claim says, and how the claim is kept.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub stream: String,
    pub topic: String,
    pub life: Life,
    pub envelope_schema_id: i32,
    memory_bytes: usize,
    heartbeat_interval_ms: u64,
    heartbeat_idle_interval_ms: u64,
    pub stall_warning: Duration,
}

impl Terms {
    pub(crate) fn new(config: &Config, life: Life, envelope_schema_id: i32) -> Terms {
        let intervals = &config.intervals;
        Terms {
            stream: config.stream.clone(),
            topic: config.kafka.topic.clone(),
            life,
            envelope_schema_id,
            memory_bytes: config.limits.publish_memory_bytes,
            heartbeat_interval_ms: intervals.heartbeat_interval_ms,
            heartbeat_idle_interval_ms: intervals.heartbeat_idle_interval_ms,
            stall_warning: Duration::from_millis(intervals.stall_warning_ms),
        }
    }
}

/// A lane that we claimed.
pub(crate) struct ClaimedLane {
    terms: Terms,
    key: String,
    writer: Writer,
    reader: Arc<LaneReader>,
    teller: Teller,
    metrics: Metrics,
    shutdown: CancellationToken,
    claim_offset: i64,
    seq: i64,
    previous_end_lsn: Lsn,
    progress: Progress,
    heartbeats: Heartbeats,
    started: Instant,
    stall: Stall,
    buffer: Vec<u8>,
}

/// Whether Kafka acknowledges what it was given.
#[derive(Debug)]
struct Stall {
    waiting_since: Option<Instant>,
    warned: bool,
    trouble: Option<String>,
    /// Asked while nothing is acknowledged: is the topic still there?
    question: Question,
}

impl ClaimedLane {
    /// The lane as it stands once the claim's place in the log is known.
    pub(crate) fn new(
        terms: Terms,
        (writer, reader): (Writer, Arc<LaneReader>),
        teller: Teller,
        (metrics, shutdown): (Metrics, CancellationToken),
        claim_offset: i64,
        confirmed: Lsn,
        previous_end_lsn: Lsn,
    ) -> ClaimedLane {
        let heartbeats = Heartbeats::new(
            terms.heartbeat_interval_ms,
            terms.heartbeat_idle_interval_ms,
            confirmed,
            0,
        );
        ClaimedLane {
            key: headers::key(&terms.stream, terms.life.incarnation),
            terms,
            writer,
            reader,
            teller,
            metrics,
            shutdown,
            claim_offset,
            seq: 0,
            previous_end_lsn,
            progress: Progress::new(claim_offset, confirmed),
            heartbeats,
            started: Instant::now(),
            stall: Stall {
                waiting_since: None,
                warned: false,
                trouble: None,
                question: Question::default(),
            },
            buffer: Vec::new(),
        }
    }

    /// Whether the budget allows another record.
    pub(crate) fn has_room(&self) -> bool {
        self.progress.pending_bytes() < self.terms.memory_bytes
    }

    /// Whether everything written is acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.progress.pending() == 0
    }

    /// Writes a part of a link, waiting for room.
    pub(crate) async fn part(&mut self, link_part: LinkPart) -> Result<(), Failure> {
        while !self.has_room() {
            self.wait_for_reports().await?;
        }
        let LinkPart { end_lsn, part } = link_part;
        let (last, rows) = (part.last, row_count(&part.changes));
        let envelope = self.envelope(end_lsn, Body::Part(part));
        self.send(&envelope, last.then_some(end_lsn)).await?;
        self.metrics.rows.inc_by(rows);
        if last {
            self.previous_end_lsn = end_lsn;
            self.heartbeats.link(end_lsn, self.now_ms());
            self.metrics.transactions.inc();
            self.metrics.set_published(end_lsn);
        }
        Ok(())
    }

    /// The publisher says that nothing ends up to `wal_end`, at a moment when nothing was open.
    pub(crate) fn quiet(&mut self, wal_end: Lsn) {
        self.heartbeats.quiet(wal_end);
    }

    /// When the next heartbeat is due, if nothing is pending then.
    pub(crate) fn heartbeat_due(&self) -> Instant {
        self.started + Duration::from_millis(self.heartbeats.due_at_ms())
    }

    /// Writes a heartbeat.
    pub(crate) async fn heartbeat(&mut self) -> Result<(), Failure> {
        let end_lsn = self.heartbeats.quiet_until();
        let envelope = self.envelope(end_lsn, Body::Heartbeat(Heartbeat {}));
        self.send(&envelope, Some(end_lsn)).await?;
        self.heartbeats.beat(end_lsn, self.now_ms());
        self.metrics.heartbeats.inc();
        Ok(())
    }

    /// The next report; none when it is time to warn of a stall. Loses nothing when dropped.
    pub(crate) async fn next_report(&mut self) -> Option<Report> {
        let warning = self.until_stall_warning();
        let waits = self.stall.waiting_since.is_some();
        tokio::select! {
            report = self.writer.report() => Some(report),
            () = self.stall.question.is_gone(&self.reader), if waits => {
                Some(Report::Failed(RDKafkaErrorCode::UnknownTopicOrPartition))
            }
            () = tokio::time::sleep(warning) => None,
        }
    }

    /// Takes a report and all that came with it, and confirms what they allow.
    pub(crate) async fn report(&mut self, report: Option<Report>) -> Result<(), Failure> {
        if report.is_none() {
            self.warn_of_stall();
        }
        let mut next = report;
        while let Some(report) = next {
            self.take(report).await?;
            next = self.writer.try_report();
        }
        self.settle().await
    }

    async fn wait_for_reports(&mut self) -> Result<(), Failure> {
        let shutdown = self.shutdown.clone();
        let report = tokio::select! {
            () = shutdown.cancelled() => return Err(Failure::Shutdown),
            report = self.next_report() => report,
        };
        self.report(report).await
    }

    async fn take(&mut self, report: Report) -> Result<(), Failure> {
        match report {
            Report::Acknowledged { sequence, offset } => {
                if !self.progress.acknowledged(sequence, offset) {
                    let message =
                        format!("delivery report for record {sequence}, which is not pending");
                    return Err(Failure::Definite(Stop::new(StopKind::Internal, message)));
                }
                self.acknowledged();
                Ok(())
            }
            Report::Failed(code) => Err(policy::kafka(code, &code.to_string(), &self.terms.topic)),
            Report::Fatal { code, reason } => {
                let (code, reason) = self.writer.behind_fatal(code, reason).await;
                Err(policy::kafka(code, &reason, &self.terms.topic))
            }
            Report::Trouble { code, reason } => {
                tracing::debug!("Kafka client: {reason}");
                if code != RDKafkaErrorCode::AllBrokersDown || self.stall.trouble.is_none() {
                    self.stall.trouble = Some(reason);
                }
                Ok(())
            }
        }
    }

    /// Confirms what the reports allow, reading the lane where offsets jump.
    async fn settle(&mut self) -> Result<(), Failure> {
        let mut step = self.progress.step();
        loop {
            match step {
                Step::Wait => break,
                Step::Confirm(lsn) => {
                    self.teller.confirm(lsn);
                    self.metrics.set_confirmed(lsn);
                    step = self.progress.step();
                }
                Step::Jump { expected, found } => {
                    self.read_jump(expected, found).await?;
                    step = self.progress.step_over(found);
                }
                Step::Unplaced => {
                    self.heartbeat_in_place().await?;
                    break;
                }
            }
        }
        if self.is_settled() {
            self.stall.waiting_since = None;
        }
        self.metrics
            .pending_records
            .set(self.progress.pending() as u64);
        self.metrics
            .pending_bytes
            .set(self.progress.pending_bytes() as u64);
        Ok(())
    }

    /// Looks for a foreign claim among the records that lie between ours.
    async fn read_jump(&self, expected: i64, found: i64) -> Result<(), Failure> {
        tracing::debug!("offsets jump from {expected} to {found}: reading the lane there");
        let foreign = self
            .reader
            .fold(
                expected..found,
                None,
                |foreign: &mut Option<String>, record| {
                    if let Body::Claim(claim) = record.envelope.body {
                        *foreign = Some(claim.writer);
                    }
                },
            )
            .await?;
        let Some(writer) = foreign else {
            return Ok(());
        };
        let message = format!("lane {} was claimed by another producer", self.terms.topic);
        let stop = Stop::new(StopKind::SlotInUse, message)
            .detail(format!("The other producer is {writer}."));
        Err(Failure::Transient {
            cause: Cause::Claim,
            stop,
        })
    }

    /// A heartbeat that says nothing new, to learn at which offset the records before it lie.
    async fn heartbeat_in_place(&mut self) -> Result<(), Failure> {
        let end_lsn = self.progress_covers();
        let envelope = self.envelope(end_lsn, Body::Heartbeat(Heartbeat {}));
        self.send(&envelope, None).await
    }

    fn progress_covers(&self) -> Lsn {
        self.previous_end_lsn.max(self.progress.confirmed())
    }

    fn envelope(&mut self, end_lsn: Lsn, body: Body) -> Envelope {
        self.seq += 1;
        Envelope {
            incarnation: self.terms.life.incarnation,
            timeline: self.terms.life.timeline,
            claim_offset: self.claim_offset,
            options_hash: self.terms.life.options_hash,
            seq: self.seq,
            end_lsn,
            previous_end_lsn: self.previous_end_lsn,
            body,
        }
    }

    async fn send(&mut self, envelope: &Envelope, covers: Option<Lsn>) -> Result<(), Failure> {
        record::fill(&mut self.buffer, self.terms.envelope_schema_id, envelope)?;
        loop {
            let sequence = self.progress.next_sequence();
            let headers = record::headers_of(envelope);
            let record = Record {
                key: self.key.as_bytes(),
                headers,
                payload: &self.buffer,
            };
            match self.writer.send(sequence, record) {
                Ok(()) => break,
                Err(Unsent::Full) => Box::pin(self.wait_for_reports()).await?,
                Err(unsent) => return Err(record::unsent(unsent, &self.terms.topic)),
            }
        }
        self.progress
            .sent(covers, self.buffer.len() + RECORD_OVERHEAD_BYTES);
        if self.stall.waiting_since.is_none() {
            self.stall.waiting_since = Some(Instant::now());
            self.stall.question.put_off();
        }
        self.metrics.records.inc();
        self.metrics.bytes.inc_by(self.buffer.len() as u64);
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn acknowledged(&mut self) {
        self.stall.waiting_since = Some(Instant::now());
        self.stall.question.put_off();
        self.stall.trouble = None;
        if std::mem::take(&mut self.stall.warned) {
            tracing::info!("Kafka acknowledges records again");
            self.metrics.set_state(State::Streaming);
        }
    }

    fn until_stall_warning(&self) -> Duration {
        const FAR: Duration = Duration::from_secs(3_600);
        match self.stall.waiting_since {
            Some(since) if !self.stall.warned && !self.is_settled() => {
                self.terms.stall_warning.saturating_sub(since.elapsed())
            }
            _ => FAR,
        }
    }

    fn warn_of_stall(&mut self) {
        if self.until_stall_warning() > Duration::ZERO {
            return;
        }
        self.stall.warned = true;
        self.metrics.set_state(State::Stalled);
        let trouble = self
            .stall
            .trouble
            .as_deref()
            .unwrap_or("no error was reported");
        tracing::warn!(
            "Kafka does not acknowledge records ({trouble}); {} are pending, trying until it does",
            self.progress.pending()
        );
    }

    /// Ends the writing client.
    pub(crate) async fn close(self) {
        self.writer.close().await;
    }
}

fn row_count(changes: &[Change]) -> u64 {
    changes
        .iter()
        .filter(|change| !matches!(change, Change::Message { .. }))
        .count() as u64
}
