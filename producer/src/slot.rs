//! The slot: made, looked at, dropped.
//!
//! Owns the life of the publisher's logical slot and the names of what can be wrong with it. Does
//! not read from it (`session`) and does not know where it stands in the log (`tail`).
//!
//! A slot is looked at through its row as JSON, so that one question serves all versions: columns
//! that a server has not are simply absent.

use serde::Deserialize;
use tokio_postgres::Client;
use walbraid_schemas::Lsn;
use walbraid_schemas::{Stop, StopKind};
use walbraid_wire::replication::SlotOptions;
use walbraid_wire::{Error, SqlState};

use crate::config::Publisher;
use crate::policy;
use crate::publisher::Facts;

/// The output plugin of our slots.
const PLUGIN: &str = "pgoutput";

/// What helps where the publisher has no free walsender. Of slots it says so itself.
pub const FREE_A_WALSENDER: &str = "Raise max_wal_senders, or end a walsender that is not needed.";

/// What helps when slot and log no longer meet.
pub const BEGIN_ANEW: &str = "Run \"walbraid teardown\", bring the subscriber's tables up to \
                              date, and run \"walbraid setup\" again.";

/// A slot's row.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Slot {
    /// Its name.
    pub slot_name: String,
    /// The output plugin; none for a physical slot.
    pub plugin: Option<String>,
    /// The database; none for a physical slot.
    pub database: Option<String>,
    /// The process that reads it.
    pub active_pid: Option<i32>,
    /// Where the publisher would go on.
    pub confirmed_flush_lsn: Option<Lsn>,
    /// The oldest WAL it holds.
    pub restart_lsn: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// Why it is invalid, from 17 on.
    pub invalidation_reason: Option<String>,
    /// Lost to a conflict with recovery, on 16.
    pub conflicting: Option<bool>,
    /// Whether it decodes two-phase commits at PREPARE.
    pub two_phase: Option<bool>,
    /// Whether stand-bys keep it, from 17 on.
    pub failover: Option<bool>,
    /// Whether it goes with its session.
    pub temporary: bool,
}

/// Who holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: i32,
    /// Its application name, if we may see it.
    pub application: Option<String>,
    /// Its address, if we may see it.
    pub address: Option<String>,
    /// When it last replied, in the server's own text, if we may see it.
    pub reply_time: Option<String>,
}

const INSPECT: &str = "\
select pg_catalog.to_jsonb(s)::pg_catalog.text
  from pg_catalog.pg_replication_slots s where s.slot_name = $1";

/// The slot's row, if there is one.
pub async fn inspect(client: &Client, name: &str) -> Result<Option<Slot>, Error> {
    let Some(row) = client.query_opt(INSPECT, &[&name]).await? else {
        return Ok(None);
    };
    let text: &str = row.try_get(0)?;
    serde_json::from_str(text)
        .map(Some)
        .map_err(|error| Error::Protocol(format!("row of slot \"{name}\": {error}")))
}

const HOLDER: &str = "\
select a.pid, r.application_name, r.client_addr::pg_catalog.text,
       r.reply_time::pg_catalog.text
  from pg_catalog.pg_replication_slots a
  left join pg_catalog.pg_stat_replication r on r.pid = a.active_pid
 where a.slot_name = $1 and a.active_pid is not null";

/// Who holds the slot, if anyone.
pub async fn holder(client: &Client, name: &str) -> Result<Option<Holder>, Error> {
    let question = HOLDER.replace("a.pid", "a.active_pid");
    let Some(row) = client.query_opt(&question, &[&name]).await? else {
        return Ok(None);
    };
    Ok(Some(Holder {
        pid: row.try_get(0)?,
        application: row.try_get(1)?,
        address: row.try_get(2)?,
        reply_time: row.try_get(3)?,
    }))
}

