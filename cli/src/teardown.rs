//! `walbraid teardown`: removes what setup made of a stream, and nothing else.
//!
//! The stream's row on the subscriber says what that is: its slot, its topic (only if setup made
//! it), its subjects in the registry, its lanes and origins; with the last stream the schema too.
//! The row goes last, so that a teardown that was cut off is finished by the next one. A stream
//! that is still produced or consumed is refused before anything is touched.

use walbraid_consumer::holder::{self, Holder};
use walbraid_consumer::policy::Failure;
use walbraid_consumer::schema;
use walbraid_consumer::stream::{self, Stream};
use walbraid_producer::{slot, topic};
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
    let subscriber = session::subscriber(config, "walbraid teardown").await?;
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
    if let Some((stream, _)) = found {
        remove_stream(config, &subscriber, &stream, &mut removed).await?;
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
    let subjects = walbraid_producer::drop_subjects(&producer).await?;
    removed.extend(
        subjects
            .into_iter()
            .map(|subject| format!("subject \"{subject}\"")),
    );
    let ours = stream::made_topic(subscriber, &stream.name)
        .await
        .map_err(Failure::into_stop)?;
    if ours && topic::drop(&producer.kafka).await? {
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
