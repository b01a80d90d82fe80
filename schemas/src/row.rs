//! A table's row as an Avro datum of its schema.
//!
//! Each column is a union of `null`, the carrier's type, and the enum `walbraid.Absent`, so that
//! three things which are not values stay apart: SQL's NULL, a toasted value that the UPDATE did
//! not change, and a column that the tuple does not have (a key tuple's other columns).
//!
//! The codec is by hand: the schema is known only at run time, the form is a branch number and a
//! primitive, and this is the innermost loop of both sides. The reader is total: it consumes
//! every byte or refuses the row with the column's name; it copies nothing.

use bytes::BufMut;

use crate::text::{self, TextError};
use crate::varint;
use crate::{Carrier, Column, Table};

const NULL_BRANCH: i64 = 0;
const VALUE_BRANCH: i64 = 1;
const ABSENT_BRANCH: i64 = 2;
const UNCHANGED_TOAST: i64 = 0;
const NOT_SENT: i64 = 1;

/// A column's value in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL's NULL.
    Null,
    /// A toasted value that the UPDATE did not change; its bytes are not in the log.
    Unchanged,
    /// The tuple does not have this column. Not NULL.
    NotSent,
    /// [`Carrier::Bool`].
    Bool(bool),
    /// [`Carrier::Int2`], [`Carrier::Int4`], [`Carrier::Int8`].
    Int(i64),
    /// [`Carrier::Float4`].
    Float4(f32),
    /// [`Carrier::Float8`].
    Float8(f64),
    /// [`Carrier::Text`], and PostgreSQL's text form for [`Carrier::Other`].
    Text(&'a str),
    /// [`Carrier::Bytea`].
    Bytes(&'a [u8]),
}

/// A value cannot be written under this carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value does not fit carrier {carrier:?}")]
pub struct WriteError {
    /// The carrier.
    pub carrier: Carrier,
}

/// A row cannot be read. Holds no value of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A column's bytes are no form of its carrier.
    #[error("invalid value of column \"{column}\" ({carrier:?})")]
    Column {
        /// The column.
        column: String,
        /// Its carrier.
        carrier: Carrier,
    },
    /// Bytes are left behind the last column.
    #[error("{0} bytes are left behind the last column")]
    TrailingBytes(usize),
}

/// Appends one column.
pub fn write(carrier: Carrier, value: Value<'_>, out: &mut impl BufMut) -> Result<(), WriteError> {
    match (carrier, value) {
        (_, Value::Null) => write_null(out),
        (_, Value::Unchanged) => write_unchanged(out),
        (_, Value::NotSent) => write_not_sent(out),
        (Carrier::Bool, Value::Bool(value)) => write_bool(value, out),
        (Carrier::Int2 | Carrier::Int4 | Carrier::Int8, Value::Int(value)) => {
            if !fits(carrier, value) {
                return Err(WriteError { carrier });
            }
            write_int(value, out);
        }
        (Carrier::Float4, Value::Float4(value)) => write_float4(value, out),
        (Carrier::Float8, Value::Float8(value)) => write_float8(value, out),
        (Carrier::Text | Carrier::Other, Value::Text(value)) => {
            write_bytes(value.as_bytes(), out);
        }
        (Carrier::Bytea, Value::Bytes(value)) => write_bytes(value, out),
        _ => return Err(WriteError { carrier }),
    }
    Ok(())
}

/// Appends one column from PostgreSQL's text form of its value, as pgoutput sends it.
pub fn write_text(carrier: Carrier, text: &[u8], out: &mut impl BufMut) -> Result<(), TextError> {
    match carrier {
        Carrier::Bool => write_bool(text::parse_bool(text)?, out),
        Carrier::Int2 | Carrier::Int4 | Carrier::Int8 => {
            let value = text::parse_int(text)?;
            if !fits(carrier, value) {
                return Err(TextError { carrier: "integer" });
            }
            write_int(value, out);
        }
        Carrier::Float4 => write_float4(text::parse_float4(text)?, out),
        Carrier::Float8 => write_float8(text::parse_float8(text)?, out),
        Carrier::Text | Carrier::Other => write_bytes(text::parse_utf8(text)?.as_bytes(), out),
        Carrier::Bytea => {
            let digits = text::bytea_digits(text)?;
            varint::write(VALUE_BRANCH, out);
            varint::write((digits.len() / 2) as i64, out);
            text::put_bytea(digits, out)?;
        }
    }
    Ok(())
}

