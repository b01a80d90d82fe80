//! Who waits for whose lock: asked of the subscriber on a session of its own.
//!
//! A unit that runs ahead keeps its locks until its turn to commit comes. If an earlier one waits
//! for such a lock, the server sees no deadlock, because the turn is kept here; so the engine asks
//! (`Action::AskBlocked`) when the head takes longer than a moment. `pg_blocking_pids` knows of
//! every kind of lock, also of the wait for the end of a transaction that wrote the same key.
//!
//! The session is opened at the first question, and answers one question at a time: one that comes
//! meanwhile is not needed, the engine asks again. It holds no lock of the lane and writes nothing;
//! losing it loses nothing, so it is opened anew.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_wire::{ConnectOptions, Sql};

use crate::flusher;
use crate::policy::Failure;

/// Pairs of one that waits and one that it waits for, by their places in $1.
const BLOCKED: &str = "
SELECT w.place - 1, b.place - 1
FROM unnest($1::int4[]) WITH ORDINALITY w (pid, place)
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) blocking (pid)
JOIN unnest($1::int4[]) WITH ORDINALITY b (pid, place) ON b.pid = blocking.pid";

/// The session, and what is asked on it.
pub(crate) struct Locks {
    options: ConnectOptions,
    name: String,
    events: mpsc::UnboundedSender<Event>,
    task: Option<(mpsc::Sender<Vec<i32>>, JoinHandle<()>)>,
}

impl Locks {
    /// Nothing is opened yet.
    pub(crate) fn new(
        options: ConnectOptions,
        name: String,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            options,
            name,
            events,
            task: None,
        }
    }

    /// Asks about the workers with these server processes; their places are their numbers.
    pub(crate) fn ask(&mut self, processes: Vec<i32>) {
        let (questions, _) = self.task.get_or_insert_with(|| {
            let (questions, asked) = mpsc::channel(1);
            let work = answer(
                self.options.clone(),
                self.name.clone(),
                asked,
                self.events.clone(),
            );
            (questions, tokio::spawn(work))
        });
        // A question is being answered already.
        let _ = questions.try_send(processes);
    }

    /// Ends and awaits the session.
    pub(crate) async fn end(&mut self) {
        if let Some((questions, task)) = self.task.take() {
            drop(questions);
            task.abort();
            let _ = task.await;
        }
    }
}

async fn answer(
    options: ConnectOptions,
    name: String,
    mut asked: mpsc::Receiver<Vec<i32>>,
    events: mpsc::UnboundedSender<Event>,
) {
    let mut session = None;
    while let Some(processes) = asked.recv().await {
        match blocked(&options, &name, &mut session, &processes).await {
            Ok(waits) if waits.is_empty() => {}
            Ok(waits) => {
                let _ = events.send(Event::Blocked { waits });
            }
            Err(failure) => {
                session = None;
                let message = failure.into_stop().message;
                tracing::debug!("who waits for whom is not known: {message}");
            }
        }
    }
}

async fn blocked(
    options: &ConnectOptions,
    name: &str,
    session: &mut Option<Sql>,
    processes: &[i32],
) -> Result<Vec<(WorkerId, WorkerId)>, Failure> {
    let session = match session {
        Some(session) => session,
        None => session.insert(flusher::open(options, name).await?),
    };
    let mut waits = Vec::new();
    for row in session.query(BLOCKED, &[&processes]).await? {
        let place = |column| -> Result<WorkerId, Failure> {
            let place: i64 = row.try_get(column)?;
            Ok(WorkerId(usize::try_from(place).unwrap_or(usize::MAX)))
        };
        waits.push((place(0)?, place(1)?));
    }
    Ok(waits)
}
