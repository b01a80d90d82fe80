//! The key resolver: what the overlay knows, what is read when, and who waits for it.

#![allow(clippy::unwrap_used)]

mod model;
mod stories;
