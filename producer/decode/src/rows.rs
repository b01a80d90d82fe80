//! Rows from pgoutput's text to Avro's bytes.
//!
//! Owns: what each kind of column of each kind of tuple becomes. Does not own the form of a value
//! ([`walbraid_schemas::row`]).
//!
//! This is the hot path of the producer. The text of a value goes straight to its Avro form by the
//! carrier of its column; no value is held between. All rows of a stream are written into one
//! buffer and split off it, so that a row costs a reference count and not an allocation. A value
//! that is not what its type says is a refusal that names relation, column and LSN: the log never
//! holds a guess.

use bytes::{Bytes, BytesMut};
use walbraid_schemas::{Column, Lsn, row};

use crate::error::Undecodable;
use crate::relation::Relation;
use crate::tuple::{Datum, Tuple};

/// The buffer is taken anew in pieces of this size.
const BUFFER_BYTES: usize = 64 * 1024;
/// What a column may add to its text: the branch of its union and a length.
const COLUMN_BYTES: usize = 16;

/// Writes rows.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    buffer: BytesMut,
}

/// Which tuple a row comes from: it decides what `n` and `u` mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The new tuple of an INSERT: no value can be unchanged.
    Inserted,
    /// The new tuple of an UPDATE, or a whole old row.
    Whole,
    /// The key of an old row: `n` outside the key says nothing.
    Key,
}

impl Rows {
    /// Writes one row.
    pub(crate) fn write(
        &mut self,
        lsn: Lsn,
        relation: &Relation,
        tuple: Tuple<'_>,
        form: Form,
    ) -> Result<Bytes, Undecodable> {
        let columns = &relation.table.columns;
        // No carrier is longer than its text but for the overhead of a column (an int of one
        // digit, a float of three), so nothing is moved while a row is written.
        let most = tuple.size_bytes() + columns.len() * COLUMN_BYTES;
        if self.buffer.capacity() < most {
            self.buffer.reserve(most.max(BUFFER_BYTES));
        }
        for (column, datum) in columns.iter().zip(tuple.columns()) {
            if matches!(datum, Datum::Unchanged) && form == Form::Inserted {
                self.buffer.clear();
                return Err(Undecodable::LeftOut {
                    lsn,
                    relation: relation.qualified_name(),
                    column: column.name.clone(),
                });
            }
            if let Err(problem) = self.column(column, datum, form) {
                self.buffer.clear();
                return Err(Undecodable::Value {
                    lsn,
                    relation: relation.qualified_name(),
                    column: column.name.clone(),
                    type_name: column.type_name.clone(),
                    problem,
                });
            }
        }
        Ok(self.buffer.split().freeze())
    }

    #[inline]
    fn column(
        &mut self,
        column: &Column,
        datum: Datum<'_>,
        form: Form,
    ) -> Result<(), &'static str> {
        let out = &mut self.buffer;
        match datum {
            Datum::Text(text) => row::write_text(column.carrier, text, out)
                .map_err(|_| "its text form is not one of this type"),
            Datum::Null if form == Form::Key && !column.key => {
                row::write_not_sent(out);
                Ok(())
            }
            Datum::Null => {
                row::write_null(out);
                Ok(())
            }
            Datum::Unchanged => {
                row::write_unchanged(out);
                Ok(())
            }
            Datum::Binary(_) => Err("it was sent in binary form, which was not asked for"),
        }
    }
}
