//! What the shell tells the engine.

use walbraid_schemas::chain::Start;
use walbraid_schemas::envelope::Envelope;
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::Stop;

use crate::failure::Failure;
use crate::mapping::Target;
use crate::resolver::{OldRow, ReadId};
use crate::scheduler::WorkerId;
use crate::unit::UnitId;

/// A record of the lane, decoded and resolved.
#[derive(Debug)]
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Size of its value.
    pub size_bytes: usize,
    /// What it holds.
    pub envelope: Envelope,
    /// What the tables of its part are on the subscriber, in the order of `Part::tables`; empty for
    /// other records.
    pub targets: Vec<Target>,
}

/// What a COMMIT was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitTag {
    /// `COMMIT`.
    Commit,
    /// `ROLLBACK`: nothing was committed, without an error.
    RollBack,
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// The next record of the lane.
    Record(Box<Record>),
    /// The records that follow are read from another place than those before: from some offset, or
    /// from the log's first record. To be said before the first record after a seek; an engine
    /// that was made or resumed is at [`Start::Offset`].
    ReadFrom(Start),
    /// The next record cannot be used, for good. What stands before it is still committed; then the
    /// lane stops with this.
    LogStop(Stop),
    /// The COMMIT of a unit returned.
    Committed {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
        /// What came back.
        tag: CommitTag,
        /// How long the connection was busy with the unit's statements, microseconds.
        busy_us: u64,
    },
    /// All statements of a unit run as [`crate::coordinator::Commit::WhenCounted`] are through, and
    /// the counts are right or what was missing may be skipped, if it is a fact.
    Counted {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
        /// Rows were not found.
        missing: bool,
    },
    /// A unit did not go through; nothing that was sent behind it on that worker did either.
    Failed {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
        /// Why.
        failure: Box<Failure>,
    },
    /// A unit that was called back is gone.
    Abandoned {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
    },
    /// A worker holds an extension of an open unit no longer.
    Consumed {
        /// The unit.
        unit: UnitId,
        /// Size of the extension's piece.
        size_bytes: usize,
    },
    /// A worker's session ended: the outcome of what it had is unknown, and commits before it may
    /// be gone with it.
    SessionLost {
        /// Which worker.
        worker: WorkerId,
    },
    /// What [`crate::action::Action::AskBlocked`] asked: who waits for whose locks.
    Blocked {
        /// Pairs of one that waits and one that it waits for.
        waits: Vec<(WorkerId, WorkerId)>,
    },
    /// What [`crate::action::Action::ReadOldValues`] asked.
    OldValues {
        /// Number of the read.
        read: ReadId,
        /// The rows that were found; none if the read failed.
        rows: Option<Vec<OldRow>>,
        /// How long it took, microseconds.
        took_us: u64,
    },
    /// The session of a worker was opened, as [`crate::action::Action::Connect`] asked.
    Joined {
        /// Which worker.
        worker: WorkerId,
    },
    /// No further session could be opened.
    Refused,
    /// The subscriber has flushed its commits up to this one (a publisher's LSN).
    Flushed {
        /// The position.
        lsn: Lsn,
    },
    /// Nothing but time.
    Tick,
}
