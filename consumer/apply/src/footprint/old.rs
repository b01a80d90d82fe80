//! Old values of unique indexes that the wire does not carry.
//!
//! Under REPLICA IDENTITY DEFAULT an UPDATE or a DELETE does not tell which values of the other
//! unique indexes it gives up. Whoever implements [`OldValues`] may know: it read the rows from the
//! subscriber, and is told here, in the order of the log, what each change makes of its row.

use super::SpaceId;

/// Knows what rows held before a change.
pub trait OldValues {
    /// What the row holds in those of its unique indexes whose old values are not on the wire. The
    /// row is named by the space and the hash of its key.
    fn old(&mut self, space: SpaceId, row_key: u64) -> Old<'_>;

    /// What a change made of the row.
    fn write(&mut self, space: SpaceId, row_key: u64, new: NewRow<'_>);

    /// A change may have made anything of any row (a TRUNCATE, a trigger, a cascade): what was read
    /// before this transaction's commit says nothing any more.
    fn forget(&mut self);
}

/// What a row held. The order of hashes is that of the indexes that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old<'a> {
    /// Nobody knows.
    Unknown,
    /// There is no such row: a change of it gives up nothing.
    Gone,
    /// A hash for each index; none where the row has no value that others could collide with.
    Hashes(&'a [Option<u64>]),
}

/// What a row holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewRow<'a> {
    /// It cannot be said.
    Unknown,
    /// There is no such row any more.
    Gone,
    /// A hash for each index; none where the row has no value that others could collide with.
    Hashes(&'a [Option<u64>]),
}

/// Knows nothing: tables with such indexes are serial where a value may have been given up.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOldValues;

impl OldValues for NoOldValues {
    fn old(&mut self, _: SpaceId, _: u64) -> Old<'_> {
        Old::Unknown
    }

    fn write(&mut self, _: SpaceId, _: u64, _: NewRow<'_>) {}

    fn forget(&mut self) {}
}
