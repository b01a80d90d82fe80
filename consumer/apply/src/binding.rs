//! From one change to a statement and its parameters.
//!
//! A [`Builder`] is a worker's own and is used again for every change: its parameters live in one
//! buffer, already in the form in which Bind carries them (a length of four bytes, -1 for NULL,
//! then the value). One pass over the new row writes the values and finds out what is not sent;
//! that, with the operation, names the statement. The order of the parameters is written down in
//! [`crate::statement`].

use std::sync::Arc;

use walbraid_schemas::envelope::{Change, OldTuple};
use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_schemas::row::{ReadError, Reader, Value};
use walbraid_schemas::table::Identity;

use crate::lookup::Lookup;
use crate::mapping::{Mapped, MappedColumn, MappingError, Moves, Target};
use crate::number;
use crate::quote;
use crate::statement::{self, Mask, Operation, Shape, Statement};

/// Room that is kept between changes; what a larger row needed is given back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Why no statement can be made of a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The table cannot be applied to the subscriber.
    #[error(transparent)]
    Mapping(#[from] Arc<MappingError>),
    /// A row of the log cannot be read.
    #[error("row of relation {relation} cannot be decoded: {error}")]
    Row {
        /// The relation, quoted.
        relation: String,
        /// Why.
        error: ReadError,
    },
    /// A column that the row is to be found by has no value in the log.
    #[error("key column {column} of relation {relation} was not sent by the publisher")]
    KeyNotSent {
        /// The relation, quoted.
        relation: String,
        /// The column, quoted.
        column: String,
    },
    /// An UPDATE or DELETE without anything to find the row by.
    #[error("relation {relation} has no replica identity that its rows could be found by")]
    NoIdentity {
        /// The relation, quoted.
        relation: String,
    },
    /// A change names a table that its record does not have.
    #[error("a change names table number {0}, which its record does not have")]
    NoSuchTable(u32),
}

impl BuildError {
    /// The stop that this error is once its transaction is the head.
    pub fn stop(&self) -> Stop {
        match self {
            Self::Mapping(error) => error.stop(),
            Self::NoIdentity { .. } => Stop::new(StopKind::SubscriberShape, self.to_string())
                .hint("Give the publisher's table a primary key or a replica identity."),
            _ => Stop::new(StopKind::Undecodable, self.to_string()),
        }
    }
}

/// What makes statements of changes.
#[derive(Debug)]
pub struct Builder {
    truncate_cascade: bool,
    shape: Shape,
    parameters: Parameters,
    recent: Vec<Option<Recent>>,
}

/// A statement that was used, by what it was used for.
#[derive(Debug)]
struct Recent {
    mapped: u64,
    operation: Operation,
    absent: u64,
    statement: Arc<Statement>,
}

/// How many statements a builder knows without asking their table; a power of two.
const RECENT: usize = 128;

/// The parameters of the statement that was built last.
#[derive(Debug, Default)]
pub struct Parameters {
    encoded: Vec<u8>,
    count: usize,
}

impl Builder {
    /// A builder; `truncate_cascade` lets TRUNCATE reach the subscriber's own tables.
    pub fn new(truncate_cascade: bool) -> Self {
        let shape = Shape {
            operation: Operation::Insert,
            absent: Mask::default(),
        };
        let recent = std::iter::repeat_with(|| None).take(RECENT).collect();
        Self {
            truncate_cascade,
            shape,
            parameters: Parameters::default(),
            recent,
        }
    }

    /// The statement for a change, its parameters left in [`Self::parameters`]; none if the change
    /// is nothing to apply. `targets` are those of the change's own piece.
    pub fn build(
        &mut self,
        change: &Change,
        targets: &[Target],
    ) -> Result<Option<Arc<Statement>>, BuildError> {
        self.parameters.clear();
        self.shape.absent.clear();
        match change {
            Change::Insert { table, new } => self.insert(mapped(targets, *table)?, new).map(Some),
            Change::Update { table, old, new } => self
                .update(mapped(targets, *table)?, old.as_ref(), new)
                .map(Some),
            Change::Delete { table, old } => self.delete(mapped(targets, *table)?, old).map(Some),
            Change::Truncate {
                tables,
                restart_identity,
                ..
            } => self.truncate(tables, targets, *restart_identity).map(Some),
            Change::Message { .. } => Ok(None),
        }
    }

