//! What a walsender sends: WAL data and keepalives, read at the right moment.
//!
//! **When to read.** pgoutput makes one send for each message. A reader that is woken by each of
//! them quadruples the walsender's cost, one that pauses loses latency when little happens. So:
//! eager while idle, coalescing while behind. The reader goes over to coalescing after some reads
//! in a row that each followed on the one before within a pause, and back when a pause has brought
//! nothing. While it pauses, the socket's low-water mark is raised, so that the kernel wakes nobody
//! for each message (epoll would, pause or not); the pause ends by time alone.
//!
//! A call that is dropped in the middle loses nothing, the pause included.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;

use bytes::{Buf, Bytes};
use tokio::time::{Duration, Instant};
use walbraid_schemas::Lsn;

use crate::error::Error;
use crate::message::BackendMessage;
use crate::receiver::Receiver;
use crate::server_error::{ServerError, Severity};
use crate::socket::set_low_water;
use crate::sqlstate::SqlState;

/// How long a reader that is behind lets messages gather.
const PAUSE: Duration = Duration::from_millis(1);
/// Reads in a row, each within a pause of the one before, that make a reader coalesce.
const BUSY_READS: u32 = 16;
/// Room for each read: what a walsender writes in a pause and more.
const READ_BYTES: usize = 1024 * 1024;
/// Low-water mark of the socket during a pause.
const PAUSED_LOW_WATER_BYTES: i32 = 512 * 1024;

/// A piece of the walsender's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationMessage {
    /// A message of the output plugin.
    XLogData(XLogData),
    /// A sign of life.
    Keepalive(Keepalive),
    /// The server has ended the replication in the ordinary way.
    End,
}

/// A message of the output plugin.
#[derive(Clone, PartialEq, Eq)]
pub struct XLogData {
    /// WAL position of what it is about; not monotonic.
    pub start: Lsn,
    /// The same as `start` for logical slots.
    pub end: Lsn,
    /// The server's clock, microseconds since 2000.
    pub server_time_us: i64,
    /// The message.
    pub data: Bytes,
}

impl std::fmt::Debug for XLogData {
    /// Rows do not belong into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XLogData({}, {} bytes)", self.start, self.data.len())
    }
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Everything up to here was decoded and sent.
    pub wal_end: Lsn,
    /// The server's clock, microseconds since 2000.
    pub server_time_us: i64,
    /// The server wants a status update now, or it will end the session.
    pub reply_requested: bool,
}

/// How the reader behaves.
enum Pace {
    /// Reads whatever comes; counts the reads in a row that followed closely on another.
    Eager {
        busy_reads: u32,
        last_read: Option<Instant>,
    },
    /// Lets messages gather until then.
    Pausing { until: Instant },
    /// The pause was over then: what has gathered is read until nothing is left.
    Gathered { since: Instant, has_read: bool },
}

/// Reads what a walsender sends.
pub struct ReplicationReceiver {
    receiver: Receiver,
    socket: OwnedFd,
    pace: Pace,
}

/// From 18 on a publication that does not exist at a place of the WAL is a warning there, and the
/// stream goes on without its tables (`LoadPublications` in pgoutput.c). Before it was an error,
/// and here it is one still: what is left out is lost.
fn leaves_out(notice: &ServerError) -> bool {
    notice.severity == Severity::Warning
        && notice.sqlstate == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
}

impl ReplicationReceiver {
    pub(super) fn new(mut receiver: Receiver, socket: OwnedFd) -> ReplicationReceiver {
        receiver.set_read_bytes(READ_BYTES);
        let pace = Pace::Eager {
            busy_reads: 0,
            last_read: None,
        };
        ReplicationReceiver {
            receiver,
            socket,
            pace,
        }
    }

