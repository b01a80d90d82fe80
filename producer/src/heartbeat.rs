//! When a heartbeat is due.
//!
//! Owns the rule; does not read a clock, write a record or confirm anything. Two needs meet here.
//! On an idle publication of a busy server the confirmed LSN must follow the WAL, or the slot holds
//! WAL without end: when the walsender's keepalives moved while nothing was pending, one heartbeat
//! every `interval_ms`. On a server where nothing moves at all, retention must never empty the
//! lane, or the slot's place in the log is lost: one record every `idle_interval_ms`, whatever
//! happens.
//!
//! Invariant, kept by the caller: a heartbeat is written only while no transaction is open and no
//! record unacknowledged; the LSN it names is one up to which the walsender has sent everything.

use walbraid_schemas::Lsn;

/// Decides when a heartbeat is due.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    interval_ms: u64,
    idle_interval_ms: u64,
    last_heartbeat_ms: u64,
    last_record_ms: u64,
    covered: Lsn,
    quiet_until: Lsn,
}

impl Heartbeats {
    /// Starts at `now_ms` with a log that covers the WAL up to `covered`.
    pub(crate) fn new(
        interval_ms: u64,
        idle_interval_ms: u64,
        covered: Lsn,
        now_ms: u64,
    ) -> Heartbeats {
        Heartbeats {
            interval_ms,
            idle_interval_ms,
            last_heartbeat_ms: now_ms,
            last_record_ms: now_ms,
            covered,
            quiet_until: covered,
        }
    }

    /// A keepalive with nothing open and nothing pending: no link ends in the WAL up to `wal_end`.
    pub(crate) fn quiet(&mut self, wal_end: Lsn) {
        self.quiet_until = self.quiet_until.max(wal_end);
    }

    /// A link that ends at `end_lsn` was written.
    pub(crate) fn link(&mut self, end_lsn: Lsn, now_ms: u64) {
        self.covered = self.covered.max(end_lsn);
        self.quiet_until = self.quiet_until.max(end_lsn);
        self.last_record_ms = now_ms;
    }

    /// A heartbeat that ends at `end_lsn` was written.
    pub(crate) fn beat(&mut self, end_lsn: Lsn, now_ms: u64) {
        self.link(end_lsn, now_ms);
        self.last_heartbeat_ms = now_ms;
    }

    /// The LSN that the next heartbeat names.
    pub(crate) fn quiet_until(&self) -> Lsn {
        self.quiet_until
    }

    /// When the next heartbeat is due.
    pub(crate) fn due_at_ms(&self) -> u64 {
        let idle = self.last_record_ms + self.idle_interval_ms;
        match self.quiet_until > self.covered {
            true => idle.min(self.last_heartbeat_ms + self.interval_ms),
            false => idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats() -> Heartbeats {
        Heartbeats::new(1_000, 60_000, Lsn(100), 0)
    }

    #[test]
    fn wal_that_moves_is_named_once_an_interval() {
        let mut beats = beats();
        assert_eq!(beats.due_at_ms(), 60_000);
        beats.quiet(Lsn(200));
        assert_eq!((beats.due_at_ms(), beats.quiet_until()), (1_000, Lsn(200)));
        beats.beat(Lsn(200), 1_000);
        assert_eq!(beats.due_at_ms(), 61_000);
        beats.quiet(Lsn(300));
        assert_eq!(beats.due_at_ms(), 2_000);
    }

    #[test]
    fn a_link_puts_the_idle_heartbeat_off() {
        let mut beats = beats();
        beats.link(Lsn(150), 30_000);
        assert_eq!(beats.due_at_ms(), 90_000);
    }

    #[test]
    fn a_keepalive_behind_the_last_link_says_nothing() {
        let mut beats = beats();
        beats.link(Lsn(500), 10);
        beats.quiet(Lsn(400));
        assert_eq!((beats.due_at_ms(), beats.quiet_until()), (60_010, Lsn(500)));
    }
}
