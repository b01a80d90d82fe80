//! The processes under test: the built binary, with what it writes.
//!
//! A process that is dropped must have been quiet: a line of level WARN or ERROR that its test did
//! not expect fails the test. What passes by itself is expected by its name (`trouble`), the one
//! message of a stop by its exit code.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::trouble::Trouble;
use crate::wait::{PATIENCE, until};
use crate::workspace::walbraid;

/// How a command of the binary ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Outcome {
    /// Fails the test unless the command ended with `code`.
    pub fn expect(self, code: i32) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert_eq!(self.code, code, "it wrote:\n{stdout}\n{stderr}");
        self
    }

    /// Fails the test unless the command ended with `code` and one message; gives the message.
    pub fn stops(self, code: i32) -> String {
        let outcome = self.expect(code);
        message(outcome.stderr.lines())
    }
}

fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(walbraid());
    // A variable of the harness or of a shell would be taken for a key of the configuration.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WALBRAID_")) {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a command of the binary to its end.
pub async fn run(config: &Path, arguments: &[&str]) -> Outcome {
    let output = timeout(2 * PATIENCE, command(config, arguments).output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = output
        .unwrap_or_else(|_| panic!("walbraid {arguments:?} does not end"))
        .unwrap();
    Outcome {
        code: code(status),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// A signal's number is negative.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| -status.signal().unwrap())
}

/// A command of the binary that runs until it is told to stop.
pub struct Process {
    name: String,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    expected: Vec<String>,
    troubles: Vec<Trouble>,
}

impl Process {
    /// Starts it.
    pub fn start(config: &Path, arguments: &[&str]) -> Self {
        let mut child = command(config, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("walbraid cannot be run");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&lines)),
            collect(child.stderr.take().unwrap(), Arc::clone(&lines)),
        ];
        Self {
            name: arguments.join(" "),
            child,
            lines,
            readers,
            expected: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Lets it tell of these troubles.
    pub fn expect(&mut self, troubles: &[Trouble]) -> &mut Self {
        self.troubles.extend(troubles);
        self
    }

    /// Waits until every `trouble` it told of is over, and fails the test unless there were that
    /// many.
    pub async fn recovers(&self, trouble: Trouble, times: RangeInclusive<usize>) {
        let what = format!("{} says that it is over: {trouble:?}", self.name);
        until(&what, PATIENCE, async || {
            let begun = self.count_lines(|line| trouble.begins(line));
            let over = self.count_lines(|line| trouble.is_over(line));
            (begun == over && over >= *times.start()).then_some(())
        })
        .await;
        self.tells(trouble, times);
    }

    /// Fails the test unless it told of that many; whether they are over is not asked, because
    /// whose trouble it was may be gone by now.
    pub fn tells(&self, trouble: Trouble, times: RangeInclusive<usize>) {
        let begun = self.count_lines(|line| trouble.begins(line));
        assert!(times.contains(&begun), "{begun} times {trouble:?}");
    }

    /// Lets it write lines of level WARN or ERROR that contain `text`.
    pub fn expect_in_log(&mut self, text: &str) -> &mut Self {
        self.expected.push(text.to_owned());
        self
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the process has ended")
    }

    /// Everything it has written.
    pub fn log(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// How many lines contain `text`.
    pub fn count_in_log(&self, text: &str) -> usize {
        self.count_lines(|line| line.contains(text))
    }

    fn count_lines(&self, counts: impl Fn(&str) -> bool) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| counts(line)).count()
    }

    /// Waits until it has written a line that contains `text`.
    pub async fn wait_for_log(&self, text: &str) {
        until(
            &format!("{} writes {text:?}", self.name),
            PATIENCE,
            async || (self.count_in_log(text) > 0).then_some(()),
        )
        .await;
    }

    /// Waits until it has ended by itself.
    pub async fn end(&mut self) -> i32 {
        self.end_within(PATIENCE).await
    }

    /// Waits until it has ended by itself, not longer than `deadline`.
    pub async fn end_within(&mut self, deadline: Duration) -> i32 {
        let status = timeout(deadline, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("{} does not end within {deadline:?}", self.name))
            .unwrap();
        for reader in self.readers.drain(..) {
            reader.await.unwrap();
        }
        code(status)
    }

    /// Waits until it has ended by itself with `code` and one message; gives the message.
    pub async fn stops(&mut self, code: i32) -> String {
        assert_eq!(self.end().await, code, "{}", self.name);
        let log = self.log();
        let message = message(log.iter().map(String::as_str));
        let primary = message.lines().next().unwrap_or_default();
        self.expect_in_log(primary);
        message
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Stops it as a service manager does, and waits; it must end well.
    pub async fn terminate(mut self) {
        self.signal("TERM");
        assert_eq!(
            self.end().await,
            0,
            "{} ends badly when it is told to stop",
            self.name
        );
    }

    /// Kills it.
    pub async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.end().await;
    }

    /// Freezes it.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        signal_process(self.pid(), signal);
    }

    fn unexpected(&self) -> Vec<String> {
        let is_expected = |line: &str| {
            self.expected.iter().any(|text| line.contains(text))
                || self.troubles.iter().any(|trouble| trouble.begins(line))
        };
        let lines = self.log();
        lines
            .into_iter()
            .filter(|line| is_loud(line) && !is_expected(line))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Shown for a test that fails, now or later.
        eprintln!("--- {} wrote:\n{}", self.name, self.log().join("\n"));
        if std::thread::panicking() {
            return;
        }
        let unexpected = self.unexpected();
        assert!(
            unexpected.is_empty(),
            "{} wrote:\n{}",
            self.name,
            unexpected.join("\n")
        );
    }
}

