//! The log seen from outside: the chain under simulated producers, and the Avro forms against
//! other implementations.

#![allow(clippy::unwrap_used)]

mod avro;
mod chain;
mod lane;
mod others;
mod publisher;
mod random;
mod samples;
mod writer;