/// Appends a NULL.
pub fn write_null(out: &mut impl BufMut) {
    varint::write(NULL_BRANCH, out);
}

/// Appends a toasted value that did not change.
pub fn write_unchanged(out: &mut impl BufMut) {
    varint::write(ABSENT_BRANCH, out);
    varint::write(UNCHANGED_TOAST, out);
}

/// Appends a column that the tuple does not have.
pub fn write_not_sent(out: &mut impl BufMut) {
    varint::write(ABSENT_BRANCH, out);
    varint::write(NOT_SENT, out);
}

fn write_bool(value: bool, out: &mut impl BufMut) {
    varint::write(VALUE_BRANCH, out);
    out.put_u8(value.into());
}

fn write_int(value: i64, out: &mut impl BufMut) {
    varint::write(VALUE_BRANCH, out);
    varint::write(value, out);
}

fn write_float4(value: f32, out: &mut impl BufMut) {
    varint::write(VALUE_BRANCH, out);
    out.put_f32_le(value);
}

fn write_float8(value: f64, out: &mut impl BufMut) {
    varint::write(VALUE_BRANCH, out);
    out.put_f64_le(value);
}

fn write_bytes(value: &[u8], out: &mut impl BufMut) {
    varint::write(VALUE_BRANCH, out);
    varint::write(value.len() as i64, out);
    out.put_slice(value);
}

fn fits(carrier: Carrier, value: i64) -> bool {
    match carrier {
        Carrier::Int2 => i16::try_from(value).is_ok(),
        Carrier::Int4 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// The values of a row, column by column, in the table's order.
///
/// Gives one item a column; after the last column one error more if bytes are left; after an
/// error nothing.
#[derive(Clone, Debug)]
pub struct Reader<'t, 'a> {
    columns: std::slice::Iter<'t, Column>,
    rest: &'a [u8],
    failed: bool,
}

impl<'t, 'a> Reader<'t, 'a> {
    /// Reads `row` as a row of `table`.
    pub fn new(table: &'t Table, row: &'a [u8]) -> Reader<'t, 'a> {
        Reader {
            columns: table.columns.iter(),
            rest: row,
            failed: false,
        }
    }

    #[inline(always)]
    fn value(&mut self, carrier: Carrier) -> Option<Value<'a>> {
        let rest = &mut self.rest;
        match varint::read(rest)? {
            NULL_BRANCH => return Some(Value::Null),
            VALUE_BRANCH => {}
            ABSENT_BRANCH => {
                return match varint::read(rest)? {
                    UNCHANGED_TOAST => Some(Value::Unchanged),
                    NOT_SENT => Some(Value::NotSent),
                    _ => None,
                };
            }
            _ => return None,
        }
        Some(match carrier {
            Carrier::Bool => match take::<1>(rest)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return None,
            },
            Carrier::Int2 | Carrier::Int4 | Carrier::Int8 => {
                let value = varint::read(rest)?;
                if !fits(carrier, value) {
                    return None;
                }
                Value::Int(value)
            }
            Carrier::Float4 => Value::Float4(f32::from_le_bytes(take(rest)?)),
            Carrier::Float8 => Value::Float8(f64::from_le_bytes(take(rest)?)),
            Carrier::Text | Carrier::Other => {
                Value::Text(std::str::from_utf8(varint::read_bytes(rest)?).ok()?)
            }
            Carrier::Bytea => Value::Bytes(varint::read_bytes(rest)?),
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*taken)
}

impl<'a> Iterator for Reader<'_, 'a> {
    type Item = Result<Value<'a>, ReadError>;

    // The consumer's innermost loop: a value handed over in memory costs more than reading it.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.columns.next() {
            Some(column) => {
                let value = self.value(column.carrier).ok_or_else(|| ReadError::Column {
                    column: column.name.clone(),
                    carrier: column.carrier,
                });
                self.failed = value.is_err();
                Some(value)
            }
            None if self.rest.is_empty() => None,
            None => {
                self.failed = true;
                Some(Err(ReadError::TrailingBytes(self.rest.len())))
            }
        }
    }
}
