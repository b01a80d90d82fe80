//! `walbraid setup`: makes what a stream needs, on all servers, and can be run again.
//!
//! Owns the order, in which a crash at any place leaves nothing that the next run does not know:
//!
//! 1. the `walbraid` schema on the subscriber, which an older version is upgraded to;
//! 2. the stream is announced there with a fresh incarnation, and only if no slot of its name
//!    exists: from here on a slot of that name is ours;
//! 3. the topic (that it is ours is kept before it is made);
//! 4. the slot; its consistent point is where the stream starts;
//! 5. the first heartbeat at that point: the place of the slot in the log;
//! 6. start, lanes and anchor origins in one synchronous commit: the stream is ready.
//!
//! A run that finds the announcement goes on from there with the same incarnation. A run that finds
//! the stream ready looks only whether all of it is still there. Nothing is copied: a table that
//! holds other rows on the subscriber is warned of.
//!
//! Before any of it, all servers are looked at (`before`): what can be known to refuse does so
//! while nothing is made. What is made stays when something fails later, because another run may be
//! going on from it, and a heartbeat whose acknowledgement is lost may be in the log; the HINT says
//! how it is taken away.
//!
//! What is made or found is printed, one line each, on standard output.

mod before;

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;
use walbraid_consumer::stream::{self, Announced, Stream};
use walbraid_consumer::{policy::Failure, schema};
use walbraid_producer::{lane, publisher, slot, standing, topic};
use walbraid_schemas::{Incarnation, Lsn, Stop, StopKind};
use walbraid_wire::replication::SystemIdentity;

use crate::config::Config;
use crate::copied;
use crate::output::line;
use crate::session::{self, OrStop, Session};

/// How often a slot that another session holds is looked at.
const SLOT_POLL_MS: u64 = 200;

/// Runs setup.
pub(crate) async fn run(config: &Config) -> Result<(), Stop> {
    let publisher = session::publisher(config, "walbraid setup").await?;
    let identity = fit(config, &publisher).await?;
    let subscriber = session::writing_subscriber(config, "walbraid setup").await?;
    let setup = Setup {
        config,
        publisher: &publisher,
        subscriber: &subscriber,
        identity,
    };
    let stream = setup.configured();
    setup.look_before(&stream).await?;

    let mut made = Made::default();
    setup.run(stream, &mut made).await?;
    if made.nothing {
        line("everything is there");
    }
    Ok(())
}

/// What the announcement leaves to do.
enum Announcement {
    /// Nothing.
    Ready(Stream),
    /// Everything from the topic on; what is there of it is ours.
    Unfinished(Stream),
}

use Announcement::{Ready, Unfinished};

/// Checks the publisher before anything is made, and says which one it is.
async fn fit(config: &Config, session: &Session) -> Result<SystemIdentity, Stop> {
    let settings = &config.producer.publisher;
    let facts = publisher::facts(session).await.or_stop("publisher")?;
    if let Some(stop) = publisher::unfit(&facts) {
        return Err(stop);
    }
    let names = &settings.publications;
    let found = publisher::publications(session, &facts, names)
        .await
        .or_stop("publisher")?;
    if let Some(stop) = publisher::unpublished(names, &found) {
        return Err(stop);
    }
    session::identify(config).await
}

struct Setup<'a> {
    config: &'a Config,
    publisher: &'a Session,
    subscriber: &'a Session,
    identity: SystemIdentity,
}

