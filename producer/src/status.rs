//! Standby status updates, sent by a task that nothing can block.
//!
//! Owns the sending half of the replication connection. Tells the publisher what was received and
//! what is confirmed, every `status_interval_ms`, whatever the reader of the slot and Kafka do: a
//! walsender that hears nothing for `wal_sender_timeout` ends the connection, and the transaction
//! that took so long would begin anew. What is confirmed stands still meanwhile.
//!
//! A newly confirmed LSN goes out with the next update; it only frees WAL. While the producer is
//! idle each update asks for a keepalive, so that a WAL position that moves without any published
//! transaction is known soon.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::Lsn;
use walbraid_wire::Error;
use walbraid_wire::replication::StatusSender;

/// How long the end of a session may take.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// What the publisher is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    /// WAL received.
    received: Lsn,
    /// WAL acknowledged by Kafka; zero while it is not known, which the server takes as no news.
    confirmed: Lsn,
    /// Nothing is pending: ask where the publisher's WAL stands.
    idle: bool,
    /// Counts the keepalives that asked for an answer at once.
    asked: u64,
}

/// Changes what the publisher is told.
#[derive(Debug, Clone)]
pub(crate) struct Teller(Arc<watch::Sender<Told>>);

impl Teller {
    /// What was received, and whether nothing is pending. Goes out with the next update.
    pub(crate) fn tell(&self, received: Lsn, idle: bool) {
        self.change(|told| (told.received, told.idle) = (received, idle));
    }

    /// What is confirmed. Goes out with the next update.
    pub(crate) fn confirm(&self, confirmed: Lsn) {
        self.change(|told| told.confirmed = confirmed);
    }

    /// The publisher wants an update now.
    pub(crate) fn answer(&self) {
        self.0.send_modify(|told| told.asked += 1);
    }

    /// Changes what is told without waking the task, which costs more than the change.
    fn change(&self, change: impl FnOnce(&mut Told)) {
        self.0.send_if_modified(|told| {
            change(told);
            false
        });
    }
}

/// The task that sends, and what it is to say.
pub(crate) struct Status {
    teller: Teller,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<StatusSender, Error>>>,
}

impl Status {
    /// Starts the task.
    pub(crate) fn spawn(sender: StatusSender, interval_ms: u64) -> Status {
        let (told, heard) = watch::channel(Told::default());
        let stop = CancellationToken::new();
        let interval = Duration::from_millis(interval_ms.max(1));
        let task = tokio::spawn(send(sender, heard, stop.clone(), interval));
        Status {
            teller: Teller(Arc::new(told)),
            stop,
            task: Some(task),
        }
    }

    /// What changes what the publisher is told.
    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// Waits until the task fails: the connection is lost. Loses nothing when dropped.
    pub(crate) async fn failed(&mut self) -> Error {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(Ok(_)) => Error::Closed { source: None },
            Ok(Err(error)) => error,
            Err(error) => Error::Protocol(format!("status task: {error}")),
        }
    }

    /// Sends a last update, so that the slot knows all that is confirmed, and ends the session. A
    /// server that takes neither in time is left alone.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        let ending = async {
            match self.task.as_mut()?.await {
                Ok(Ok(sender)) => sender.close().await.err(),
                Ok(Err(error)) => Some(error),
                Err(error) => Some(Error::Protocol(format!("status task: {error}"))),
            }
        };
        match tokio::time::timeout(CLOSE_TIME, ending).await {
            Ok(None) => self.task = None,
            Ok(Some(error)) => {
                self.task = None;
                tracing::debug!("replication connection ended: {error}");
            }
            Err(_) => tracing::debug!("replication connection did not end in time"),
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // Whoever is dropped without a close leaves no task behind, and says nothing more.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn send(
    mut sender: StatusSender,
    mut heard: watch::Receiver<Told>,
    stop: CancellationToken,
    interval: Duration,
) -> Result<StatusSender, Error> {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut answered = 0;
    let mut stopping = false;
    while !stopping {
        tokio::select! {
            () = stop.cancelled() => stopping = true,
            _ = ticks.tick() => {}
            asked = heard.wait_for(|told| told.asked != answered) => {
                if asked.is_err() {
                    return Ok(sender);
                }
            }
        }
        let told = *heard.borrow_and_update();
        answered = told.asked;
        let ask = told.idle && !stopping;
        sender
            .send(told.received, told.confirmed, told.confirmed, ask)
            .await?;
    }
    Ok(sender)
}
