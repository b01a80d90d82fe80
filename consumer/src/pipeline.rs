//! A consumer, top to bottom: what it needs is there → it joins the group → it applies the lanes it
//! is given → it ends.
//!
//! The group gives and takes lanes; each is a task that is owned and awaited here. A lane that
//! stops ends the whole process, after the others have finished what is in flight: a person must
//! act, and half a consumer would hide it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::notice::{Stop, StopKind};

use crate::config::Config;
use crate::fetch::Reader;
use crate::flusher;
use crate::group::{Group, Membership};
use crate::lane::{Lane, clients};
use crate::metrics::Metrics;
use crate::policy::{Failure, Retry};
use crate::stream::{self, Stream};
use crate::{schema, topic};

/// How long a member without a lane waits before it says that it is the stand-by.
const STANDBY_MS: u64 = 3_000;

/// How long after the group is back the answer may come to what was sent while it was in trouble.
const FENCE_GRACE_MS: u64 = 10_000;

/// Runs a consumer until `shutdown`, or until a person must act.
pub async fn run(
    config: Config,
    registry: &mut Registry,
    shutdown: CancellationToken,
) -> Result<(), Stop> {
    let metrics = Metrics::new(&config.stream, registry);
    run_with(config, metrics, shutdown).await
}

/// Like [`run`], with metrics that are registered already, so that they can be served meanwhile.
pub async fn run_with(
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), Stop> {
    let config = Arc::new(config);
    let Some(known) = prepare(&config, &shutdown).await? else {
        return Ok(());
    };
    let mut trouble = Retry::new("being a member of the consumer group");
    loop {
        let (tell, events) = mpsc::unbounded_channel();
        let group = Group::join(&clients(&config), &config.kafka.topic, tell);
        let mut lanes = Lanes {
            config: Arc::clone(&config),
            known: &known,
            metrics: &metrics,
            group: Arc::new(group.map_err(Failure::into_stop)?),
            running: HashMap::new(),
            lost: false,
            answered_at: None,
            lives: 0,
            tasks: JoinSet::new(),
        };
        let left = lanes.follow(events, &mut trouble, &shutdown).await;
        let finished = lanes.finish().await;
        if let Ok(group) = Arc::try_unwrap(lanes.group) {
            group.leave().await;
        }
        match (left?, finished?) {
            (Left::Asked, ()) => return Ok(()),
            (Left::Fenced, ()) => tracing::info!("joins the consumer group anew"),
        }
    }
}

/// Why a membership is over.
enum Left {
    /// The process is to end.
    Asked,
    /// The group took this member for another one of its name; see `Lanes::is_fenced_by_itself`.
    Fenced,
}

/// What a consumer knows of its stream.
struct Known {
    stream: Stream,
    database_oid: u32,
    lanes: Vec<u32>,
}

/// Waits for servers that are out of reach; `None` if `shutdown` came first.
async fn prepare(config: &Config, shutdown: &CancellationToken) -> Result<Option<Known>, Stop> {
    let mut retry = Retry::new("reading what is set up");
    loop {
        let known = tokio::select! {
            known = look(config) => known,
            () = shutdown.cancelled() => return Ok(None),
        };
        match known {
            Ok(known) => {
                retry.worked();
                return Ok(Some(known));
            }
            Err(Failure::Transient(transient)) => {
                let pause = retry.failed(&transient);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shutdown.cancelled() => return Ok(None),
                }
            }
            Err(other) => return Err(other.into_stop()),
        }
    }
}

/// Reads, and only reads, what setup has made.
async fn look(config: &Config) -> Result<Known, Failure> {
    let name = format!("walbraid {} start", config.stream);
    let sql = flusher::open(&config.subscriber.side(), &name).await?;
    schema::require(&sql).await?;
    let stream = stream::require(&sql, &config.stream).await?;
    let lanes = stream::lanes(&sql, &config.stream).await?;
    let database_oid = stream::database_oid(&sql).await?;
    let configured = Stream {
        topic: config.kafka.topic.clone(),
        ..stream.clone()
    };
    if let Some(stop) = stream.other_than(&configured) {
        return Err(Failure::Definite(stop));
    }
    let reader = Reader::open(&clients(config), &stream.topic, 0)?;
    let partitions = reader.partitions().await;
    reader.close().await;
    topic::check_partitions(&stream.topic, partitions?, lanes.len())?;
    // Nothing was asked that could fail at its end.
    let _ = sql.close().await;
    Ok(Known {
        stream,
        database_oid,
        lanes,
    })
}

/// Whether a member without a lane has said that it is the stand-by.
enum Standby {
    /// It has a lane.
    Works,
    /// It has none since then; the group may be about to give it one.
    Waits(Instant),
    /// It has said so.
    Told,
}

impl Standby {
    /// Waits until it is time to say so.
    async fn is_told(&mut self) {
        match self {
            Self::Works => *self = Self::Waits(Instant::now()),
            Self::Waits(_) | Self::Told => {}
        }
        match self {
            Self::Waits(since) => {
                tokio::time::sleep_until(*since + Duration::from_millis(STANDBY_MS)).await;
            }
            Self::Works | Self::Told => std::future::pending().await,
        }
    }

    fn tell(&mut self, stream: &str) {
        tracing::info!(
            stream,
            "this consumer stands by: it waits for a lane to be assigned"
        );
        *self = Self::Told;
    }

    fn works(&mut self, stream: &str) {
        if matches!(self, Self::Told) {
            tracing::info!(stream, "this consumer stands by no longer: it takes over");
        }
        *self = Self::Works;
    }
}

/// A lane that runs.
struct Running {
    /// Tells it from a life before it that has not ended yet.
    life: u64,
    stop: CancellationToken,
    /// Whether the group gave it up by itself.
    given_up: Arc<AtomicBool>,
    /// Dropped when the lane has ended: the group waits for it.
    released: Option<std_mpsc::SyncSender<()>>,
}

