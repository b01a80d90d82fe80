//! From a record's bytes to what the engine takes: decoded, its tables known, and mapped to the
//! subscriber's relations.
//!
//! A task of its own between the reader and the lane, because it may have to wait: for a registry
//! that is down, for the subscriber's catalogue. Meanwhile the lane goes on with what it has, and
//! the reader stops when the channel between them is full.
//!
//! What was resolved is kept (`known`); the lane throws it away when the subscriber's tables may
//! have changed, or when there may be another subscriber. Where several workers may apply, the
//! catalogue is asked every second whether what conflict keys rest on has changed: an index that
//! was added then counts for the records that follow, and the engine lets the first of them wait
//! for those before.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_postgres::types::Oid;
use tokio_util::sync::CancellationToken;
use walbraid_apply::event::Record;
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::relation::Relation;
use walbraid_schemas::envelope::{self, Body, TableRef};
use walbraid_schemas::frame;
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_schemas::table::Table;
use walbraid_wire::ConnectOptions;

use crate::catalogue;
use crate::config::{Apply, Subscriber};
use crate::fetch::{self, Batch};
use crate::flusher::{self, in_time};
use crate::known::Known;
use crate::metrics::LaneMetrics;
use crate::policy::{Failure, Retry, Trouble};
use crate::registry::Tables;

/// Batches between the resolver and the lane.
pub(crate) const BATCHES_MAX: usize = 2;

/// How often the catalogue is asked whether it has changed.
const LOOK_MS: u64 = 1_000;

/// What the lane gets.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// Records, ready for the engine.
    Records(Vec<Record>),
    /// The offset to read next is not in the log.
    OutOfRange,
    /// The Kafka client is in trouble.
    Trouble(Failure),
    /// Kafka answers, though there may be nothing to read.
    Answered,
    /// The next record cannot be used, for good.
    Stop(Stop),
}

/// Decodes records, and knows their tables.
pub(crate) struct Resolver {
    tables: Tables,
    known: Known,
    options: ConnectOptions,
    application_name: String,
    /// How long the subscriber may leave a question without an answer.
    answer_limit: Option<Duration>,
    session: Option<catalogue::Session>,
    topic: String,
    metrics: LaneMetrics,
    /// What is waited for.
    trouble: Trouble,
    keys: KeyWatch,
}

/// Whose conflict keys are read, and how.
pub(crate) struct KeyWatch {
    /// Somebody needs them.
    wanted: bool,
    /// Tables, as `schema.table`, that are declared safe.
    parallel_safe: Vec<String>,
}

/// A relation as it was read, and the fingerprint it is watched by.
struct Read {
    relation: Relation,
    watch: Option<(Oid, String)>,
}

impl KeyWatch {
    /// What the configuration asks for.
    pub(crate) fn new(apply: &Apply) -> Self {
        Self {
            wanted: apply.workers.most() > 1,
            parallel_safe: apply.parallel_safe.clone(),
        }
    }
}

impl Resolver {
    pub(crate) fn new(
        tables: Tables,
        subscriber: &Subscriber,
        application_name: String,
        topic: &str,
        metrics: LaneMetrics,
        keys: KeyWatch,
    ) -> Self {
        let trouble = Trouble::default();
        Self {
            tables: tables.seen(trouble.clone()),
            known: Known::default(),
            options: subscriber.side(),
            application_name,
            answer_limit: subscriber.answer_limit(),
            session: None,
            topic: topic.to_owned(),
            metrics,
            trouble,
            keys,
        }
    }

    /// Where it is seen what the resolver waits for.
    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// Forgets what was read from the subscriber's catalogue.
    pub(crate) fn forget_relations(&mut self) {
        self.known.forget();
        self.session = None;
    }