    /// The parameters of the statement built last.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The statement of the shape that was found; mostly one that was used just before.
    fn statement(&mut self, mapped: &Mapped) -> Arc<Statement> {
        let Some(absent) = self.shape.absent.bits() else {
            return mapped.statement(&self.shape);
        };
        let operation = self.shape.operation;
        let spread = absent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        let place = (mapped.id() * 8 + operation as u64) ^ spread;
        let Some(slot) = self.recent.get_mut(place as usize % RECENT) else {
            return mapped.statement(&self.shape);
        };
        if let Some(recent) = slot
            && recent.mapped == mapped.id()
            && recent.operation == operation
            && recent.absent == absent
        {
            return Arc::clone(&recent.statement);
        }
        let statement = mapped.statement(&self.shape);
        let mapped = mapped.id();
        *slot = Some(Recent {
            mapped,
            operation,
            absent,
            statement: Arc::clone(&statement),
        });
        statement
    }

    fn insert(&mut self, mapped: &Mapped, row: &[u8]) -> Result<Arc<Statement>, BuildError> {
        if let Some(error) = mapped.insert_error() {
            return Err(BuildError::Mapping(Arc::clone(error)));
        }
        self.shape.operation = Operation::Insert;
        self.new_row(mapped, row)?;
        Ok(self.statement(mapped))
    }

    fn update(
        &mut self,
        mapped: &Mapped,
        old: Option<&OldTuple>,
        row: &[u8],
    ) -> Result<Arc<Statement>, BuildError> {
        if matches!(mapped.lookup(), Lookup::Nothing) {
            return Err(no_identity(mapped));
        }
        let moves = match mapped.moves() {
            Moves::Never => false,
            Moves::Always => true,
            Moves::WhenChanged => match old {
                Some(old) => identity_changed(mapped, &old.row, row)?,
                None => false,
            },
        };
        self.shape.operation = match (moves, old.is_some()) {
            (false, false) => Operation::UpdateByNew,
            (false, true) => Operation::UpdateByOld,
            (true, false) => Operation::MoveByNew,
            (true, true) => Operation::MoveByOld,
        };
        if old.is_none() && mapped.table().identity == Identity::Full {
            // The new row's values are not those of the row that is to be found.
            return Err(no_identity(mapped));
        }
        self.new_row(mapped, row)?;
        if let Some(old) = old {
            self.old_row(mapped, &old.row)?;
        }
        Ok(self.statement(mapped))
    }

    fn delete(&mut self, mapped: &Mapped, old: &OldTuple) -> Result<Arc<Statement>, BuildError> {
        if matches!(mapped.lookup(), Lookup::Nothing) {
            return Err(no_identity(mapped));
        }
        self.shape.operation = Operation::Delete;
        self.old_row(mapped, &old.row)?;
        Ok(self.statement(mapped))
    }

    fn truncate(
        &mut self,
        tables: &[u32],
        targets: &[Target],
        restart_identity: bool,
    ) -> Result<Arc<Statement>, BuildError> {
        let relations: Vec<&Mapped> = tables
            .iter()
            .map(|table| mapped(targets, *table).map(|mapped| &**mapped))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(statement::truncate(
            &relations,
            restart_identity,
            self.truncate_cascade,
        )))
    }

    /// Writes the parameters that the operation takes from the new row.
    fn new_row(&mut self, mapped: &Mapped, row: &[u8]) -> Result<(), BuildError> {
        let operation = self.shape.operation;
        let columns = mapped.columns();
        for (place, value) in Reader::new(mapped.table(), row).enumerate() {
            let value = value.map_err(|error| unreadable(mapped, error))?;
            let Some(column) = columns.get(place) else {
                break;
            };
            let absent = matches!(value, Value::Unchanged | Value::NotSent);
            if absent {
                self.shape.absent.insert(place);
            }
            if column.taken_by & operation.bit() == 0 {
                continue;
            }
            if !absent {
                self.parameters.push(value, column.binary);
            } else if column.compared && operation.finds_by_new() {
                return Err(key_not_sent(mapped, place));
            }
        }
        Ok(())
    }

    /// Writes the parameters of the lookup.
    fn old_row(&mut self, mapped: &Mapped, row: &[u8]) -> Result<(), BuildError> {
        let columns = mapped.columns();
        for (place, value) in Reader::new(mapped.table(), row).enumerate() {
            let value = value.map_err(|error| unreadable(mapped, error))?;
            let Some(column) = columns.get(place).filter(|column| column.compared) else {
                continue;
            };
            if matches!(value, Value::Unchanged | Value::NotSent) {
                return Err(key_not_sent(mapped, place));
            }
            self.parameters.push(value, column.binary);
        }
        Ok(())
    }
}