/// A lane that ended: its partition, its life, and how.
type Ended = (i32, u64, Result<(), Stop>);

/// All lanes of this process.
struct Lanes<'a> {
    config: Arc<Config>,
    known: &'a Known,
    metrics: &'a Metrics,
    group: Arc<Group>,
    running: HashMap<i32, Running>,
    /// Whether lanes were lost, and none was given since.
    lost: bool,
    /// When the group, which had been in trouble, answered.
    answered_at: Option<Instant>,
    /// Lanes started so far.
    lives: u64,
    tasks: JoinSet<Ended>,
}

impl Lanes<'_> {
    /// Follows the group until `shutdown`, or until a lane or the member stops.
    async fn follow(
        &mut self,
        mut events: mpsc::UnboundedReceiver<Membership>,
        trouble: &mut Retry,
        shutdown: &CancellationToken,
    ) -> Result<Left, Stop> {
        let mut standby = Standby::Waits(Instant::now());
        loop {
            if !self.running.is_empty() {
                standby.works(&self.config.stream);
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(Left::Asked),
                () = standby.is_told(), if self.running.is_empty() => {
                    standby.tell(&self.config.stream);
                }
                Some(event) = events.recv() => {
                    if self.is_fenced_by_itself(&event, trouble) {
                        return Ok(Left::Fenced);
                    }
                    self.member(event, trouble)?;
                }
                Some(ended) = self.tasks.join_next() => self.ended(ended)?,
            }
        }
    }

    /// Whether the member was fenced by nobody but itself. While the group is out of reach, its
    /// session runs out on this side; it joins anew without the id that it had, and what it sent
    /// with that id, or sends without one, is refused in favour of the member that the group still
    /// knows, soon after it is back. A fence without such a trouble is another's.
    fn is_fenced_by_itself(&self, event: &Membership, trouble: &Retry) -> bool {
        let fatal = KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId);
        let grace = Duration::from_millis(FENCE_GRACE_MS);
        let is_fresh = self.answered_at.is_some_and(|at| at.elapsed() < grace);
        matches!(event, Membership::Trouble(error) if *error == fatal)
            && (self.lost || trouble.reason().is_some() || is_fresh)
    }

    fn member(&mut self, event: Membership, trouble: &mut Retry) -> Result<(), Stop> {
        match event {
            Membership::Assigned(partitions) => {
                trouble.worked();
                self.lost = false;
                for partition in partitions {
                    self.start(partition).map_err(Failure::into_stop)?;
                }
            }
            Membership::Answered => {
                trouble.worked();
                self.answered_at = Some(Instant::now());
            }
            Membership::Revoked {
                partitions,
                lost,
                released,
            } => {
                tracing::info!(?partitions, lost, "lanes are given up");
                self.lost |= lost;
                for partition in partitions {
                    if let Some(lane) = self.running.get_mut(&partition) {
                        lane.given_up.store(lost, Ordering::Relaxed);
                        lane.stop.cancel();
                        lane.released = Some(released.clone());
                    }
                }
            }
            Membership::Trouble(KafkaError::MessageConsumptionFatal(code)) => {
                return Err(no_member(code));
            }
            // The next poll tells of it again, as fatal.
            Membership::Trouble(KafkaError::Global(RDKafkaErrorCode::FencedInstanceId)) => {}
            Membership::Trouble(error) => match Failure::from(error) {
                Failure::Transient(transient) => {
                    // librdkafka goes on by itself; only the log has to hear of it.
                    let _ = trouble.failed(&transient);
                }
                other => return Err(other.into_stop()),
            },
        }
        Ok(())
    }

    fn start(&mut self, partition: i32) -> Result<(), Failure> {
        let Known {
            stream,
            database_oid,
            lanes,
        } = &self.known;
        let number = u32::try_from(partition).unwrap_or(u32::MAX);
        if !lanes.contains(&number) {
            let partitions = partition.unsigned_abs() as usize + 1;
            return topic::check_partitions(&stream.topic, partitions, lanes.len());
        }
        tracing::info!(stream = stream.name, lane = number, "lane assigned");
        let metrics = self.metrics.lane(number);
        let lane = Lane::new(
            &self.config,
            stream,
            *database_oid,
            number,
            &self.group,
            metrics,
        )?;
        self.lives += 1;
        let life = self.lives;
        let stop = CancellationToken::new();
        let given_up = Arc::clone(&lane.given_up);
        self.tasks.spawn({
            let stop = stop.clone();
            async move { (partition, life, lane.run(stop).await) }
        });
        self.running.insert(
            partition,
            Running {
                life,
                stop,
                given_up,
                released: None,
            },
        );
        Ok(())
    }

    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> Result<(), Stop> {
        let (partition, life, end) = ended.map_err(|error| {
            Stop::new(StopKind::Internal, format!("a lane's task failed: {error}"))
        })?;
        // Tells the group, if it waits. A life after this one, which took too long to end, goes on.
        self.running
            .retain(|one, running| *one != partition || running.life != life);
        end
    }

    /// Ends all lanes and awaits them; what goes wrong first is told.
    async fn finish(&mut self) -> Result<(), Stop> {
        for lane in self.running.values() {
            lane.stop.cancel();
        }
        let mut end = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            end = end.and(self.ended(ended));
        }
        end
    }
}

fn no_member(code: RDKafkaErrorCode) -> Stop {
    let stop = Stop::new(
        StopKind::LaneOwnedElsewhere,
        format!("this consumer is no member of its group any more: {code}"),
    );
    stop.hint("Another consumer runs under the same group.instance.id: give each its own.")
}
