//! Faults: processes, servers and networks that fail while the pipeline runs.
//!
//! Tests that stop servers use the stack that is held by one test at a time; the others have a
//! place on the shared stack, like scenarios.

#![allow(clippy::unwrap_used)]

#[path = "fault/kafka.rs"]
mod kafka;
#[path = "fault/limits.rs"]
mod limits;
#[path = "fault/network.rs"]
mod network;
#[path = "fault/processes.rs"]
mod processes;
#[path = "fault/publisher.rs"]
mod publisher;
#[path = "fault/registry.rs"]
mod registry;
#[path = "fault/settings.rs"]
mod settings;
#[path = "fault/stops.rs"]
mod stops;
#[path = "fault/subscriber.rs"]
mod subscriber;
#[path = "fault/zombies.rs"]
mod zombies;
