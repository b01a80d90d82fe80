//! The producer, from top to bottom: receive ▸ decode ▸ assemble ▸ encode ▸ publish ▸ confirm.
//!
//! Owns the order of things: what is looked at before anything is written, the claim, the place in
//! the log, and what happens when the loop (`carry`) ends. The parts own their own affairs.
//!
//! A **claim** is one life of that loop. Whatever fails in a way that passes ends the claim; after
//! a pause a new one begins with a new connection, a new Kafka client and a new claim record, at
//! what the slot says is confirmed. So there is one way to recover, and it is the way to start.
//!
//! Order inside a claim, and why:
//!
//! 1. Topic, registry and the lane's newest record are looked at before the slot is taken, so that
//!    a producer that cannot write does not hold it.
//! 2. The slot is held before the claim is written: who does not hold it must not claim.
//! 3. The claim is acknowledged before the log is walked back from it: what an older producer wrote
//!    up to then is seen, and what it writes later is void.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use walbraid_decode::{Assembler, Decoder, Encoder, Protocol, Streaming};
use walbraid_schemas::{Lsn, Stop, StopKind};

use crate::before::{self, Before};
use crate::carry::{Carrier, Course};
use crate::claim::Claimant;
use crate::claimed::{ClaimedLane, Life, Terms};
use crate::config::Config;
use crate::kafka;
use crate::lane::LaneReader;
use crate::metrics::{Cause, Metrics, State};
use crate::notice;
use crate::policy::{self, Failure};
use crate::publish::Writer;
use crate::record;
use crate::registry::SchemaRegistry;
use crate::retry::{self, Backoff};
use crate::session::{self, Session};
use crate::tail;
use crate::topic::{self, Topic};

/// Makes the producer's metrics known to `registry`, and returns what carries the slot's
/// transactions into the lane until the shutdown, or until a person must act.
pub fn run(
    config: Config,
    registry: &mut prometheus_client::registry::Registry,
    shutdown: CancellationToken,
) -> impl Future<Output = Result<(), Stop>> + Send + use<> {
    let metrics = Metrics::register(registry, &config.stream);
    let backoff = Backoff::new(config.intervals.retry_backoff_max_ms);
    let mut producer = Producer {
        config,
        metrics,
        shutdown,
        backoff,
        trouble: None,
    };
    on_worker(async move {
        let ended = producer.claim_after_claim().await;
        producer.metrics.set_state(State::Stopped);
        ended
    })
}

/// Runs `work` on a worker thread of the runtime, which waits for sockets itself: a thread that
/// only blocks on a future is woken by another one for each read, which costs more than the read.
/// The work ends with the future that waits for it.
async fn on_worker<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

struct Producer {
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
    backoff: Backoff,
    /// What was warned of and is not over.
    trouble: Option<String>,
}

/// What is in order before the slot is taken.
struct Prepared {
    topic: Topic,
    registry: Arc<SchemaRegistry>,
    envelope_schema_id: i32,
    reader: Arc<LaneReader>,
    before: Before,
}

