//! The producer against real servers: what it writes into the lane, whatever happens to it.
//!
//! Each test has a database, a slot and a topic of its own (`place`). What is in the lane is read
//! with the chain's own reader, so that a hole, a double or a wrong order is what a consumer would
//! see.

#![allow(clippy::unwrap_used)]

mod carry;
mod faults;
mod foreign;
mod place;
mod restart;
mod stops;
