//! Backend messages: bytes of the server → one closed enum.
//!
//! The decoder is total: it consumes every byte of a message or refuses it, naming the kind of
//! the message. It neither reads nor writes sockets. Bodies that are handed on (rows, copy data)
//! are slices of the receive buffer, never copies; messages without a body cost no reference
//! count, and a CommandComplete is read in place, because a worker reads one for each change.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

use crate::error::Error;
use crate::server_error::ServerError;

/// Length of the kind byte and the length word.
pub(crate) const HEADER_BYTES: usize = 5;
/// The longest message that is accepted; PostgreSQL's own limit for a row is 1 GB.
pub(crate) const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// A message of the server after authentication.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendMessage {
    /// Process id and secret key, for a cancel request.
    BackendKeyData {
        /// Process id of the backend.
        process_id: i32,
        /// The secret that a cancel request has to know.
        secret_key: Bytes,
    },
    /// A Bind was done.
    BindComplete,
    /// A Close was done.
    CloseComplete,
    /// A statement was done.
    CommandComplete(CommandTag),
    /// Copy data of either direction.
    CopyData(Bytes),
    /// The server sends no more copy data.
    CopyDone,
    /// The server waits for copy data.
    CopyInResponse,
    /// The server will send copy data.
    CopyOutResponse,
    /// Copy data in both directions: replication.
    CopyBothResponse,
    /// A row.
    DataRow(DataRow),
    /// The statement was empty.
    EmptyQueryResponse,
    /// A statement failed, or the session.
    ErrorResponse(Box<ServerError>),
    /// The statement returns no rows.
    NoData,
    /// Something to know.
    NoticeResponse(Box<ServerError>),
    /// NOTIFY of another session.
    NotificationResponse {
        /// Who notified.
        process_id: i32,
        /// The channel.
        channel: String,
        /// The payload.
        payload: String,
    },
    /// Types of a statement's parameters.
    ParameterDescription(Vec<u32>),
    /// A setting and its value now.
    ParameterStatus {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
    },
    /// A Parse was done.
    ParseComplete,
    /// An Execute reached its row limit.
    PortalSuspended,
    /// The answer to a Sync, or the end of a simple query.
    ReadyForQuery(TransactionStatus),
    /// Names and types of the rows that follow.
    RowDescription(Vec<Field>),
}

/// Where the session stands, as ReadyForQuery says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// `I`: outside a transaction block.
    Idle,
    /// `T`: inside one.
    InTransaction,
    /// `E`: inside one that failed; only ROLLBACK helps.
    Failed,
}

/// What a statement was, without its row count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Command {
    Begin,
    Commit,
    Rollback,
    PrepareTransaction,
    CommitPrepared,
    RollbackPrepared,
    Insert,
    Update,
    Delete,
    Merge,
    Select,
    TruncateTable,
    Copy,
    Set,
    /// Any other, in the server's words.
    Other(Box<str>),
}

/// The tag of a CommandComplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// What was done.
    pub command: Command,
    /// To how many rows; nothing where the tag has no count.
    pub rows: Option<u64>,
}

impl CommandTag {
    fn parse(text: &[u8]) -> Option<CommandTag> {
        let (words, rows) = split_count(text);
        let command = match words {
            b"UPDATE" => Command::Update,
            // The word before the count is the oid of WITH OIDS times, always zero.
            b"INSERT 0" => Command::Insert,
            b"DELETE" => Command::Delete,
            b"SELECT" => Command::Select,
            b"BEGIN" => Command::Begin,
            b"COMMIT" => Command::Commit,
            b"ROLLBACK" => Command::Rollback,
            b"PREPARE TRANSACTION" => Command::PrepareTransaction,
            b"COMMIT PREPARED" => Command::CommitPrepared,
            b"ROLLBACK PREPARED" => Command::RollbackPrepared,
            b"MERGE" => Command::Merge,
            b"TRUNCATE TABLE" => Command::TruncateTable,
            b"COPY" => Command::Copy,
            b"SET" => Command::Set,
            _ => Command::Other(std::str::from_utf8(words).ok()?.into()),
        };
        Some(CommandTag { command, rows })
    }
}

