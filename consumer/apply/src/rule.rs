//! Rule 0: what is a fact, and what only a bad moment.
//!
//! What goes wrong in a unit that is not the head may be due to something that is still to come
//! from a unit before it. So it is a fact only at the head, and only if the attempt began with its
//! predecessor's effects visible: its BEGIN was sent after the predecessor's COMMIT had returned,
//! or the predecessor's COMMIT ran before it on the same connection.
//!
//! Some errors say nothing about the unit, wherever they happen: the server was shutting down, out
//! of something, or chose this session as the victim of a deadlock. They are never facts; the unit
//! runs again after a pause that grows up to a bound. Each is counted by its [`Cause`].

use walbraid_schemas::notice::StopKind;

/// Why an attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// 40P01.
    Deadlock,
    /// 55P03.
    LockTimeout,
    /// 40001 and the rest of class 40.
    Serialization,
    /// 57014.
    Cancelled,
    /// 57P01, 57P02, 57P03, and the time-outs that end a session.
    Shutdown,
    /// Class 08, and sessions lost without a word.
    Connection,
    /// 53100.
    DiskFull,
    /// The rest of class 53.
    Resources,
    /// 25006.
    ReadOnly,
    /// 55006: an object, such as an origin, is held by another session.
    InUse,
    /// Class 58: the operating system below the server.
    System,
    /// An error in a unit that was not the head.
    NotHead,
    /// A row not found by a unit that was not the head.
    NotFound,
    /// An earlier unit waited for a lock of this one.
    Blocked,
    /// The head found no worker free, or waited for a lock of which nobody says whose it is.
    MadeWay,
    /// The subscriber's tables may be other than they were when they were read.
    Shape,
}

impl Cause {
    /// All causes, in the order of their counters.
    pub const ALL: &'static [Self] = &[
        Self::Deadlock,
        Self::LockTimeout,
        Self::Serialization,
        Self::Cancelled,
        Self::Shutdown,
        Self::Connection,
        Self::DiskFull,
        Self::Resources,
        Self::ReadOnly,
        Self::InUse,
        Self::System,
        Self::NotHead,
        Self::NotFound,
        Self::Blocked,
        Self::MadeWay,
        Self::Shape,
    ];

    /// The name, for metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::LockTimeout => "lock_timeout",
            Self::Serialization => "serialization",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
            Self::Connection => "connection",
            Self::DiskFull => "disk_full",
            Self::Resources => "resources",
            Self::ReadOnly => "read_only",
            Self::InUse => "in_use",
            Self::System => "system",
            Self::NotHead => "not_head",
            Self::NotFound => "not_found",
            Self::Blocked => "blocked_head",
            Self::MadeWay => "made_way",
            Self::Shape => "shape",
        }
    }
}

/// What an SQLSTATE says about the unit that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Never a fact: run it again.
    Transient(Cause),
    /// The session's state is not what it should be: take the lane over anew.
    Desynchronized,
    /// May be due to a changed table: read the catalogue again first; then it is a stop.
    Shape,
    /// At the head it is a stop of this kind.
    Definite(StopKind),
}

/// What that SQLSTATE says.
pub fn verdict(sqlstate: &str) -> Verdict {
    use Verdict::{Definite, Desynchronized, Shape, Transient};
    match sqlstate {
        "40P01" => return Transient(Cause::Deadlock),
        "55P03" => return Transient(Cause::LockTimeout),
        "57014" => return Transient(Cause::Cancelled),
        "53100" => return Transient(Cause::DiskFull),
        "25006" => return Transient(Cause::ReadOnly),
        "25P03" | "25P04" => return Transient(Cause::Shutdown),
        "55006" => return Transient(Cause::InUse),
        "25001" | "25P01" | "25P02" | "26000" | "34000" | "42P05" => return Desynchronized,
        "42501" => return Definite(StopKind::MissingRight),
        _ => {}
    }
    match sqlstate.get(..2) {
        Some("08") => Transient(Cause::Connection),
        Some("40") => Transient(Cause::Serialization),
        Some("53") => Transient(Cause::Resources),
        Some("57") => Transient(Cause::Shutdown),
        Some("58") => Transient(Cause::System),
        Some("22" | "23" | "44" | "54" | "P0") => Definite(StopKind::RowRefused),
        Some("42" | "3F") => Shape,
        _ => Definite(StopKind::SubscriberError),
    }
}

/// Pauses between attempts: doubled each time, up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The first pause.
    pub first_ms: u64,
    /// No pause is longer.
    pub max_ms: u64,
}

impl BackOff {
    /// The pause after that many failed attempts (at least 1).
    pub fn pause_ms(self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(20);
        self.first_ms
            .saturating_mul(1 << doublings)
            .min(self.max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_sqlstate_says() {
        use Verdict::{Definite, Desynchronized, Shape, Transient};
        let cases = [
            ("40P01", Transient(Cause::Deadlock)),
            ("55P03", Transient(Cause::LockTimeout)),
            ("40001", Transient(Cause::Serialization)),
            ("57014", Transient(Cause::Cancelled)),
            ("57P01", Transient(Cause::Shutdown)),
            ("57P02", Transient(Cause::Shutdown)),
            ("57P03", Transient(Cause::Shutdown)),
            ("08006", Transient(Cause::Connection)),
            ("53100", Transient(Cause::DiskFull)),
            ("53200", Transient(Cause::Resources)),
            ("53300", Transient(Cause::Resources)),
            ("25006", Transient(Cause::ReadOnly)),
            ("25P02", Desynchronized),
            ("42P05", Desynchronized),
            ("42703", Shape),
            ("54000", Definite(StopKind::RowRefused)),
            ("42501", Definite(StopKind::MissingRight)),
            ("23502", Definite(StopKind::RowRefused)),
            ("22P02", Definite(StopKind::RowRefused)),
            ("P0001", Definite(StopKind::RowRefused)),
            ("55000", Definite(StopKind::SubscriberError)),
            ("0A000", Definite(StopKind::SubscriberError)),
            ("", Definite(StopKind::SubscriberError)),
        ];
        for (sqlstate, expected) in cases {
            assert_eq!(verdict(sqlstate), expected, "{sqlstate}");
        }
    }

    #[test]
    fn pauses_grow_up_to_their_bound() {
        let back_off = BackOff {
            first_ms: 20,
            max_ms: 1_000,
        };
        let pauses: Vec<u64> = [1, 2, 3, 7, 60].map(|n| back_off.pause_ms(n)).to_vec();
        assert_eq!(pauses, [20, 40, 80, 1_000, 1_000]);
    }
}
