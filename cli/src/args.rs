//! The command line: commands and their options, nothing of what they do.
//!
//! `--config`, `--set` and `--log-format` hold for every command and may stand before or after it.
//! A usage error ends with exit code 2, as a configuration error does.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use walbraid_consumer::recording::TRANSACTIONS_MAX;
use walbraid_schemas::Lsn;

/// Carries transactions from one PostgreSQL to another through Kafka: whole, once, in order.
#[derive(Debug, Parser)]
#[command(name = "walbraid", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Shared {
    /// The configuration file [default: WALBRAID_CONFIG, else walbraid.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets a key, over file and environment; may be given several times
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Form of the log on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

impl Shared {
    /// The file the configuration is read from.
    pub(crate) fn file(&self) -> PathBuf {
        let named = self
            .config
            .clone()
            .or_else(|| std::env::var_os("WALBRAID_CONFIG").map(Into::into));
        named.unwrap_or_else(|| PathBuf::from("walbraid.toml"))
    }
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines to read.
    Text,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes slot, topic and the subscriber's schema; safe to run again
    Setup,
    /// Tries every server, right and setting, and changes nothing
    Check(Report),
    /// Carries the slot's transactions into Kafka until it is told to stop
    Produce,
    /// Carries the lane's transactions to the subscriber until it is told to stop
    Consume,
    /// Shows where each lane is
    Status(Report),
    /// Tells why transactions waited or were serial, table by table, and what would mend it
    Explain(Report),
    /// Records the lane's next transactions and draws what they waited for and where they ran
    Dag(Dag),
    /// Waits until the subscriber has flushed a WAL position of the publisher
    Wait(Wait),
    /// Removes exactly what setup made
    Teardown,
    /// Shows the whole of it on a small shop, kills the consumer, compares both sides
    Demo(Demo),
}

/// How a report is printed.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `dag`.
#[derive(Debug, Args)]
pub(crate) struct Dag {
    /// Writes a page to look at, instead of text on standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Prints JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// How many transactions are recorded
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_most(TRANSACTIONS_MAX))]
    pub(crate) transactions: u64,
    /// Seconds after which to be content with what has come
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

/// Options of `wait`.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The WAL position of the publisher [default: its position now]
    #[arg(long, value_name = "LSN")]
    pub(crate) lsn: Option<Lsn>,
    /// Seconds after which to give up with exit code 3 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How long the load runs
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = number(4))]
    pub(crate) seconds: u64,
    /// Transactions a second
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = number(1))]
    pub(crate) rate: u64,
    /// Runs one part, on the pipeline of the configuration, which somebody else runs
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) only: Option<Part>,
    /// Leaves everything running and says how to look at it
    #[arg(long)]
    pub(crate) keep: bool,
    /// The publisher [default: WALBRAID_PUBLISHER_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) publisher: Option<String>,
    /// The subscriber [default: WALBRAID_SUBSCRIBER_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) subscriber: Option<String>,
    /// Kafka's bootstrap servers [default: WALBRAID_KAFKA]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) kafka: Option<String>,
    /// The Schema Registry [default: WALBRAID_REGISTRY_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) registry: Option<String>,
    /// Where configuration and logs go [default: a new directory for temporary files]
    #[arg(long, value_name = "D")]
    pub(crate) dir: Option<PathBuf>,
}

fn number(least: u64) -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(least..)
}

fn at_most(most: usize) -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=most as u64)
}

/// A part of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Makes the shop's tables on both sides, and the publication
    Shop,
    /// Stocks the shop, runs the load, and compares both sides
    Load,
    /// Removes the shop's tables from both sides, and the publication
    Clear,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn shared_options_stand_before_or_after_the_command() {
        let check = |line: &str| {
            let parsed = Arguments::try_parse_from(line.split_whitespace());
            let shared = parsed
                .unwrap_or_else(|error| panic!("{line}: {error}"))
                .shared;
            assert_eq!(shared.file(), PathBuf::from("w.toml"), "{line}");
            assert_eq!(shared.settings, ["a=1", "b=2"], "{line}");
            assert_eq!(shared.log_format, LogFormat::Json, "{line}");
        };
        check("walbraid status --config w.toml --set a=1 --set b=2 --log-format json");
        check("walbraid --config w.toml --set a=1 --set b=2 --log-format json status --json");
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
    }
}
