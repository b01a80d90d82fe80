//! Replication origins of a lane: their names, their making, and the progress they hold.
//!
//! The subscriber's progress on a lane is what its origins say, and nothing else: an origin moves in
//! the same target transaction as the rows. One origin is held by one session, so each worker of a
//! lane has its own, and the lane's progress is the maximum over all of them, which is right because
//! commits are in order.
//!
//! Invariants:
//! - Origins are known in the whole cluster, so a name holds the database's oid, the stream, its
//!   incarnation, the lane and the worker.
//! - The anchor is made by `setup` in the same commit as the stream's row and never moves. Where the
//!   row stands without it, the origins were lost (dump and restore, pg_upgrade) and progress is not
//!   known: that is a named stop, never a start from zero.
//! - An origin is dropped with its stream only; a worker's origin stays when there are fewer workers.

use tokio_postgres::Client;
use tokio_postgres::types::PgLsn;
use uuid::Uuid;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::policy::Failure;

/// What an origin's name is made of, but for the worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LaneOrigins {
    database_oid: u32,
    stream: String,
    incarnation: Uuid,
    lane: u32,
}

/// Progress of a lane as its origins tell it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The anchor is there and no worker has committed anything.
    Start,
    /// The end LSN of the newest transaction applied.
    At(Lsn),
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
        self.create(client, &self.anchor()).await
    }

    /// Makes a worker's origin when it is not there.
    pub async fn ensure_worker(&self, client: &Client, worker: u32) -> Result<String, Failure> {
        let name = self.worker(worker);
        self.create(client, &name).await?;
        Ok(name)
    }

    async fn create(&self, client: &Client, name: &str) -> Result<(), Failure> {
        let sql = "SELECT pg_catalog.pg_replication_origin_create($1) \
                   WHERE pg_catalog.pg_replication_origin_oid($1) IS NULL";
        client.query_opt(sql, &[&name]).await?;
        Ok(())
    }

    /// The lane's progress: the maximum over all its origins.
    ///
    /// To be believed, no session may write under these origins meanwhile (see `fence`).
    pub async fn progress(&self, client: &Client) -> Result<Progress, Failure> {
        let sql = "SELECT roname, pg_catalog.pg_replication_origin_progress(roname, false) \
                   FROM pg_catalog.pg_replication_origin \
                   WHERE pg_catalog.starts_with(roname, $1)";
        let rows = client.query(sql, &[&self.prefix()]).await?;
        let mut anchored = false;
        let mut newest: Option<Lsn> = None;
        for row in &rows {
            anchored |= row.try_get::<_, &str>(0)? == self.anchor();
            let lsn = row
                .try_get::<_, Option<PgLsn>>(1)?
                .map(|lsn| Lsn(lsn.into()));
            newest = newest.max(lsn);
        }
        if !anchored {
            return Err(Failure::Definite(self.lost()));
        }
        Ok(newest.map_or(Progress::Start, Progress::At))
    }

    /// The newest commit of the lane that is durable: asking for it flushes it. May lag behind what
    /// is being committed, never run ahead of it.
    pub async fn flushed(&self, client: &Client) -> Result<Option<Lsn>, Failure> {
        let sql = "SELECT max(pg_catalog.pg_replication_origin_progress(roname, true)) \
                   FROM pg_catalog.pg_replication_origin \
                   WHERE pg_catalog.starts_with(roname, $1)";
        let row = client.query_one(sql, &[&self.prefix()]).await?;
        Ok(row
            .try_get::<_, Option<PgLsn>>(0)?
            .map(|lsn| Lsn(lsn.into())))
    }

    /// Drops every origin of the lane; inside the transaction that removes the stream's row.
    pub async fn drop_all(&self, client: &Client) -> Result<u64, Failure> {
        let sql = "SELECT pg_catalog.pg_replication_origin_drop(roname) \
                   FROM pg_catalog.pg_replication_origin \
                   WHERE pg_catalog.starts_with(roname, $1)";
        Ok(client.query(sql, &[&self.prefix()]).await?.len() as u64)
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
    }
}
