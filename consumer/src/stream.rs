//! A stream's rows on the subscriber: made by setup, read by a consumer, removed by teardown.
//!
//! Setup announces a stream before it makes the slot: a slot of its name that is found later, with
//! nothing but the announcement, is then known for its own. When the slot's start is known, the
//! stream becomes ready, its lanes' rows and their anchor origins are made, all in one synchronous
//! commit, so that a start without progress (`fence`) can be told from progress that was lost.
//!
//! A stream that is announced only is no stream yet: `find` does not see it.

use tokio_postgres::Client;
use tokio_postgres::types::{Oid, PgLsn};
use uuid::Uuid;
use walbraid_schemas::incarnation::Incarnation;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::origin::LaneOrigins;
use crate::policy::Failure;
use crate::schema::finish;

/// What helps where a stream is configured otherwise than it was set up.
const PUT_BACK: &str = "Put it back as it was. To begin anew instead, run \"walbraid teardown\" \
                        with the former configuration, bring the subscriber's tables up to date, \
                        and run \"walbraid setup\".";

/// A stream as the subscriber knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The publisher's system identifier.
    pub publisher_system_identifier: String,
    /// The publisher's database.
    pub publisher_database: String,
    /// The slot.
    pub slot: String,
    /// The topic.
    pub topic: String,
    /// The slot's consistent point: nothing at or below it is applied.
    pub start_lsn: Lsn,
}

/// What an announcement found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Announced {
    /// Nothing: the stream is announced with this incarnation now.
    New,
    /// The same stream, announced with this incarnation by a setup that did not finish.
    Unfinished(Incarnation),
    /// The same stream, ready.
    Ready(Box<Stream>),
}

/// Announces a stream in a synchronous commit; its start is not known yet and not read.
pub async fn announce(client: &Client, stream: &Stream) -> Result<Announced, Failure> {
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let outcome = announce_in_transaction(client, stream).await;
    finish(client, outcome).await
}

async fn announce_in_transaction(client: &Client, stream: &Stream) -> Result<Announced, Failure> {
    let insert = "INSERT INTO walbraid.streams (stream, incarnation, state, \
                      publisher_system_identifier, publisher_database, slot, topic, start_lsn) \
                  VALUES ($1, $2, 'creating', $3, $4, $5, $6, '0/0') \
                  ON CONFLICT (stream) DO NOTHING";
    let made = client
        .execute(
            insert,
            &[
                &stream.name,
                &Uuid::from_bytes(stream.incarnation.0),
                &stream.publisher_system_identifier,
                &stream.publisher_database,
                &stream.slot,
                &stream.topic,
            ],
        )
        .await?;
    if made > 0 {
        return Ok(Announced::New);
    }
    match find_any(client, &stream.name).await? {
        Some((found, ready)) => match found.other_than(stream) {
            Some(stop) => Err(Failure::Definite(stop)),
            None if ready => Ok(Announced::Ready(Box::new(found))),
            None => Ok(Announced::Unfinished(found.incarnation)),
        },
        None => Err(Failure::definite(
            StopKind::Internal,
            format!("stream \"{}\" appeared and vanished", stream.name),
        )),
    }
}

/// Makes an announced stream ready, with its lanes and anchors, in one synchronous commit.
pub async fn create(client: &Client, stream: &Stream, lanes: u32) -> Result<(), Failure> {
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let outcome = create_in_transaction(client, stream, lanes).await;
    finish(client, outcome).await
}

async fn create_in_transaction(
    client: &Client,
    stream: &Stream,
    lanes: u32,
) -> Result<(), Failure> {
    let update = "UPDATE walbraid.streams SET state = 'ready', start_lsn = $3 \
                  WHERE stream = $1 AND incarnation = $2 AND state = 'creating'";
    let incarnation = Uuid::from_bytes(stream.incarnation.0);
    let start = PgLsn::from(stream.start_lsn.0);
    if client
        .execute(update, &[&stream.name, &incarnation, &start])
        .await?
        == 0
    {
        return Err(Failure::definite(
            StopKind::Incarnation,
            format!(
                "stream \"{}\" was set up or removed by someone else meanwhile",
                stream.name
            ),
        ));
    }
    let database = database_oid(client).await?;
    for lane in 0..lanes {
        let number = i32::try_from(lane).unwrap_or(i32::MAX);
        let insert = "INSERT INTO walbraid.lanes (stream, lane) VALUES ($1, $2)";
        client.execute(insert, &[&stream.name, &number]).await?;
        origins(database, stream, lane)
            .create_anchor(client)
            .await?;
    }
    Ok(())
}

/// The stream of that name, if it is ready.
pub async fn find(client: &Client, name: &str) -> Result<Option<Stream>, Failure> {
    let found = find_any(client, name).await?;
    Ok(found.and_then(|(stream, ready)| ready.then_some(stream)))
}

/// The stream of that name, and whether it is ready.
pub async fn find_any(client: &Client, name: &str) -> Result<Option<(Stream, bool)>, Failure> {
    let sql = "SELECT stream, incarnation, publisher_system_identifier, publisher_database, \
                      slot, topic, start_lsn, state = 'ready' \
               FROM walbraid.streams WHERE stream = $1";
    let Some(row) = client.query_opt(sql, &[&name]).await? else {
        return Ok(None);
    };
    let stream = Stream {
        name: row.try_get(0)?,
        incarnation: Incarnation(row.try_get::<_, Uuid>(1)?.into_bytes()),
        publisher_system_identifier: row.try_get(2)?,
        publisher_database: row.try_get(3)?,
        slot: row.try_get(4)?,
        topic: row.try_get(5)?,
        start_lsn: Lsn(row.try_get::<_, PgLsn>(6)?.into()),
    };
    Ok(Some((stream, row.try_get(7)?)))
}

