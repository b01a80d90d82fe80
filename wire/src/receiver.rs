//! The reading half of a session.
//!
//! Owns the receive buffer and hands out whole messages. A call that is dropped in the middle
//! loses nothing: bytes are kept where the next call finds them. A message of 100 MB is read into
//! room of its own size, made once, so nothing is copied twice.
//!
//! An ErrorResponse is a message like others, not an error of this half. When the server ends the
//! session it says why first: that message comes out before `Error::Closed`.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::error::Error;
use crate::message::{self, BackendMessage, HEADER_BYTES};
use crate::transport::ReadHalf;

/// Room made for each read unless told otherwise.
const READ_BYTES: usize = 64 * 1024;

/// Reads what the server sends.
pub struct Receiver {
    half: ReadHalf,
    buffer: BytesMut,
    read_bytes: usize,
    ended: bool,
}

impl Receiver {
    pub(crate) fn new(half: ReadHalf, buffer: BytesMut) -> Receiver {
        Receiver {
            half,
            buffer,
            read_bytes: READ_BYTES,
            ended: false,
        }
    }

    /// The socket, and what was read from it and not taken.
    pub(crate) fn into_half(self) -> (ReadHalf, Bytes) {
        (self.half, self.buffer.freeze())
    }

    /// Makes so much room for each read.
    pub(crate) fn set_read_bytes(&mut self, read_bytes: usize) {
        self.read_bytes = read_bytes;
    }

    /// The next message; waits for it.
    pub async fn next(&mut self) -> Result<BackendMessage, Error> {
        loop {
            if let Some(message) = self.try_next()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// The next message if it has been read already; never waits.
    pub fn try_next(&mut self) -> Result<Option<BackendMessage>, Error> {
        message::take(&mut self.buffer)
    }

    /// Reads once from the socket into the buffer, at least one byte, and says how many.
    pub async fn fill(&mut self) -> Result<usize, Error> {
        if self.ended {
            return Err(Error::Closed { source: None });
        }
        self.make_room()?;
        match self.half.read_buf(&mut self.buffer).await {
            Ok(0) => {
                self.ended = true;
                Err(Error::Closed { source: None })
            }
            Ok(count) => Ok(count),
            Err(error) => {
                self.ended = true;
                Err(Error::lost(error))
            }
        }
    }

    /// Bytes that are read and not yet taken.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn make_room(&mut self) -> Result<(), Error> {
        let spare = self.buffer.capacity() - self.buffer.len();
        let missing = match message::header(&self.buffer)? {
            Some((_, length)) => (HEADER_BYTES + length).saturating_sub(self.buffer.len()),
            None => 0,
        };
        if missing > spare {
            // The whole message in one piece, and a little of what follows.
            self.buffer.reserve(missing.max(self.read_bytes));
        } else if spare < self.read_bytes / 4 && missing == 0 {
            self.buffer.reserve(self.read_bytes);
        }
        Ok(())
    }
}
