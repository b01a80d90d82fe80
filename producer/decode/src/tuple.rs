//! The tuple of a row message: columns that are null, unchanged, text or binary.
//!
//! A [`Tuple`] borrows the message. It is walked once when the message is parsed, which proves
//! every kind byte and every length, and again when its row is encoded; so no vector of columns is
//! ever built. Whether text is what its type says is the encoder's business, not ours.

use crate::cursor::Cursor;
use crate::message::Malformed;

/// One column of a tuple, as it lies in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datum<'a> {
    /// `n`. In a key tuple it also stands in the place of every column outside the key.
    Null,
    /// `u`: a toasted value that the UPDATE did not touch, and that is therefore not sent.
    Unchanged,
    /// `t`: the text of the type's output function.
    Text(&'a [u8]),
    /// `b`: the bytes of the type's send function.
    Binary(&'a [u8]),
}

/// A tuple whose bytes have been walked to the end once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    columns: u16,
    bytes: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// Takes one tuple off the cursor.
    pub(crate) fn parse(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let columns = cursor.u16("number of columns")?;
        let whole = cursor.rest();
        for _ in 0..columns {
            datum(cursor)?;
        }
        let length = whole.len() - cursor.rest().len();
        Ok(Self {
            columns,
            bytes: whole.get(..length).unwrap_or_default(),
        })
    }

    /// A tuple from its bytes as [`Tuple::build`] writes them, all of them.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let tuple = Self::parse(&mut cursor)?;
        cursor.end()?;
        Ok(tuple)
    }

    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The number of columns.
    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    /// Whether it has no column at all, as the rows of a table without columns do.
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// The size of the tuple in the message.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The columns from left to right.
    pub fn columns(&self) -> Columns<'a> {
        Columns {
            cursor: Cursor::new(self.bytes),
        }
    }
}

/// The columns of a tuple, in order.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Columns<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        if self.cursor.rest().is_empty() {
            return None;
        }
        // The tuple was walked when it was parsed: a failure cannot come.
        datum(&mut self.cursor).ok()
    }
}

#[inline]
fn datum<'a>(cursor: &mut Cursor<'a>) -> Result<Datum<'a>, Malformed> {
    match cursor.u8("kind of column")? {
        b'n' => Ok(Datum::Null),
        b'u' => Ok(Datum::Unchanged),
        b't' => {
            let length = cursor.length("length of column")?;
            Ok(Datum::Text(cursor.bytes("value of column", length)?))
        }
        b'b' => {
            let length = cursor.length("length of column")?;
            Ok(Datum::Binary(cursor.bytes("value of column", length)?))
        }
        _ => Err(Malformed::new("kind of column", "is none of n, u, t and b")),
    }
}

/// The old tuple of an UPDATE or DELETE: what the replica identity made the publisher log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// `K`: the columns of the replica identity's key; every other column is `n` and not a NULL.
    Key(Tuple<'a>),
    /// `O`: the whole old row (REPLICA IDENTITY FULL).
    Full(Tuple<'a>),
}

impl<'a> OldTuple<'a> {
    /// The tuple itself.
    pub fn tuple(&self) -> Tuple<'a> {
        match *self {
            Self::Key(tuple) | Self::Full(tuple) => tuple,
        }
    }
}
