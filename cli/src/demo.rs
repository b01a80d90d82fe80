//! `walbraid demo`: the whole of it on a small shop, on real servers, with a kill in the middle.
//!
//! Reads top to bottom in [`show`]: tables on both sides, `setup`, producer and consumer as
//! processes of their own, a load, a consumer killed and started again, the drain, a comparison of
//! every table. Meanwhile a second reader watches the shop's money on the subscriber ([`audit`])
//! and a probe measures how long a commit takes to be seen ([`probe`]).
//!
//! Everything it makes carries a name of its own (`walbraid_demo`) and is removed at the end unless
//! `--keep` is given; a schema of that name that it did not make is left alone and refused.

mod audit;
mod board;
mod compare;
mod crowd;
mod load;
mod outcome;
mod probe;
mod process;
mod servers;
mod shop;

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use walbraid_schemas::{Stop, StopKind};

use crate::args::Demo;
use crate::config::{self, Config};
use crate::output::line;
use crate::session::{self, OrStop, Session};
use crate::{setup, teardown, wait};

use board::Board;
use crowd::{Crowd, SHOPPERS};
use outcome::Outcome;
use process::Process;
use servers::Servers;

const DRAIN_TIMEOUT_S: u64 = 300;
const OUTAGE_MS: u64 = 1_000;

/// Runs the demo; an error means that a promise was not kept or something was in the way.
pub(crate) async fn run(options: &Demo) -> Result<(), Stop> {
    let servers = Servers::named(options)?;
    let directory = servers.directory(options)?;
    let config = servers.write_configuration(&directory)?;
    let mut producer = Process::new("produce", &directory, &["metrics.listen=127.0.0.1:0"]);
    let mut consumer = Process::new("consume", &directory, &[]);
    let shown = tokio::select! {
        shown = show(options, &config, &mut producer, &mut consumer) => shown,
        _ = tokio::signal::ctrl_c() => Err(Stop::new(StopKind::Internal, "demo was interrupted")),
    };
    if options.keep {
        look_at_it(&directory, &config, producer, consumer);
        return shown;
    }
    consumer.end().await;
    producer.end().await;
    match (shown, clean(&config).await) {
        // What was made is kept for a look at what went wrong with it; so are the logs.
        (Ok(()), Ok(())) => std::fs::remove_dir_all(&directory).map_err(|error| {
            let directory = directory.display();
            Stop::new(
                StopKind::Internal,
                format!("cannot remove {directory}: {error}"),
            )
        }),
        (Ok(()), Err(stop)) => Err(stop),
        (Err(stop), _) => {
            line(format_args!("logs are in {}", directory.display()));
            Err(stop)
        }
    }
}

async fn show(
    options: &Demo,
    config: &Config,
    producer: &mut Process,
    consumer: &mut Process,
) -> Result<(), Stop> {
    let publisher = session::publisher(config, "walbraid demo").await?;
    let subscriber = session::subscriber(config, "walbraid demo").await?;
    line("making the shop on both sides");
    refuse_foreign(&publisher, "publisher").await?;
    refuse_foreign(&subscriber, "subscriber").await?;
    clean(config).await?;
    execute(&publisher, &[shop::CREATE, shop::PUBLISH]).await?;
    execute(&subscriber, &[shop::CREATE]).await?;

    line("walbraid setup");
    setup::run(config).await?;
    line("walbraid produce, walbraid consume: two processes");
    producer.start()?;
    consumer.start()?;

    execute(&publisher, &[&shop::fill(SHOPPERS)]).await?;
    arrived(config, producer, consumer).await?;
    let outcome = under_load(options, config, producer, consumer).await?;
    let tables = compare::compare(&publisher, &subscriber)
        .await
        .or_stop("publisher")?;
    outcome.tell();
    outcome.judge(&tables)
}

/// Waits for the first stock, so that the load begins with both sides alike.
async fn arrived(
    config: &Config,
    producer: &mut Process,
    consumer: &mut Process,
) -> Result<(), Stop> {
    let drained = drained(config);
    tokio::pin!(drained);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            drained = &mut drained => return drained,
            _ = second.tick() => {
                producer.check()?;
                consumer.check()?;
            }
        }
    }
}

