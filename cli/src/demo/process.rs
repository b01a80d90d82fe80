//! Producer and consumer as processes of their own, started from this very binary.
//!
//! Owns starting, killing, asking to end, and telling that one ended by itself. Each writes its log
//! to a file. They form process groups of their own, so that an interrupt at the terminal reaches
//! the demo alone, which then ends them in its order.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use walbraid_schemas::{Stop, StopKind};

const END_TIMEOUT_MS: u64 = 15_000;
const TAIL_LINES: usize = 6;

/// Both of them.
pub(super) struct Pipeline {
    /// The producer.
    pub(super) producer: Process,
    /// The consumer.
    pub(super) consumer: Process,
}

impl Pipeline {
    /// Both, not started, with their files in a directory.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            producer: Process::new("produce", directory, &["metrics.listen=127.0.0.1:0"]),
            consumer: Process::new("consume", directory, &[]),
        }
    }

    /// Starts both.
    pub(super) fn start(&mut self) -> Result<(), Stop> {
        self.producer.start()?;
        self.consumer.start()
    }

    /// Fails if one ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Stop> {
        self.producer.check()?;
        self.consumer.check()
    }

    /// Asks both to end.
    pub(super) async fn end(&mut self) {
        self.consumer.end().await;
        self.producer.end().await;
    }

    /// Leaves both running when the demo ends; their process ids.
    pub(super) fn leave(self) -> Vec<u32> {
        [self.producer, self.consumer]
            .iter()
            .filter_map(Process::pid)
            .collect()
    }
}

/// One of the two.
pub(super) struct Process {
    role: &'static str,
    config: PathBuf,
    settings: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that is not started; its role is the command's name.
    fn new(role: &'static str, directory: &Path, settings: &[&str]) -> Self {
        Self {
            role,
            config: directory.join("walbraid.toml"),
            settings: settings
                .iter()
                .map(|setting| (*setting).to_owned())
                .collect(),
            log: directory.join(format!("{role}.log")),
            child: None,
        }
    }

    /// Where it logs.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Its process id, for people.
    pub(super) fn name(&self) -> String {
        self.pid()
            .map_or_else(|| "?".to_owned(), |pid| pid.to_string())
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Starts it, its log behind what is there.
    pub(super) fn start(&mut self) -> Result<(), Stop> {
        let failed = |error: std::io::Error| {
            Stop::new(
                StopKind::Internal,
                format!("cannot start walbraid {}: {error}", self.role),
            )
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg(self.role).arg("--config").arg(&self.config);
        for setting in &self.settings {
            command.arg("--set").arg(setting);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        self.child = Some(command.process_group(0).spawn().map_err(failed)?);
        Ok(())
    }

    /// Kills it: it has no chance to clean up.
    pub(super) async fn kill(&mut self) -> Result<(), Stop> {
        if let Some(mut child) = self.child.take() {
            child.kill().await.map_err(|error| {
                Stop::new(
                    StopKind::Internal,
                    format!("cannot kill {}: {error}", self.role),
                )
            })?;
        }
        Ok(())
    }

    /// Asks it to end, and kills it if it does not in time.
    async fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let Some(pid) = child.id() else { return };
        // The shell's own kill, since a program of that name is not on every machine.
        let asked = Command::new("sh")
            .arg("-c")
            .arg(format!("kill -TERM {pid}"))
            .status()
            .await;
        if let Err(error) = asked {
            tracing::debug!(%error, "no shell to send a signal with");
        }
        let limit = Duration::from_millis(END_TIMEOUT_MS);
        if tokio::time::timeout(limit, child.wait()).await.is_err() {
            tracing::warn!(
                role = self.role,
                "process did not end in time and is killed"
            );
            let _ = child.kill().await;
        }
    }

    /// Fails if it ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Stop> {
        let Some(child) = self.child.as_mut() else {
            return Ok(());
        };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(error) => Err(Stop::new(
                StopKind::Internal,
                format!("cannot tell whether {} runs: {error}", self.role),
            )),
        }
    }

    fn ended(&self, status: ExitStatus) -> Stop {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        Stop::new(
            StopKind::PipelineStopped,
            format!("walbraid {} ended: {status}", self.role),
        )
        .detail(format!("Its last words:\n{tail}"))
        .hint(format!("All of its log is in {}.", self.log.display()))
    }
}