impl Producer {
    async fn claim_after_claim(&mut self) -> Result<(), Stop> {
        loop {
            match self.one_claim().await {
                Ok(()) | Err(Failure::Shutdown) => return Ok(()),
                Err(Failure::Definite(stop)) => return Err(stop),
                Err(Failure::Transient { cause, stop }) => {
                    self.metrics.retry(cause);
                    self.metrics.set_state(State::Waiting);
                    if self.trouble.is_none() {
                        tracing::warn!("{}; trying again until it works", stop.message);
                        self.trouble = Some(stop.message);
                    }
                }
            }
            let pause = self.backoff.pause(rand::random());
            if retry::pause(&self.shutdown, pause).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The trouble is over: the next one is a new one.
    fn is_well(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            tracing::info!("went on after trouble: {trouble}");
        }
    }

    /// One claim, from its preparations to whatever ends it.
    async fn one_claim(&mut self) -> Result<(), Failure> {
        self.metrics.set_state(State::Connecting);
        let prepared = match self.until_shutdown(self.prepare()).await {
            Err(Failure::Definite(stop)) => {
                self.leave_word(&stop).await;
                return Err(Failure::Definite(stop));
            }
            prepared => prepared?,
        };
        let mut claim_offset = None;
        let ended = self.hold_slot(&prepared, &mut claim_offset).await;
        let ended = self.or_smaller_records(&prepared.topic, ended).await;
        if let Err(Failure::Definite(stop)) = &ended {
            self.leave_notice(&prepared, claim_offset, stop).await;
        }
        if let Some(reader) = Arc::into_inner(prepared.reader) {
            reader.close().await;
        }
        ended
    }

    async fn prepare(&self) -> Result<Prepared, Failure> {
        let kafka = &self.config.kafka;
        let topic = topic::look(kafka).await?;
        if let Some(stop) = topic::unfit(topic.as_ref(), kafka, &self.config.limits) {
            return Err(stop.into());
        }
        let registry = Arc::new(SchemaRegistry::new(&self.config.registry, &kafka.topic)?);
        let envelope_schema_id = registry.envelope().await?;
        let reader = Arc::new(LaneReader::new(kafka)?);
        let before = before::read(&reader, &self.config).await?;
        let topic = topic.unwrap_or_default();
        Ok(Prepared {
            topic,
            registry,
            envelope_schema_id,
            reader,
            before,
        })
    }

    /// Takes the slot, claims the lane, finds the slot's place in the log, and carries from there.
    async fn hold_slot(
        &mut self,
        prepared: &Prepared,
        claim_offset: &mut Option<(i64, Terms)>,
    ) -> Result<(), Failure> {
        let opening = session::open(&self.config, &self.metrics, &self.shutdown);
        let mut session = self.until_shutdown(opening).await?;
        let claimed = self.claim(prepared, &session, claim_offset).await;
        let ended = match claimed {
            Ok(lane) => {
                self.is_well();
                let since = Instant::now();
                let carrier = self.carrier(prepared, &session, lane);
                let ended = carrier
                    .carry(&mut session.receiver, &mut session.status)
                    .await;
                // A claim that did not live long was no recovery.
                let limit_ms = self.config.intervals.retry_backoff_max_ms;
                if since.elapsed() >= Duration::from_millis(limit_ms) {
                    self.backoff = Backoff::new(limit_ms);
                }
                ended
            }
            Err(failure) => Err(failure),
        };
        session.status.close().await;
        ended
    }

    /// A topic that refuses a record may take less than it did when it was looked at: then the next
    /// claim writes smaller ones.
    async fn or_smaller_records(
        &self,
        then: &Topic,
        ended: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Err(Failure::Definite(stop)) = ended else {
            return ended;
        };
        if stop.kind == StopKind::RecordTooLarge
            && let Ok(Some(now)) = topic::look(&self.config.kafka).await
            && now.record_bytes_max(&self.config.limits)
                < then.record_bytes_max(&self.config.limits)
        {
            return Err(Failure::Transient {
                cause: Cause::Kafka,
                stop,
            });
        }
        Err(Failure::Definite(stop))
    }

    /// Writes the claim and finds the slot's place in the log behind it.
    async fn claim(
        &self,
        prepared: &Prepared,
        session: &Session,
        claimed: &mut Option<(i64, Terms)>,
    ) -> Result<ClaimedLane, Failure> {
        self.metrics.set_state(State::Claiming);
        let before = &prepared.before;
        if let Some(stop) = before.foreign(&session.system_identifier, &session.facts.database) {
            return Err(stop.into());
        }
        let terms = self.terms(prepared, session);
        let mut writer = self.writer(&prepared.topic)?;
        let placing = self.place(prepared, session, &terms, &mut writer, claimed);
        let (claim_offset, previous_end_lsn) = match self.until_shutdown(placing).await {
            Ok(placed) => placed,
            Err(failure) => {
                writer.close().await;
                return Err(failure);
            }
        };
        self.metrics.claims.inc();
        self.metrics.set_confirmed(session.confirmed);
        self.metrics.set_state(State::Streaming);
        Ok(ClaimedLane::new(
            terms,
            (writer, Arc::clone(&prepared.reader)),
            session.status.teller(),
            (self.metrics.clone(), self.shutdown.clone()),
            claim_offset,
            session.confirmed,
            previous_end_lsn,
        ))
    }

    async fn place(
        &self,
        prepared: &Prepared,
        session: &Session,
        terms: &Terms,
        writer: &mut Writer,
        claimed: &mut Option<(i64, Terms)>,
    ) -> Result<(i64, Lsn), Failure> {
        let slot = &self.config.publisher.slot;
        let claimant = Claimant {
            options: &session.options,
            system_identifier: &session.system_identifier,
            database: &session.facts.database,
            slot,
            confirmed_lsn: session.confirmed,
            last_generation: prepared
                .before
                .claim
                .as_ref()
                .map_or(0, |claim| claim.generation),
        };
        let claim = claimant.claim(rand::random());
        let claim_offset = record::write_claim(terms, writer, claim).await?;
        *claimed = Some((claim_offset, terms.clone()));
        let (incarnation, confirmed) = (terms.life.incarnation, session.confirmed);
        let scan = tail::scan(&prepared.reader, incarnation, confirmed, claim_offset).await?;
        let previous_end_lsn = tail::previous_end_lsn(&scan, &session.timelines, slot)?;
        tracing::info!(
            "claimed lane {} of topic \"{}\" at offset {claim_offset}; slot \"{slot}\" is at {}",
            self.config.kafka.lane,
            self.config.kafka.topic,
            session.confirmed,
        );
        Ok((claim_offset, previous_end_lsn))
    }

    fn writer(&self, topic: &Topic) -> Result<Writer, Failure> {
        let Config { kafka, limits, .. } = &self.config;
        let config = kafka::producer(kafka, limits, topic.record_bytes_max(limits))?;
        Writer::new(&config, &kafka.topic, kafka.lane)
            .map_err(|error| policy::kafka_call(&error, &kafka.topic))
    }

    fn terms(&self, prepared: &Prepared, session: &Session) -> Terms {
        let life = Life {
            incarnation: prepared.before.incarnation,
            timeline: session.timelines.current,
            options_hash: session.options.hash(),
        };
        Terms::new(&self.config, life, prepared.envelope_schema_id)
    }

    /// What a record says that is written under no claim of ours.
    fn terms_before(&self, before: &Before) -> Terms {
        let life = Life {
            incarnation: before.incarnation,
            timeline: before.timeline,
            options_hash: before.options_hash,
        };
        Terms::new(&self.config, life, before.envelope_schema_id)
    }

    fn carrier(&self, prepared: &Prepared, session: &Session, lane: ClaimedLane) -> Carrier {
        let Config {
            publisher,
            limits,
            intervals,
            ..
        } = &self.config;
        let protocol = Protocol {
            version: session.options.protocol as u8,
            streaming: Streaming::Off,
            two_phase: false,
        };
        // A publisher without a time-out sends no keepalives in a long transaction either.
        let timeout_ms = session.facts.wal_sender_timeout_ms;
        let silence_ms = intervals.receive_timeout_ms.max(2 * timeout_ms);
        let course = Course {
            confirmed: session.confirmed,
            local_origin_only: publisher.local_origin_only,
            silence: (timeout_ms > 0).then(|| Duration::from_millis(silence_ms)),
            retry_backoff_max_ms: intervals.retry_backoff_max_ms,
            shutdown_timeout: Duration::from_millis(intervals.shutdown_timeout_ms),
        };
        let encoder = Encoder::new(prepared.topic.record_bytes_max(limits));
        Carrier::new(
            course,
            (Assembler::new(Decoder::new(protocol)), encoder),
            Arc::clone(&prepared.registry),
            lane,
            session.status.teller(),
            (self.metrics.clone(), self.shutdown.clone()),
        )
    }

    /// Tells the lane why the producer stops, if it can be told and should know.
    async fn leave_notice(&self, prepared: &Prepared, claimed: Option<(i64, Terms)>, stop: &Stop) {
        if !notice::concerns_lane(stop.kind) {
            return;
        }
        let before = &prepared.before;
        let (claim_offset, terms) =
            claimed.unwrap_or_else(|| (before.claim_offset, self.terms_before(before)));
        if let Ok(writer) = self.writer(&prepared.topic) {
            notice::write(&terms, writer, claim_offset, stop).await;
        }
    }

    /// The same where nothing was prepared: only the lane itself is needed to tell it something,
    /// and it says under which schema.
    async fn leave_word(&self, stop: &Stop) {
        if !notice::concerns_lane(stop.kind) {
            return;
        }
        let Ok(reader) = LaneReader::new(&self.config.kafka) else {
            return;
        };
        let before = tokio::time::timeout(notice::TIME, before::read(&reader, &self.config)).await;
        reader.close().await;
        if let (Ok(Ok(before)), Ok(writer)) = (before, self.writer(&Topic::default())) {
            notice::write(
                &self.terms_before(&before),
                writer,
                before.claim_offset,
                stop,
            )
            .await;
        }
    }

    async fn until_shutdown<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            () = self.shutdown.cancelled() => Err(Failure::Shutdown),
            result = work => result,
        }
    }
}
