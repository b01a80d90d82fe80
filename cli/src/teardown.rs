//! `walbraid teardown`: removes what setup made of a stream, and nothing else.
//!
//! The stream's row on the subscriber says what that is: its slot, its topic (only if setup made
//! it), its subjects in the registry (only if the log in the topic is its own: setup may have been
//! refused there), its lanes and origins; with the last stream the schema too.
//! The row goes last, so that a teardown that was cut off is finished by the next one. A stream
//! that is still produced or consumed is refused before anything is touched.

use walbraid_consumer::holder::{self, Holder};
use walbraid_consumer::policy::Failure;
use walbraid_consumer::schema;
use walbraid_consumer::stream::{self, Stream};
use walbraid_producer::config::Kafka;
use walbraid_producer::{lane, slot, topic};
use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;
use crate::output::line;
use crate::session::{self, OrStop, Session};

/// Removes the stream and says what was removed.
pub(crate) async fn run(config: &Config) -> Result<(), Stop> {
    let removed = remove(config).await?;
    removed
        .iter()
        .for_each(|what| line(format_args!("removed {what}")));
    if removed.is_empty() {
        line(format_args!(
            "nothing of stream \"{}\" is there",
            config.stream
        ));
    }
    Ok(())
}

/// Removes the stream; what was removed, in order.
pub(crate) async fn remove(config: &Config) -> Result<Vec<String>, Stop> {
    let subscriber = session::writing_subscriber(config, "walbraid teardown").await?;
    let mut removed = Vec::new();
    let installed = schema::version(&subscriber)
        .await
        .map_err(Failure::into_stop)?
        .is_some();
    if !installed {
        return Ok(removed);
    }
    let found = stream::find_any(&subscriber, &config.stream)
        .await
        .map_err(Failure::into_stop)?;
    if let Some((stream, ready)) = found {
        remove_stream(config, &subscriber, &stream, ready, &mut removed).await?;
    }
    if schema::remove(&subscriber)
        .await
        .map_err(Failure::into_stop)?
    {
        removed.push("schema \"walbraid\" on the subscriber".to_owned());
    }
    Ok(removed)
}

async fn remove_stream(
    config: &Config,
    subscriber: &Session,
    stream: &Stream,
    ready: bool,
    removed: &mut Vec<String>,
) -> Result<(), Stop> {
    let publisher = session::publisher(config, "walbraid teardown").await?;
    refuse_other_publisher(config, stream).await?;
    refuse_running(&publisher, subscriber, stream).await?;
    if slot::drop(&publisher, &stream.slot)
        .await
        .or_stop("publisher")?
    {
        removed.push(format!("slot \"{}\"", stream.slot));
    }
    let mut producer = config.producer.clone();
    producer.kafka.topic.clone_from(&stream.topic);
    let made = stream::made_topic(subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?;
    let whose = whose_log(&producer.kafka, stream).await?;
    if subjects_are_ours(whose, made, ready) {
        let subjects = walbraid_producer::drop_subjects(&producer).await?;
        let named = subjects
            .into_iter()
            .map(|name| format!("subject \"{name}\""));
        removed.extend(named);
    }
    if made && whose != Log::Foreign && topic::drop(&producer.kafka).await? {
        removed.push(format!("topic \"{}\"", stream.topic));
    }
    if stream::remove(subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?
    {
        removed.push(format!("stream \"{}\" with its origins", stream.name));
    }
    Ok(())
}

/// Whose log the topic holds, by its newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// This stream's.
    Own,
    /// Another stream's, whatever was agreed about the topic before.
    Foreign,
    /// Nobody's: it is empty or gone.
    Nobodys,
}

async fn whose_log(kafka: &Kafka, stream: &Stream) -> Result<Log, Stop> {
    if topic::inspect(kafka).await?.is_none() {
        return Ok(Log::Nobodys);
    }
    Ok(match lane::inspect(kafka).await?.newest {
        None => Log::Nobodys,
        Some(newest) if newest.envelope.incarnation == stream.incarnation => Log::Own,
        Some(_) => Log::Foreign,
    })
}

/// Whether setup, or the producer, made the subjects under the topic's name. Where nothing is in
/// the topic, they are those of a stream that setup made the topic for, or finished.
fn subjects_are_ours(whose: Log, made_topic: bool, ready: bool) -> bool {
    match whose {
        Log::Own => true,
        Log::Foreign => false,
        Log::Nobodys => made_topic || ready,
    }
}

/// A slot of that name on another server is not the one setup made.
async fn refuse_other_publisher(config: &Config, stream: &Stream) -> Result<(), Stop> {
    let identity = session::identify(config).await?;
    if identity.system_identifier == stream.publisher_system_identifier {
        return Ok(());
    }
    let message = format!("stream \"{}\" is of another publisher", stream.name);
    Err(Stop::new(StopKind::SlotForeign, message)
        .detail(format!(
            "Its publisher has the system identifier {}, publisher.url leads to {}.",
            stream.publisher_system_identifier, identity.system_identifier
        ))
        .hint("Set publisher.url to the publisher that setup was run on."))
}

async fn refuse_running(
    publisher: &Session,
    subscriber: &Session,
    stream: &Stream,
) -> Result<(), Stop> {
    if let Some(holder) = slot::holder(publisher, &stream.slot)
        .await
        .or_stop("publisher")?
    {
        return Err(slot::in_use(&stream.slot, Some(&holder)));
    }
    let holders = holder::holders(subscriber, &stream.name).await;
    let holders = holders.map_err(Failure::into_stop)?;
    let Some(Holder { lane, pid, .. }) = holders.first() else {
        return Ok(());
    };
    let message = format!(
        "lane {lane} of stream \"{}\" is being consumed",
        stream.name
    );
    Err(Stop::new(StopKind::LaneOwnedElsewhere, message)
        .detail(format!(
            "Process {pid} of the subscriber holds the lane's lock."
        ))
        .hint("Stop the consumers of the stream first."))
}
