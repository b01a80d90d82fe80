//! From the records of a lane to what to run on the subscriber, and when to commit it.
//!
//! This crate is pure: events in, actions out. It knows no socket, no clock and no randomness; the
//! shell (`walbraid-consumer`) reads Kafka, talks to the subscriber, and reports back.
//!
//! Two halves:
//!
//! - **The engine** ([`engine::Engine`]) turns records into units, decides which worker runs what,
//!   in which order target transactions commit, what is a fact and what only a bad moment
//!   ([`rule`]), and which offset may be committed ([`frontier`]).
//! - **The statements** ([`statement`]) turn one change into SQL text and parameters, through the
//!   mapping ([`mapping`]) of the publisher's table to the subscriber's relation ([`relation`]).
//!
//! A worker holds both ends together: it is handed units, and asks [`statement::Builder`] for each
//! change's statement.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod action;
pub mod binding;
pub mod buffer;
pub mod conflict;
pub mod coordinator;
pub mod dag;
pub mod engine;
pub mod event;
pub mod failure;
pub mod footprint;
pub mod frontier;
pub mod generated;
pub mod keys;
pub mod lookup;
pub mod mapping;
pub mod missing;
pub mod number;
pub mod pace;
pub mod quote;
pub mod relation;
pub mod resolver;
pub mod rule;
pub mod scheduler;
pub mod state;
pub mod statement;
pub mod unit;
pub mod window;