fn mapped(targets: &[Target], table: u32) -> Result<&Arc<Mapped>, BuildError> {
    match targets.get(table as usize) {
        Some(Ok(mapped)) => Ok(mapped),
        Some(Err(error)) => Err(BuildError::Mapping(Arc::clone(error))),
        None => Err(BuildError::NoSuchTable(table)),
    }
}

/// True if a `GENERATED ALWAYS` column of the identity has another value in the new row.
fn identity_changed(mapped: &Mapped, old: &[u8], new: &[u8]) -> Result<bool, BuildError> {
    let table = mapped.table();
    let rows = Reader::new(table, old).zip(Reader::new(table, new));
    for ((old, new), column) in rows.zip(mapped.columns()) {
        let old = old.map_err(|error| unreadable(mapped, error))?;
        let new = new.map_err(|error| unreadable(mapped, error))?;
        if column.always && !matches!(new, Value::Unchanged | Value::NotSent) && old != new {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unreadable(mapped: &Mapped, error: ReadError) -> BuildError {
    BuildError::Row {
        relation: mapped.relation().sql(),
        error,
    }
}

fn no_identity(mapped: &Mapped) -> BuildError {
    BuildError::NoIdentity {
        relation: mapped.relation().sql(),
    }
}

fn key_not_sent(mapped: &Mapped, place: usize) -> BuildError {
    let column = mapped.table().columns.get(place);
    let column = column.map_or_else(String::new, |column| quote::identifier(&column.name));
    BuildError::KeyNotSent {
        relation: mapped.relation().sql(),
        column,
    }
}

impl Operation {
    /// True if a sent value of that column of the new row is a parameter.
    pub(crate) fn takes(self, column: &MappedColumn) -> bool {
        match self {
            Self::Insert | Self::MoveByOld | Self::MoveByNew => true,
            Self::UpdateByNew => column.compared || self.assigns(column) || !column.writable,
            Self::UpdateByOld => self.assigns(column) || !column.writable,
            Self::Delete => false,
        }
    }

    /// True if an UPDATE assigns the column. A key column that is found by the new row's value did
    /// not change.
    pub(crate) fn assigns(self, column: &MappedColumn) -> bool {
        let unchanged = column.key && self == Self::UpdateByNew;
        column.writable && !column.always && !unchanged
    }

    fn finds_by_new(self) -> bool {
        matches!(self, Self::UpdateByNew | Self::MoveByNew)
    }
}

impl Parameters {
    fn clear(&mut self) {
        self.encoded.clear();
        self.encoded.shrink_to(KEPT_BYTES_MAX);
        self.count = 0;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// As they stand in a Bind message, after their number.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// One by one; none is NULL.
    pub fn values(&self) -> Values<'_> {
        Values {
            rest: &self.encoded,
        }
    }

    #[inline]
    fn push(&mut self, value: Value<'_>, binary: bool) {
        self.count += 1;
        let out = &mut self.encoded;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match value {
            Value::Null | Value::Unchanged | Value::NotSent => {
                out[start..].copy_from_slice(&(-1_i32).to_be_bytes());
                return;
            }
            Value::Bool(value) => out.push(if value { b't' } else { b'f' }),
            Value::Int(value) => number::write_integer(value, out),
            Value::Float4(value) => number::write_float4(value, out),
            Value::Float8(value) => number::write_float8(value, out),
            Value::Text(value) => out.extend_from_slice(value.as_bytes()),
            Value::Bytes(value) if binary => out.extend_from_slice(value),
            Value::Bytes(value) => number::write_hex(value, out),
        }
        // A value beyond 1 GB is refused by the protocol's own limit on the message.
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// The values of [`Parameters`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length);
        if length == u32::MAX {
            self.rest = rest;
            return Some(None);
        }
        let (value, rest) = rest.split_at_checked(length as usize)?;
        self.rest = rest;
        Some(Some(value))
    }
}
