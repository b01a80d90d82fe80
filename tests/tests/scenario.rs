//! Scenarios: the built binary carries what a user does, on real servers.
//!
//! Each test has a place of its own on the shared stack, so all of them run side by side.

#![allow(clippy::unwrap_used)]

#[path = "scenario/commands.rs"]
mod commands;
#[path = "scenario/dependence.rs"]
mod dependence;
#[path = "scenario/identity.rs"]
mod identity;
#[path = "scenario/log.rs"]
mod log;
#[path = "scenario/names.rs"]
mod names;
#[path = "scenario/parallel.rs"]
mod parallel;
#[path = "scenario/pipeline.rs"]
mod pipeline;
#[path = "scenario/shape.rs"]
mod shape;
#[path = "scenario/transactions.rs"]
mod transactions;
#[path = "scenario/truncate.rs"]
mod truncate;
#[path = "scenario/values.rs"]
mod values;
#[path = "scenario/versions.rs"]
mod versions;
