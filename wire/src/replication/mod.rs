//! Replication commands of a walsender session.
//!
//! Owns IDENTIFY_SYSTEM, TIMELINE_HISTORY, creating, dropping and starting a slot, and their
//! answers. Does not own what pgoutput's messages mean, nor when a position is confirmed.

mod options;
mod receiver;
mod status;

use walbraid_schemas::Lsn;

use crate::connection::{Connection, TextRow};
use crate::error::Error;
use crate::message::BackendMessage;

pub use options::{OriginFilter, ReplicationOptions, SlotOptions, Snapshot, Streaming};
pub use receiver::{Keepalive, ReplicationMessage, ReplicationReceiver, XLogData};
pub use status::StatusSender;

use options::identifier;

/// The answer to IDENTIFY_SYSTEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemIdentity {
    /// The cluster's identity, in decimal.
    pub system_identifier: String,
    /// The timeline it is on.
    pub timeline: u32,
    /// The flushed WAL position (of a stand-by: the replayed one).
    pub wal_lsn: Lsn,
    /// The database of this session.
    pub database: Option<String>,
}

/// A slot just created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedSlot {
    /// Its name.
    pub name: String,
    /// Commits that end above it are delivered.
    pub consistent_point: Lsn,
    /// Name of the exported snapshot.
    pub snapshot: Option<String>,
}

/// One step of a timeline's history: at this position its ancestor was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineSwitch {
    /// The ancestor.
    pub timeline: u32,
    /// Where it was left.
    pub switch_lsn: Lsn,
}

impl Connection {
    /// IDENTIFY_SYSTEM.
    pub async fn identify_system(&mut self) -> Result<SystemIdentity, Error> {
        let row = self.one_row("IDENTIFY_SYSTEM").await?;
        Ok(SystemIdentity {
            system_identifier: column(&row, "systemid")?.to_owned(),
            timeline: parsed(&row, "timeline")?,
            wal_lsn: parsed(&row, "xlogpos")?,
            database: row.get("dbname").map(str::to_owned),
        })
    }

    /// TIMELINE_HISTORY: the ancestors of a timeline, oldest first. Timeline 1 has none.
    pub async fn timeline_history(&mut self, timeline: u32) -> Result<Vec<TimelineSwitch>, Error> {
        if timeline <= 1 {
            return Ok(Vec::new());
        }
        let row = self
            .one_row(&format!("TIMELINE_HISTORY {timeline}"))
            .await?;
        history(column(&row, "content")?)
    }

    /// CREATE_REPLICATION_SLOT, logical, decoded by pgoutput.
    ///
    /// Waits until every transaction that writes at this moment is over; a lock time-out ends the
    /// wait cleanly with SQLSTATE 55P03.
    pub async fn create_slot(
        &mut self,
        name: &str,
        options: &SlotOptions,
    ) -> Result<CreatedSlot, Error> {
        let command = options.command(self.server_version(), name)?;
        if let Some(milliseconds) = options.lock_timeout_ms {
            self.simple_query(&format!("SET lock_timeout = {milliseconds}"))
                .await?;
        }
        let created = self.one_row(&command).await;
        let row = match created {
            // Inside a transaction that uses the snapshot nothing more may be said.
            Ok(row) => row,
            Err(error) if options.lock_timeout_ms.is_some() && !error.ends_session() => {
                self.simple_query("RESET lock_timeout").await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        Ok(CreatedSlot {
            name: column(&row, "slot_name")?.to_owned(),
            consistent_point: parsed(&row, "consistent_point")?,
            snapshot: row.get("snapshot_name").map(str::to_owned),
        })
    }

    /// DROP_REPLICATION_SLOT; with `wait`, until it is not in use.
    pub async fn drop_slot(&mut self, name: &str, wait: bool) -> Result<(), Error> {
        let wait = if wait { " WAIT" } else { "" };
        let command = format!("DROP_REPLICATION_SLOT {}{wait}", identifier(name));
        self.simple_query(&command).await.map(|_| ())
    }

    /// START_REPLICATION; the session then belongs to the two halves.
    pub async fn start_replication(
        mut self,
        options: &ReplicationOptions,
    ) -> Result<(ReplicationReceiver, StatusSender), Error> {
        let command = options.command(self.server_version())?;
        self.sender.query(&command);
        self.sender.send().await?;
        match self.next_or(&mut None).await? {
            BackendMessage::CopyBothResponse => {}
            BackendMessage::ErrorResponse(error) => return Err(Error::Server(error)),
            other => {
                let message = format!("{other:?} as answer to START_REPLICATION");
                return Err(Error::Protocol(message));
            }
        }
        let receiver = ReplicationReceiver::new(self.receiver, self.socket);
        Ok((receiver, StatusSender::new(self.sender)))
    }

    async fn one_row(&mut self, command: &str) -> Result<TextRow, Error> {
        let rows = self.simple_query(command).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Error::Protocol(format!("no row as answer to {command}")))
    }
}

fn column<'a>(row: &'a TextRow, name: &str) -> Result<&'a str, Error> {
    row.get(name)
        .ok_or_else(|| Error::Protocol(format!("no column \"{name}\" in the answer")))
}

fn parsed<T: std::str::FromStr>(row: &TextRow, name: &str) -> Result<T, Error> {
    column(row, name)?
        .parse()
        .map_err(|_| Error::Protocol(format!("column \"{name}\" of the answer cannot be read")))
}

/// A history file: `timeline <tab> LSN <tab> reason` lines, comments and blank lines between.
fn history(text: &str) -> Result<Vec<TimelineSwitch>, Error> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace();
            let switch = (|| {
                let timeline = words.next()?.parse().ok()?;
                let switch_lsn = words.next()?.parse().ok()?;
                Some(TimelineSwitch {
                    timeline,
                    switch_lsn,
                })
            })();
            switch
                .ok_or_else(|| Error::Protocol("a timeline history that cannot be read".to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn timeline_histories() {
        let text = "1\t0/3000000\tno recovery target specified\n\n# x\n2\t1/AB\tbefore 2000\n";
        assert_eq!(
            history(text).unwrap(),
            [
                TimelineSwitch {
                    timeline: 1,
                    switch_lsn: Lsn(0x300_0000)
                },
                TimelineSwitch {
                    timeline: 2,
                    switch_lsn: Lsn(0x1_0000_00AB)
                },
            ]
        );
        assert_eq!(history("").unwrap(), []);
        assert!(history("x\t0/1\n").is_err());
        assert!(history("1\n").is_err());
    }
}
