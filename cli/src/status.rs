//! `walbraid status`: where each lane of the stream is.
//!
//! Put together from what each server knows: the slot (what the producer has confirmed, whether it
//! is read), the end of the log (what is published, the last words of a producer that stopped), the
//! lane's row and lock on the subscriber (what is applied and flushed, whether anyone applies). The
//! names of the JSON form are stable.
//!
//! What is read here is judged in `lane`.

mod lane;

use std::time::SystemTime;

use serde_json::{Value, json};
use tokio_postgres::types::PgLsn;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::{holder, schema, status, stream};
use walbraid_producer::slot::{self, Slot};
use walbraid_schemas::{Body, Envelope, Lsn, Stop};

use crate::config::Config;
use crate::output::json as print_json;
use crate::progress;
use crate::refusal;
use crate::session::{self, OrStop};
use lane::{Lane, Runs};

/// What the publisher says.
struct Publisher {
    lsn: Lsn,
    now: SystemTime,
    slot: Option<Slot>,
}

/// Prints the status. A server that is away leaves gaps, which are then the command's error.
pub(crate) async fn run(config: &Config, json: bool) -> Result<(), Stop> {
    let (lanes, away) = read(config).await?;
    if json {
        let lanes: Vec<Value> = lanes.iter().map(|lane| lane.json(&config.stream)).collect();
        let away: Vec<&str> = away.iter().map(|stop| stop.message.as_str()).collect();
        print_json(&json!({ "stream": config.stream, "lanes": lanes, "away": away }));
    } else {
        lanes.iter().for_each(|lane| lane.print(&config.stream));
    }
    away.into_iter().next().map_or(Ok(()), Err)
}

/// The lanes of the configured stream, and why some of it is not known. The subscriber must be
/// there: the stream stands in it.
async fn read(config: &Config) -> Result<(Vec<Lane>, Vec<Stop>), Stop> {
    let subscriber = session::subscriber(config, "walbraid status").await?;
    schema::require(&subscriber)
        .await
        .map_err(Failure::into_stop)?;
    let stream = stream::require(&subscriber, &config.stream)
        .await
        .map_err(Failure::into_stop)?;
    let mut away = Vec::new();
    let publisher = match ask_publisher(config, &stream.slot).await {
        Ok(publisher) => Some(publisher),
        Err(stop) => {
            away.push(stop);
            None
        }
    };
    let holders = holder::holders(&subscriber, &stream.name).await;
    let holders = holders.map_err(Failure::into_stop)?;
    let registry = unreachable_registry(config).await;
    let mut lanes = Vec::new();
    for mut row in status::read(&subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?
    {
        // The row may be a second old.
        let applied = progress::applied(&subscriber, &stream.name, row.lane).await?;
        row.applied_lsn = row.applied_lsn.max(applied.unwrap_or_default());
        let mut kafka = config.producer.kafka.clone();
        kafka.lane = i32::try_from(row.lane).unwrap_or_default();
        let (newest, kafka_away) =
            match walbraid_producer::lane::inspect_within(&kafka, refusal::PATIENCE).await {
                Ok(end) => (end.newest.map(|found| found.envelope), None),
                Err(stop) => (None, Some(stop)),
            };
        let producer = publisher.as_ref().map_or(Runs::Unknown, |publisher| {
            let slot = publisher.slot.as_ref();
            slot.is_some_and(|slot| slot.active_pid.is_some()).into()
        });
        let refusal = match (producer, &newest) {
            (Runs::Yes, _)
            | (
                _,
                Some(Envelope {
                    body: Body::Notice(_),
                    ..
                }),
            ) => None,
            _ => refusal::of_topic(config).await,
        };
        let away_message = kafka_away.as_ref().or(registry.as_ref());
        lanes.push(Lane {
            consumer: holders.iter().any(|holder| holder.lane == row.lane).into(),
            producer,
            refusal,
            away: away_message.map(|stop| stop.message.clone()),
            kafka_is_away: kafka_away.is_some(),
            row,
            published_lsn: newest.as_ref().map(|e| e.end_lsn.max(e.previous_end_lsn)),
            notice: newest.and_then(|envelope| match envelope.body {
                Body::Notice(notice) => Some(notice),
                _ => None,
            }),
            confirmed_lsn: publisher
                .as_ref()
                .and_then(|publisher| publisher.slot.as_ref()?.confirmed_flush_lsn),
            publisher: publisher
                .as_ref()
                .map(|publisher| (publisher.lsn, publisher.now)),
        });
        away.extend(kafka_away);
    }
    away.extend(registry);
    Ok((lanes, away))
}

/// Why the registry cannot be used, if it cannot.
async fn unreachable_registry(config: &Config) -> Option<Stop> {
    let mut producer = config.producer.clone();
    let patience_ms = u64::try_from(refusal::PATIENCE.as_millis()).unwrap_or(u64::MAX);
    producer.registry.timeout_ms = producer.registry.timeout_ms.min(patience_ms);
    walbraid_producer::check::registry(&producer).await
}

async fn ask_publisher(config: &Config, slot: &str) -> Result<Publisher, Stop> {
    let publisher = session::publisher(config, "walbraid status").await?;
    let sql = "SELECT pg_catalog.pg_current_wal_lsn(), pg_catalog.clock_timestamp()";
    let row = publisher.query_one(sql, &[]).await.or_stop("publisher")?;
    Ok(Publisher {
        lsn: Lsn(row.get::<_, PgLsn>(0).into()),
        now: row.get(1),
        slot: slot::inspect(&publisher, slot).await.or_stop("publisher")?,
    })
}
