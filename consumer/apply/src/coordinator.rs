//! The commit coordinator: the publisher's commit order on the subscriber.
//!
//! On one connection, order is the connection's. Between connections, COMMIT of a unit is sent when
//! the one before it has returned with the tag COMMIT; sending in order is not enough (measured:
//! 58 % of commits inverted).
//!
//! COMMIT may travel with the unit's statements only where nothing depends on their row counts:
//! rows not found are skipped, and the unit is **in order**, everything unfinished before it being
//! on the same connection with its COMMIT on the way. What such a unit finds is a fact: nothing
//! later is visible to it, and everything earlier is, or it is not run at all. In every other case
//! the counts are read first.

use crate::scheduler::WorkerId;

/// What is done about a row that is not found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Said in the log and skipped, as PostgreSQL does.
    #[default]
    Skip,
    /// A stop, before the unit's COMMIT.
    Error,
}

/// When the COMMIT of a unit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// In the same burst as the statements.
    InBurst,
    /// When the engine says so, after the worker has reported the counts.
    WhenCounted,
}

/// How far the commit of an unfinished unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Where it runs.
    pub worker: WorkerId,
    /// Its COMMIT was sent, or travels with its statements.
    pub commit_sent: bool,
}

/// How a unit's COMMIT is to be sent.
pub fn mode(in_order: bool, on_missing: OnMissing) -> Commit {
    match (in_order, on_missing) {
        (true, OnMissing::Skip) => Commit::InBurst,
        _ => Commit::WhenCounted,
    }
}

/// True if a unit on `worker`, its counts read, may commit now. `before` is the unit before it in
/// the log's order, none when that one has committed.
pub fn may_commit(worker: WorkerId, before: Option<Option<Progress>>) -> bool {
    match before {
        None => true,
        Some(None) => false,
        Some(Some(progress)) => progress.worker == worker && progress.commit_sent,
    }
}
