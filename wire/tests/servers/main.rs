//! The connection against real servers.
//!
//! The servers come from the variables that `bin/stack env` prints, roles and certificates from
//! the same stack. Nothing is skipped: without servers every test fails and says so. What a
//! server's version does not have is a case of its own in each test, not a reason to pass.
#![allow(clippy::unwrap_used)]

mod authentication;
mod bursts;
mod large;
mod replication;
mod server;
mod session;
mod slots;
mod source;
mod sql;
mod tls;
