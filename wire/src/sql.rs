//! SQL off the hot path: a tokio-postgres client over a session of this crate.
//!
//! The session is opened and authenticated here, like every other; the client is then handed a
//! stream that greets it as a server would that lets everybody in. So there is one place that
//! knows connection strings, TLS and passwords.
//!
//! Owns the task that drives the client's connection; [`Sql::close`] waits for its end, dropping
//! the value ends it at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use crate::cancel::CancelToken;
use crate::connect_options::ConnectOptions;
use crate::connection::Connection;
use crate::error::Error;
use crate::server_version::ServerVersion;
use crate::startup::Startup;
use crate::transport::{ReadHalf, WriteHalf};

/// A client, and the task that drives its connection.
pub struct Sql {
    client: Option<Client>,
    task: Option<JoinHandle<Result<(), Error>>>,
    version: ServerVersion,
    cancel: CancelToken,
}

/// Connects a client; the settings (name, value) hold for its session.
pub async fn sql(options: &ConnectOptions, settings: &[(&str, &str)]) -> Result<Sql, Error> {
    let startup = Startup {
        parameters: settings,
        ..Startup::default()
    };
    Connection::connect(options, &startup)
        .await?
        .into_sql()
        .await
}

impl Connection {
    /// A client on this session.
    pub async fn into_sql(self) -> Result<Sql, Error> {
        let (version, cancel) = (self.server_version(), self.cancel_token());
        let pid = self.backend_pid();
        let (read, unread) = self.receiver.into_half();
        let mut greeting = greeting(&self.parameters, pid);
        greeting.put(unread);
        let stream = GreetingStream {
            read,
            write: self.sender.into_half(),
            greeting: greeting.freeze(),
            greeted: false,
        };
        // Only the greeting reads these.
        let mut config = Config::new();
        config
            .user("greeted")
            .ssl_mode(tokio_postgres::config::SslMode::Disable);
        let (client, mut connection) = config.connect_raw(stream, NoTls).await?;
        let task = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message? {
                    tracing::debug!(pid, "{}", notice.message());
                }
            }
            Ok(())
        });
        Ok(Sql {
            client: Some(client),
            task: Some(task),
            version,
            cancel,
        })
    }
}

impl Sql {
    /// The server's version.
    pub fn server_version(&self) -> ServerVersion {
        self.version
    }

    /// Process id of the backend.
    pub fn backend_pid(&self) -> i32 {
        self.cancel.process_id()
    }

    /// What cancels the statement that runs on this session, from anywhere.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Ends the session and waits for the end.
    pub async fn close(mut self) -> Result<(), Error> {
        // The task ends when no client is left.
        self.client = None;
        match self.task.take() {
            None => Ok(()),
            Some(task) => task.await.unwrap_or(Err(Error::Closed { source: None })),
        }
    }
}

impl Deref for Sql {
    type Target = Client;

    fn deref(&self) -> &Client {
        match &self.client {
            Some(client) => client,
            None => unreachable!("only close takes the client, and it takes the value too"),
        }
    }
}

impl DerefMut for Sql {
    fn deref_mut(&mut self) -> &mut Client {
        match &mut self.client {
            Some(client) => client,
            None => unreachable!("only close takes the client, and it takes the value too"),
        }
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Sql(backend {}, PostgreSQL {})",
            self.backend_pid(),
            self.version
        )
    }
}

/// What a server says that asks for no password: ok, its parameters, its pid, ready.
fn greeting(parameters: &BTreeMap<String, String>, pid: i32) -> BytesMut {
    let mut out = BytesMut::new();
    let mut message = |kind: u8, body: &[u8]| {
        out.put_u8(kind);
        out.put_u32(body.len() as u32 + 4);
        out.put_slice(body);
    };
    message(b'R', &[0; 4]);
    for (name, value) in parameters {
        message(b'S', format!("{name}\0{value}\0").as_bytes());
    }
    // Cancelling goes through this crate, so the client needs no secret.
    let key = (i64::from(pid) << 32).to_be_bytes();
    message(b'K', &key);
    message(b'Z', b"I");
    out
}

/// The stream of a session that stands, with a greeting before it. What the client says before it
/// reads the greeting is its startup packet, which nobody wants any more.
struct GreetingStream {
    read: ReadHalf,
    write: WriteHalf,
    greeting: Bytes,
    greeted: bool,
}

impl AsyncRead for GreetingStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.greeted = true;
        if this.greeting.has_remaining() {
            let count = this.greeting.remaining().min(buffer.remaining());
            buffer.put_slice(&this.greeting.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.read).poll_read(cx, buffer)
    }
}

impl AsyncWrite for GreetingStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.greeted {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut this.write).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(cx)
    }
}
