//! What a lane has applied, asked of the subscriber itself.
//!
//! The lane's row is written about once a second; the progress that each target transaction leaves
//! is as new as its rows. Both commands that tell where a lane is ask for it here.

use tokio_postgres::types::PgLsn;
use walbraid_consumer::stream::{self, Stream};
use walbraid_schemas::{Lsn, Stop};

use crate::session::{OrStop, Session};

const PROGRESS: &str = "
SELECT max(p.end_lsn) FROM walbraid.progress p JOIN walbraid.lanes l ON l.id = p.lane_id
WHERE l.stream = $1 AND l.lane = $2";

const FLUSH: &str = "
SELECT pg_catalog.pg_replication_origin_progress(roname, true)
FROM pg_catalog.pg_replication_origin WHERE pg_catalog.starts_with(roname, $1)";

/// End LSN of the newest transaction that a reader of the subscriber sees.
pub(crate) async fn applied(
    subscriber: &Session,
    stream: &str,
    lane: u32,
) -> Result<Option<Lsn>, Stop> {
    let lane = i32::try_from(lane).unwrap_or_default();
    let row = subscriber
        .query_one(PROGRESS, &[&stream, &lane])
        .await
        .or_stop("subscriber")?;
    Ok(row.get::<_, Option<PgLsn>>(0).map(|lsn| Lsn(lsn.into())))
}

/// The same, made durable by asking; none for a role that may not ask.
pub(crate) async fn flushed(subscriber: &Session, stream: &Stream, lane: u32) -> Option<Lsn> {
    let database = stream::database_oid(subscriber).await.ok()?;
    let anchor = stream::origins(database, stream, lane).anchor();
    let origins = anchor.trim_end_matches("anchor");
    let applied = applied(subscriber, &stream.name, lane).await.ok()??;
    // The answer does not matter: to give it, the server flushes every commit of the origin, and
    // the one that showed us its progress is among them.
    subscriber.query(FLUSH, &[&origins]).await.ok()?;
    Some(applied)
}
