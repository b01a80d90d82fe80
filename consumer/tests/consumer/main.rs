//! The consumer against a real subscriber, Kafka and registry; the log is written here, record by
//! record, with no producer.
//!
//! Servers are those of `bin/stack env`. Each test has a database, a topic and a group of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod apply;
mod away;
mod bed;
mod explain;
mod families;
mod fence;
mod fingerprint;
mod keys;
mod log;
mod member;
mod misfortune;
mod proxy;
mod resolver;
mod scalars;
mod schema;
mod silence;
mod texts;
mod trouble;
mod values;
