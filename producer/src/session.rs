//! The replication connection: the slot held, the publisher known.
//!
//! Owns the way from nothing to a walsender that reads our slot from its confirmed LSN, and the
//! waiting for a slot that is still held. Does not decode what comes.
//!
//! A slot that is in use may be held by a walsender of ours whose client is gone: the server ends
//! it after `wal_sender_timeout`. So the slot is waited for that long. A holder that replied in the
//! meantime is alive, though, and then the wait is over at once: another producer runs. (The server
//! shows the time of the last reply to roles that may see other sessions; others wait it out.)

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use walbraid_schemas::{Lsn, Stop, StopKind};
use walbraid_wire::replication::{
    OriginFilter, ReplicationOptions, ReplicationReceiver, StatusSender, SystemIdentity,
};
use walbraid_wire::{Connection, Error, Replication, Sql, SqlState, Startup};

use crate::claim::Options;
use crate::config::{Config, Publisher};
use crate::metrics::{Cause, Metrics};
use crate::policy::{self, Failure};
use crate::publisher::{self, Facts, PINNED_SETTINGS};
use crate::retry::{self, Backoff};
use crate::slot;
use crate::status::Status;
use crate::tail::Timelines;

/// How long a slot is waited for where the server has no time-out of its own.
const SLOT_WAIT_MS: u64 = 60_000;
const SLOT_POLL_MAX_MS: u64 = 1_000;

/// A walsender that reads our slot.
pub(crate) struct Session {
    pub receiver: ReplicationReceiver,
    pub status: Status,
    pub options: Options,
    pub facts: Facts,
    pub system_identifier: String,
    pub timelines: Timelines,
    /// Where the slot stands.
    pub confirmed: Lsn,
}

/// Connects a walsender session with the pinned settings.
pub(crate) async fn connect(
    publisher: &Publisher,
    receive_buffer_bytes: Option<usize>,
) -> Result<Connection, Error> {
    let startup = Startup {
        replication: Replication::Database,
        parameters: PINNED_SETTINGS,
        receive_buffer_bytes,
    };
    let mut connection = Connection::connect(&publisher.connect, &startup).await?;
    // Decoding a transaction is one of the walsender's own, as long as its reader takes.
    if connection.server_version().major >= 17 {
        connection
            .simple_query("SET transaction_timeout = 0")
            .await?;
    }
    Ok(connection)
}

/// Who the publisher is, and where its timelines branched off.
pub(crate) async fn timelines(
    connection: &mut Connection,
) -> Result<(SystemIdentity, Timelines), Error> {
    let identity = connection.identify_system().await?;
    let history = connection.timeline_history(identity.timeline).await?;
    let left = history.iter().map(|step| (step.timeline, step.switch_lsn));
    let timelines = Timelines {
        current: identity.timeline,
        wal_end: identity.wal_lsn,
        left: left.collect::<BTreeMap<_, _>>(),
    };
    Ok((identity, timelines))
}

/// Connects an ordinary session.
pub(crate) async fn sql(publisher: &Publisher) -> Result<Sql, Error> {
    walbraid_wire::sql(&publisher.connect, PINNED_SETTINGS).await
}

/// Takes the slot.
pub(crate) async fn open(
    config: &Config,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> Result<Session, Failure> {
    let sql = sql(&config.publisher)
        .await
        .map_err(|error| policy::publisher(&error))?;
    let opening = Opening {
        config,
        metrics,
        shutdown,
        sql: &sql,
    };
    let session = opening.run().await;
    if let Err(error) = sql.close().await {
        tracing::debug!("session of the publisher ended: {error}");
    }
    session
}

struct Opening<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    shutdown: &'a CancellationToken,
    sql: &'a Sql,
}

