//! What the machine did meanwhile: CPU seconds of each process tree, and the load from elsewhere.
//!
//! Read from `/proc` (proc(5)). Processes are followed by the pid of their root, so that the
//! backends that a server forks count for it. A process that ended between two readings is lost
//! from the sum, which is why readings are taken while the servers run.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks a second in `/proc/PID/stat`: `USER_HZ`, 100 on every Linux platform.
const TICKS_PER_SECOND: f64 = 100.0;

/// One process: its parent and the CPU time it and its reaped children used, in ticks.
#[derive(Debug, Clone, Copy)]
struct Process {
    parent: u32,
    ticks: u64,
}

/// A reading of all processes and of the machine's CPUs.
#[derive(Debug)]
pub(crate) struct Reading {
    at: Instant,
    processes: HashMap<u32, Process>,
    busy_ticks: u64,
}

impl Reading {
    /// Reads `/proc` as it stands.
    #[must_use]
    pub(crate) fn take() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| Some((pid, process(pid)?)))
            .collect();
        Self {
            at: Instant::now(),
            processes,
            busy_ticks: busy_ticks(),
        }
    }

    /// CPU seconds that the process `root` and all below it have used so far.
    #[must_use]
    pub(crate) fn cpu_seconds(&self, root: u32) -> f64 {
        let ticks: u64 = self
            .processes
            .iter()
            .filter(|&(&pid, _)| self.is_below(pid, root))
            .map(|(_, process)| process.ticks)
            .sum();
        ticks as f64 / TICKS_PER_SECOND
    }

    fn is_below(&self, mut pid: u32, root: u32) -> bool {
        while pid != root {
            match self.processes.get(&pid) {
                Some(process) if process.parent != pid => pid = process.parent,
                _ => return false,
            }
        }
        true
    }
}

/// What was used between two readings.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Wall-clock time between the readings.
    pub(crate) elapsed: Duration,
    /// CPU seconds by name, in the order asked for.
    pub(crate) named: Vec<(String, f64)>,
    /// CPU seconds of everything else on the machine.
    pub(crate) elsewhere: f64,
}

/// What the named process trees used between two readings, and what the rest of the machine did.
#[must_use]
pub(crate) fn between(before: &Reading, after: &Reading, roots: &[(&str, u32)]) -> Usage {
    let named: Vec<(String, f64)> = roots
        .iter()
        .map(|&(name, pid)| {
            let used = after.cpu_seconds(pid) - before.cpu_seconds(pid);
            (name.to_owned(), used.max(0.0))
        })
        .collect();
    let total = (after.busy_ticks - before.busy_ticks) as f64 / TICKS_PER_SECOND;
    let elsewhere = (total - named.iter().map(|(_, used)| used).sum::<f64>()).max(0.0);
    Usage {
        elapsed: after.at - before.at,
        named,
        elsewhere,
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CPU seconds in {:.1} s:", self.elapsed.as_secs_f64())?;
        for (name, used) in &self.named {
            write!(f, " {name} {used:.1},")?;
        }
        write!(f, " elsewhere {:.1}", self.elsewhere)
    }
}

/// Peak resident memory of a process so far, in bytes (`VmHWM`); none when it is gone.
#[must_use]
pub(crate) fn peak_resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may hold anything; the fields follow the last one.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // state is field 3 of proc(5), hence index 0: ppid 1, utime 11, stime 12, cutime 13, cstime 14.
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        ticks,
    })
}

fn busy_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal …: idle and iowait are no work.
    fields
        .iter()
        .enumerate()
        .filter(|&(i, _)| i != 3 && i != 4 && i < 8)
        .map(|(_, t)| t)
        .sum()
}
