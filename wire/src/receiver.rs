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
use crate::server_error::ServerError;
use crate::transport::ReadHalf;

/// Room made for each read unless told otherwise.
const READ_BYTES: usize = 64 * 1024;

/// Reads what the server sends.
pub struct Receiver {
    half: ReadHalf,
    buffer: BytesMut,
    read_bytes: usize,
    /// Room for a large message was made and is still there.
    is_large: bool,
    ended: bool,
}

impl Receiver {
    pub(crate) fn new(half: ReadHalf, buffer: BytesMut) -> Receiver {
        Receiver {
            half,
            buffer,
            read_bytes: READ_BYTES,
            is_large: false,
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

    /// Why the server ended the session, if it said so; for a session on which writing failed.
    pub async fn farewell(&mut self) -> Option<Box<ServerError>> {
        loop {
            match self.next().await {
                Ok(BackendMessage::ErrorResponse(error)) if error.ends_session() => {
                    return Some(error);
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Bytes that are read and not yet taken.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn make_room(&mut self) -> Result<(), Error> {
        let missing = match message::header(&self.buffer)? {
            Some((_, length)) => (HEADER_BYTES + length).saturating_sub(self.buffer.len()),
            None => 0,
        };
        if self.is_large && missing == 0 && self.buffer.len() < self.read_bytes {
            // The room of a large message would otherwise be kept for good.
            let mut small = BytesMut::with_capacity(self.buffer.len() + self.read_bytes);
            small.extend_from_slice(&self.buffer);
            self.buffer = small;
            self.is_large = false;
        }
        let spare = self.buffer.capacity() - self.buffer.len();
        if missing > spare {
            // The whole message in one piece, and a little of what follows.
            self.buffer.reserve(missing.max(self.read_bytes));
            self.is_large |= missing > self.read_bytes;
        } else if missing == 0 && spare < self.read_bytes / 4 {
            self.buffer.reserve(self.read_bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::transport::Transport;

    /// A receiver and the other end of its socket.
    fn pair() -> (Receiver, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let (read, write) = Transport::Unix(near).split();
        // Nobody writes on this side.
        drop(write);
        (Receiver::new(read, BytesMut::new()), far)
    }

    #[tokio::test]
    async fn messages_in_pieces_of_any_size() {
        let stream = b"C\0\0\0\x0eUPDATE 12\0\x32\0\0\0\x04d\0\0\0\x08abcdZ\0\0\0\x05I".repeat(50);
        for piece in [1, 2, 3, 5, 7, 64, 1000, 100_000] {
            let (mut receiver, mut far) = pair();
            receiver.set_read_bytes(16);
            let stream = stream.clone();
            let writer = tokio::spawn(async move {
                for bytes in stream.chunks(piece) {
                    far.write_all(bytes).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let mut kinds = String::new();
            loop {
                match receiver.next().await {
                    Ok(BackendMessage::CommandComplete(tag)) => kinds.push_str(&tag.to_string()),
                    Ok(BackendMessage::BindComplete) => kinds.push('2'),
                    Ok(BackendMessage::CopyData(data)) => {
                        assert_eq!(&data[..], b"abcd");
                        kinds.push('d');
                    }
                    Ok(BackendMessage::ReadyForQuery(_)) => kinds.push('Z'),
                    Err(Error::Closed { source: None }) => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(kinds, "UPDATE 122dZ".repeat(50), "pieces of {piece}");
            writer.await.unwrap();
        }
    }

    /// The room for a large message is made once, and given back with it.
    #[tokio::test]
    async fn a_large_message_is_read_in_one_piece() {
        const LARGE_BYTES: usize = 32 * 1024 * 1024;
        let (mut receiver, mut far) = pair();
        let writer = tokio::spawn(async move {
            let mut header = vec![b'd'];
            header.extend_from_slice(&(LARGE_BYTES as u32 + 4).to_be_bytes());
            far.write_all(&header).await.unwrap();
            far.write_all(&vec![b'x'; LARGE_BYTES]).await.unwrap();
            far.write_all(b"Z\0\0\0\x05I").await.unwrap();
        });
        let message = receiver.next().await.unwrap();
        assert!(matches!(message, BackendMessage::CopyData(data) if data.len() == LARGE_BYTES));
        receiver.next().await.unwrap();
        writer.await.unwrap();
        assert!(matches!(
            receiver.next().await,
            Err(Error::Closed { source: None })
        ));
        assert!(receiver.buffer.capacity() <= 2 * READ_BYTES);
    }
}
