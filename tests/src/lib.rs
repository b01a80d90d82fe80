//! The harness of the tests that need real servers and the built binary.
//!
//! It owns: a stack (`stack`), a place of its own for each test on it (`bed`: databases, topic,
//! slot, stream), the processes under test (`process`) and their words for what passes by itself
//! (`trouble`), conditions with deadlines (`wait`), a TCP proxy for network faults (`proxy`), an
//! HTTP front that refuses (`front`), connections that use up a server (`walsender`), a
//! full disk (`disk`), the comparison of both sides (`oracle`), a reader that watches an invariant
//! (`watch`) and a load (`bank`).
//!
//! It does not own what is tested: it speaks to walbraid only as a user does, through the binary,
//! its configuration file, its exit codes and its logs. Failures of the harness are panics, because
//! the only caller is a test.

#![allow(clippy::unwrap_used)]

pub mod bank;
pub mod bed;
pub mod config;
pub mod disk;
pub mod front;
pub mod oracle;
pub mod process;
pub mod proxy;
pub mod session;
pub mod stack;
pub mod topic;
pub mod trouble;
pub mod wait;
pub mod walsender;
pub mod watch;
pub mod witness;
pub mod workspace;
