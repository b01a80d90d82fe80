//! Carries a lane's transactions from Kafka to the subscriber.
//!
//! The shell around `walbraid-apply`: it reads Kafka, the registry and the subscriber's catalogue,
//! runs target transactions, and reports back. The engine decides, the shell does.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod burst;
pub mod catalogue;
pub mod client;
pub mod config;
pub mod explain;
pub mod fence;
pub mod fetch;
mod flight;
pub mod flusher;
pub mod group;
pub mod holder;
mod known;
mod lane;
mod locks;
mod loss;
mod mending;
pub mod metrics;
mod old_values;
pub mod origin;
pub mod pipeline;
pub mod policy;
mod pool;
mod prepared;
pub mod reason;
pub mod recording;
pub mod registry;
mod resolve;
pub mod schema;
pub mod seek;
mod session;
pub mod state;
pub mod status;
pub mod stream;
mod tenure;
mod topic;
mod worker;

pub use config::Config;
pub use pipeline::{run, run_with};