impl Opening<'_> {
    async fn run(&self) -> Result<Session, Failure> {
        let facts = self.fit().await?;
        let options = Options::new(&self.config.publisher, facts.protocol());
        let (started, identity, timelines) = self.start(&facts, &options).await?;
        let (receiver, sender, pid) = started;
        let status = Status::spawn(sender, self.config.intervals.status_interval_ms);
        let confirmed = match self.confirmed(pid).await {
            Ok(confirmed) => confirmed,
            Err(failure) => {
                status.close().await;
                return Err(failure);
            }
        };
        let system_identifier = identity.system_identifier;
        Ok(Session {
            receiver,
            status,
            options,
            facts,
            system_identifier,
            timelines,
            confirmed,
        })
    }

    /// Looks whether publisher, publications and slot can serve at all.
    async fn fit(&self) -> Result<Facts, Failure> {
        let failed = |error: Error| policy::publisher(&error);
        let facts = publisher::facts(self.sql).await.map_err(failed)?;
        if let Some(stop) = publisher::unfit(&facts) {
            return Err(stop.into());
        }
        let names = &self.config.publisher.publications;
        let found = publisher::publications(self.sql, &facts, names)
            .await
            .map_err(failed)?;
        if let Some(stop) = publisher::unpublished(names, &found) {
            return Err(stop.into());
        }
        self.slot_fit(&facts).await?;
        Ok(facts)
    }

    async fn slot_fit(&self, facts: &Facts) -> Result<(), Failure> {
        let name = &self.config.publisher.slot;
        let slot = slot::inspect(self.sql, name)
            .await
            .map_err(|error| policy::publisher(&error))?;
        match slot::unfit(slot.as_ref(), name, &facts.database) {
            Some(stop) => Err(stop.into()),
            None => Ok(()),
        }
    }

    /// Starts the replication, waiting while a walsender holds the slot that may be a leftover.
    async fn start(
        &self,
        facts: &Facts,
        options: &Options,
    ) -> Result<(Started, SystemIdentity, Timelines), Failure> {
        let mut wait = SlotWait::new(facts.wal_sender_timeout_ms);
        loop {
            match self.try_start(facts, options).await {
                Ok(started) => {
                    if wait.began {
                        tracing::info!("slot \"{}\" is free", self.config.publisher.slot);
                    }
                    return Ok(started);
                }
                Err(error) if error.sqlstate() == Some(SqlState::OBJECT_IN_USE) => {
                    self.wait_for_slot(&mut wait).await?;
                }
                Err(error) => return Err(self.not_started(error, facts).await),
            }
        }
    }

    async fn try_start(
        &self,
        facts: &Facts,
        options: &Options,
    ) -> Result<(Started, SystemIdentity, Timelines), Error> {
        let publisher = &self.config.publisher;
        let receive_buffer_bytes = Some(self.config.limits.receive_buffer_bytes);
        let mut connection = connect(publisher, receive_buffer_bytes).await?;
        let (identity, timelines) = timelines(&mut connection).await?;
        let mut asked = ReplicationOptions::new(
            connection.server_version(),
            &publisher.slot,
            &publisher.publications,
        );
        asked.protocol_version = options.protocol;
        if publisher.local_origin_only && facts.major() >= 16 {
            asked.origin = OriginFilter::None;
        }
        let pid = connection.backend_pid();
        let (receiver, sender) = connection.start_replication(&asked).await?;
        Ok(((receiver, sender, pid), identity, timelines))
    }

    async fn wait_for_slot(&self, wait: &mut SlotWait) -> Result<(), Failure> {
        let name = &self.config.publisher.slot;
        self.metrics.retry(Cause::Slot);
        let holder = slot::holder(self.sql, name)
            .await
            .map_err(|error| policy::publisher(&error))?;
        if !wait.goes_on(holder.as_ref()) {
            return Err(slot::in_use(name, holder.as_ref()).into());
        }
        if !std::mem::replace(&mut wait.began, true) {
            tracing::warn!("slot \"{name}\" is in use; waiting until its walsender is gone");
        }
        retry::pause(self.shutdown, wait.backoff.pause(rand::random())).await
    }

    /// Why the replication could not be started, in the best words that can be had.
    async fn not_started(&self, error: Error, facts: &Facts) -> Failure {
        if let Err(failure) = self.slot_fit(facts).await {
            return failure;
        }
        let full = error.sqlstate() == Some(SqlState::TOO_MANY_CONNECTIONS);
        match publisher::facts(self.sql).await {
            Ok(Facts {
                walsenders: (used, allowed),
                ..
            }) if full && used >= allowed => {
                let stop = Stop::new(
                    StopKind::NoFreeSlotOrWalsender,
                    format!("publisher has no free walsender of {allowed}"),
                );
                policy::with_words(stop, &error)
                    .hint(slot::FREE_A_WALSENDER)
                    .into()
            }
            _ => policy::publisher(&error),
        }
    }

    /// Where the slot stands, read while we hold it.
    async fn confirmed(&self, pid: i32) -> Result<Lsn, Failure> {
        let name = &self.config.publisher.slot;
        let slot = slot::inspect(self.sql, name)
            .await
            .map_err(|error| policy::publisher(&error))?;
        match slot
            .as_ref()
            .map(|slot| (slot.active_pid, slot.confirmed_flush_lsn))
        {
            Some((Some(active), Some(confirmed))) if active == pid => Ok(confirmed),
            _ => Err(Failure::Transient {
                cause: Cause::Slot,
                stop: slot::in_use(name, None),
            }),
        }
    }
}

