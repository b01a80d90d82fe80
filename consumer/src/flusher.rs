//! The side session of a lane: it asks what is durable, and writes the lane's row.
//!
//! Target transactions commit without waiting for the disk. From here, every few milliseconds and
//! only when there is something new, `pg_replication_origin_progress(…, true)` of the origin whose
//! COMMIT returned last makes the subscriber flush its WAL up to that commit and tells what is
//! durable. About once a second the lane's row is written, for `status` and `wait`, and now and
//! then rows of `walbraid.progress` are deleted that a durable one has made useless. Every few
//! seconds, while there is news, goes what `walbraid explain` shows; and it is looked whether
//! transactions are to be recorded.
//!
//! The session holds the lane's lock (see `fence`) and writes the row only while the lane is its
//! owner's. Whatever goes wrong on it ends the lane's run: a session of the lane that is lost may
//! mean that the subscriber lost commits.
//!
//! It is also who notices a subscriber that is silent: a network that drops everything leaves the
//! workers' sessions waiting for as long as the system goes on sending, which is many minutes. What
//! is asked here takes moments, whatever the workers' statements take; so an answer that does not
//! come within `answer_limit` means that nobody is there. What may take long is not asked in one
//! piece: a wait for stand-bys is broken off after a while, on the session itself, and begun anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_postgres::types::PgLsn;
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::StopKind;
use walbraid_wire::{ConnectOptions, Sql, sql};

use crate::explain::Explainer;
use crate::fence::Ownership;
use crate::loss::Loss;
use crate::policy::{Cause, Failure};
use crate::recording::desk::Desk;
use crate::state::LaneRow;

/// How often the lane's row is written.
const ROW_INTERVAL_MS: u64 = 1_000;

/// How often useless rows of progress are deleted.
const SWEEP_MS: u64 = 10_000;

/// Rows of progress deleted by one statement, and statements in a row: a statement must be answered
/// in moments, and between them what is durable is to be asked.
const SWEEP_ROWS: i64 = 20_000;
const SWEEP_PIECES: u32 = 8;

/// How long synchronous stand-bys are waited for in one piece.
const STANDBYS_MS: u64 = 5_000;

/// Settings of the side session.
const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "pg_catalog"),
    ("synchronous_commit", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "1000"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("TimeZone", "UTC"),
    ("jit", "off"),
];

/// What an offset waits for before it is committed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ack {
    /// The target commit is flushed by the subscriber.
    #[default]
    Flushed,
    /// The target commit returned.
    Applied,
    /// The target commit is flushed, and confirmed by the subscriber's synchronous stand-bys.
    Replicated,
}

/// The newest COMMIT that returned.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// The origin it moved.
    pub(crate) origin: Arc<str>,
    /// Where it moved it.
    pub(crate) lsn: Lsn,
}

/// Opens a side session.
pub(crate) async fn open(options: &ConnectOptions, name: &str) -> Result<Sql, Failure> {
    let mut settings = SETTINGS.to_vec();
    settings.push(("application_name", name));
    Ok(sql(options, &settings).await?)
}

/// What there is to do.
enum Woken {
    Applied,
    Recorder,
    Time,
    /// The lane's run has ended.
    End,
}

/// What the flusher works with.
pub(crate) struct Flusher {
    pub(crate) sql: Sql,
    pub(crate) ownership: Ownership,
    pub(crate) ack: Ack,
    pub(crate) interval: Duration,
    /// How long the subscriber may leave a question without an answer.
    pub(crate) answer_limit: Option<Duration>,
    /// What is durable.
    pub(crate) flushed: Lsn,
    /// The newest COMMIT that returned; closed when the lane's run ends.
    pub(crate) applied: watch::Receiver<Applied>,
    pub(crate) row: watch::Receiver<LaneRow>,
    pub(crate) explainer: Explainer,
    pub(crate) desk: Desk,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) loss: Loss,
    /// Progress below this was deleted.
    pub(crate) swept: Lsn,
    pub(crate) swept_at: Instant,
}

impl Flusher {
    /// Works until the lane's run ends, then once more; or until the session is lost.
    pub(crate) async fn run(mut self) {
        if let Err(failure) = self.work().await {
            self.loss.tell(failure);
            let _ = self.events.send(Event::SessionLost {
                worker: WorkerId(0),
            });
            return;
        }
        // Whoever ends the session first, it is over.
        let _ = self.sql.close().await;
    }

    async fn work(&mut self) -> Result<(), Failure> {
        let mut rows = tokio::time::interval(Duration::from_millis(ROW_INTERVAL_MS));
        rows.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let mut answered = true;
        loop {
            let woken = tokio::select! {
                changed = self.applied.changed() => changed.map_or(Woken::End, |()| Woken::Applied),
                () = self.desk.said() => Woken::Recorder,
                _ = rows.tick() => Woken::Time,
            };
            match woken {
                Woken::Applied => {
                    if let Some(rest) = self.interval.checked_sub(last.elapsed()) {
                        tokio::time::sleep(rest).await;
                    }
                    answered = self.acknowledge().await?;
                    last = Instant::now();
                }
                Woken::End => {
                    self.acknowledge().await?;
                    self.write_row().await?;
                    if self.desk.has_news() {
                        self.tell_recording().await?;
                    }
                    return match self.explainer.has_news() {
                        true => self.explain().await,
                        false => Ok(()),
                    };
                }
                Woken::Recorder => self.tell_recording().await?,
                Woken::Time => {
                    if !answered {
                        answered = self.acknowledge().await?;
                    }
                    self.write_row().await?;
                    self.sweep().await?;
                    if self.explainer.is_due() {
                        self.explain().await?;
                    }
                    if self.desk.has_news() {
                        self.tell_recording().await?;
                    }
                    let look = self.desk.look(&self.sql, &self.ownership);
                    in_time(self.answer_limit, look).await?;
                }
            }
        }
    }

