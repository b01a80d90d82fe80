//! What becomes one target transaction.
//!
//! A unit holds one transaction of the publisher, or several consecutive ones when the subscriber
//! lags. It is either **whole**, or **open**: the beginning of one transaction too large to be kept
//! in memory, whose further pieces reach the worker as they arrive. An open unit has no ending yet:
//! its end LSN stands in its last record only.

use std::sync::Arc;

use walbraid_schemas::chain::Position;
use walbraid_schemas::envelope::{Change, LinkKind, Origin};
use walbraid_schemas::lsn::Lsn;

use crate::mapping::{MappingError, Target};

/// Numbers units in the order of the log; never given twice by one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u64);

/// The changes of one record (or of several, where one change was cut into fragments).
#[derive(Debug, Default)]
pub struct Piece {
    targets: Vec<Target>,
    changes: Vec<Change>,
    size_bytes: usize,
    truncates: bool,
    mapping_error: Option<Arc<MappingError>>,
}

impl Piece {
    /// A piece that holds about that many bytes; `targets` is what the changes' table numbers stand
    /// for.
    pub fn new(changes: Vec<Change>, targets: Vec<Target>, size_bytes: usize) -> Self {
        let truncates = changes
            .iter()
            .any(|change| matches!(change, Change::Truncate { .. }));
        let mapping_error = changes
            .iter()
            .find_map(|change| mapping_error(change, &targets));
        Self {
            mapping_error: mapping_error.cloned(),
            targets,
            changes,
            size_bytes,
            truncates,
        }
    }

    /// What the changes' table numbers stand for.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The changes, in the order of the transaction.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Memory that it holds, about.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// True if a TRUNCATE is among the changes.
    pub fn truncates(&self) -> bool {
        self.truncates
    }

    /// The mapping error that applying the piece meets, if it meets one.
    pub fn mapping_error(&self) -> Option<&Arc<MappingError>> {
        self.mapping_error.as_ref()
    }
}

fn mapping_error<'a>(change: &Change, targets: &'a [Target]) -> Option<&'a Arc<MappingError>> {
    let failed = |table: &u32| targets.get(*table as usize)?.as_ref().err();
    match change {
        Change::Insert { table, .. } => match targets.get(*table as usize)? {
            Ok(mapped) => mapped.insert_error(),
            Err(error) => Some(error),
        },
        Change::Update { table, .. } | Change::Delete { table, .. } => failed(table),
        Change::Truncate { tables, .. } => tables.iter().find_map(failed),
        Change::Message { .. } => None,
    }
}

/// A link of the chain: a transaction of the publisher, or a message on its own.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// What kind of link it is.
    pub kind: LinkKind,
    /// The publisher's transaction id.
    pub xid: u32,
    /// LSN of its commit record.
    pub commit_lsn: Lsn,
    /// When it committed on the publisher, microseconds since 1970.
    pub commit_time_us: i64,
    /// Where the publisher itself had it from.
    pub origin: Option<Origin>,
    /// Its changes.
    pub pieces: Vec<Arc<Piece>>,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Where it ends; none while the transaction is open.
    pub ending: Option<Ending>,
}

/// Where a transaction, or a unit, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// End LSN: the progress that the target transaction records.
    pub end_lsn: Lsn,
    /// Commit time of the last transaction; a message outside of one has that of the link before.
    pub commit_time_us: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The reader's position behind it: to be kept in the lane's row where `claim_changed`.
    pub position: Position,
    /// The position's claim is not that of the transaction before: the lane's row must be written
    /// in the same target transaction.
    pub claim_changed: bool,
}

impl Transaction {
    /// Memory that it holds, about.
    pub fn size_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.size_bytes()).sum()
    }

    /// How many changes it has.
    pub fn change_count(&self) -> usize {
        self.pieces.iter().map(|piece| piece.changes().len()).sum()
    }

    /// The mapping error that applying it meets, if it meets one.
    pub fn mapping_error(&self) -> Option<&Arc<MappingError>> {
        self.pieces.iter().find_map(|piece| piece.mapping_error())
    }

    /// True if everything before must be committed first, and everything behind must wait.
    pub fn is_barrier(&self) -> bool {
        self.pieces.iter().any(|piece| piece.truncates())
    }
}

/// What becomes one target transaction.
///
/// Its target transaction always writes, if only the lane's progress: it cannot be told beforehand
/// whether any of its changes does, since rows may be missing.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its number.
    pub id: UnitId,
    /// One transaction or several consecutive ones; exactly one if the unit is open.
    pub transactions: Vec<Transaction>,
}

impl Unit {
    /// Where the unit ends; none while it is open.
    pub fn ending(&self) -> Option<&Ending> {
        self.transactions.last()?.ending.as_ref()
    }

    /// True if further pieces follow.
    pub fn is_open(&self) -> bool {
        self.ending().is_none()
    }

    /// Offset of the first record.
    pub fn first_offset(&self) -> i64 {
        self.transactions
            .first()
            .map_or(0, |transaction| transaction.first_offset)
    }

    /// True if some transaction of the unit changes the claim that the lane's row holds.
    pub fn claim_changed(&self) -> bool {
        let changed = |transaction: &Transaction| {
            transaction
                .ending
                .as_ref()
                .is_some_and(|ending| ending.claim_changed)
        };
        self.transactions.iter().any(changed)
    }

    /// The mapping error that applying it meets, if it meets one: a transaction that has one stands
    /// alone in its unit ([`crate::window`]).
    pub fn mapping_error(&self) -> Option<&Arc<MappingError>> {
        self.transactions.first()?.mapping_error()
    }

    /// Memory that it holds, about.
    pub fn size_bytes(&self) -> usize {
        self.transactions.iter().map(Transaction::size_bytes).sum()
    }

    /// How many changes it has.
    pub fn change_count(&self) -> usize {
        self.transactions
            .iter()
            .map(Transaction::change_count)
            .sum()
    }
}

/// The next piece of an open unit.
#[derive(Clone, Debug)]
pub struct Extension {
    /// The piece; it may hold no change.
    pub piece: Arc<Piece>,
    /// With the last piece: where the transaction ends. The worker then records the progress
    /// and commits, or reports the counts first.
    pub ending: Option<Ending>,
}