impl Setup<'_> {
    /// The stream as it is configured, with an incarnation of its own.
    fn configured(&self) -> Stream {
        let producer = &self.config.producer;
        Stream {
            name: self.config.stream.clone(),
            incarnation: Incarnation(Uuid::new_v4().into_bytes()),
            publisher_system_identifier: self.identity.system_identifier.clone(),
            publisher_database: self.identity.database.clone().unwrap_or_default(),
            slot: producer.publisher.slot.clone(),
            topic: producer.kafka.topic.clone(),
            start_lsn: Lsn::INVALID,
        }
    }

    async fn run(&self, stream: Stream, made: &mut Made) -> Result<(), Stop> {
        self.install(made).await?;
        match self.announce(stream).await? {
            Ready(stream) => self.look(&stream, made).await,
            Unfinished(stream) => {
                let outcome = self.make(stream, made).await;
                outcome.map_err(|stop| made.left(stop))?;
                copied::warn(self.config, self.publisher, self.subscriber).await
            }
        }
    }

    async fn install(&self, made: &mut Made) -> Result<(), Stop> {
        let installed = schema::install(self.subscriber)
            .await
            .map_err(Failure::into_stop)?;
        made.say(
            installed != schema::Installed::Found,
            match installed {
                schema::Installed::Upgraded => {
                    "newer tables in schema \"walbraid\" on the subscriber"
                }
                _ => "schema \"walbraid\" on the subscriber",
            },
        );
        Ok(())
    }

    async fn announce(&self, mut stream: Stream) -> Result<Announcement, Stop> {
        match stream::announce(self.subscriber, &stream)
            .await
            .map_err(Failure::into_stop)?
        {
            Announced::New => Ok(Unfinished(stream)),
            Announced::Unfinished(incarnation) => {
                stream.incarnation = incarnation;
                Ok(Unfinished(stream))
            }
            Announced::Ready(stream) => Ok(Ready(*stream)),
        }
    }

    async fn make(&self, mut stream: Stream, made: &mut Made) -> Result<(), Stop> {
        let config = &self.config.producer;
        self.topic(&stream, made).await?;
        stream.start_lsn = self.slot(&stream.slot, made).await?;
        self.first_heartbeat(&stream, made).await?;
        let lanes = config.kafka.partitions.unsigned_abs();
        stream::create(self.subscriber, &stream, lanes)
            .await
            .map_err(Failure::into_stop)?;
        let Stream {
            name,
            start_lsn,
            incarnation,
            ..
        } = &stream;
        made.say(
            true,
            &format!("stream \"{name}\" from {start_lsn} on (incarnation {incarnation})"),
        );
        Ok(())
    }

    async fn topic(&self, stream: &Stream, made: &mut Made) -> Result<(), Stop> {
        let (kafka, limits) = (&self.config.producer.kafka, &self.config.producer.limits);
        let mut found = topic::inspect(kafka).await?;
        let missing = found.is_none();
        if missing {
            let claimed = stream::claim_topic(self.subscriber, &stream.name).await;
            claimed.map_err(Failure::into_stop)?;
            topic::create(kafka).await?;
            found = topic::inspect(kafka).await?;
        }
        if let Some(stop) = topic::unfit(found.as_ref(), kafka, limits) {
            return Err(stop);
        }
        let partitions = match kafka.partitions {
            1 => "1 partition".to_owned(),
            many => format!("{many} partitions"),
        };
        made.say(
            missing,
            &format!("topic \"{}\" with {partitions}", kafka.topic),
        );
        Ok(())
    }

    /// The slot and its consistent point.
    async fn slot(&self, name: &str, made: &mut Made) -> Result<Lsn, Stop> {
        let found = self.settled_slot(name).await?;
        let start = match found {
            None => slot::create(&self.config.producer.publisher).await?,
            // Nobody has read from it: its producer needs the stream to be ready.
            Some(start) => start,
        };
        made.slot_stands = true;
        made.say(found.is_none(), &format!("slot \"{name}\" at {start}"));
        Ok(start)
    }

    /// Where the slot stands, if there is one, once nobody holds it: a run that was ended while it
    /// made the slot leaves a walsender behind that goes on waiting for open transactions. Until
    /// that has come to its end the slot has no consistent point, and it may yet be given up.
    async fn settled_slot(&self, name: &str) -> Result<Option<Lsn>, Stop> {
        let patience_ms = u64::from(self.config.producer.publisher.slot_lock_timeout_ms);
        let began = Instant::now();
        let mut told = false;
        loop {
            let found = slot::inspect(self.publisher, name).await;
            let Some(slot) = found.or_stop("publisher")? else {
                return Ok(None);
            };
            self.usable(Some(&slot), name)?;
            if let (None, Some(start)) = (slot.active_pid, slot.confirmed_flush_lsn) {
                return Ok(Some(start));
            }
            if patience_ms > 0 && began.elapsed() >= Duration::from_millis(patience_ms) {
                let holder = slot::holder(self.publisher, name).await;
                return Err(slot::in_use(name, holder.or_stop("publisher")?.as_ref()));
            }
            if !told {
                tracing::warn!("slot \"{name}\" is held by another session; waiting for its end");
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(SLOT_POLL_MS)).await;
        }
    }

    fn usable(&self, slot: Option<&slot::Slot>, name: &str) -> Result<(), Stop> {
        let database = self.identity.database.as_deref().unwrap_or_default();
        slot::unfit(slot, name, database).map_or(Ok(()), Err)
    }

    async fn first_heartbeat(&self, stream: &Stream, made: &mut Made) -> Result<(), Stop> {
        let config = &self.config.producer;
        let newest = lane::inspect(&config.kafka).await?.newest;
        let there = match newest {
            None => false,
            Some(found) if found.envelope.incarnation == stream.incarnation => true,
            Some(found) => {
                return Err(before::foreign_log(
                    &config.kafka.topic,
                    found.envelope.incarnation,
                ));
            }
        };
        if !there {
            let timeline = self.identity.timeline;
            walbraid_producer::first_heartbeat(
                config,
                stream.incarnation,
                timeline,
                stream.start_lsn,
            )
            .await?;
        }
        made.say(
            !there,
            &format!("first record of the log at {}", stream.start_lsn),
        );
        Ok(())
    }

    /// Looks whether everything of a stream that is ready is there.
    async fn look(&self, stream: &Stream, made: &mut Made) -> Result<(), Stop> {
        let (kafka, limits) = (&self.config.producer.kafka, &self.config.producer.limits);
        let topic = topic::inspect(kafka).await?;
        if let Some(stop) = topic::unfit(topic.as_ref(), kafka, limits) {
            // A log that is gone cannot be made again: what was in it and not applied is lost.
            return Err(match stop.kind {
                StopKind::TopicMissing => stop.hint(slot::BEGIN_ANEW),
                _ => stop,
            });
        }
        if lane::inspect(kafka).await?.offsets.end == 0 {
            let message = format!("topic \"{}\" is empty", kafka.topic);
            return Err(Stop::new(StopKind::LogTruncated, message)
                .detail("It held the stream's first record; it was made anew since.")
                .hint(slot::BEGIN_ANEW));
        }
        made.say(false, &format!("topic \"{}\"", kafka.topic));
        let slot = slot::inspect(self.publisher, &stream.slot)
            .await
            .or_stop("publisher")?;
        self.usable(slot.as_ref(), &stream.slot)
            .map_err(|stop| stop.hint(slot::BEGIN_ANEW))?;
        made.say(false, &format!("slot \"{}\"", stream.slot));
        if let Some(stop) = standing::look(&self.config.producer).await? {
            return Err(stop);
        }
        let Stream {
            name,
            start_lsn,
            incarnation,
            ..
        } = stream;
        made.say(
            false,
            &format!("stream \"{name}\" from {start_lsn} on (incarnation {incarnation})"),
        );
        Ok(())
    }
}

