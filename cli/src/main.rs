//! The walbraid command: one binary for both sides and for everything around them.
//!
//! Owns the way from a command line to an exit code. Every failure is a [`Stop`], told once, here;
//! its kind is the exit code. What commands do is in the module of their name.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod check;
mod config;
mod copied;
mod dag;
mod demo;
mod explain;
mod finding;
mod listener;
mod log;
mod output;
mod process;
mod progress;
mod refusal;
mod session;
mod setup;
mod status;
mod teardown;
mod time;
mod wait;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use walbraid_schemas::{Stop, StopKind};

use args::{Arguments, Command};

/// How long the end waits for calls that nobody waits for any more.
const LEFT_BEHIND_MS: u64 = 1_000;

fn main() -> ExitCode {
    let Arguments { command, shared } = Arguments::parse();
    let format = shared.log_format;
    log::start(format);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let stop = Stop::new(StopKind::Internal, format!("cannot start: {error}"));
            return end(format, Err(stop));
        }
    };
    let code = execute(&runtime, command, &shared, format);
    // A question to a Kafka that is away may still be waiting for its answer; nobody needs it.
    runtime.shutdown_timeout(Duration::from_millis(LEFT_BEHIND_MS));
    code
}

fn execute(
    runtime: &tokio::runtime::Runtime,
    command: Command,
    shared: &args::Shared,
    format: args::LogFormat,
) -> ExitCode {
    let result = match command {
        Command::Demo(options) if options.only.is_none() => runtime
            .block_on(demo::run(&options))
            .map(|()| ExitCode::SUCCESS),
        command => match config::load(&shared.file(), &shared.settings) {
            Ok(config) => return end(format, runtime.block_on(run(command, config))),
            Err(invalid) => {
                log::invalid(format, &invalid);
                return ExitCode::from(StopKind::Usage.exit_code());
            }
        },
    };
    end(format, result)
}

async fn run(command: Command, config: config::Config) -> Result<ExitCode, Stop> {
    let done = match command {
        // Its errors are in its report already.
        Command::Check(report) => return check::run(&config, report.json).await,
        Command::Setup => setup::run(&config).await,
        Command::Produce => process::produce(config).await,
        Command::Consume => process::consume(config).await,
        Command::Status(report) => status::run(&config, report.json).await,
        Command::Explain(report) => explain::run(&config, report.json).await,
        Command::Dag(options) => dag::run(&config, &options).await,
        Command::Wait(options) => wait::run(&config, &options).await,
        Command::Teardown => teardown::run(&config).await,
        Command::Demo(options) => match options.only {
            Some(part) => demo::run_part(&options, part, &config).await,
            None => demo::run(&options).await,
        },
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn end(format: args::LogFormat, result: Result<ExitCode, Stop>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(stop) => {
            log::stop(format, &stop);
            ExitCode::from(stop.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_exactly_the_exit_codes_there_are() {
        let text = include_str!("../../docs/operations.md");
        let (_, text) = text.split_once("<!-- exit codes -->").unwrap();
        let (text, _) = text.split_once("<!-- /exit codes -->").unwrap();
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let code: u8 = cells.get(1)?.parse().ok()?;
            Some((code, cells.get(2)?.trim_matches('`')))
        });
        let documented: Vec<(u8, &str)> = rows.filter(|(code, _)| *code != 0).collect();
        let known: Vec<(u8, &str)> = StopKind::ALL
            .iter()
            .map(|kind| (kind.exit_code(), kind.name()))
            .collect();
        assert_eq!(documented, known);
    }
}
