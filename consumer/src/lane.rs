//! A lane's life in this process: from the group's assignment to its revocation or the process'
//! end.
//!
//! Made of tenures: one lasts from taking the lane over (`fence`) until a session is lost, or until
//! there is nothing more to do. What must survive a tenure is kept here: the engine, the schemas
//! that were read, the owner's id and its newest epoch.
//!
//! A tenure that ended by itself is followed by the next one, after a pause that grows while
//! tenures are short. Before that the group is asked whether the lane is still ours: a zombie whose
//! sessions were ended by the new owner must not end the new owner's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use walbraid_apply::engine::Engine;
use walbraid_apply::rule;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::client::Clients;
use crate::config::Config;
use crate::group::{Group, is_given_up};
use crate::metrics::{DependenceMetrics, LaneMetrics};
use crate::policy::{Cause, Failure, Retry, Transient};
use crate::registry::Tables;
use crate::resolve::{KeyWatch, Resolver};
use crate::stream::Stream;
use crate::tenure::{self, TenureEnd};

/// How long the group's answer is waited for.
const ASK_MS: u64 = 15_000;

/// Pause before the group is asked again whether the lane is ours.
const ASK_AGAIN_MS: u64 = 1_000;

/// A lane that the group assigned to this process.
pub(crate) struct Lane {
    pub(crate) config: Arc<Config>,
    pub(crate) stream: Stream,
    pub(crate) database_oid: u32,
    pub(crate) number: u32,
    pub(crate) clients: Clients,
    pub(crate) group: Arc<Group>,
    pub(crate) metrics: LaneMetrics,
    /// Host and process id, for the lane's row.
    pub(crate) member: String,
    /// This lane's random owner id.
    pub(crate) owner: Uuid,
    /// The epoch of the newest tenure; 0 before the first.
    pub(crate) epoch: i64,
    pub(crate) engine: Option<Engine>,
    /// The engine's repetitions by cause that were counted already.
    pub(crate) retries: [u64; rule::Cause::ALL.len()],
    pub(crate) dependence: DependenceMetrics,
    pub(crate) resolver: Option<Resolver>,
    /// Transactions applied before the first tenure.
    pub(crate) transactions_before: Option<i64>,
    /// Tenures that ended for a reason that passes.
    pub(crate) retry: Retry,
    /// The offset that was committed last, or started from.
    pub(crate) offset: Option<i64>,
    pub(crate) born: Instant,
    /// The same by the wall's clock: since then the engine counts.
    pub(crate) since: SystemTime,
    /// Set when it is told to stop because the group gave it up, and not because it is to end.
    pub(crate) given_up: Arc<AtomicBool>,
}

impl Lane {
    /// A lane that was just assigned.
    pub(crate) fn new(
        config: &Arc<Config>,
        stream: &Stream,
        database_oid: u32,
        number: u32,
        group: &Arc<Group>,
        metrics: LaneMetrics,
    ) -> Result<Self, Failure> {
        let resolver = Resolver::new(
            Tables::new(&config.registry)?,
            &config.subscriber,
            application_name(&config.stream, number, "catalogue"),
            &config.kafka.topic,
            metrics.clone(),
            KeyWatch::new(&config.apply),
        );
        Ok(Self {
            config: Arc::clone(config),
            stream: stream.clone(),
            database_oid,
            number,
            clients: clients(config),
            group: Arc::clone(group),
            dependence: metrics.dependence(),
            metrics,
            member: member_name(),
            owner: Uuid::new_v4(),
            epoch: 0,
            engine: None,
            retries: Default::default(),
            resolver: Some(resolver),
            transactions_before: None,
            retry: Retry::new("applying the lane"),
            offset: None,
            born: Instant::now(),
            since: SystemTime::now(),
            given_up: Arc::default(),
        })
    }

    /// Lives until `stop`, or until a person must act.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), Stop> {
        loop {
            let end = tenure::run(&mut self, &stop).await;
            self.metrics.running.set(0);
            let transient = match end {
                Ok(TenureEnd::Finished) | Err(Failure::Shutdown) => return Ok(()),
                Ok(TenureEnd::Stopped(stop)) | Err(Failure::Definite(stop)) => return Err(stop),
                Ok(TenureEnd::Again(reason)) => {
                    tracing::info!(lane = self.number, "the lane is taken again: {reason}");
                    continue;
                }
                Ok(TenureEnd::SessionLost(reason)) => again(&reason),
                Err(Failure::Fenced) => again("another consumer took the lane"),
                Err(Failure::Transient(transient)) => transient,
            };
            self.metrics.retried(transient.cause);
            let pause = self.retry.failed(&transient);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return Ok(()),
            }
            self.wait_until_ours(&stop).await;
        }
    }

    /// Waits while the group says that the lane is another's; it will soon be revoked.
    async fn wait_until_ours(&self, stop: &CancellationToken) {
        let mut told = false;
        while self.is_given_up(stop).await {
            if !told {
                tracing::info!(
                    lane = self.number,
                    "the group gave the lane to another member"
                );
                told = true;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(ASK_AGAIN_MS)) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Asks the group whether the lane is another's. What the group cannot say, the fence must.
    async fn is_given_up(&self, stop: &CancellationToken) -> bool {
        let (Some(offset), true) = (self.offset, self.epoch > 0) else {
            return false;
        };
        let partition = self.partition();
        let answer = tokio::select! {
            answer = self.group.commit_and_ask(partition, offset) => answer,
            () = tokio::time::sleep(Duration::from_millis(ASK_MS)) => return false,
            () = stop.cancelled() => return false,
        };
        matches!(answer, Err(error) if is_given_up(&error))
    }

    /// The clock that the engine is given.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The partition.
    pub(crate) fn partition(&self) -> i32 {
        i32::try_from(self.number).unwrap_or(i32::MAX)
    }
}

fn again(reason: &str) -> Transient {
    let stop = Stop::new(StopKind::ServerUnreachable, reason);
    Transient {
        cause: Cause::Connection,
        stop,
    }
}

pub(crate) fn clients(config: &Config) -> Clients {
    Clients {
        properties: config.kafka.properties.clone(),
        group_id: config.group_id(),
        queue_bytes: config.queue_bytes(),
    }
}

/// What `pg_stat_activity` shows of a session.
pub(crate) fn application_name(stream: &str, lane: u32, what: &str) -> String {
    format!("walbraid {stream} {lane} {what}")
}

fn member_name() -> String {
    format!("{}:{}", crate::group::host_name(), std::process::id())
}
