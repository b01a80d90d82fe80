//! The writing half of a session: messages are collected and leave in one write.
//!
//! Every method but `send` only appends to the buffer; `send` writes all of it with as few system
//! calls as the kernel allows. A `send` that is dropped in the middle keeps the rest for the next
//! one. Encoding costs no allocation once the buffer has grown.
//!
//! What cannot be encoded (a zero byte in a name, a message beyond the protocol's limit) spoils
//! the sender: `send` reports it and nothing leaves any more, since a burst without one of its
//! messages would be another burst.
//!
//! Deadlock to know: a server that waits for us to read its answers does not read what we write.
//! A task that both reads and writes sends its bursts with `send_reading`, which keeps reading
//! into the receiver's buffer while it writes.

use tokio::io::AsyncWriteExt;

use crate::error::Error;
use crate::message::MESSAGE_BYTES_MAX;
use crate::receiver::Receiver;
use crate::transport::WriteHalf;

/// Room that is kept between bursts; what a larger burst needed is given back.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// How a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PostgreSQL's text form.
    Text,
    /// The type's binary form.
    Binary,
}

/// Writes to the server.
pub struct Sender {
    half: WriteHalf,
    buffer: Vec<u8>,
    sent_bytes: usize,
    refused: Option<&'static str>,
}

impl Sender {
    pub(crate) fn new(half: WriteHalf) -> Sender {
        Sender {
            half,
            buffer: Vec::with_capacity(8 * 1024),
            sent_bytes: 0,
            refused: None,
        }
    }

    /// The socket.
    pub(crate) fn into_half(self) -> WriteHalf {
        self.half
    }

    /// Query: one or more statements, simple protocol.
    pub fn query(&mut self, sql: &str) {
        self.message(b'Q', |body| body.c_string(sql));
    }

    /// Parse: prepares a statement under a name; types not given are found by the server.
    pub fn parse(&mut self, name: &str, sql: &str, types: &[u32]) {
        self.message(b'P', |body| {
            body.c_string(name);
            body.c_string(sql);
            body.count(types.len());
            for oid in types {
                body.bytes(&oid.to_be_bytes());
            }
        });
    }

    /// Bind: parameters for a prepared statement, on the unnamed portal; results come as text.
    ///
    /// `formats` is empty (all text), one (for all), or one for each parameter.
    pub fn bind<P: AsRef<[u8]>>(
        &mut self,
        statement: &str,
        formats: &[Format],
        parameters: impl IntoIterator<Item = Option<P>>,
    ) {
        let mut bind = self.bind_with(statement, formats);
        for parameter in parameters {
            match parameter {
                Some(value) => bind.value(value.as_ref()),
                None => bind.null(),
            }
        }
        bind.finish();
    }

