//! `walbraid demo`: the whole of it on a small shop, on real servers, with a kill in the middle.
//!
//! Reads top to bottom in [`show`]: tables on both sides, `setup`, producer and consumer as
//! processes of their own, a load, a consumer killed and started again, the drain, a comparison of
//! every table. Meanwhile a second reader watches the shop's money on the subscriber ([`audit`]) and
//! a probe measures how long a commit takes to be seen ([`probe`]).
//!
//! Everything it makes carries a name of its own (`walbraid_demo`) and is removed at the end unless
//! `--keep` is given; a schema of that name that it did not make is left alone and refused.

mod audit;
mod board;
mod compare;
mod load;
mod probe;
mod process;
mod servers;
mod shop;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::{Stop, StopKind};

use crate::args::Demo;
use crate::config::{self, Config};
use crate::output::line;
use crate::session::{self, OrStop, Session};
use crate::{setup, teardown, wait};

use audit::Audit;
use board::{Board, grouped};
use load::{Load, Shopper};
use probe::Beat;
use process::Process;
use servers::Servers;

const SHOPPERS: i32 = 8;
const DRAIN_TIMEOUT_S: u64 = 300;
const OUTAGE_MS: u64 = 1_000;
/// Beats committed so long after the kill may still be late because of it.
const RECOVERY_S: u64 = 5;

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
    let drained = wait::wait(config, None, Some(Duration::from_secs(DRAIN_TIMEOUT_S)));
    tokio::pin!(drained);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            drained = &mut drained => return drained.map(|_| ()),
            _ = second.tick() => {
                producer.check()?;
                consumer.check()?;
            }
        }
    }
}

/// What the load and those who watched it found.
struct Outcome {
    seconds: f64,
    committed: u64,
    rolled_back: u64,
    drain: Duration,
    beats: Vec<Beat>,
    killed: Instant,
    audit: Audit,
}

/// The load, the kill, the drain, with a line each second.
async fn under_load(
    options: &Demo,
    config: &Config,
    producer: &mut Process,
    consumer: &mut Process,
) -> Result<Outcome, Stop> {
    let mut board = Board::open(config, producer.log()).await?;
    let duration = Duration::from_secs(options.seconds);
    let load = Arc::new(Load::new(options.rate, duration));
    let began = Instant::now();
    let end = began + duration;
    line(format_args!(
        "{SHOPPERS} shoppers, {} transactions a second, for {} s; the consumer is killed at half time",
        options.rate, options.seconds
    ));

    let mut shoppers = JoinSet::new();
    for id in 1..=SHOPPERS {
        let mut shopper = Shopper::new(id, session::publisher(config, "walbraid shopper").await?)
            .await
            .or_stop("publisher")?;
        let load = Arc::clone(&load);
        shoppers.spawn(async move { shopper.shop(&load).await });
    }
    let audit_end = CancellationToken::new();
    let auditor = session::subscriber(config, "walbraid auditor").await?;
    let token = audit_end.clone();
    let mut watchers = JoinSet::new();
    watchers.spawn(async move { audit::watch(&auditor, token).await });
    let (left, right) = (
        session::publisher(config, "walbraid probe").await?,
        session::subscriber(config, "walbraid probe").await?,
    );
    let mut probes = JoinSet::new();
    probes.spawn(async move { probe::beat(&left, &right, end).await });

    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    let mut killed = None;
    let mut restart = None;
    while Instant::now() < end {
        second.tick().await;
        line(board.show(&load).await?);
        producer.check()?;
        consumer.check()?;
        if killed.is_none() && began.elapsed() >= duration / 2 {
            line(format_args!(
                "        kill -9 {}  (the consumer)",
                pid(consumer)
            ));
            consumer.kill().await?;
            killed = Some(Instant::now());
            restart = Some(Instant::now() + Duration::from_millis(OUTAGE_MS));
        } else if restart.is_some_and(|due| Instant::now() >= due) {
            consumer.start()?;
            restart = None;
            line(format_args!("        started again: {}", pid(consumer)));
        }
    }
    if restart.is_some() {
        consumer.start()?;
    }
    finished(&mut shoppers).await?;
    let seconds = began.elapsed().as_secs_f64();
    line("load stopped; draining");
    let drain_began = Instant::now();
    let drained = wait::wait(config, None, Some(Duration::from_secs(DRAIN_TIMEOUT_S)));
    tokio::pin!(drained);
    loop {
        tokio::select! {
            drained = &mut drained => { drained?; break; }
            _ = second.tick() => {
                line(board.show(&load).await?);
                producer.check()?;
                consumer.check()?;
            }
        }
    }
    let drain = drain_began.elapsed();
    let beats = finished(&mut probes).await?.into_iter().flatten().collect();
    audit_end.cancel();
    let audit = finished(&mut watchers).await?.pop().unwrap_or_default();
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    Ok(Outcome {
        seconds,
        committed: count(&load.committed),
        rolled_back: count(&load.rolled_back),
        drain,
        beats,
        killed: killed.unwrap_or(began),
        audit,
    })
}

