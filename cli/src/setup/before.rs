//! What setup looks at before it makes anything.
//!
//! Owns the refusals that can be known beforehand: of the subscriber, the registry, the slot's name
//! and the topic. Makes nothing. What changes between the look and the making is found again there.

use walbraid_consumer::policy::Failure;
use walbraid_consumer::schema;
use walbraid_consumer::stream::{self, Stream};
use walbraid_producer::{lane, slot, topic};
use walbraid_schemas::{Incarnation, Stop, StopKind};

use super::{Setup, unannounced};
use crate::check::subscriber;
use crate::session::OrStop;

impl Setup<'_> {
    /// Fails if something of the stream could not be made.
    pub(super) async fn look_before(&self, stream: &Stream) -> Result<(), Stop> {
        subscriber::refuse_before_setup(self.subscriber).await?;
        let incarnation = match self.known(stream).await? {
            // What of it is gone is for the look at the whole of it to say.
            Some((_, true)) => return Ok(()),
            Some((found, false)) => found.incarnation,
            None => {
                self.refuse_foreign_slot(&stream.slot).await?;
                stream.incarnation
            }
        };
        walbraid_producer::reach_registry(&self.config.producer).await?;
        self.refuse_foreign_topic(incarnation).await
    }

    /// The stream of that name on the subscriber, and whether it is ready.
    async fn known(&self, stream: &Stream) -> Result<Option<(Stream, bool)>, Stop> {
        let version = schema::version(self.subscriber).await;
        let version = version.map_err(Failure::into_stop)?;
        match version {
            None => return Ok(None),
            Some(..=schema::VERSION) => {}
            Some(_) => schema::require(self.subscriber)
                .await
                .map_err(Failure::into_stop)?,
        }
        let found = stream::find_any(self.subscriber, &stream.name).await;
        let found = found.map_err(Failure::into_stop)?;
        let other = found
            .as_ref()
            .and_then(|(found, _)| found.other_than(stream));
        other.map_or(Ok(found), Err)
    }

    /// A slot that is there before the stream was announced is not ours.
    async fn refuse_foreign_slot(&self, name: &str) -> Result<(), Stop> {
        let found = slot::inspect(self.publisher, name).await;
        match found.or_stop("publisher")? {
            None => Ok(()),
            Some(_) => Err(unannounced(name)),
        }
    }

    /// A topic that is there must serve as a log, and hold no other.
    async fn refuse_foreign_topic(&self, incarnation: Incarnation) -> Result<(), Stop> {
        let (kafka, limits) = (&self.config.producer.kafka, &self.config.producer.limits);
        let Some(found) = topic::inspect(kafka).await? else {
            return Ok(());
        };
        if let Some(stop) = topic::unfit(Some(&found), kafka, limits) {
            return Err(stop);
        }
        match lane::inspect(kafka).await?.newest {
            Some(newest) if newest.envelope.incarnation != incarnation => {
                Err(foreign_log(&kafka.topic, newest.envelope.incarnation))
            }
            _ => Ok(()),
        }
    }
}

/// The topic is another stream's.
pub(super) fn foreign_log(topic: &str, incarnation: Incarnation) -> Stop {
    let message = format!("topic \"{topic}\" holds the log of another stream");
    Stop::new(StopKind::TopicMismatch, message)
        .detail(format!(
            "Its newest record is of incarnation {incarnation}."
        ))
        .hint("Name another topic, or remove this one if nobody reads it.")
}
