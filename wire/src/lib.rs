//! One PostgreSQL connection: where to connect, TLS, authentication, framed messages.
//!
//! Owns everything between a connection string and the messages of PostgreSQL's protocol 3.0:
//! libpq's parameters, files and variables; sockets; TLS; the startup exchange; reading and
//! writing of messages in two halves that two tasks may use at once; replication commands and the
//! walsender's stream; and a tokio-postgres client over the same sockets for what is not hot.
//!
//! Does not own what SQL is sent, what pgoutput's messages mean, when something is confirmed or
//! tried again. It never reconnects by itself.
//!
//! Why not tokio-postgres alone: it has no CopyBoth, sends a Sync after every statement (an error
//! in a pipeline then leaves a hole), and its framed stream cannot be had.

mod authentication;
mod cancel;
mod certificate;
mod certificate_check;
mod connect;
mod connect_options;
mod connection;
mod conninfo;
mod environment;
mod error;
mod given;
mod message;
mod passfile;
mod receiver;
mod remedy;
pub mod replication;
mod sender;
mod server_error;
mod server_version;
mod session_target;
mod socket;
mod sql;
mod sqlstate;
mod startup;
mod tls;
mod tls_options;
mod transport;

pub use cancel::CancelToken;
pub use connect_options::ConnectOptions;
pub use connection::{Connection, TextRow};
pub use environment::Environment;
pub use error::Error;
pub use message::{BackendMessage, Command, CommandTag, DataRow, Field, TransactionStatus};
pub use receiver::Receiver;
pub use sender::{Bind, Format, Sender};
pub use server_error::{ServerError, Severity};
pub use server_version::ServerVersion;
pub use sql::{Sql, sql};
pub use sqlstate::SqlState;
pub use startup::{Replication, Startup};
