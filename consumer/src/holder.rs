//! Who holds a lane: the sessions that hold its advisory lock, as others see them.
//!
//! For `status`, `check` and `teardown`, which only want to know whether a consumer runs, and whose
//! it is. Who takes a lane over ends these sessions (`fence`).

use tokio_postgres::Client;

use crate::fence::LOCK_CLASS;
use crate::policy::Failure;

/// A session that holds a lane's lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// The lane's number.
    pub lane: u32,
    /// The session's process on the subscriber.
    pub pid: i32,
    /// Its role; none when the session ended meanwhile.
    pub role: Option<String>,
    /// Whether our role may end it.
    pub may_be_ended: bool,
}

/// The sessions that hold locks of the stream's lanes, in the order of the lanes.
pub async fn holders(client: &Client, stream: &str) -> Result<Vec<Holder>, Failure> {
    let sql = "SELECT l.lane, k.pid, a.usename::text, \
                      coalesce(pg_catalog.pg_has_role(a.usesysid, 'MEMBER'), true) \
                      OR pg_catalog.pg_has_role('pg_signal_backend', 'MEMBER') \
               FROM walbraid.lanes l \
               JOIN pg_catalog.pg_locks k ON k.locktype = 'advisory' AND k.granted \
                AND k.classid = $2::int4::oid AND k.objid = l.id::oid AND k.objsubid = 2 \
                AND k.database = (SELECT oid FROM pg_catalog.pg_database \
                                  WHERE datname = pg_catalog.current_database()) \
               LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = k.pid \
               WHERE l.stream = $1 ORDER BY l.lane, k.pid";
    let rows = client.query(sql, &[&stream, &LOCK_CLASS]).await?;
    rows.iter()
        .map(|row| {
            Ok(Holder {
                lane: row.try_get::<_, i32>(0)?.try_into().unwrap_or_default(),
                pid: row.try_get(1)?,
                role: row.try_get(2)?,
                may_be_ended: row.try_get(3)?,
            })
        })
        .collect()
}
