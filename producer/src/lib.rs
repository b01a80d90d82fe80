//! The producer: from a publisher's slot into a lane of the log.
//!
//! Owns everything between the walsender's connection and Kafka's acknowledgement: the slot, the
//! claim, the place in the log, decoding (in `walbraid-decode`), publishing, and what is confirmed
//! to the publisher. Does not know the consumer or the subscriber.
//!
//! The promise it keeps: nothing is confirmed to the publisher before Kafka has acknowledged it on
//! all in-sync replicas, and nothing is written to the log twice, out of order or with a hole, that
//! a reader of the chain would take for good.
//!
//! [`run`] is the producer; the other functions are what `setup`, `check`, `status` and `teardown`
//! ask of its side.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod before;
mod carry;
pub mod check;
mod claim;
mod claimed;
pub mod config;
pub mod finding;
mod heartbeat;
pub mod kafka;
pub mod lane;
mod metrics;
mod notice;
mod pipeline;
mod policy;
mod progress;
mod publish;
pub mod publisher;
mod question;
mod record;
mod registry;
mod retry;
mod session;
mod setup;
pub mod slot;
pub mod standing;
mod status;
mod tail;
pub mod topic;

pub use config::Config;
pub use finding::{Concern, Finding, Standing};
pub use pipeline::run;
pub use setup::{drop_subjects, first_heartbeat, reach_registry};