    /// Finds out how far the lane is acknowledged, and says so; false if it is to be asked again.
    async fn acknowledge(&mut self) -> Result<bool, Failure> {
        let applied = self.applied.borrow_and_update().clone();
        match self.ack {
            Ack::Applied => {
                let _ = self.events.send(Event::Flushed { lsn: applied.lsn });
                return Ok(true);
            }
            Ack::Flushed | Ack::Replicated => self.flush(&applied).await?,
        }
        if self.ack == Ack::Replicated && !self.wait_for_standbys().await? {
            return Ok(false);
        }
        let _ = self.events.send(Event::Flushed { lsn: self.flushed });
        Ok(true)
    }

    async fn flush(&mut self, applied: &Applied) -> Result<(), Failure> {
        if applied.lsn <= self.flushed {
            return Ok(());
        }
        let ask = "SELECT pg_catalog.pg_replication_origin_progress($1, true)";
        let origin = &*applied.origin;
        let answer = async { Ok(self.sql.query_one(ask, &[&origin]).await?) };
        let row = in_time(self.answer_limit, answer).await?;
        if let Some(lsn) = row.try_get::<_, Option<PgLsn>>(0)? {
            // What was sent behind it may have moved the origin already, without being committed.
            self.flushed = self.flushed.max(applied.lsn.min(Lsn(lsn.into())));
        }
        Ok(())
    }

    /// A synchronous commit behind the flushed ones returns when stand-bys have them all. False if
    /// they had not after a while.
    async fn wait_for_standbys(&self) -> Result<bool, Failure> {
        let Ownership { lane_id, epoch, .. } = self.ownership;
        let commit = format!(
            "BEGIN; SET LOCAL synchronous_commit = on; \
             UPDATE walbraid.lanes SET updated_at = pg_catalog.clock_timestamp() \
             WHERE id = {lane_id} AND epoch = {epoch}; COMMIT"
        );
        let commit = self.sql.batch_execute(&commit);
        tokio::pin!(commit);
        let piece = Duration::from_millis(STANDBYS_MS);
        let (ended, in_one_piece) = match tokio::time::timeout(piece, &mut commit).await {
            Ok(ended) => (ended, true),
            Err(_) => {
                // The commit stands already; only the wait is broken off.
                let broken_off = async {
                    self.sql.cancel_token().cancel().await?;
                    Ok(commit.await)
                };
                (in_time(self.answer_limit, broken_off).await?, false)
            }
        };
        match ended.map_err(Failure::from) {
            Ok(()) => Ok(in_one_piece),
            Err(Failure::Transient(busy)) if matches!(busy.cause, Cause::Lock | Cause::Cancel) => {
                self.sql.batch_execute("ROLLBACK").await?;
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    /// Deletes the rows of progress that a durable one has made useless; what it does not get to,
    /// the next time.
    async fn sweep(&mut self) -> Result<(), Failure> {
        let interval = Duration::from_millis(SWEEP_MS);
        if self.flushed <= self.swept || self.swept_at.elapsed() < interval {
            return Ok(());
        }
        let sql = "DELETE FROM walbraid.progress WHERE ctid = ANY (ARRAY (
                SELECT ctid FROM walbraid.progress
                WHERE lane_id = $1 AND end_lsn < $2 LIMIT $3))
             AND lane_id = $1 AND end_lsn < $2";
        let (flushed, lane_id) = (self.flushed, self.ownership.lane_id);
        let below = PgLsn::from(flushed.0);
        for _ in 0..SWEEP_PIECES {
            let rows = SWEEP_ROWS;
            let answer = async { Ok(self.sql.execute(sql, &[&lane_id, &below, &rows]).await?) };
            match in_time(self.answer_limit, answer).await {
                Ok(deleted) if deleted < SWEEP_ROWS as u64 => {
                    self.swept = flushed;
                    self.swept_at = Instant::now();
                    return Ok(());
                }
                Ok(_) => {}
                // Somebody has locked the table: it is not urgent.
                Err(Failure::Transient(busy)) if busy.cause == Cause::Lock => {
                    self.swept_at = Instant::now();
                    return Ok(());
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn tell_recording(&mut self) -> Result<(), Failure> {
        let told = self.desk.tell(&self.sql, &self.ownership);
        in_time(self.answer_limit, told).await
    }

    async fn explain(&mut self) -> Result<(), Failure> {
        let written = self.explainer.write(&self.sql, &self.ownership);
        in_time(self.answer_limit, written).await
    }

    async fn write_row(&mut self) -> Result<(), Failure> {
        let applied = self.applied.borrow().clone();
        if self.ack == Ack::Applied {
            self.flush(&applied).await?;
        }
        let row = self.row.borrow().clone();
        let written = row.write(&self.sql, &self.ownership, self.flushed);
        match in_time(self.answer_limit, written).await {
            // The worker holds the row for the moment of a commit: it is written next time.
            Err(Failure::Transient(busy)) if busy.cause == Cause::Lock => Ok(()),
            other => other,
        }
    }
}

/// The answer, unless the subscriber is silent for too long.
pub(crate) async fn in_time<T>(
    limit: Option<Duration>,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(limit) = limit else {
        return answer.await;
    };
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            let (seconds, kind) = (limit.as_secs_f64(), StopKind::ServerUnreachable);
            let message = format!("subscriber did not answer for {seconds} s");
            Err(Failure::transient(Cause::Connection, kind, message))
        }
    }
}
