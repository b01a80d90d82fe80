//! Standby status updates: what this side has written, flushed and applied.
//!
//! Belongs to a task of its own: sending neither waits for the receiver nor is it held up by a
//! sink. The server reads updates even while it waits to send (its walsender does so between
//! writes), so they flow while nobody reads its messages.

use std::time::{Duration, SystemTime};

use walbraid_schemas::Lsn;

use crate::error::Error;
use crate::sender::Sender;

/// 2000-01-01 in Unix time, the zero of PostgreSQL's clock.
const POSTGRES_EPOCH: Duration = Duration::from_secs(946_684_800);
const STATUS_BYTES: usize = 34;

/// Sends status updates.
pub struct StatusSender {
    sender: Sender,
}

impl StatusSender {
    pub(super) fn new(sender: Sender) -> StatusSender {
        StatusSender { sender }
    }

    /// Sends one update; the server keeps WAL from `flushed` on.
    pub async fn send(
        &mut self,
        written: Lsn,
        flushed: Lsn,
        applied: Lsn,
        reply_requested: bool,
    ) -> Result<(), Error> {
        let since = SystemTime::UNIX_EPOCH + POSTGRES_EPOCH;
        let now = SystemTime::now().duration_since(since).unwrap_or_default();
        let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        self.sender
            .copy_data(&update(written, flushed, applied, now_us, reply_requested));
        self.sender.send().await
    }

    /// Asks the server to end the replication; the receiver then reads until its end.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.sender.copy_done();
        self.sender.send().await
    }

    /// Ends the session at once.
    pub async fn close(self) -> Result<(), Error> {
        self.sender.close().await
    }
}

fn update(
    written: Lsn,
    flushed: Lsn,
    applied: Lsn,
    now_us: i64,
    reply_requested: bool,
) -> [u8; STATUS_BYTES] {
    let mut out = [0; STATUS_BYTES];
    out[0] = b'r';
    out[1..9].copy_from_slice(&written.0.to_be_bytes());
    out[9..17].copy_from_slice(&flushed.0.to_be_bytes());
    out[17..25].copy_from_slice(&applied.0.to_be_bytes());
    out[25..33].copy_from_slice(&now_us.to_be_bytes());
    out[33] = u8::from(reply_requested);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_update() {
        assert_eq!(
            update(Lsn(1), Lsn(2), Lsn(3), 4, true),
            [
                b'r', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0,
                0, 0, 0, 0, 0, 4, 1
            ]
        );
    }
}