/// Splits a trailing number off a tag.
fn split_count(text: &[u8]) -> (&[u8], Option<u64>) {
    let Some(space) = text.iter().rposition(|&byte| byte == b' ') else {
        return (text, None);
    };
    let (words, digits) = (&text[..space], &text[space + 1..]);
    let mut rows: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return (text, None);
        }
        let next = rows
            .checked_mul(10)
            .and_then(|rows| rows.checked_add(u64::from(digit - b'0')));
        match next {
            Some(next) => rows = next,
            None => return (text, None),
        }
    }
    if digits.is_empty() {
        (text, None)
    } else {
        (words, Some(rows))
    }
}

impl fmt::Display for CommandTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match &self.command {
            Command::Begin => "BEGIN",
            Command::Commit => "COMMIT",
            Command::Rollback => "ROLLBACK",
            Command::PrepareTransaction => "PREPARE TRANSACTION",
            Command::CommitPrepared => "COMMIT PREPARED",
            Command::RollbackPrepared => "ROLLBACK PREPARED",
            Command::Insert => "INSERT 0",
            Command::Update => "UPDATE",
            Command::Delete => "DELETE",
            Command::Merge => "MERGE",
            Command::Select => "SELECT",
            Command::TruncateTable => "TRUNCATE TABLE",
            Command::Copy => "COPY",
            Command::Set => "SET",
            Command::Other(words) => words,
        };
        match self.rows {
            Some(rows) => write!(f, "{word} {rows}"),
            None => f.write_str(word),
        }
    }
}

/// A row: columns are looked up in its bytes when they are asked for.
#[derive(Clone, PartialEq)]
pub struct DataRow {
    /// Count word, then for each column its length (-1: NULL) and bytes. Checked when parsed.
    body: Bytes,
    columns: u16,
}

impl DataRow {
    fn parse(body: Bytes) -> Option<DataRow> {
        let mut rest: &[u8] = &body;
        let columns = u16::try_from(rest.try_get_i16().ok()?).ok()?;
        for _ in 0..columns {
            let length = rest.try_get_i32().ok()?;
            if length != -1 {
                rest = rest.get(usize::try_from(length).ok()?..)?;
            }
        }
        rest.is_empty().then_some(DataRow { body, columns })
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    /// True for a row without columns.
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// The columns in order; `None` is NULL.
    pub fn columns(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut rest: &[u8] = self.body.get(2..).unwrap_or_default();
        (0..self.columns).map(move |_| {
            let length = usize::try_from(rest.try_get_i32().unwrap_or(-1)).ok()?;
            let (column, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(column)
        })
    }

    /// One column; `None` is NULL, or no such column.
    pub fn column(&self, index: usize) -> Option<&[u8]> {
        self.columns().nth(index).flatten()
    }

    /// One column as text; `None` is NULL, no such column, or not UTF-8.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.column(index)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

impl fmt::Debug for DataRow {
    /// Values do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DataRow({} columns, {} bytes)",
            self.columns,
            self.body.len()
        )
    }
}

/// A column of a RowDescription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the column.
    pub name: String,
    /// Table it comes from, or 0.
    pub table_oid: u32,
    /// Attribute number there, or 0.
    pub attribute: i16,
    /// Type of the value.
    pub type_oid: u32,
    /// Length of the type; negative for variable length.
    pub type_length: i16,
    /// Modifier of the type.
    pub type_modifier: i32,
    /// True when the value comes in binary.
    pub binary: bool,
}

/// The kind and the body length of the message that the buffer begins with.
pub(crate) fn header(buffer: &[u8]) -> Result<Option<(u8, usize)>, Error> {
    let Some((&[kind, a, b, c, d], _)) = buffer.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
        let kind = kind.escape_ascii();
        return Err(Error::Protocol(format!(
            "message '{kind}' of impossible length {length}"
        )));
    }
    Ok(Some((kind, length - 4)))
}

/// Takes the next whole message out of the buffer, if there is one.
pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<BackendMessage>, Error> {
    let Some((kind, length)) = header(buffer)? else {
        return Ok(None);
    };
    if buffer.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    if length == 0
        && let Some(message) = without_body(kind)
    {
        buffer.advance(HEADER_BYTES);
        return Ok(Some(message));
    }
    if let Some(message) = in_place(kind, &buffer[HEADER_BYTES..HEADER_BYTES + length]) {
        buffer.advance(HEADER_BYTES + length);
        return Ok(Some(message));
    }
    buffer.advance(HEADER_BYTES);
    let body = buffer.split_to(length).freeze();
    with_body(kind, body).map(Some).ok_or_else(|| {
        let kind = kind.escape_ascii();
        Error::Protocol(format!("message '{kind}' of {length} bytes cannot be read"))
    })
}

