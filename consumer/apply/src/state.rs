//! The states of a unit, and the only place where it goes from one to the next.
//!
//! ```text
//! RECEIVING → BUFFERED → ANALYZING → READY → RUNNING → COMMIT_WAIT → COMMITTED
//!                            │          ▲       │           │
//!                            ▼          │       ▼           ▼
//!                         UNKNOWN ───▶ SERIAL ◀─┴───────────┘
//! ```
//!
//! RECEIVING and BUFFERED are the states of a transaction in the buffer and in the window; the rest
//! are a unit's. SERIAL is the state of a unit that may run only as the head, with nothing
//! unfinished before it: because nothing was known of its keys (UNKNOWN), or because an attempt
//! went wrong (rule 0). A step that does not fit the state is a broken invariant.

/// Where a transaction or a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its records are arriving.
    Receiving,
    /// Whole, in the window.
    Buffered,
    /// In a unit, its dependencies being found.
    Analyzing,
    /// Nothing is known of what it depends on.
    Unknown,
    /// Runs only as the head, with everything before it committed.
    Serial,
    /// Waits for its predecessors and for a worker.
    Ready,
    /// Sent to a worker.
    Running,
    /// Its statements are through; its commit waits for its turn.
    CommitWait,
    /// Committed on the subscriber.
    Committed,
}

impl State {
    /// The name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receiving => "RECEIVING",
            Self::Buffered => "BUFFERED",
            Self::Analyzing => "ANALYZING",
            Self::Unknown => "UNKNOWN",
            Self::Serial => "SERIAL",
            Self::Ready => "READY",
            Self::Running => "RUNNING",
            Self::CommitWait => "COMMIT_WAIT",
            Self::Committed => "COMMITTED",
        }
    }

    /// The state after `step`; none if the step does not fit the state.
    pub fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Receiving, Step::Whole) => Some(Self::Buffered),
            // A transaction beyond the memory limit joins a unit while it is still arriving.
            (Self::Receiving | Self::Buffered, Step::Joined) => Some(Self::Analyzing),
            (Self::Analyzing, Step::Analyzed) => Some(Self::Ready),
            (Self::Analyzing, Step::NothingKnown) => Some(Self::Unknown),
            (Self::Unknown, Step::MadeSerial) => Some(Self::Serial),
            (Self::Ready | Self::Serial, Step::Sent) => Some(Self::Running),
            (Self::Running, Step::Executed) => Some(Self::CommitWait),
            (Self::Running | Self::CommitWait, Step::Committed) => Some(Self::Committed),
            // Not a fact yet: it runs again as the head.
            (Self::Running | Self::CommitWait, Step::MadeSerial) => Some(Self::Serial),
            // Swept away by the failure of one before it on the same connection.
            (Self::Running | Self::CommitWait, Step::Swept) => Some(Self::Ready),
            _ => None,
        }
    }
}

/// What happens to a transaction or a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its last record arrived.
    Whole,
    /// It became part of a unit.
    Joined,
    /// Its dependencies are known.
    Analyzed,
    /// Its dependencies cannot be known.
    NothingKnown,
    /// It may run only as the head.
    MadeSerial,
    /// It was given to a worker.
    Sent,
    /// Its statements ran; the counts are read.
    Executed,
    /// Its COMMIT returned with the tag COMMIT.
    Committed,
    /// Its attempt was undone without being looked at.
    Swept,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_unit() {
        let path = [
            Step::Whole,
            Step::Joined,
            Step::Analyzed,
            Step::Sent,
            Step::Committed,
        ];
        let end = path
            .iter()
            .try_fold(State::Receiving, |state, step| state.after(*step));
        assert_eq!(end, Some(State::Committed));
    }

    #[test]
    fn what_is_unknown_becomes_serial() {
        let path = [
            Step::NothingKnown,
            Step::MadeSerial,
            Step::Sent,
            Step::Executed,
        ];
        let end = path
            .iter()
            .try_fold(State::Analyzing, |state, step| state.after(*step));
        assert_eq!(end, Some(State::CommitWait));
    }

    #[test]
    fn steps_that_do_not_fit() {
        assert_eq!(State::Committed.after(Step::Sent), None);
        assert_eq!(State::Ready.after(Step::Committed), None);
        assert_eq!(State::Serial.after(Step::Executed), None);
    }
}