    /// Resolves batches until there are no more, or nobody wants them, or `stop`.
    pub(crate) async fn run(
        mut self,
        mut run: fetch::Run,
        resolved: mpsc::Sender<Resolved>,
        stop: CancellationToken,
    ) -> Self {
        let mut looks = tokio::time::interval(Duration::from_millis(LOOK_MS));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                batch = run.batches.recv() => batch,
                _ = looks.tick(), if self.keys.wanted => {
                    tokio::select! {
                        () = self.look() => {}
                        () = stop.cancelled() => {}
                    }
                    continue;
                }
                () = stop.cancelled() => None,
            };
            let Some(batch) = batch else { break };
            let (answer, is_last) = self.resolve(batch, &stop).await;
            for one in answer {
                let sent = tokio::select! {
                    sent = resolved.send(one) => sent.is_ok(),
                    () = stop.cancelled() => false,
                };
                if !sent {
                    run.stop().await;
                    return self;
                }
            }
            if is_last {
                break;
            }
        }
        run.stop().await;
        self
    }

    /// What a batch becomes, and whether nothing can follow it.
    async fn resolve(&mut self, batch: Batch, stop: &CancellationToken) -> (Vec<Resolved>, bool) {
        let records = match batch {
            Batch::OutOfRange => return (vec![Resolved::OutOfRange], true),
            Batch::Answered => return (vec![Resolved::Answered], false),
            Batch::Trouble(error) => {
                return (vec![Resolved::Trouble(Failure::from(error))], false);
            }
            Batch::Records(records) => records,
        };
        let mut ready = Vec::with_capacity(records.len());
        for record in records {
            match self.record(&record, stop).await {
                Ok(record) => ready.push(record),
                Err(Failure::Definite(stop)) => {
                    return (vec![Resolved::Records(ready), Resolved::Stop(stop)], true);
                }
                Err(_) => return (Vec::new(), true),
            }
        }
        (vec![Resolved::Records(ready)], false)
    }

    async fn record(
        &mut self,
        record: &fetch::Record,
        stop: &CancellationToken,
    ) -> Result<Record, Failure> {
        let fetch::Record { offset, payload } = record;
        let (id, datum) =
            frame::split(payload).map_err(|error| self.undecodable(*offset, &error))?;
        let datum = payload.slice_ref(datum);
        if !self.tables.is_envelope(id) {
            self.tables.check_envelope(id, stop, &self.metrics).await?;
        }
        let envelope =
            envelope::decode(&datum).map_err(|error| self.undecodable(*offset, &error))?;
        let mut targets = Vec::new();
        if let Body::Part(part) = &envelope.body {
            targets.reserve_exact(part.tables.len());
            for table in &part.tables {
                targets.push(match self.known.get(table) {
                    Some(target) => target.clone(),
                    None => self.target(table, stop).await?,
                });
            }
        }
        Ok(Record {
            offset: *offset,
            size_bytes: payload.len(),
            envelope,
            targets,
        })
    }

    fn undecodable(&self, offset: i64, error: &dyn std::fmt::Display) -> Failure {
        let topic = &self.topic;
        let message = format!("record {offset} of topic \"{topic}\" cannot be decoded");
        Failure::Definite(Stop::new(StopKind::Undecodable, message).detail(format!("{error}.")))
    }

    async fn target(
        &mut self,
        wanted: &TableRef,
        stop: &CancellationToken,
    ) -> Result<Target, Failure> {
        let table = self.tables.get(wanted, stop, &self.metrics).await?;
        let (relation, watch) = match self.relation(&table, stop).await? {
            Some(Read { relation, watch }) => (Some(relation), watch),
            None => (None, None),
        };
        let target: Target = match Mapped::new(table, relation.map(Arc::new)) {
            Ok(mapped) => Ok(Arc::new(mapped)),
            Err(error) => Err(Arc::new(error)),
        };
        self.known.insert(*wanted, target.clone(), watch);
        Ok(target)
    }

    /// The subscriber's relation; waits for a subscriber that is out of reach.
    async fn relation(
        &mut self,
        table: &Table,
        stop: &CancellationToken,
    ) -> Result<Option<Read>, Failure> {
        let mut retry = Retry::seen("reading the subscriber's catalogue", self.trouble.clone());
        loop {
            let read = tokio::select! {
                read = in_time(self.answer_limit, self.read(table)) => read,
                () = stop.cancelled() => return Err(Failure::Shutdown),
            };
            match read {
                Ok(relation) => {
                    retry.worked();
                    return Ok(relation);
                }
                Err(Failure::Transient(transient)) => {
                    self.session = None;
                    self.metrics.retried(transient.cause);
                    let pause = retry.failed(&transient);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = stop.cancelled() => return Err(Failure::Shutdown),
                    }
                }
                Err(other) => return Err(other),
            }
        }
    }

    async fn read(&mut self, table: &Table) -> Result<Option<Read>, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.open().await?,
        };
        let read = match self.keys.wanted {
            true => self.read_watched(&session, table).await?,
            false => {
                let relation = catalogue::read(&session, &table.schema, &table.name).await?;
                relation.map(|relation| Read {
                    relation,
                    watch: None,
                })
            }
        };
        self.session = Some(session);
        Ok(read)
    }

    async fn open(&self) -> Result<catalogue::Session, Failure> {
        let sql = flusher::open(&self.options, &self.application_name).await?;
        catalogue::Session::new(sql).await
    }

    /// Reads a relation that is watched from here on. One snapshot for all of it: what changes
    /// behind it is seen by the next look.
    async fn read_watched(
        &self,
        session: &catalogue::Session,
        table: &Table,
    ) -> Result<Option<Read>, Failure> {
        session
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await?;
        let mut read = None;
        let found = catalogue::read_with_keys(session, &table.schema, &table.name).await?;
        if let Some(mut relation) = found {
            let name = format!("{}.{}", table.schema, table.name);
            relation.keys.declared_safe = self.keys.parallel_safe.contains(&name);
            let oid = relation.oid;
            let mut seen = catalogue::fingerprints(session, &[oid]).await?;
            // One that has none is read anew by the first look.
            let watch = Some((oid, seen.remove(&oid).unwrap_or_default()));
            read = Some(Read { relation, watch });
        }
        session.batch_execute("COMMIT").await?;
        Ok(read)
    }

    /// Asks whether what conflict keys rest on has changed. A session that fails, or is silent, is
    /// opened anew by the next look: whatever is known is watched.
    async fn look(&mut self) {
        let watched = self.known.watched();
        if watched.is_empty() {
            return;
        }
        let session = self.session.take();
        let answer = async {
            let session = match session {
                Some(session) => session,
                None => self.open().await?,
            };
            let seen = catalogue::fingerprints(&session, &watched).await?;
            Ok((session, seen))
        };
        match in_time(self.answer_limit, answer).await {
            Ok((session, seen)) => {
                self.session = Some(session);
                let changed = self.known.compare(&seen);
                if changed > 0 {
                    tracing::info!(changed, "tables of the subscriber have changed: read anew");
                }
            }
            Err(failure) => {
                let message = failure.into_stop().message;
                tracing::debug!(message, "the subscriber's catalogue cannot be looked at");
            }
        }
    }
}
