//! `walbraid demo`: the whole of it on a small shop, on real servers, with a kill in the middle.
//!
//! Reads top to bottom in [`show`]: tables on both sides, `setup`, producer and consumer as
//! processes of their own, a load, a consumer killed and started again, the drain, a comparison of
//! every table. Meanwhile a second reader watches the shop's money on the subscriber ([`audit`])
//! and a probe measures how long a commit takes to be seen ([`probe`]). With `--only` a part of it
//! runs against a pipeline that stands already.
//!
//! Everything it makes carries a name of its own (`walbraid_demo`) and is removed at the end unless
//! `--keep` is given or the sides differ; a schema of that name that it did not make is left alone
//! and refused.

mod audit;
mod board;
mod compare;
mod crowd;
mod farewell;
mod kill;
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

use crate::args::{Demo, Part};
use crate::config::Config;
use crate::output::line;
use crate::session::{self, OrStop};
use crate::{setup, teardown, wait};

use board::Board;
use crowd::{Crowd, SHOPPERS};
use kill::Kill;
use outcome::{Outcome, Verdict};
use process::Pipeline;
use servers::Servers;

const DRAIN_TIMEOUT_S: u64 = 300;

/// Runs the demo; an error means that a promise was not kept or something was in the way.
pub(crate) async fn run(options: &Demo) -> Result<(), Stop> {
    let servers = Servers::named(options)?;
    let directory = servers.directory(options)?;
    let config = servers.write_configuration(&directory)?;
    let mut pipeline = Pipeline::new(&directory);
    let shown = tokio::select! {
        shown = show(options, &config, &mut pipeline) => shown,
        _ = tokio::signal::ctrl_c() => Err(Stop::new(StopKind::Internal, "demo was interrupted")),
    };
    let logs = directory.display();
    if options.keep {
        look_at_it(&directory, &config, pipeline);
        return shown.and_then(Verdict::into_result);
    }
    pipeline.end().await;
    match shown {
        Ok(Verdict::Equal) => {
            clean(&config).await?;
            std::fs::remove_dir_all(&directory).map_err(|error| {
                Stop::new(StopKind::Internal, format!("cannot remove {logs}: {error}"))
            })
        }
        Ok(Verdict::Broken(stop)) => {
            line(format_args!(
                "both sides are left as they are; logs are in {logs}"
            ));
            Err(stop)
        }
        Err(stop) => {
            line(format_args!("logs are in {logs}"));
            // The first error is the one to tell.
            if let Err(second) = clean(&config).await {
                tracing::warn!("could not clean up: {}", second.message);
            }
            Err(stop)
        }
    }
}

async fn show(options: &Demo, config: &Config, pipeline: &mut Pipeline) -> Result<Verdict, Stop> {
    line("making the shop on both sides");
    shop::refuse_foreign(config).await?;
    clean(config).await?;
    shop::open(config).await?;
    line("walbraid setup");
    setup::run(config).await?;
    line("walbraid produce, walbraid consume: two processes");
    pipeline.start()?;
    under_load(options, config, Some(pipeline)).await
}

/// Runs one part, on a pipeline that somebody else runs.
pub(crate) async fn run_part(options: &Demo, part: Part, config: &Config) -> Result<(), Stop> {
    match part {
        Part::Shop => shop::open(config).await,
        Part::Clear => shop::close(config).await,
        Part::Load => under_load(options, config, None).await?.into_result(),
    }
}

/// First stock, load, kill, drain, comparison, with a line each second.
async fn under_load(
    options: &Demo,
    config: &Config,
    mut pipeline: Option<&mut Pipeline>,
) -> Result<Verdict, Stop> {
    shop::fill(config).await?;
    // Both sides are alike when the load begins.
    drain(config, &mut pipeline, async || Ok(())).await?;
    let log = pipeline
        .as_ref()
        .map(|pipeline| pipeline.producer.log().to_owned());
    let board = Board::open(config, log).await?;
    line(format_args!(
        "{SHOPPERS} shoppers, {} transactions a second, for {} s",
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
        if let Some(pipeline) = pipeline.as_deref_mut() {
            pipeline.check()?;
            kill.step(&mut pipeline.consumer).await?;
        }
    }
    if let Some(pipeline) = pipeline.as_deref_mut() {
        kill.finish(&mut pipeline.consumer).await?;
    }
    let load = crowd.leave().await?;
    line("load stopped; draining");
    let began = Instant::now();
    drain(config, &mut pipeline, async || {
        line(board.show(&crowd.load).await?);
        Ok(())
    })
    .await?;
    let drain = began.elapsed();
    let outcome = Outcome {
        load,
        drain,
        killed: kill.killed(),
        found: crowd.found().await?,
    };
    outcome.tell();
    let publisher = session::publisher(config, "walbraid demo").await?;
    let subscriber = session::subscriber(config, "walbraid demo").await?;
    let tables = compare::compare(&publisher, &subscriber)
        .await
        .or_stop("demo")?;
    Ok(outcome.judge(&tables))
}

/// Waits until the subscriber has everything; looks after the processes meanwhile.
async fn drain(
    config: &Config,
    pipeline: &mut Option<&mut Pipeline>,
    mut each_second: impl AsyncFnMut() -> Result<(), Stop>,
) -> Result<(), Stop> {
    let drained = wait::wait(config, None, Some(Duration::from_secs(DRAIN_TIMEOUT_S)));
    tokio::pin!(drained);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    loop {
        tokio::select! {
            drained = &mut drained => return drained.map(|_| ()),
            _ = second.tick() => {}
        }
        each_second().await?;
        if let Some(pipeline) = pipeline.as_deref_mut() {
            pipeline.check()?;
        }
    }
}

/// Removes what a demo made, this one or one before.
async fn clean(config: &Config) -> Result<(), Stop> {
    teardown::remove(config).await?;
    shop::close(config).await
}

fn look_at_it(directory: &Path, config: &Config, pipeline: Pipeline) {
    let program = std::env::current_exe().unwrap_or_else(|_| "walbraid".into());
    let pids = pipeline.leave();
    line(farewell::text(&program, directory, config, &pids));
}
