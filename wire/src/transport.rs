//! The socket under a connection: TCP, TCP with TLS, or a Unix socket, whole or in two halves.
//!
//! Invariant: both halves may be used at the same time from two tasks. Plain sockets are split by
//! the kernel and need no lock; over TLS the halves share the session behind tokio's lock, which
//! is held for one poll only, and reading never waits for writing: rustls keeps what it has to
//! answer (a key update) until the next write.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio_rustls::client::TlsStream;

/// A socket that carries one session.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Transport {
    /// A second handle of the socket, to set its options while it is in use.
    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        match self {
            Transport::Tcp(stream) => stream.as_fd().try_clone_to_owned(),
            Transport::Tls(stream) => stream.get_ref().0.as_fd().try_clone_to_owned(),
            Transport::Unix(stream) => stream.as_fd().try_clone_to_owned(),
        }
    }

    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Transport::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Transport::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (ReadHalf::Tls(read), WriteHalf::Tls(write))
            }
            Transport::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
        }
    }
}

/// The half that reads.
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Tls(tokio::io::ReadHalf<TlsStream<TcpStream>>),
    Unix(unix::OwnedReadHalf),
}

/// The half that writes.
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
    Unix(unix::OwnedWriteHalf),
}

/// Passes the polls of an enum of streams on to the stream it holds.
macro_rules! pass_read {
    ($name:ident, $($variant:ident),*) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($name::$variant(stream) => Pin::new(stream).poll_read(cx, buffer),)*
                }
            }
        }
    };
}

macro_rules! pass_write {
    ($name:ident, $($variant:ident),*) => {
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $($name::$variant(stream) => Pin::new(stream).poll_write(cx, bytes),)*
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($name::$variant(stream) => Pin::new(stream).poll_flush(cx),)*
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($name::$variant(stream) => Pin::new(stream).poll_shutdown(cx),)*
                }
            }
        }
    };
}

pass_read!(Transport, Tcp, Tls, Unix);
pass_write!(Transport, Tcp, Tls, Unix);
pass_read!(ReadHalf, Tcp, Tls, Unix);
pass_write!(WriteHalf, Tcp, Tls, Unix);
