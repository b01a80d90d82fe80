//! Replication origins of a lane: their names, their making, and what they are for.
//!
//! An apply session holds an origin of its own, so that what it writes is marked as coming from
//! elsewhere (a publication with `origin = none` leaves it out), commits carry the publisher's
//! commit time, and the subscriber can be asked what it has flushed (`flusher`).
//!
//! The lane's *progress* is not read from origins but from `walbraid.progress`, a row that each
//! target transaction adds. Tried on 14 to 18: on 16, 17 and 18 a transaction that *aborts* after
//! `pg_replication_origin_xact_setup` moves its origin too, if it had an xid, by ROLLBACK and by
//! the end of its session alike; and between the setup and the end of COMMIT there is always room
//! for an end of the session. Progress read from such an origin would step over the transaction
//! that failed. (The server's own apply worker resets the origin before it aborts; SQL cannot.)
//!
//! Invariants:
//! - Origins are known in the whole cluster, so a name holds the database's oid, the stream, its
//!   incarnation, the lane and the worker.
//! - The cluster has few places for origins, which others need. An owner drops those of workers
//!   that it will never have, after the take-over has made the lane's progress durable; an owner
//!   with more workers makes them anew.
//! - The anchor is made by `setup` in the same commit as the stream's row and never moves. Where
//!   the row stands without it, this database is a restored copy of the one that was set up, or was
//!   upgraded: its rows may be anywhere. That is a named stop, never a start from zero.

use std::time::Duration;

use tokio_postgres::Client;
use uuid::Uuid;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::policy::{Cause, Failure};

/// How often the drop of an origin is tried that is in use, and the pause between two tries.
const DROP_TRIES: u32 = 20;
const DROP_PAUSE_MS: u64 = 20;

/// What an origin's name is made of, but for the worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LaneOrigins {
    database_oid: u32,
    stream: String,
    incarnation: Uuid,
    lane: u32,
}

impl LaneOrigins {
    /// The origins of one lane of a stream in the database with this oid.
    pub fn new(database_oid: u32, stream: &str, incarnation: Uuid, lane: u32) -> Self {
        Self {
            database_oid,
            stream: stream.to_owned(),
            incarnation,
            lane,
        }
    }

    /// The name of the lane's anchor.
    pub fn anchor(&self) -> String {
        format!("{}anchor", self.prefix())
    }

    /// The name of a worker's origin.
    pub fn worker(&self, worker: u32) -> String {
        format!("{}{worker}", self.prefix())
    }

    fn prefix(&self) -> String {
        let Self {
            database_oid,
            stream,
            incarnation,
            lane,
        } = self;
        format!("walbraid_{database_oid}_{stream}_{incarnation}_{lane}_")
    }

    /// Makes the anchor; inside the transaction that writes the stream's row.
    pub async fn create_anchor(&self, client: &Client) -> Result<(), Failure> {
        client.batch_execute(&create_sql(&self.anchor())).await?;
        Ok(())
    }

    /// Fails unless the anchor is there.
    pub async fn require_anchor(&self, client: &Client) -> Result<(), Failure> {
        let sql = "SELECT pg_catalog.pg_replication_origin_oid($1) IS NOT NULL";
        let row = client.query_one(sql, &[&self.anchor()]).await?;
        if row.try_get(0)? {
            Ok(())
        } else {
            Err(Failure::Definite(self.lost()))
        }
    }

    /// Drops every origin of the lane; inside the transaction that removes the stream's row.
    pub async fn drop_all(&self, client: &Client) -> Result<u64, Failure> {
        let sql = "SELECT pg_catalog.pg_replication_origin_drop(roname) \
                   FROM pg_catalog.pg_replication_origin \
                   WHERE pg_catalog.starts_with(roname, $1)";
        Ok(client.query(sql, &[&self.prefix()]).await?.len() as u64)
    }

    /// Drops the origins of workers that this owner of the lane will never have. Nobody else can
    /// take them: whoever takes the lane ends this session first.
    pub(crate) async fn drop_beyond(&self, client: &Client, most: usize) -> Result<(), Failure> {
        let sql = "SELECT roname FROM pg_catalog.pg_replication_origin \
                   WHERE pg_catalog.starts_with(roname, $1)";
        for row in client.query(sql, &[&self.prefix()]).await? {
            let name: String = row.try_get(0)?;
            if self.number(&name).is_some_and(|number| number >= most) {
                drop_unused(client, &name).await?;
            }
        }
        Ok(())
    }

    /// The worker whose origin has this name.
    fn number(&self, name: &str) -> Option<usize> {
        name.strip_prefix(&self.prefix())?.parse().ok()
    }

    fn lost(&self) -> Stop {
        let Self { stream, lane, .. } = self;
        Stop::new(
            StopKind::NotSetUp,
            format!("progress of stream \"{stream}\" lane {lane} is not known"),
        )
        .detail(format!(
            "Replication origin \"{}\" does not exist.",
            self.anchor()
        ))
        .hint(
            "Replication origins are lost by dump and restore and by pg_upgrade. Copy the tables \
             anew and run teardown and setup.",
        )
    }
}

/// A session that was just ended holds its origin for a moment. One that goes on being held is left
/// to the next owner.
async fn drop_unused(client: &Client, name: &str) -> Result<(), Failure> {
    let sql = "SELECT pg_catalog.pg_replication_origin_drop($1)";
    for _ in 0..DROP_TRIES {
        match client.execute(sql, &[&name]).await.map_err(Failure::from) {
            Ok(_) => break,
            Err(Failure::Transient(held)) if held.cause == Cause::OriginInUse => {
                tokio::time::sleep(Duration::from_millis(DROP_PAUSE_MS)).await;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Makes the origin of that name when it is not there.
pub(crate) fn create_sql(name: &str) -> String {
    let name = name.replace('\'', "''");
    format!(
        "SELECT pg_catalog.pg_replication_origin_create('{name}') \
         WHERE pg_catalog.pg_replication_origin_oid('{name}') IS NULL"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_databases_streams_incarnations_lanes_and_workers_apart() {
        let incarnation = Uuid::from_bytes([7; 16]);
        let origins = LaneOrigins::new(16384, "shop", incarnation, 0);
        assert_eq!(
            origins.worker(3),
            "walbraid_16384_shop_07070707-0707-0707-0707-070707070707_0_3"
        );
        assert_eq!(
            origins.anchor(),
            "walbraid_16384_shop_07070707-0707-0707-0707-070707070707_0_anchor"
        );
        assert_eq!(origins.number(&origins.worker(12)), Some(12));
        assert_eq!(origins.number(&origins.anchor()), None);
    }
}