impl Outcome {
    fn tell(&self) {
        let rate = self.committed as f64 / self.seconds;
        line(format_args!(
            "\ntransactions   {} committed in {:.1} s ({rate:.0}/s), {} rolled back; drained in {:.1} s",
            grouped(self.committed),
            self.seconds,
            grouped(self.rolled_back),
            self.drain.as_secs_f64()
        ));
        let recovery = Duration::from_secs(RECOVERY_S);
        let disturbed = |beat: &Beat| {
            let seen = beat.committed + beat.latency;
            seen >= self.killed && beat.committed <= self.killed + recovery
        };
        let mut calm: Vec<Duration> = self
            .beats
            .iter()
            .filter(|beat| !disturbed(beat))
            .map(|beat| beat.latency)
            .collect();
        let longest = self
            .beats
            .iter()
            .map(|beat| beat.latency)
            .max()
            .unwrap_or_default();
        let ms = |latency: Duration| latency.as_secs_f64() * 1_000.0;
        line(format_args!(
            "commit→visible p50 {:.1} ms, p99 {:.1} ms ({} samples, without the {RECOVERY_S} s \
             after the kill); longest of all {:.0} ms",
            ms(probe::quantile(&mut calm, 0.5)),
            ms(probe::quantile(&mut calm, 0.99)),
            grouped(calm.len() as u64),
            ms(longest)
        ));
        let audit = &self.audit;
        line(format_args!(
            "second reader  {} looks at all money: {}",
            grouped(audit.looks),
            if audit.broken.is_empty() {
                "always whole"
            } else {
                "BROKEN"
            }
        ));
        audit
            .broken
            .iter()
            .for_each(|look| line(format_args!("               {look}")));
    }

    fn judge(&self, tables: &[compare::Comparison]) -> Result<(), Stop> {
        for table in tables {
            let verdict = table.difference.as_deref().unwrap_or("equal");
            let rows = grouped(table.rows.unsigned_abs());
            line(format_args!(
                "{:<14} {rows:>9} rows  {verdict}",
                table.table
            ));
        }
        let different: Vec<&str> = tables
            .iter()
            .filter(|t| t.difference.is_some())
            .map(|t| t.table)
            .collect();
        if !different.is_empty() {
            let message = format!("tables differ: {}", different.join(", "));
            return Err(Stop::new(StopKind::Internal, message));
        }
        if !self.audit.broken.is_empty() || self.audit.looks == 0 {
            let message = "the second reader did not see the shop's money whole at every look";
            return Err(Stop::new(StopKind::Internal, message));
        }
        line("both sides are equal");
        Ok(())
    }
}

fn pid(process: &Process) -> String {
    process
        .pid()
        .map_or_else(|| "?".to_owned(), |pid| pid.to_string())
}

/// The results of every task, or the first error.
async fn finished<T: 'static>(
    tasks: &mut JoinSet<Result<T, tokio_postgres::Error>>,
) -> Result<Vec<T>, Stop> {
    let mut results = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        let result = joined.map_err(|error| Stop::new(StopKind::Internal, error.to_string()))?;
        results.push(result.or_stop("publisher")?);
    }
    Ok(results)
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
    let program = std::env::current_exe().map_or_else(|_| "walbraid".into(), |path| path);
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
