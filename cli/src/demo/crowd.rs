//! All who use the shop at the same time: shoppers, the probe, the second reader.
//!
//! Each is a task of its own with its own connections; all of them are awaited here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::{Stop, StopKind};

use super::audit::{self, Audit};
use super::load::{Before, Load, Shopper};
use super::probe::{self, Beat};
use crate::args::Demo;
use crate::config::Config;
use crate::session::{self, OrStop};

/// How many shop at once.
pub(super) const SHOPPERS: i32 = 8;

type Tasks<T> = JoinSet<Result<T, tokio_postgres::Error>>;

/// Everybody, at work.
pub(super) struct Crowd {
    /// What the shoppers share.
    pub(super) load: Arc<Load>,
    /// When they began.
    pub(super) began: Instant,
    shoppers: Tasks<()>,
    probes: Tasks<Vec<Beat>>,
    auditors: Tasks<Audit>,
    audit_end: CancellationToken,
}

/// What they did and saw.
pub(super) struct Found {
    /// Transactions committed, the probe's included.
    pub(super) committed: u64,
    /// Transactions rolled back.
    pub(super) rolled_back: u64,
    /// The probe's beats.
    pub(super) beats: Vec<Beat>,
    /// What the second reader saw.
    pub(super) audit: Audit,
}

impl Crowd {
    /// Connects everybody and lets them begin.
    pub(super) async fn enter(options: &Demo, config: &Config) -> Result<Self, Stop> {
        let mut connections = Vec::new();
        for id in 1..=SHOPPERS {
            let session = session::publisher(config, "walbraid shopper").await?;
            connections.push(Shopper::new(id, session).await.or_stop("publisher")?);
        }
        let auditor = session::subscriber(config, "walbraid auditor").await?;
        let left = session::publisher(config, "walbraid probe").await?;
        let right = session::subscriber(config, "walbraid probe").await?;

        let before = Before::read(&left).await.or_stop("publisher")?;

        let duration = Duration::from_secs(options.seconds);
        let load = Arc::new(Load::new(options.rate, duration, before));
        let began = Instant::now();
        let mut shoppers = Tasks::new();
        for mut shopper in connections {
            let load = Arc::clone(&load);
            shoppers.spawn(async move { shopper.shop(&load).await });
        }
        let audit_end = CancellationToken::new();
        let token = audit_end.clone();
        let mut auditors = Tasks::new();
        auditors.spawn(async move { audit::watch(&auditor, token).await });
        let mut probes = Tasks::new();
        probes.spawn(async move { probe::beat(&left, &right, began + duration).await });
        Ok(Self {
            load,
            began,
            shoppers,
            probes,
            auditors,
            audit_end,
        })
    }

    /// Waits until the last shopper has gone; how long they were there.
    pub(super) async fn leave(&mut self) -> Result<Duration, Stop> {
        finished(&mut self.shoppers).await?;
        Ok(self.began.elapsed())
    }

    /// Waits for those who watch: their last look is at the drained subscriber.
    pub(super) async fn found(mut self) -> Result<Found, Stop> {
        let beats: Vec<Beat> = finished(&mut self.probes)
            .await?
            .into_iter()
            .flatten()
            .collect();
        self.audit_end.cancel();
        let audit = finished(&mut self.auditors)
            .await?
            .pop()
            .unwrap_or_default();
        Ok(Found {
            committed: self.load.committed.load(Ordering::Relaxed) + beats.len() as u64,
            rolled_back: self.load.rolled_back.load(Ordering::Relaxed),
            beats,
            audit,
        })
    }
}

/// The results of every task, or the first error.
async fn finished<T: 'static>(tasks: &mut Tasks<T>) -> Result<Vec<T>, Stop> {
    let mut results = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        let result = joined.map_err(|error| Stop::new(StopKind::Internal, error.to_string()))?;
        results.push(result.or_stop("demo")?);
    }
    Ok(results)
}