/// The one message with which a command ends, in PostgreSQL's form.
fn message<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.collect();
    let is_primary = |line: &&&str| line.starts_with("ERROR:  ");
    assert_eq!(lines.iter().filter(is_primary).count(), 1, "{lines:#?}");
    let begins = lines.iter().take_while(|line| !is_primary(line)).count();
    let message = &lines[begins..];
    assert!(!message[0].ends_with('.'), "{message:#?}");
    if let Some(rest) = message.get(1) {
        assert!(
            ["DETAIL:  ", "HINT:  "]
                .iter()
                .any(|part| rest.starts_with(part)),
            "{message:#?}"
        );
    }
    message.join("\n")
}

/// Sends a signal, by its name, to a process of this test.
pub fn signal_process(pid: u32, signal: &str) {
    let command = format!("kill -{signal} {pid}");
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .status()
        .unwrap();
    assert!(status.success(), "{command}");
}

fn collect(
    stream: impl AsyncRead + Unpin + Send + 'static,
    lines: Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            lines.lock().unwrap().push(line);
        }
    })
}

/// Whether a line of the log, in text or JSON, is a warning or worse.
pub(crate) fn is_loud(line: &str) -> bool {
    const LEVELS: [&str; 5] = ["WARN", "WARNING", "ERROR", "FATAL", "PANIC"];
    let word = |word: &str| LEVELS.contains(&word.trim_end_matches(':'));
    line.split_whitespace().take(4).any(word)
        || line.contains("\"level\":\"WARN\"")
        || line.contains("\"level\":\"ERROR\"")
        || line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loud_lines() {
        let check = |line, loud| assert_eq!(is_loud(line), loud, "{line}");
        check("2026-01-01T00:00:00.000000Z  WARN walbraid: lost", true);
        check("ERROR:  relation \"a\" does not exist", true);
        check(
            "{\"timestamp\":\"2026\",\"level\":\"ERROR\",\"fields\":{}}",
            true,
        );
        check("thread 'main' panicked at src/main.rs:1:1:", true);
        check(
            "2026-01-01T00:00:00.000000Z  INFO walbraid: no ERROR here, a word in a text",
            false,
        );
        check("", false);
    }
}