fn without_body(kind: u8) -> Option<BackendMessage> {
    Some(match kind {
        b'1' => BackendMessage::ParseComplete,
        b'2' => BackendMessage::BindComplete,
        b'3' => BackendMessage::CloseComplete,
        b'c' => BackendMessage::CopyDone,
        b'I' => BackendMessage::EmptyQueryResponse,
        b'n' => BackendMessage::NoData,
        b's' => BackendMessage::PortalSuspended,
        _ => return None,
    })
}

/// The small messages of the hot path.
fn in_place(kind: u8, body: &[u8]) -> Option<BackendMessage> {
    match (kind, body) {
        (b'C', [text @ .., 0]) => Some(BackendMessage::CommandComplete(CommandTag::parse(text)?)),
        (b'Z', [status]) => Some(BackendMessage::ReadyForQuery(match status {
            b'I' => TransactionStatus::Idle,
            b'T' => TransactionStatus::InTransaction,
            b'E' => TransactionStatus::Failed,
            _ => return None,
        })),
        _ => None,
    }
}

fn with_body(kind: u8, body: Bytes) -> Option<BackendMessage> {
    let mut rest: &[u8] = &body;
    let message = match kind {
        b'd' => return Some(BackendMessage::CopyData(body)),
        b'D' => return DataRow::parse(body).map(BackendMessage::DataRow),
        b'E' => {
            return ServerError::parse(rest)
                .map(Box::new)
                .map(BackendMessage::ErrorResponse);
        }
        b'N' => {
            return ServerError::parse(rest)
                .map(Box::new)
                .map(BackendMessage::NoticeResponse);
        }
        b'G' => copy_formats(&mut rest).map(|()| BackendMessage::CopyInResponse)?,
        b'H' => copy_formats(&mut rest).map(|()| BackendMessage::CopyOutResponse)?,
        b'W' => copy_formats(&mut rest).map(|()| BackendMessage::CopyBothResponse)?,
        b'K' => {
            let process_id = rest.try_get_i32().ok()?;
            let secret_key = body.slice_ref(std::mem::take(&mut rest));
            BackendMessage::BackendKeyData {
                process_id,
                secret_key,
            }
        }
        b'A' => BackendMessage::NotificationResponse {
            process_id: rest.try_get_i32().ok()?,
            channel: text(&mut rest)?,
            payload: text(&mut rest)?,
        },
        b'S' => BackendMessage::ParameterStatus {
            name: text(&mut rest)?,
            value: text(&mut rest)?,
        },
        b't' => {
            let count = rest.try_get_i16().ok()?;
            // The count is a 16-bit word that may pass 32767 parameters.
            let types = (0..count as u16)
                .map(|_| rest.try_get_u32().ok())
                .collect::<Option<_>>();
            BackendMessage::ParameterDescription(types?)
        }
        b'T' => {
            let count = u16::try_from(rest.try_get_i16().ok()?).ok()?;
            let fields = (0..count).map(|_| field(&mut rest)).collect::<Option<_>>();
            BackendMessage::RowDescription(fields?)
        }
        _ => return None,
    };
    rest.is_empty().then_some(message)
}

/// Format codes of a copy: no use is made of them.
fn copy_formats(rest: &mut &[u8]) -> Option<()> {
    let _overall = rest.try_get_u8().ok()?;
    let columns = usize::try_from(rest.try_get_i16().ok()?).ok()?;
    *rest = rest.get(columns * 2..)?;
    Some(())
}

fn field(rest: &mut &[u8]) -> Option<Field> {
    Some(Field {
        name: text(rest)?,
        table_oid: rest.try_get_u32().ok()?,
        attribute: rest.try_get_i16().ok()?,
        type_oid: rest.try_get_u32().ok()?,
        type_length: rest.try_get_i16().ok()?,
        type_modifier: rest.try_get_i32().ok()?,
        binary: rest.try_get_i16().ok()? == 1,
    })
}

/// A C string.
fn text(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|&byte| byte == 0)?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    Some(text)
}

#[cfg(test)]
mod tests;