/// What makes it impossible to read the slot, whoever holds it.
pub fn unfit(slot: Option<&Slot>, name: &str, database: &str) -> Option<Stop> {
    let Some(slot) = slot else {
        return Some(
            Stop::new(
                StopKind::SlotMissing,
                format!("slot \"{name}\" does not exist"),
            )
            .detail("If it was dropped, what was committed since then cannot be read any more.")
            .hint(format!(
                "Is \"publisher.slot\" the stream's own? If it is, and was dropped: {BEGIN_ANEW}"
            )),
        );
    };
    let foreign = |message: String, detail: String| {
        Some(
            Stop::new(StopKind::SlotForeign, message)
                .detail(detail)
                .hint("Choose another name for the slot, or drop that one."),
        )
    };
    match (slot.plugin.as_deref(), slot.database.as_deref()) {
        (None, _) => {
            return foreign(
                format!("slot \"{name}\" is a physical slot"),
                "A logical slot of plugin \"pgoutput\" is needed.".to_owned(),
            );
        }
        (Some(plugin), _) if plugin != PLUGIN => {
            return foreign(
                format!("slot \"{name}\" has the output plugin \"{plugin}\""),
                "A slot of plugin \"pgoutput\" is needed.".to_owned(),
            );
        }
        (_, Some(of)) if of != database => {
            return foreign(
                format!("slot \"{name}\" belongs to database \"{of}\""),
                format!("The connection is to database \"{database}\"."),
            );
        }
        _ => {}
    }
    invalid(slot).map(|reason| {
        let at = slot
            .confirmed_flush_lsn
            .map_or("an unknown LSN".to_owned(), |l| l.to_string());
        Stop::new(
            StopKind::SlotInvalidated,
            format!("slot \"{name}\" is lost: {reason}"),
        )
        .detail(format!(
            "WAL behind {at} that was not carried yet is gone from the publisher."
        ))
        .hint(BEGIN_ANEW)
    })
}

fn invalid(slot: &Slot) -> Option<String> {
    if let Some(reason) = slot.invalidation_reason.as_deref() {
        return Some(reason.to_owned());
    }
    if slot.wal_status.as_deref() == Some("lost") {
        return Some("its WAL was removed".to_owned());
    }
    (slot.conflicting == Some(true)).then(|| "it conflicted with recovery".to_owned())
}

/// Says that the slot is held by another walsender.
pub fn in_use(name: &str, holder: Option<&Holder>) -> Stop {
    let stop = Stop::new(StopKind::SlotInUse, format!("slot \"{name}\" is in use"));
    let Some(holder) = holder else {
        return stop;
    };
    let application = holder.application.as_deref().unwrap_or("unknown");
    let address = holder.address.as_deref().unwrap_or("unknown");
    stop.detail(format!(
        "Process {} of the publisher reads it (application \"{application}\", address {address}).",
        holder.pid
    ))
    .hint("Stop the other producer, or end that process with pg_terminate_backend.")
}

/// Makes the slot through a replication connection and returns its consistent point.
///
/// Waits for every open transaction of the publisher that has written, at most `lock_timeout`; the
/// stop then names who is waited for.
pub async fn create(publisher: &Publisher) -> Result<Lsn, Stop> {
    let mut connection = crate::session::connect(publisher, None)
        .await
        .map_err(|error| policy::stop(&error, "publisher"))?;
    let options = SlotOptions {
        failover: publisher.failover,
        lock_timeout_ms: Some(publisher.slot_lock_timeout_ms),
        ..SlotOptions::default()
    };
    let created = connection.create_slot(&publisher.slot, &options).await;
    if let Err(error) = connection.close().await {
        tracing::debug!("replication connection ended: {error}");
    }
    match created {
        Ok(created) => Ok(created.consistent_point),
        Err(error) => Err(not_created(publisher, error).await),
    }
}

