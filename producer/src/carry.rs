//! The loop: from what the walsender sends to what the lane holds.
//!
//! Owns the turn order of messages, delivery reports, heartbeats and time-outs under one claim, and
//! what is left out on the way. Does not own how a claim begins or what follows its end
//! (`pipeline`), nor what is confirmed (`claimed`).
//!
//! Who may wait for whom:
//!
//! 1. A message waits for room in the lane, for the registry when it shows a shape for the first
//!    time, and for nothing else. Reports are taken during both.
//! 2. A heartbeat waits for nothing: it is written only while nothing is open and nothing pending.
//! 3. The status task waits for none of these (`status`).
//!
//! While there is no room the walsender is not read; its own back-pressure stops the decoding.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use walbraid_decode::{Assembler, Begin, Encoder, Event, LinkPart, Relation};
use walbraid_schemas::{Lsn, Stop, StopKind};
use walbraid_wire::Error;
use walbraid_wire::replication::{ReplicationMessage, ReplicationReceiver, XLogData};

use crate::claimed::ClaimedLane;
use crate::metrics::{Cause, Metrics};
use crate::policy::{self, Failure};
use crate::registry::SchemaRegistry;
use crate::retry;
use crate::status::{Status, Teller};

/// Messages taken in one go before reports and the clock are looked at again.
const MESSAGES_PER_TURN: usize = 256;

/// What the loop is told.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Where the slot stood when it was taken: what ends at or below it is in the log.
    pub confirmed: Lsn,
    /// Leave out what the publisher received from elsewhere (where the server cannot).
    pub local_origin_only: bool,
    /// Silence after which the connection counts as lost.
    pub silence: Option<Duration>,
    /// Longest pause between two requests to the registry.
    pub retry_backoff_max_ms: u64,
    /// How long a shutdown waits for what is pending.
    pub shutdown_timeout: Duration,
}

/// Carries the transactions of one claim.
pub(crate) struct Carrier {
    course: Course,
    assembler: Assembler,
    encoder: Encoder,
    registry: Arc<SchemaRegistry>,
    lane: ClaimedLane,
    teller: Teller,
    metrics: Metrics,
    shutdown: CancellationToken,
    /// The open transaction is left out.
    left_out: bool,
    parts: Vec<LinkPart>,
    received: Lsn,
    heard: Instant,
}

impl Carrier {
    pub(crate) fn new(
        course: Course,
        (assembler, encoder): (Assembler, Encoder),
        registry: Arc<SchemaRegistry>,
        lane: ClaimedLane,
        teller: Teller,
        (metrics, shutdown): (Metrics, CancellationToken),
    ) -> Carrier {
        Carrier {
            received: course.confirmed,
            course,
            assembler,
            encoder,
            registry,
            lane,
            teller,
            metrics,
            shutdown,
            left_out: false,
            parts: Vec::new(),
            heard: Instant::now(),
        }
    }

    /// Carries until something ends the claim; a shutdown ends it well.
    pub(crate) async fn carry(
        mut self,
        receiver: &mut ReplicationReceiver,
        status: &mut Status,
    ) -> Result<(), Failure> {
        let ended = self.turns(receiver, status).await;
        let ended = match ended {
            Err(Failure::Shutdown) => self.wind_down().await,
            ended => ended,
        };
        self.lane.close().await;
        ended
    }

