//! Tests of the decoder from the outside, in one binary.

#![allow(clippy::unwrap_used)]

mod assembler;
mod describe;
mod encoder;
mod golden;
mod round_trip;
mod second;
mod stream;
