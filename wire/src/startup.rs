//! The first exchange of a session: startup packet, authentication, parameters, ready.
//!
//! Owns what is said before the first ReadyForQuery. Nothing the server says here is trusted: a
//! message longer than 64 KB, an authentication that ends before the server has proved itself
//! where it has to, or a method that `require_auth` does not allow, ends the attempt. An error is
//! sorted: SQLSTATE class 28 is authentication, any other is the server's.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authentication::{Authentication, Step};
use crate::connect::Link;
use crate::connect_options::ConnectOptions;
use crate::error::Error;
use crate::message::{self, BackendMessage, HEADER_BYTES};
use crate::server_error::ServerError;
use crate::transport::Transport;

/// No message before the session stands is longer.
const STARTUP_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Protocol version 3.0: all servers speak it, and nothing newer is needed.
const PROTOCOL_VERSION: i32 = 3 << 16;

/// Whether the session is one of a walsender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// An ordinary session.
    #[default]
    None,
    /// A walsender connected to a database: logical replication, and SQL too.
    Database,
    /// A walsender without a database.
    Physical,
}

/// What a session is to be, beside where it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Startup<'a> {
    /// Walsender or not.
    pub replication: Replication,
    /// Settings of the session, stronger than those of role, database and connection string.
    pub parameters: &'a [(&'a str, &'a str)],
    /// Size of the kernel's receive buffer, where the system grants it.
    pub receive_buffer_bytes: Option<usize>,
}

/// A session that stands.
pub(crate) struct Started {
    pub transport: Transport,
    pub buffer: BytesMut,
    pub parameters: BTreeMap<String, String>,
    pub process_id: i32,
    pub secret_key: Bytes,
}

/// Runs the exchange on an open link.
pub(crate) async fn run(
    link: Link,
    options: &ConnectOptions,
    startup: &Startup<'_>,
) -> Result<Started, Error> {
    let mut authentication = Authentication::new(&link, options);
    let mut exchange = Exchange {
        server: link.endpoint.name(),
        transport: link.transport,
        buffer: BytesMut::with_capacity(16 * 1024),
    };
    exchange.write(&startup_packet(options, startup)?).await?;
    exchange.authenticate(&mut authentication).await?;
    exchange.ready().await
}

fn startup_packet(options: &ConnectOptions, startup: &Startup<'_>) -> Result<Vec<u8>, Error> {
    let mut pairs = vec![("user", options.user.as_str())];
    match startup.replication {
        Replication::None => pairs.push(("database", &options.database)),
        Replication::Database => {
            pairs.push(("database", &options.database));
            pairs.push(("replication", "database"));
        }
        Replication::Physical => pairs.push(("replication", "true")),
    }
    pairs.push(("client_encoding", "UTF8"));
    pairs.extend(
        options
            .application_name
            .as_deref()
            .map(|name| ("application_name", name)),
    );
    pairs.extend(
        options
            .options
            .as_deref()
            .map(|options| ("options", options)),
    );
    pairs.extend(startup.parameters);
    let mut packet = vec![0; 4];
    packet.extend_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    for (name, value) in pairs {
        if name.contains('\0') || value.contains('\0') {
            return Err(Error::configuration(format!(
                "a zero byte in parameter \"{name}\""
            )));
        }
        packet.extend_from_slice(name.as_bytes());
        packet.push(0);
        packet.extend_from_slice(value.as_bytes());
        packet.push(0);
    }
    packet.push(0);
    let length = packet.len() as u32;
    packet[..4].copy_from_slice(&length.to_be_bytes());
    Ok(packet)
}

/// Reads and writes of the exchange.
struct Exchange {
    server: String,
    transport: Transport,
    buffer: BytesMut,
}

impl Exchange {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.transport
            .write_all(bytes)
            .await
            .map_err(|error| self.lost(error))?;
        self.transport
            .flush()
            .await
            .map_err(|error| self.lost(error))
    }

    fn lost(&self, source: std::io::Error) -> Error {
        Error::Unreachable {
            server: self.server.clone(),
            source,
        }
    }

    /// Waits until a whole message is in the buffer; says its kind and its body's length.
    async fn fill(&mut self) -> Result<(u8, usize), Error> {
        loop {
            if let Some((kind, length)) = message::header(&self.buffer)? {
                if length > STARTUP_MESSAGE_BYTES_MAX {
                    return Err(Error::Protocol(format!(
                        "message of {length} bytes from {} before the session stands",
                        self.server
                    )));
                }
                if self.buffer.len() >= HEADER_BYTES + length {
                    return Ok((kind, length));
                }
            }
            match self.transport.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    return Err(self.lost(std::io::Error::new(
                        std::io::ErrorKind::UnexpectedEof,
                        "server closed the connection unexpectedly",
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    async fn authenticate(&mut self, authentication: &mut Authentication<'_>) -> Result<(), Error> {
        loop {
            let (kind, length) = self.fill().await?;
            let body = self
                .buffer
                .split_to(HEADER_BYTES + length)
                .freeze()
                .slice(HEADER_BYTES..);
            match kind {
                b'R' => match authentication.step(&body)? {
                    Step::Done => return Ok(()),
                    Step::Wait => {}
                    Step::Answer(answer) => self.write(&answer).await?,
                },
                b'E' => return Err(self.refused(&body)),
                // NegotiateProtocolVersion: only servers before 3.0's last revision send it.
                b'v' | b'N' => {}
                other => {
                    return Err(Error::Protocol(format!(
                        "message '{}' while authenticating",
                        other.escape_ascii()
                    )));
                }
            }
        }
    }

    fn refused(&self, body: &[u8]) -> Error {
        let Some(error) = ServerError::parse(body) else {
            return Error::Protocol("an ErrorResponse that cannot be read".to_owned());
        };
        self.sorted(Box::new(error))
    }

    fn sorted(&self, error: Box<ServerError>) -> Error {
        if error.sqlstate.class() == "28" {
            let (server, message) = (self.server.clone(), error.message.clone());
            return Error::Authentication {
                server,
                message,
                error: Some(error),
            };
        }
        Error::Server(error)
    }

    async fn ready(mut self) -> Result<Started, Error> {
        let mut parameters = BTreeMap::new();
        let mut key = (0, Bytes::new());
        loop {
            self.fill().await?;
            match message::take(&mut self.buffer)? {
                Some(BackendMessage::BackendKeyData {
                    process_id,
                    secret_key,
                }) => {
                    key = (process_id, secret_key);
                }
                Some(BackendMessage::ParameterStatus { name, value }) => {
                    parameters.insert(name, value);
                }
                Some(BackendMessage::ErrorResponse(error)) => return Err(self.sorted(error)),
                Some(BackendMessage::NoticeResponse(notice)) => {
                    tracing::debug!(server = %self.server, "{}", notice.message);
                }
                Some(BackendMessage::ReadyForQuery(_)) => {
                    return Ok(Started {
                        transport: self.transport,
                        buffer: self.buffer,
                        parameters,
                        process_id: key.0,
                        secret_key: key.1,
                    });
                }
                other => {
                    return Err(Error::Protocol(format!(
                        "{other:?} before the session stands"
                    )));
                }
            }
        }
    }
}