/// The load, the kill, the drain, with a line each second.
async fn under_load(
    options: &Demo,
    config: &Config,
    producer: &mut Process,
    consumer: &mut Process,
) -> Result<Outcome, Stop> {
    let mut board = Board::open(config, producer.log()).await?;
    line(format_args!(
        "{SHOPPERS} shoppers, {} transactions a second, for {} s; the consumer is killed at half \
         time",
        options.rate, options.seconds
    ));
    let mut crowd = Crowd::enter(options, config).await?;
    let duration = Duration::from_secs(options.seconds);
    let mut kill = Kill::at(crowd.began + duration / 2);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    while crowd.began.elapsed() < duration {
        second.tick().await;
        line(board.show(&crowd.load).await?);
        producer.check()?;
        consumer.check()?;
        kill.step(consumer).await?;
    }
    kill.finish(consumer).await?;
    let load = crowd.leave().await?;
    line("load stopped; draining");
    let drain_began = Instant::now();
    let drained = drained(config);
    tokio::pin!(drained);
    loop {
        tokio::select! {
            drained = &mut drained => {
                drained?;
                break;
            }
            _ = second.tick() => {
                line(board.show(&crowd.load).await?);
                producer.check()?;
                consumer.check()?;
            }
        }
    }
    let drain = drain_began.elapsed();
    Ok(Outcome {
        load,
        drain,
        killed: kill.due,
        found: crowd.found().await?,
    })
}

async fn drained(config: &Config) -> Result<(), Stop> {
    wait::wait(config, None, Some(Duration::from_secs(DRAIN_TIMEOUT_S)))
        .await
        .map(|_| ())
}

/// The consumer is killed once, and started again a little later.
struct Kill {
    due: Instant,
    state: KillState,
}

enum KillState {
    Waiting,
    Killed { restart: Instant },
    Over,
}

impl Kill {
    fn at(due: Instant) -> Self {
        Self {
            due,
            state: KillState::Waiting,
        }
    }

    /// Does what is due.
    async fn step(&mut self, consumer: &mut Process) -> Result<(), Stop> {
        match self.state {
            KillState::Waiting if Instant::now() >= self.due => {
                line(format_args!(
                    "        kill -9 {}  (the consumer)",
                    pid(consumer)
                ));
                consumer.kill().await?;
                self.due = Instant::now();
                let restart = self.due + Duration::from_millis(OUTAGE_MS);
                self.state = KillState::Killed { restart };
            }
            KillState::Killed { restart } if Instant::now() >= restart => {
                self.finish(consumer).await?;
            }
            KillState::Waiting | KillState::Killed { .. } | KillState::Over => {}
        }
        Ok(())
    }

    /// Leaves no consumer that is killed and not started.
    async fn finish(&mut self, consumer: &mut Process) -> Result<(), Stop> {
        if let KillState::Killed { restart } = self.state {
            tokio::time::sleep_until(restart).await;
            consumer.start()?;
            line(format_args!("        started again: {}", pid(consumer)));
            self.state = KillState::Over;
        }
        Ok(())
    }
}

fn pid(process: &Process) -> String {
    process
        .pid()
        .map_or_else(|| "?".to_owned(), |pid| pid.to_string())
}

async fn execute(session: &Session, scripts: &[&str]) -> Result<(), Stop> {
    for script in scripts {
        session.batch_execute(script).await.or_stop("publisher")?;
    }
    Ok(())
}

/// A schema of our name that we did not make is not ours to drop.
async fn refuse_foreign(session: &Session, server: &str) -> Result<(), Stop> {
    let sql = "SELECT coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
               FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let found = session
        .query_opt(sql, &[&shop::SCHEMA])
        .await
        .or_stop("publisher")?;
    match found {
        Some(row) if !row.get::<_, &str>(0).starts_with("walbraid demo") => {
            let message = format!(
                "schema \"{}\" of the {server} is not the demo's",
                shop::SCHEMA
            );
            Err(Stop::new(StopKind::Usage, message).hint("Drop or rename it."))
        }
        _ => Ok(()),
    }
}

/// Removes what a demo made, this one or one before.
async fn clean(config: &Config) -> Result<(), Stop> {
    teardown::remove(config).await?;
    let publisher = session::publisher(config, "walbraid demo").await?;
    let subscriber = session::subscriber(config, "walbraid demo").await?;
    execute(&publisher, &[shop::UNPUBLISH, shop::DROP]).await?;
    execute(&subscriber, &[shop::DROP]).await
}

fn look_at_it(directory: &Path, config: &Config, producer: Process, consumer: Process) {
    let file = directory.join("walbraid.toml");
    let file = file.display();
    let logs = directory.display();
    let program = std::env::current_exe().unwrap_or_else(|_| "walbraid".into());
    let program = program.display();
    let pids: Vec<String> = [producer.leave(), consumer.leave()]
        .into_iter()
        .flatten()
        .map(|p| p.to_string())
        .collect();
    line(format_args!(
        "\nproducer and consumer of stream \"{}\" go on. To look at them:\n  \
         {program} status --config {file}\n  tail -f {logs}/*.log\nTo end them:\n  \
         kill {}\n  {program} teardown --config {file}",
        config.stream,
        pids.join(" ")
    ));
}

/// The configuration of the demo, read as any other.
fn read(path: &Path) -> Result<Config, Stop> {
    config::load(path, &[]).map_err(|invalid| Stop::new(StopKind::Usage, invalid.to_string()))
}