    /// The next message; waits for it.
    pub async fn next(&mut self) -> Result<ReplicationMessage, Error> {
        loop {
            if let Some(message) = self.try_next()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// The next message if it has been read already; never waits.
    pub fn try_next(&mut self) -> Result<Option<ReplicationMessage>, Error> {
        loop {
            return match self.receiver.try_next()? {
                None => Ok(None),
                Some(BackendMessage::CopyData(data)) => decode(data).map(Some),
                Some(BackendMessage::CopyDone | BackendMessage::CommandComplete(_)) => {
                    Ok(Some(ReplicationMessage::End))
                }
                Some(BackendMessage::ErrorResponse(error)) => Err(Error::Server(error)),
                Some(BackendMessage::NoticeResponse(notice)) if leaves_out(&notice) => {
                    Err(Error::Server(notice))
                }
                Some(BackendMessage::NoticeResponse(notice))
                    if notice.severity == Severity::Warning =>
                {
                    tracing::warn!("publisher: {}", notice.message);
                    continue;
                }
                Some(BackendMessage::NoticeResponse(notice)) => {
                    tracing::debug!("walsender: {}", notice.message);
                    continue;
                }
                Some(BackendMessage::ParameterStatus { .. }) => continue,
                Some(other) => Err(Error::Protocol(format!("{other:?} during replication"))),
            };
        }
    }

    /// Reads once, at the pace that suits.
    async fn fill(&mut self) -> Result<(), Error> {
        if let Pace::Gathered { has_read: true, .. } = self.pace {
            // Over TLS one read brings one record: more may be there, but it is not waited for.
            match self.fill_at_once().await {
                Some(filled) => return filled,
                None => self.pace = self.pause(Instant::now()),
            }
        }
        if let Pace::Pausing { until } = self.pace {
            tokio::time::sleep_until(until).await;
            set_low_water(&self.socket, 1);
            self.pace = Pace::Gathered {
                since: Instant::now(),
                has_read: false,
            };
        }
        self.receiver.fill().await?;
        let now = Instant::now();
        self.pace = match self.pace {
            Pace::Gathered { since, .. } if now.duration_since(since) < PAUSE => Pace::Gathered {
                since,
                has_read: true,
            },
            // Nothing had gathered: idle again.
            Pace::Gathered { .. } | Pace::Pausing { .. } => Pace::Eager {
                busy_reads: 0,
                last_read: Some(now),
            },
            Pace::Eager {
                busy_reads,
                last_read,
            } => {
                let close = last_read.is_some_and(|last| now.duration_since(last) < PAUSE);
                match if close { busy_reads + 1 } else { 0 } {
                    BUSY_READS => self.pause(now),
                    busy_reads => Pace::Eager {
                        busy_reads,
                        last_read: Some(now),
                    },
                }
            }
        };
        Ok(())
    }

    /// Reads what is there without waiting; nothing when nothing is there.
    async fn fill_at_once(&mut self) -> Option<Result<(), Error>> {
        let mut fill = pin!(self.receiver.fill());
        let polled = poll_fn(|cx| Poll::Ready(fill.as_mut().poll(cx))).await;
        match polled {
            Poll::Ready(filled) => Some(filled.map(|_| ())),
            Poll::Pending => None,
        }
    }

    fn pause(&self, now: Instant) -> Pace {
        set_low_water(&self.socket, PAUSED_LOW_WATER_BYTES);
        Pace::Pausing { until: now + PAUSE }
    }
}

fn decode(mut data: Bytes) -> Result<ReplicationMessage, Error> {
    let refuse = |_| Error::Protocol("a replication message that is cut short".to_owned());
    match data.try_get_u8().map_err(refuse)? {
        b'w' => Ok(ReplicationMessage::XLogData(XLogData {
            start: Lsn(data.try_get_u64().map_err(refuse)?),
            end: Lsn(data.try_get_u64().map_err(refuse)?),
            server_time_us: data.try_get_i64().map_err(refuse)?,
            data,
        })),
        b'k' => {
            let keepalive = Keepalive {
                wal_end: Lsn(data.try_get_u64().map_err(refuse)?),
                server_time_us: data.try_get_i64().map_err(refuse)?,
                reply_requested: data.try_get_u8().map_err(refuse)? != 0,
            };
            if data.has_remaining() {
                return Err(Error::Protocol("a keepalive that is too long".to_owned()));
            }
            Ok(ReplicationMessage::Keepalive(keepalive))
        }
        other => {
            let kind = other.escape_ascii();
            Err(Error::Protocol(format!(
                "replication message '{kind}' is unknown"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_messages() {
        let check = |bytes: &[u8], expected: Result<ReplicationMessage, &str>| {
            let decoded = decode(Bytes::copy_from_slice(bytes)).map_err(|e| e.to_string());
            assert_eq!(
                decoded,
                expected.map_err(|text| format!("protocol error: {text}"))
            );
        };
        let mut wal = vec![b'w'];
        wal.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        wal.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 3]);
        wal.extend_from_slice(b"text");
        check(
            &wal,
            Ok(ReplicationMessage::XLogData(XLogData {
                start: Lsn(1),
                end: Lsn(2),
                server_time_us: 3,
                data: Bytes::from_static(b"text"),
            })),
        );
        let keepalive = [b'k', 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8, 1];
        check(
            &keepalive,
            Ok(ReplicationMessage::Keepalive(Keepalive {
                wal_end: Lsn(9),
                server_time_us: 8,
                reply_requested: true,
            })),
        );
        check(
            &keepalive[..17],
            Err("a replication message that is cut short"),
        );
        check(
            &[&keepalive[..], &[0]].concat(),
            Err("a keepalive that is too long"),
        );
        check(&wal[..20], Err("a replication message that is cut short"));
        check(b"x", Err("replication message 'x' is unknown"));
        check(b"", Err("a replication message that is cut short"));
    }
}
