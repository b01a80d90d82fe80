//! What the engine tells the shell to do.

use std::sync::Arc;

use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::Stop;

use crate::coordinator::Commit;
use crate::mapping::Mapped;
use crate::resolver::ReadId;
use crate::rule::Cause;
use crate::scheduler::WorkerId;
use crate::unit::{Extension, Unit, UnitId};

/// Something to do.
#[derive(Debug)]
pub enum Action {
    /// Apply a unit, behind what the worker already has. The worker answers with `Committed`,
    /// `Counted`, or `Failed`.
    Run {
        /// Which worker.
        worker: WorkerId,
        /// Number of the run: once a run of number n failed, a worker drops those up to n.
        run: u64,
        /// The unit.
        unit: Arc<Unit>,
        /// When its COMMIT is sent.
        commit: Commit,
    },
    /// The next piece of an open unit that the worker has.
    Extend {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
        /// What comes; the worker says `Consumed` when it holds it no longer.
        extension: Extension,
    },
    /// Commit a unit whose counts were reported.
    Commit {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
    },
    /// Roll a unit back, the last that the worker has, whatever it waits for; the worker answers
    /// with `Abandoned`, or had already said `Failed`.
    Abandon {
        /// Which worker.
        worker: WorkerId,
        /// The run's number.
        run: u64,
        /// The unit.
        unit: UnitId,
    },
    /// Ask the subscriber which of the workers wait for locks of others, and answer with `Blocked`,
    /// though none does: the head takes long, and a later unit may be why.
    AskBlocked,
    /// Open the session of the first worker that has none, and answer with `Joined` or `Refused`.
    Connect,
    /// Read rows of a table of the subscriber with [`crate::resolver::query`], in a snapshot that
    /// sees every COMMIT that was reported; answer with `OldValues`.
    ReadOldValues {
        /// Number of the read.
        read: ReadId,
        /// The table.
        table: Arc<Mapped>,
        /// The keys: for each column of the lookup the texts of all rows.
        keys: Vec<Vec<String>>,
    },
    /// This offset may be committed: records before it need never be read again. It only moves on,
    /// but for take-overs, which may move it back.
    CommitOffset {
        /// The record that a restarted reader should begin with.
        offset: i64,
    },
    /// The reader started too far on: say `ReadFrom`, and read from further back.
    SeekBack,
    /// Fetch no more for a moment.
    PauseFetch,
    /// Fetch again.
    ResumeFetch,
    /// Step with `Tick` at that time, unless something else happens before.
    WakeAt {
        /// On the clock of `now_ms`.
        at_ms: u64,
    },
    /// End all sessions of the lane, own it anew, read the progress, and call
    /// [`crate::engine::Engine::resume`].
    TakeOver {
        /// Why.
        reason: TakeOver,
    },
    /// Something to be said, once.
    Report(Report),
    /// The lane stops: a person must act.
    Stop(Box<Stop>),
}

/// Why a lane is taken over anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// A session was lost.
    SessionLost,
    /// A COMMIT was answered with ROLLBACK, or a session was not in the state it should be in.
    OutcomeUnknown,
    /// The catalogue may be older than the subscriber's tables: read it again.
    ShapeChanged,
    /// A transaction larger than the memory limit must be read from the log again.
    ReadAgain,
}

impl TakeOver {
    /// In words, for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::SessionLost => "a session of the lane was lost",
            Self::OutcomeUnknown => "the outcome of a commit is unknown",
            Self::ShapeChanged => "the subscriber's tables may have changed",
            Self::ReadAgain => "a large transaction is read from the log again",
        }
    }
}

/// What is worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A unit is repeated; said at the first attempt that failed, not at each.
    Retrying {
        /// Why.
        cause: Cause,
        /// The oldest transaction of the unit.
        xid: u32,
        /// Its commit LSN.
        commit_lsn: Lsn,
        /// What the subscriber said.
        message: String,
        /// The pause before the next attempt.
        pause_ms: u64,
    },
    /// A unit that had been repeated is committed.
    Recovered {
        /// Why it was repeated last.
        cause: Cause,
        /// How often.
        attempts: u32,
        /// How long it took.
        for_ms: u64,
    },
}