type Started = (ReplicationReceiver, StatusSender, i32);

/// The waiting for a slot that is held.
struct SlotWait {
    until: Instant,
    last_reply: Option<(i32, String)>,
    replies: u32,
    backoff: Backoff,
    began: bool,
}

/// Replies, one after the other, that prove a client. Fewer may have been under way at its death.
const REPLIES_OF_THE_LIVING: u32 = 3;

impl SlotWait {
    fn new(wal_sender_timeout_ms: u64) -> SlotWait {
        let limit_ms = match wal_sender_timeout_ms {
            0 => SLOT_WAIT_MS,
            limit_ms => limit_ms + limit_ms / 10 + 1_000,
        };
        SlotWait {
            until: Instant::now() + Duration::from_millis(limit_ms),
            last_reply: None,
            replies: 0,
            backoff: Backoff::new(SLOT_POLL_MAX_MS),
            began: false,
        }
    }

    /// Whether there is hope: time is left, and the holder has not shown itself to be alive.
    fn goes_on(&mut self, holder: Option<&slot::Holder>) -> bool {
        let reply = holder.and_then(|holder| Some((holder.pid, holder.reply_time.clone()?)));
        match (&self.last_reply, &reply) {
            (Some((pid, then)), Some((same, now))) if pid == same => {
                self.replies += u32::from(then != now);
            }
            _ => self.replies = 0,
        }
        self.last_reply = reply;
        self.replies < REPLIES_OF_THE_LIVING && Instant::now() < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: i32, reply_time: Option<&str>) -> slot::Holder {
        slot::Holder {
            pid,
            application: None,
            address: None,
            reply_time: reply_time.map(str::to_owned),
        }
    }

    #[test]
    fn a_holder_that_goes_on_replying_is_alive() {
        let mut wait = SlotWait::new(60_000);
        for time in ["12:00:00", "12:00:00", "12:00:01", "12:00:02"] {
            assert!(wait.goes_on(Some(&holder(7, Some(time)))), "{time}");
        }
        assert!(!wait.goes_on(Some(&holder(7, Some("12:00:03")))));
    }

    #[test]
    fn a_holder_that_shows_nothing_is_waited_out() {
        let mut wait = SlotWait::new(60_000);
        assert!(wait.goes_on(Some(&holder(7, None))));
        assert!(wait.goes_on(None));
        for (pid, time) in [
            (8, "12:00:00"),
            (9, "12:00:05"),
            (10, "12:00:06"),
            (11, "12:00:07"),
        ] {
            assert!(wait.goes_on(Some(&holder(pid, Some(time)))), "{pid}");
        }
        wait.until = Instant::now();
        assert!(!wait.goes_on(Some(&holder(7, None))));
    }
}