async fn not_created(publisher: &Publisher, error: Error) -> Stop {
    let name = &publisher.slot;
    match error.sqlstate() {
        Some(SqlState::CONFIGURATION_LIMIT_EXCEEDED) => policy::with_words(
            Stop::new(
                StopKind::NoFreeSlotOrWalsender,
                format!("could not create slot \"{name}\""),
            ),
            &error,
        ),
        Some(SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED) => {
            let blockers = match crate::session::sql(publisher).await {
                Ok(sql) => blockers(&sql).await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            let stop = Stop::new(
                StopKind::OpenTransactions,
                format!("creation of slot \"{name}\" gave up waiting for open transactions"),
            );
            let stop = match blockers.is_empty() {
                true => stop,
                false => stop.detail(format!("It waited for {}.", blockers.join(", "))),
            };
            stop.hint("End them, or raise \"publisher.slot_lock_timeout_ms\", and run setup again.")
        }
        _ => policy::stop(&error, "publisher"),
    }
}

/// Whether the publisher could make one more slot.
pub fn no_room(facts: &Facts) -> Option<Stop> {
    let (used, allowed) = facts.slots;
    (used >= allowed).then(|| {
        let message = format!("publisher has no free slot of {allowed}");
        Stop::new(StopKind::NoFreeSlotOrWalsender, message)
            .hint("Raise max_replication_slots, or drop a slot that is not needed.")
    })
}

const BLOCKERS: &str = "\
select 'process ' || a.pid || ' (' || coalesce(a.usename, 'unknown') || ', '
       || coalesce(a.state, 'unknown state') || ' since ' || a.xact_start || ')'
  from pg_catalog.pg_stat_activity a
 where a.backend_xid is not null and a.pid <> pg_catalog.pg_backend_pid()
 union all
select 'prepared transaction ''' || p.gid || ''' (since ' || p.prepared || ')'
  from pg_catalog.pg_prepared_xacts p
 order by 1";

/// Open transactions of the publisher that have written: what the creation of a slot waits for.
pub async fn blockers(client: &Client) -> Result<Vec<String>, Error> {
    let rows = client.query(BLOCKERS, &[]).await?;
    Ok(rows
        .into_iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}

/// Drops the slot. True if there was one.
pub async fn drop(client: &Client, name: &str) -> Result<bool, Error> {
    let dropped = client
        .execute(
            "select pg_catalog.pg_drop_replication_slot(s.slot_name)
               from pg_catalog.pg_replication_slots s where s.slot_name = $1",
            &[&name],
        )
        .await?;
    Ok(dropped > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(change: impl FnOnce(&mut Slot)) -> Slot {
        let row = r#"{"slot_name": "s", "plugin": "pgoutput", "database": "shop", "active": false,
            "active_pid": null, "confirmed_flush_lsn": "0/1A2B3C4", "restart_lsn": "0/1A2B300",
            "wal_status": "reserved", "temporary": false, "slot_type": "logical", "datoid": 5}"#;
        let mut slot = serde_json::from_str(row).unwrap();
        change(&mut slot);
        slot
    }

    fn check(slot: Option<Slot>, expected: Option<(StopKind, &str)>) {
        let stop = unfit(slot.as_ref(), "s", "shop");
        let found = stop.as_ref().map(|stop| (stop.kind, stop.message.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_wrong_with_a_slot_has_a_name() {
        check(Some(slot(|_| {})), None);
        check(
            None,
            Some((StopKind::SlotMissing, "slot \"s\" does not exist")),
        );
        check(
            Some(slot(|s| s.plugin = None)),
            Some((StopKind::SlotForeign, "slot \"s\" is a physical slot")),
        );
        check(
            Some(slot(|s| s.plugin = Some("test_decoding".to_owned()))),
            Some((
                StopKind::SlotForeign,
                "slot \"s\" has the output plugin \"test_decoding\"",
            )),
        );
        check(
            Some(slot(|s| s.database = Some("other".to_owned()))),
            Some((
                StopKind::SlotForeign,
                "slot \"s\" belongs to database \"other\"",
            )),
        );
        check(
            Some(slot(|s| s.wal_status = Some("lost".to_owned()))),
            Some((
                StopKind::SlotInvalidated,
                "slot \"s\" is lost: its WAL was removed",
            )),
        );
        check(
            Some(slot(|s| {
                s.invalidation_reason = Some("idle_timeout".to_owned());
            })),
            Some((
                StopKind::SlotInvalidated,
                "slot \"s\" is lost: idle_timeout",
            )),
        );
    }
}