    /// Bind, with the parameters written one by one straight into the buffer.
    pub fn bind_with(&mut self, statement: &str, formats: &[Format]) -> Bind<'_> {
        let start = self.buffer.len();
        let mut body = Body::begin(&mut self.buffer, b'B');
        body.c_string("");
        body.c_string(statement);
        body.count(formats.len());
        for format in formats {
            body.bytes(match format {
                Format::Text => &[0, 0],
                Format::Binary => &[0, 1],
            });
        }
        let refused = body.refused;
        let count_at = self.buffer.len();
        self.buffer.extend_from_slice(&[0, 0]);
        Bind {
            sender: self,
            start,
            count_at,
            count: 0,
            refused,
            finished: false,
        }
    }

    /// Execute: runs the unnamed portal; 0 rows means all.
    pub fn execute(&mut self, max_rows: u32) {
        self.message(b'E', |body| {
            body.c_string("");
            body.bytes(&max_rows.to_be_bytes());
        });
    }

    /// Describe: asks for the parameters and the columns of a prepared statement.
    pub fn describe_statement(&mut self, name: &str) {
        self.message(b'D', |body| {
            body.bytes(b"S");
            body.c_string(name);
        });
    }

    /// Close: forgets a prepared statement.
    pub fn close_statement(&mut self, name: &str) {
        self.message(b'C', |body| {
            body.bytes(b"S");
            body.c_string(name);
        });
    }

    /// Flush: the server sends what it has, without ending the implicit transaction.
    pub fn flush_request(&mut self) {
        self.buffer.extend_from_slice(&[b'H', 0, 0, 0, 4]);
    }

    /// Sync: ends the burst; the server answers ReadyForQuery, after an error only then.
    pub fn sync(&mut self) {
        self.buffer.extend_from_slice(&[b'S', 0, 0, 0, 4]);
    }

    /// CopyData.
    pub fn copy_data(&mut self, data: &[u8]) {
        self.message(b'd', |body| body.bytes(data));
    }

    /// CopyDone: no more copy data follows.
    pub fn copy_done(&mut self) {
        self.buffer.extend_from_slice(&[b'c', 0, 0, 0, 4]);
    }

    /// CopyFail: the copy is given up, for this reason.
    pub fn copy_fail(&mut self, reason: &str) {
        self.message(b'f', |body| body.c_string(reason));
    }

    /// Terminate: the session ends.
    pub fn terminate(&mut self) {
        self.buffer.extend_from_slice(&[b'X', 0, 0, 0, 4]);
    }

    /// Bytes collected and not yet written.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.sent_bytes
    }

    /// Writes all that was collected.
    pub async fn send(&mut self) -> Result<(), Error> {
        if let Some(reason) = self.refused {
            return Err(Error::Protocol(reason.to_owned()));
        }
        while let Some(rest) = self
            .buffer
            .get(self.sent_bytes..)
            .filter(|rest| !rest.is_empty())
        {
            match self.half.write(rest).await {
                Ok(0) => return Err(Error::Closed { source: None }),
                Ok(count) => self.sent_bytes += count,
                Err(error) => return Err(Error::lost(error)),
            }
        }
        self.half.flush().await.map_err(Error::lost)?;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES_MAX);
        self.sent_bytes = 0;
        Ok(())
    }

    /// Writes all that was collected and reads into the receiver's buffer meanwhile.
    ///
    /// For a task that owns both halves: whatever the burst's length, it cannot come to a stand
    /// with the server. An error of the receiver is left for its next read.
    pub async fn send_reading(&mut self, receiver: &mut Receiver) -> Result<(), Error> {
        let mut reading = true;
        let sending = self.send();
        tokio::pin!(sending);
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                filled = receiver.fill(), if reading => reading = filled.is_ok(),
            }
        }
    }

    /// Ends the session in the ordinary way.
    pub async fn close(mut self) -> Result<(), Error> {
        self.terminate();
        self.send().await?;
        self.half.shutdown().await.map_err(Error::lost)
    }

    fn message(&mut self, kind: u8, write: impl FnOnce(&mut Body<'_>)) {
        let mut body = Body::begin(&mut self.buffer, kind);
        write(&mut body);
        if let Some(reason) = body.end() {
            self.refused.get_or_insert(reason);
        }
    }
}

/// One message being appended.
struct Body<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    refused: Option<&'static str>,
}

impl<'a> Body<'a> {
    fn begin(buffer: &'a mut Vec<u8>, kind: u8) -> Body<'a> {
        let start = buffer.len();
        buffer.extend_from_slice(&[kind, 0, 0, 0, 0]);
        Body {
            buffer,
            start,
            refused: None,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn c_string(&mut self, text: &str) {
        if text.as_bytes().contains(&0) {
            self.refused = Some("a name or a statement holds a zero byte");
        }
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(0);
    }

    fn count(&mut self, count: usize) {
        match u16::try_from(count) {
            Ok(count) => self.buffer.extend_from_slice(&count.to_be_bytes()),
            Err(_) => self.refused = Some("more than 65535 parameters"),
        }
    }

    /// Writes the length, or takes the message back and says why.
    fn end(self) -> Option<&'static str> {
        end_message(self.buffer, self.start, self.refused)
    }
}

/// Writes the length of the message that began at `start`, or takes it back.
fn end_message(
    buffer: &mut Vec<u8>,
    start: usize,
    refused: Option<&'static str>,
) -> Option<&'static str> {
    let length = buffer.len() - start - 1;
    let refused = match refused {
        None if length > MESSAGE_BYTES_MAX => Some("a message beyond 1 GB"),
        other => other,
    };
    match (refused, buffer.get_mut(start + 1..start + 5)) {
        (None, Some(word)) => word.copy_from_slice(&(length as u32).to_be_bytes()),
        _ => buffer.truncate(start),
    }
    refused
}

/// A Bind whose parameters are being written. Dropped without `finish`, it was never there.
pub struct Bind<'a> {
    sender: &'a mut Sender,
    start: usize,
    count_at: usize,
    count: usize,
    refused: Option<&'static str>,
    finished: bool,
}