/// A slot that is there, of a stream that the subscriber does not know.
pub(crate) fn unannounced(slot: &str) -> Stop {
    let message = format!("slot \"{slot}\" exists already and was not made by this setup");
    Stop::new(StopKind::SlotForeign, message)
        .detail("The subscriber knows no stream of it, so it is not known what was carried.")
        .hint("Drop the slot if nothing else uses it, or name another one in publisher.slot.")
}

/// How it goes on after a set-up that did not finish.
const UNFINISHED: &str = "run \"walbraid setup\" again, which goes on from there, or \"walbraid \
                          teardown\", which removes it.";

/// What was made, and whether anything was.
struct Made {
    nothing: bool,
    slot_stands: bool,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            nothing: true,
            slot_stands: false,
        }
    }
}

impl Made {
    fn say(&mut self, made: bool, what: &str) {
        line(format_args!(
            "{} {what}",
            if made { "made " } else { "found" }
        ));
        self.nothing &= !made;
    }

    /// A stop while the stream is being made says what stays, and how it is taken away.
    fn left(&self, mut stop: Stop) -> Stop {
        let stays = match self.slot_stands {
            true => "The slot stays, and holds the publisher's WAL",
            false => "What was made so far stays",
        };
        let hint = stop
            .hint
            .map_or_else(String::new, |hint| format!("{hint} "));
        stop.hint = Some(format!("{hint}{stays}: {UNFINISHED}"));
        stop
    }
}