impl Stream {
    /// Why a configuration of other names than those that it was set up with is refused, if these
    /// are others: publisher, slot and topic, whatever the incarnation.
    pub fn other_than(&self, configured: &Stream) -> Option<Stop> {
        let difference = |what: &str, of: fn(&Stream) -> &str| {
            let (found, wanted) = (of(self), of(configured));
            (found != wanted)
                .then(|| format!("{what} \"{found}\", the configuration says \"{wanted}\""))
        };
        let differences: Vec<String> = [
            difference("topic", |stream| &stream.topic),
            difference("slot", |stream| &stream.slot),
            difference("publisher's database", |stream| &stream.publisher_database),
            difference("publisher with system identifier", |stream| {
                &stream.publisher_system_identifier
            }),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (first, others) = differences.split_first()?;
        let message = format!("stream \"{}\" reads {first}", self.name);
        let mut stop = Stop::new(StopKind::Usage, message).hint(PUT_BACK);
        if !others.is_empty() {
            stop.detail = Some(format!("It also reads {}.", others.join("; ")));
        }
        Some(stop)
    }
}

/// Keeps that the topic is ours to remove; said before it is made.
pub async fn claim_topic(client: &Client, name: &str) -> Result<(), Failure> {
    let sql = "UPDATE walbraid.streams SET topic_made = true WHERE stream = $1";
    client.execute(sql, &[&name]).await?;
    Ok(())
}

/// Whether the topic is ours to remove.
pub async fn made_topic(client: &Client, name: &str) -> Result<bool, Failure> {
    let sql = "SELECT topic_made FROM walbraid.streams WHERE stream = $1";
    let row = client.query_opt(sql, &[&name]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

/// The stream of that name, which must be there.
pub async fn require(client: &Client, name: &str) -> Result<Stream, Failure> {
    find(client, name).await?.ok_or_else(|| {
        let message = format!("stream \"{name}\" is not set up on the subscriber");
        Failure::Definite(Stop::new(StopKind::NotSetUp, message).hint("Run walbraid setup."))
    })
}

/// The numbers of the stream's lanes.
pub async fn lanes(client: &Client, name: &str) -> Result<Vec<u32>, Failure> {
    let sql = "SELECT lane FROM walbraid.lanes WHERE stream = $1 ORDER BY lane";
    let rows = client.query(sql, &[&name]).await?;
    rows.iter()
        .map(|row| Ok(row.try_get::<_, i32>(0)?.try_into().unwrap_or_default()))
        .collect()
}

/// Removes the stream's rows and origins in one synchronous commit; false if it was not there.
///
/// Fails with "in use" while a consumer holds an origin: it must be stopped first.
pub async fn remove(client: &Client, name: &str) -> Result<bool, Failure> {
    client
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
        .await?;
    let outcome = remove_in_transaction(client, name).await;
    finish(client, outcome).await
}

async fn remove_in_transaction(client: &Client, name: &str) -> Result<bool, Failure> {
    let Some((stream, _)) = find_any(client, name).await? else {
        return Ok(false);
    };
    let database = database_oid(client).await?;
    for lane in lanes(client, name).await? {
        origins(database, &stream, lane).drop_all(client).await?;
    }
    let progress = "DELETE FROM walbraid.progress USING walbraid.lanes l \
                    WHERE lane_id = l.id AND l.stream = $1";
    client.execute(progress, &[&name]).await?;
    client
        .execute("DELETE FROM walbraid.lanes WHERE stream = $1", &[&name])
        .await?;
    client
        .execute("DELETE FROM walbraid.streams WHERE stream = $1", &[&name])
        .await?;
    Ok(true)
}

/// The oid of the database that the client is connected to.
pub async fn database_oid(client: &Client) -> Result<u32, Failure> {
    let sql =
        "SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()";
    Ok(client.query_one(sql, &[]).await?.try_get::<_, Oid>(0)?)
}

/// The origins of one of the stream's lanes.
pub fn origins(database_oid: u32, stream: &Stream, lane: u32) -> LaneOrigins {
    let incarnation = Uuid::from_bytes(stream.incarnation.0);
    LaneOrigins::new(database_oid, &stream.name, incarnation, lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_otherwise_than_it_was_set_up_is_named() {
        let stream = |topic: &str, slot: &str| Stream {
            name: "shop".to_owned(),
            incarnation: Incarnation([0; 16]),
            publisher_system_identifier: "7".to_owned(),
            publisher_database: "shop".to_owned(),
            slot: slot.to_owned(),
            topic: topic.to_owned(),
            start_lsn: Lsn(1),
        };
        let check = |topic, slot, message: Option<&str>, detail: Option<&str>| {
            let stop = stream("a", "s").other_than(&stream(topic, slot));
            let found = stop.as_ref().map(|stop| stop.message.as_str());
            assert_eq!(found, message);
            assert_eq!(stop.and_then(|stop| stop.detail).as_deref(), detail);
        };
        let topic = "stream \"shop\" reads topic \"a\", the configuration says \"b\"";
        check("a", "s", None, None);
        check("b", "s", Some(topic), None);
        check(
            "b",
            "t",
            Some(topic),
            Some("It also reads slot \"s\", the configuration says \"t\"."),
        );
    }
}