impl Bind<'_> {
    /// NULL.
    pub fn null(&mut self) {
        self.count += 1;
        self.sender
            .buffer
            .extend_from_slice(&(-1_i32).to_be_bytes());
    }

    /// A value in the parameter's format.
    pub fn value(&mut self, value: &[u8]) {
        self.count += 1;
        // Beyond 1 GB the whole message is refused, whatever stands in this word.
        self.sender
            .buffer
            .extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.sender.buffer.extend_from_slice(value);
    }

    /// A value that is written by the callee, for what has to be formatted anyway.
    pub fn value_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.count += 1;
        let at = self.sender.buffer.len();
        self.sender.buffer.extend_from_slice(&[0; 4]);
        write(&mut self.sender.buffer);
        let length = self.sender.buffer.len().saturating_sub(at + 4) as u32;
        if let Some(word) = self.sender.buffer.get_mut(at..at + 4) {
            word.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Ends the message.
    pub fn finish(mut self) {
        self.finished = true;
        let count = u16::try_from(self.count).unwrap_or_else(|_| {
            self.refused = Some("more than 65535 parameters");
            0
        });
        if let Some(word) = self.sender.buffer.get_mut(self.count_at..self.count_at + 2) {
            word.copy_from_slice(&count.to_be_bytes());
        }
        // No format codes for results: all text.
        self.sender.buffer.extend_from_slice(&[0, 0]);
        let refused = end_message(&mut self.sender.buffer, self.start, self.refused);
        if let Some(reason) = refused {
            self.sender.refused.get_or_insert(reason);
        }
    }
}

impl Drop for Bind<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.sender.buffer.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::transport::Transport;

    /// What leaves the socket after these calls.
    async fn sent(calls: impl FnOnce(&mut Sender)) -> Result<Vec<u8>, String> {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (_read, write) = Transport::Unix(near).split();
        let mut sender = Sender::new(write);
        calls(&mut sender);
        let pending_bytes = sender.pending_bytes();
        sender.send().await.map_err(|error| error.to_string())?;
        drop((sender, _read));
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes.len(), pending_bytes);
        Ok(bytes)
    }

    #[tokio::test]
    async fn the_bytes_of_messages() {
        async fn check(calls: impl FnOnce(&mut Sender), expected: &[u8]) {
            assert_eq!(
                sent(calls).await.unwrap().escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
        check(|s| s.query("SELECT 1"), b"Q\0\0\0\x0dSELECT 1\0").await;
        check(
            |s| s.parse("a", "B $1", &[23, 0]),
            b"P\0\0\0\x15a\0B $1\0\0\x02\0\0\0\x17\0\0\0\0",
        )
        .await;
        check(|s| s.parse("", "B", &[]), b"P\0\0\0\x09\0B\0\0\0").await;
        check(
            |s| s.bind("a", &[], [Some("xy"), None, Some("")]),
            b"B\0\0\0\x1b\0a\0\0\0\0\x03\0\0\0\x02xy\xff\xff\xff\xff\0\0\0\0\0\0",
        )
        .await;
        check(
            |s| s.bind("a", &[Format::Binary, Format::Text], [Some([1, 2])]),
            b"B\0\0\0\x17\0a\0\0\x02\0\x01\0\0\0\x01\0\0\0\x02\x01\x02\0\0",
        )
        .await;
        check(
            |s| {
                let mut bind = s.bind_with("", &[]);
                bind.value_with(|buffer| buffer.extend_from_slice(b"12"));
                bind.finish();
            },
            b"B\0\0\0\x12\0\0\0\0\0\x01\0\0\0\x0212\0\0",
        )
        .await;
        check(|s| s.execute(0), b"E\0\0\0\x09\0\0\0\0\0").await;
        check(|s| s.execute(7), b"E\0\0\0\x09\0\0\0\0\x07").await;
        check(|s| s.describe_statement("a"), b"D\0\0\0\x07Sa\0").await;
        check(|s| s.close_statement("a"), b"C\0\0\0\x07Sa\0").await;
        check(Sender::flush_request, b"H\0\0\0\x04").await;
        check(Sender::sync, b"S\0\0\0\x04").await;
        check(Sender::copy_done, b"c\0\0\0\x04").await;
        check(Sender::terminate, b"X\0\0\0\x04").await;
        check(|s| s.copy_data(b"abc"), b"d\0\0\0\x07abc").await;
        check(|s| s.copy_fail("no"), b"f\0\0\0\x07no\0").await;
        check(
            |s| {
                s.sync();
                let mut bind = s.bind_with("a", &[]);
                bind.value(b"given up");
                drop(bind);
                s.sync();
            },
            b"S\0\0\0\x04S\0\0\0\x04",
        )
        .await;
    }

    #[tokio::test]
    async fn what_cannot_be_encoded_is_refused() {
        async fn check(calls: impl FnOnce(&mut Sender), expected: &str) {
            assert_eq!(
                sent(calls).await,
                Err(format!("protocol error: {expected}"))
            );
        }
        let zero = "a name or a statement holds a zero byte";
        check(|s| s.query("a\0"), zero).await;
        check(|s| s.parse("a\0", "b", &[]), zero).await;
        check(|s| s.bind("a\0", &[], [Some("")]), zero).await;
        check(
            |s| s.bind("a", &[], vec![None::<&str>; 70_000]),
            "more than 65535 parameters",
        )
        .await;
    }
}
