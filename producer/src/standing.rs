//! Where a slot that nobody reads stands in the log, asked before a producer is started.
//!
//! The same look at the same records as a producer takes when it claims the lane (`pipeline`), so
//! that `setup` and `check` say what `produce` would refuse. Nothing is written, and the slot is
//! not taken: one that is read by a producer is that producer's to judge.

use walbraid_schemas::Stop;

use crate::before;
use crate::config::Config;
use crate::lane::LaneReader;
use crate::policy::{self, Failure};
use crate::session;
use crate::slot;
use crate::tail;

/// Why a producer would refuse slot and log, if it would. Fails when one of them cannot be asked.
pub async fn look(config: &Config) -> Result<Option<Stop>, Stop> {
    let reader = LaneReader::new(&config.kafka).map_err(policy::once)?;
    let looked = compare(config, &reader).await;
    reader.close().await;
    match looked {
        Ok(()) => Ok(None),
        Err(Failure::Definite(stop)) => Ok(Some(stop)),
        Err(failure) => Err(policy::once(failure)),
    }
}

async fn compare(config: &Config, reader: &LaneReader) -> Result<(), Failure> {
    let publisher = |error: &walbraid_wire::Error| policy::publisher(error);
    let name = &config.publisher.slot;
    let sql = session::sql(&config.publisher)
        .await
        .map_err(|error| publisher(&error))?;
    let found = slot::inspect(&sql, name).await;
    if let Err(error) = sql.close().await {
        tracing::debug!("session of the publisher ended: {error}");
    }
    let found = found.map_err(|error| publisher(&error))?;
    let database = config.publisher.connect.database();
    if let Some(stop) = slot::unfit(found.as_ref(), name, database) {
        return Err(stop.into());
    }
    let standing = found.map(|slot| (slot.active_pid, slot.confirmed_flush_lsn));
    let Some((None, Some(confirmed))) = standing else {
        return Ok(());
    };
    let before = before::read(reader, config).await?;
    let mut connection = session::connect(&config.publisher, None)
        .await
        .map_err(|error| publisher(&error))?;
    let asked = session::timelines(&mut connection).await;
    if let Err(error) = connection.close().await {
        tracing::debug!("replication connection ended: {error}");
    }
    let (identity, timelines) = asked.map_err(|error| publisher(&error))?;
    if let Some(stop) = before.foreign(&identity.system_identifier, database) {
        return Err(stop.into());
    }
    let end = reader.offsets().await?.end;
    let scan = tail::scan(reader, before.incarnation, confirmed, end).await?;
    tail::previous_end_lsn(&scan, &timelines, name)?;
    Ok(())
}
