//! How a tenure ends: everything that runs is ended and awaited.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use walbraid_schemas::notice::{Stop, StopKind};

use super::{Tenure, TenureEnd};
use crate::lane::Lane;
use crate::policy::{Cause, Failure};
use crate::state::LaneState;

/// How long the last flush may take, and the last offset commit: neither is needed for what is
/// right, and whoever asked for the end waits.
const LAST_MS: u64 = 3_000;

/// Why a lane is given up that Kafka said nothing else about.
const GIVEN_UP: &str = "Kafka: the consumer group heard nothing of this member for too long";

/// Sessions are lost: behind the same address there may be another subscriber, a stand-by that was
/// promoted or one that was restored, and nothing that was read is known of that.
fn is_lost(end: &Result<TenureEnd, Failure>) -> bool {
    match end {
        Ok(TenureEnd::SessionLost(_)) | Err(Failure::Fenced) => true,
        Err(Failure::Transient(transient)) => transient.cause != Cause::Kafka,
        _ => false,
    }
}

impl Tenure {
    /// Ends and awaits everything.
    pub(super) async fn finish(
        mut self,
        lane: &mut Lane,
        end: Result<TenureEnd, Failure>,
    ) -> Result<TenureEnd, Failure> {
        self.stop_reading(lane).await;
        if (self.forget_relations || is_lost(&end))
            && let Some(resolver) = &mut lane.resolver
        {
            resolver.forget_relations();
        }
        let state = match &end {
            Ok(TenureEnd::Finished) if lane.given_up.load(Ordering::Relaxed) => {
                // This member goes on, and takes it again if nobody else does.
                let reason = self.kafka.reason().unwrap_or(GIVEN_UP).to_owned();
                Some(LaneState::Retrying { reason })
            }
            Ok(TenureEnd::Finished) => Some(LaneState::Idle),
            Ok(TenureEnd::Stopped(stop)) | Err(Failure::Definite(stop)) => {
                Some(LaneState::Stopped(stop.clone()))
            }
            // The subscriber's sessions are sound.
            Err(Failure::Transient(transient)) if transient.cause == Cause::Kafka => {
                let reason = transient.stop.message.clone();
                Some(LaneState::Retrying { reason })
            }
            _ => None,
        };
        match state {
            Some(state) => self.finish_in_order(lane, state).await,
            None => self.drop_sessions().await,
        }
        let end = match self.broken() {
            Some(stop) => Ok(TenureEnd::Stopped(stop)),
            None => end,
        };
        lane.retries = self.retries;
        lane.engine = Some(self.engine);
        if let Ok(reader) = Arc::try_unwrap(self.reader) {
            reader.close().await;
        }
        end
    }

    /// What is in flight is finished and flushed; the offset behind it is committed.
    async fn finish_in_order(&mut self, lane: &mut Lane, state: LaneState) {
        if !self.pool.finish(lane.config.shutdown_timeout()).await {
            tracing::warn!(lane = lane.number, "what was in flight did not end in time");
        }
        self.drain_events(lane);
        let state = match self.broken() {
            Some(stop) => LaneState::Stopped(stop),
            None => state,
        };
        let status = self.engine.status();
        self.fill_row(lane, &status, Some(state));
        self.explain(lane);
        self.recorder.end(&mut self.engine, lane.now_ms());
        self.tell_applied(status.applied_lsn);
        // The flusher ends once nobody tells it anything any more.
        let (idle, _) = watch::channel(self.applied.borrow().clone());
        drop(std::mem::replace(&mut self.applied, idle));
        self.end_flusher().await;
        self.drain_events(lane);
        if let Some(offset) = self.offset.take() {
            let commit = lane.group.commit_and_ask(lane.partition(), offset);
            match tokio::time::timeout(Duration::from_millis(LAST_MS), commit).await {
                Ok(Ok(())) => {
                    lane.metrics.committed_offset.set(offset);
                }
                Ok(Err(error)) => tracing::debug!(%error, offset, "last offset was not committed"),
                Err(_) => tracing::debug!(offset, "last offset was not committed in time"),
            }
        }
    }

    /// Takes in what is reported; what the engine wants run finds no worker.
    fn drain_events(&mut self, lane: &Lane) {
        while let Ok(event) = self.events.try_recv() {
            self.step(lane, event);
        }
    }

    /// The invariant that was found to be broken while everything was ended.
    fn broken(&self) -> Option<Stop> {
        match &self.end {
            Some(TenureEnd::Stopped(stop)) if stop.kind == StopKind::Internal => Some(stop.clone()),
            _ => None,
        }
    }

    async fn end_flusher(&mut self) {
        let limit = Duration::from_millis(LAST_MS);
        if tokio::time::timeout(limit, &mut self.flusher)
            .await
            .is_err()
        {
            self.flusher.abort();
            let _ = (&mut self.flusher).await;
        }
    }

    async fn drop_sessions(&mut self) {
        self.flusher.abort();
        self.pool.abort().await;
        let _ = (&mut self.flusher).await;
    }
}
