//! Who waits for whose lock: asked of the subscriber on a session of its own.
//!
//! A unit that runs ahead keeps its locks until its turn to commit comes. If an earlier one waits
//! for such a lock, the server sees no deadlock, because the turn is kept here; so the engine asks
//! (`Action::AskBlocked`) when the head takes longer than a moment. `pg_blocking_pids` knows of
//! every kind of lock, also of the wait for the end of a transaction that wrote the same key.
//!
//! The session is opened at the first question, and answers one question at a time: one that comes
//! meanwhile is not needed, the engine asks again. It holds no lock of the lane and writes nothing;
//! losing it loses nothing, so it is opened anew. Where nobody answers, the engine has its own way
//! out, which costs more; so that is told, once.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use walbraid_apply::event::Event;
use walbraid_apply::scheduler::WorkerId;
use walbraid_wire::{ConnectOptions, Sql};

use crate::flusher::{self, in_time};
use crate::policy::Failure;

/// Pairs of one that waits and one that it waits for, by their places in $1; through sessions of
/// others too: a CREATE INDEX that waits for a later unit makes an earlier one wait behind itself.
const BLOCKED: &str = "
WITH RECURSIVE worker (pid, place) AS (
    SELECT pid, place FROM unnest($1::int4[]) WITH ORDINALITY one (pid, place)
), waits (place, pid) AS (
    SELECT w.place, b.pid
    FROM worker w CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) b (pid)
    UNION
    SELECT w.place, b.pid
    FROM waits w CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) b (pid)
)
SELECT waits.place - 1, worker.place - 1
FROM waits JOIN worker USING (pid) WHERE worker.place <> waits.place";

/// The session, and what is asked on it.
pub(crate) struct Locks {
    options: ConnectOptions,
    name: String,
    answer_limit: Option<Duration>,
    events: mpsc::UnboundedSender<Event>,
    task: Option<(mpsc::Sender<Vec<i32>>, JoinHandle<()>)>,
}

impl Locks {
    /// Nothing is opened yet.
    pub(crate) fn new(
        options: ConnectOptions,
        name: String,
        answer_limit: Option<Duration>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            options,
            name,
            answer_limit,
            events,
            task: None,
        }
    }

    /// Asks about the workers with these server processes; their places are their numbers.
    pub(crate) fn ask(&mut self, processes: Vec<i32>) {
        // A task that is gone panicked; the next one may do better.
        self.task.take_if(|(_, task)| task.is_finished());
        let (questions, _) = self.task.get_or_insert_with(|| {
            let (questions, asked) = mpsc::channel(1);
            let answering = Answering {
                options: self.options.clone(),
                name: self.name.clone(),
                answer_limit: self.answer_limit,
                session: None,
                is_told: false,
            };
            let task = tokio::spawn(answering.run(asked, self.events.clone()));
            (questions, task)
        });
        // If there is no room, a question is being answered already.
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

/// What answers.
struct Answering {
    options: ConnectOptions,
    name: String,
    answer_limit: Option<Duration>,
    session: Option<Sql>,
    /// It was told that nobody answers.
    is_told: bool,
}

impl Answering {
    async fn run(
        mut self,
        mut asked: mpsc::Receiver<Vec<i32>>,
        events: mpsc::UnboundedSender<Event>,
    ) {
        while let Some(processes) = asked.recv().await {
            let session = self.session.take();
            let answer = blocked(&self.options, &self.name, session, &processes);
            match in_time(self.answer_limit, answer).await {
                Ok((session, waits)) => {
                    self.session = Some(session);
                    if std::mem::take(&mut self.is_told) {
                        tracing::info!("the subscriber tells again who waits for whose lock");
                    }
                    let _ = events.send(Event::Blocked { waits });
                }
                Err(failure) => {
                    let message = failure.into_stop().message;
                    if !std::mem::replace(&mut self.is_told, true) {
                        tracing::warn!(
                            "the subscriber does not tell who waits for whose lock: {message}"
                        );
                    }
                }
            }
        }
    }
}

async fn blocked(
    options: &ConnectOptions,
    name: &str,
    session: Option<Sql>,
    processes: &[i32],
) -> Result<(Sql, Vec<(WorkerId, WorkerId)>), Failure> {
    let session = match session {
        Some(session) => session,
        None => flusher::open(options, name).await?,
    };
    let mut waits = Vec::new();
    for row in session.query(BLOCKED, &[&processes]).await? {
        let place = |column| -> Result<WorkerId, Failure> {
            let place: i64 = row.try_get(column)?;
            Ok(WorkerId(usize::try_from(place).unwrap_or(usize::MAX)))
        };
        waits.push((place(0)?, place(1)?));
    }
    Ok((session, waits))
}
