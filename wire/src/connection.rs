//! A session that is ready: its parameters, simple queries, and the way into its two halves.
//!
//! Owns what is asked and answered one after the other. What is pipelined or concurrent goes
//! through the halves that [`Connection::into_split`] gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::connect::{self, Link};
use crate::connect_options::ConnectOptions;
use crate::error::Error;
use crate::message::BackendMessage;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::server_version::ServerVersion;
use crate::session_target::{ServerState, SessionTarget};
use crate::startup::{self, Startup};

/// A session.
pub struct Connection {
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    pub(crate) socket: std::os::fd::OwnedFd,
    pub(crate) parameters: BTreeMap<String, String>,
    version: ServerVersion,
    cancel: CancelToken,
}

/// A row of a simple query, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct TextRow {
    names: Arc<[String]>,
    values: Vec<Option<String>>,
}

impl TextRow {
    /// The value of a column by name; `None` is NULL, or no such column.
    pub fn get(&self, name: &str) -> Option<&str> {
        let index = self.names.iter().position(|known| known == name)?;
        self.value(index)
    }

    /// The value of a column by place; `None` is NULL, or no such column.
    pub fn value(&self, index: usize) -> Option<&str> {
        self.values.get(index)?.as_deref()
    }
}

impl std::fmt::Debug for TextRow {
    /// Values do not belong into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextRow({})", self.names.join(", "))
    }
}

impl Connection {
    /// Connects, encrypts, authenticates, and waits until the server is ready.
    pub async fn connect(
        options: &ConnectOptions,
        startup: &Startup<'_>,
    ) -> Result<Connection, Error> {
        connect::connect(options, startup).await
    }

    /// Makes a session out of an open link.
    pub(crate) async fn start(
        link: Link,
        options: &ConnectOptions,
        startup: &Startup<'_>,
    ) -> Result<Connection, Error> {
        let endpoint = link.endpoint.clone();
        let socket = link
            .transport
            .handle()
            .map_err(|error| endpoint.unreachable(error))?;
        let started = startup::run(link, options, startup).await?;
        let version = started
            .parameters
            .get("server_version")
            .map_or("", String::as_str);
        let version = ServerVersion::parse(version)?;
        let (read, write) = started.transport.split();
        let (process_id, secret_key) = (started.process_id, started.secret_key);
        Ok(Connection {
            receiver: Receiver::new(read, started.buffer),
            sender: Sender::new(write),
            socket,
            parameters: started.parameters,
            version,
            cancel: CancelToken::new(options.clone(), endpoint, process_id, secret_key),
        })
    }

    /// What the server says of itself; asked for only where somebody wants to know.
    pub(crate) async fn state(&mut self, target: SessionTarget) -> Result<ServerState, Error> {
        if target == SessionTarget::Any {
            return Ok(ServerState {
                read_only: false,
                standby: false,
            });
        }
        if let Some(state) = ServerState::reported(|name| self.parameter(name)) {
            return Ok(state);
        }
        let rows = self.simple_query(ServerState::QUERY).await?;
        let row = rows.first();
        let is_true = |index| row.and_then(|row| row.value(index)) == Some("true");
        Ok(ServerState {
            read_only: is_true(0),
            standby: is_true(1),
        })
    }

    /// The server's version.
    pub fn server_version(&self) -> ServerVersion {
        self.version
    }

    /// A setting that the server reports by itself (`TimeZone`, `in_hot_standby`, …).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Process id of the backend.
    pub fn backend_pid(&self) -> i32 {
        self.cancel.process_id()
    }

    /// What cancels the statement that runs on this session, from anywhere.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Runs one or more statements or one replication command; the rows of all of them.
    ///
    /// An error of the server is `Error::Server`, and the session can be used further unless it
    /// says otherwise. A command that starts a copy is a protocol error here. When the future is
    /// dropped in the middle, the session is good for nothing but closing.
    pub async fn simple_query(&mut self, sql: &str) -> Result<Vec<TextRow>, Error> {
        self.sender.query(sql);
        match self.sender.send_reading(&mut self.receiver).await {
            Ok(()) => {}
            Err(Error::Closed { source }) => {
                let farewell = self.receiver.farewell().await;
                return Err(farewell.map_or(Error::Closed { source }, Error::Server));
            }
            Err(error) => return Err(error),
        }
        let mut names: Arc<[String]> = Arc::new([]);
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.next_or(&mut failed).await? {
                BackendMessage::RowDescription(fields) => {
                    names = fields.into_iter().map(|field| field.name).collect();
                }
                BackendMessage::DataRow(row) => {
                    let values = row.columns().map(|column| {
                        column.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                    });
                    rows.push(TextRow {
                        names: Arc::clone(&names),
                        values: values.collect(),
                    });
                }
                BackendMessage::CommandComplete(_) | BackendMessage::EmptyQueryResponse => {}
                BackendMessage::ErrorResponse(error) => failed = Some(error),
                BackendMessage::ReadyForQuery(_) => {
                    return match failed {
                        None => Ok(rows),
                        Some(error) => Err(Error::Server(error)),
                    };
                }
                other => {
                    return Err(Error::Protocol(format!(
                        "{other:?} as answer to a simple query"
                    )));
                }
            }
        }
    }

    /// The next message that is an answer; an end of the session is told by its error.
    pub(crate) async fn next_or(
        &mut self,
        failed: &mut Option<Box<crate::ServerError>>,
    ) -> Result<BackendMessage, Error> {
        loop {
            match self.receiver.next().await {
                Ok(BackendMessage::ParameterStatus { name, value }) => {
                    self.parameters.insert(name, value);
                }
                Ok(BackendMessage::NoticeResponse(notice)) => {
                    tracing::debug!(pid = self.backend_pid(), "{}", notice.message);
                }
                Ok(BackendMessage::NotificationResponse { .. }) => {}
                Ok(message) => return Ok(message),
                Err(Error::Closed { source }) => {
                    return Err(match failed.take() {
                        Some(error) => Error::Server(error),
                        None => Error::Closed { source },
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The two halves, for use at the same time.
    pub fn into_split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }

    /// Ends the session in the ordinary way.
    pub async fn close(self) -> Result<(), Error> {
        match self.sender.close().await {
            // The other side may have gone first.
            Err(Error::Closed { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Connection(backend {}, PostgreSQL {})",
            self.backend_pid(),
            self.version
        )
    }
}