    async fn turns(
        &mut self,
        receiver: &mut ReplicationReceiver,
        status: &mut Status,
    ) -> Result<(), Failure> {
        loop {
            let idle = self.assembler.is_idle() && self.lane.is_settled();
            self.teller.tell(self.received, idle);
            let now = Instant::now();
            if idle && now >= self.lane.heartbeat_due() {
                self.lane.heartbeat().await?;
                continue;
            }
            let reading = self.lane.has_room();
            if !reading {
                self.heard = now;
            }
            let wake_at = self.wake_at(idle, reading);
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(Failure::Shutdown),
                report = self.lane.next_report(), if !self.lane.is_settled() => {
                    self.lane.report(report).await?;
                }
                message = receiver.next(), if reading => {
                    let message = message.map_err(|error| policy::publisher(&error))?;
                    self.messages(message, receiver).await?;
                }
                error = status.failed() => return Err(policy::publisher(&error)),
                () = tokio::time::sleep_until(wake_at.into()) => self.check_silence(reading)?,
            }
        }
    }

    fn wake_at(&self, idle: bool, reading: bool) -> Instant {
        const FAR: Duration = Duration::from_secs(3_600);
        let heartbeat = idle.then(|| self.lane.heartbeat_due());
        let silence = self
            .course
            .silence
            .filter(|_| reading)
            .map(|limit| self.heard + limit);
        [heartbeat, silence]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + FAR)
    }

    fn check_silence(&self, reading: bool) -> Result<(), Failure> {
        match self.course.silence {
            Some(limit) if reading && self.heard.elapsed() >= limit => {
                let message = format!("publisher was silent for {} s", limit.as_secs());
                let stop = Stop::new(StopKind::ServerUnreachable, message);
                Err(Failure::Transient {
                    cause: Cause::Publisher,
                    stop,
                })
            }
            _ => Ok(()),
        }
    }

    /// Takes a message, and those that were read with it. None is read that is not taken.
    async fn messages(
        &mut self,
        first: ReplicationMessage,
        receiver: &mut ReplicationReceiver,
    ) -> Result<(), Failure> {
        self.heard = Instant::now();
        self.message(first).await?;
        for _ in 1..MESSAGES_PER_TURN {
            if !self.lane.has_room() {
                break;
            }
            let next = receiver
                .try_next()
                .map_err(|error| policy::publisher(&error))?;
            match next {
                Some(message) => self.message(message).await?,
                None => break,
            }
        }
        // A part that waited for room, or a shape for the registry, is no silence of the publisher.
        self.heard = Instant::now();
        self.metrics.set_received(self.received);
        Ok(())
    }

    async fn message(&mut self, message: ReplicationMessage) -> Result<(), Failure> {
        match message {
            ReplicationMessage::XLogData(data) => self.data(data).await,
            ReplicationMessage::Keepalive(keepalive) => {
                self.received = self.received.max(keepalive.wal_end);
                if self.assembler.is_idle() {
                    self.lane.quiet(keepalive.wal_end);
                }
                if keepalive.reply_requested {
                    self.teller.answer();
                }
                Ok(())
            }
            ReplicationMessage::End => Err(policy::publisher(&Error::Closed { source: None })),
        }
    }

    async fn data(&mut self, message: XLogData) -> Result<(), Failure> {
        self.received = self.received.max(message.start);
        for event in self.assembler.push(message.start, &message.data)? {
            self.event(event).await?;
        }
        Ok(())
    }

    async fn event(&mut self, event: Event<'_>) -> Result<(), Failure> {
        match event {
            Event::Relation(relation) => return self.register(&relation).await,
            Event::Begin(ref begin) => self.left_out = self.leaves_out(begin),
            // Its LSN is where its record ends.
            Event::Message(ref message) if message.lsn <= self.course.confirmed => return Ok(()),
            Event::Commit(commit) | Event::Empty(commit) => {
                self.received = self.received.max(commit.end_lsn);
                let left_out = std::mem::take(&mut self.left_out);
                if left_out || matches!(event, Event::Empty(_)) {
                    self.lane.quiet(commit.end_lsn);
                    return Ok(());
                }
            }
            Event::Message(_) | Event::Change(_) => {}
        }
        if self.left_out {
            return Ok(());
        }
        self.encoder.push(event, &mut self.parts)?;
        for part in self.parts.drain(..) {
            self.lane.part(part).await?;
        }
        Ok(())
    }

    /// Whether a transaction is not carried: it is in the log already, or of foreign origin.
    fn leaves_out(&self, begin: &Begin) -> bool {
        begin.commit_lsn < self.course.confirmed
            || self.course.local_origin_only && begin.origin.is_some()
    }

    /// Registers a shape, for as long as it takes, taking reports meanwhile.
    async fn register(&mut self, relation: &Relation) -> Result<(), Failure> {
        let (registry, metrics) = (Arc::clone(&self.registry), self.metrics.clone());
        let shutdown = self.shutdown.clone();
        let registered = retry::until_done(
            &shutdown,
            &metrics,
            self.course.retry_backoff_max_ms,
            || registry.table(&relation.table),
        );
        tokio::pin!(registered);
        loop {
            tokio::select! {
                table = &mut registered => {
                    self.encoder.register(relation, table?);
                    self.metrics.schemas.inc();
                    return Ok(());
                }
                report = self.lane.next_report(), if !self.lane.is_settled() => {
                    self.lane.report(report).await?;
                }
            }
        }
    }

    /// Waits, for a while, until what was written is acknowledged, so that it is confirmed too.
    async fn wind_down(&mut self) -> Result<(), Failure> {
        let until = tokio::time::Instant::now() + self.course.shutdown_timeout;
        while !self.lane.is_settled() {
            tokio::select! {
                report = self.lane.next_report() => self.lane.report(report).await?,
                () = tokio::time::sleep_until(until) => {
                    tracing::info!("ended with records that Kafka did not acknowledge in time");
                    break;
                }
            }
        }
        self.teller.tell(self.received, false);
        Ok(())
    }
}
