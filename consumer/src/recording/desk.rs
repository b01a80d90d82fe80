//! The consumer's side of recordings: the side session looks for requests and takes answers to
//! their row; the tenure, which has the engine, records.
//!
//! Between them are two cells that hold the newest word of each. A request that a tenure before
//! began is begun anew by the next one; whoever asks waits for one answer only.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use walbraid_apply::engine::Engine;

use super::Recording;
use crate::fence::Ownership;
use crate::policy::{Cause, Failure};

/// What is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wanted {
    id: Uuid,
    transactions: usize,
    until: Instant,
}

/// What is said of a request.
#[derive(Clone, Debug)]
enum Word {
    /// Recording has begun.
    Begun(Uuid),
    /// The recording, as JSON.
    Done(Uuid, String),
}

/// The tenure's end.
#[derive(Debug)]
pub(crate) struct Recorder {
    wanted: watch::Receiver<Option<Wanted>>,
    word: watch::Sender<Option<Word>>,
    records: Option<Wanted>,
}

/// The side session's end.
#[derive(Debug)]
pub(crate) struct Desk {
    wanted: watch::Sender<Option<Wanted>>,
    word: watch::Receiver<Option<Word>>,
    /// What was said last could not be written for a moment.
    untold: bool,
    /// It may not be read or written: said once.
    refused: bool,
}

/// Both ends.
pub(crate) fn open() -> (Recorder, Desk) {
    let (wanted, is_wanted) = watch::channel(None);
    let (word, is_said) = watch::channel(None);
    let recorder = Recorder {
        wanted: is_wanted,
        word,
        records: None,
    };
    let desk = Desk {
        wanted,
        word: is_said,
        untold: false,
        refused: false,
    };
    (recorder, desk)
}

impl Recorder {
    /// Begins what is newly wanted, and ends what is complete or whose time is over.
    pub(crate) fn look(&mut self, engine: &mut Engine, now_ms: u64) {
        if self.wanted.has_changed().unwrap_or_default() {
            self.records = *self.wanted.borrow_and_update();
            if let Some(Wanted {
                id, transactions, ..
            }) = self.records
            {
                engine.begin_recording(now_ms, transactions);
                self.word.send_replace(Some(Word::Begun(id)));
            }
        }
        let is_over = |wanted: &Wanted| Instant::now() >= wanted.until;
        if engine.recording_is_complete() || self.records.as_ref().is_some_and(is_over) {
            self.end(engine, now_ms);
        }
    }

    /// Ends what is being recorded.
    pub(crate) fn end(&mut self, engine: &mut Engine, now_ms: u64) {
        if let Some(recorded) = engine.end_recording()
            && let Some(Wanted { id, .. }) = self.records.take()
            && let Ok(text) = serde_json::to_string(&Recording::of(&recorded, now_ms))
        {
            self.word.send_replace(Some(Word::Done(id, text)));
        }
    }
}

impl Desk {
    /// Waits until the tenure has said something; for ever if nobody can.
    pub(crate) async fn said(&mut self) {
        if self.refused || self.word.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Takes what the tenure said last to the request's row.
    pub(crate) async fn tell(&mut self, sql: &Client, owner: &Ownership) -> Result<(), Failure> {
        let word = self.word.borrow_and_update().clone();
        let (id, recording) = match word {
            Some(Word::Begun(id)) => (id, None),
            Some(Word::Done(id, recording)) => (id, Some(recording)),
            None => return Ok(()),
        };
        let Ownership {
            lane_id,
            epoch,
            owner,
        } = owner;
        self.untold = true;
        let values: [&(dyn ToSql + Sync); 5] = [lane_id, epoch, owner, &id, &recording];
        let written = sql.execute(TELL, &values).await;
        self.untold = written.is_err();
        self.judge(written.map(drop).map_err(Failure::from))
    }

    /// True if the tenure has said something that was not told.
    pub(crate) fn has_news(&self) -> bool {
        !self.refused && (self.untold || self.word.has_changed().unwrap_or_default())
    }

    /// Looks for a request.
    pub(crate) async fn look(&mut self, sql: &Client, owner: &Ownership) -> Result<(), Failure> {
        if self.refused {
            return Ok(());
        }
        let row = match sql.query_opt(LOOK, &[&owner.lane_id]).await {
            Ok(row) => row,
            Err(error) => return self.judge(Err(error.into())),
        };
        let Some(row) = row else {
            return Ok(());
        };
        let (id, transactions, left_s) = (
            row.try_get(0)?,
            row.try_get::<_, i32>(1)?.unsigned_abs() as usize,
            row.try_get::<_, f64>(2)?,
        );
        let left = Duration::try_from_secs_f64(left_s).unwrap_or_default();
        let until = Instant::now() + left;
        self.wanted.send_if_modified(|wanted| {
            let is_new = wanted.is_none_or(|before| before.id != id);
            if is_new {
                *wanted = Some(Wanted {
                    id,
                    transactions,
                    until,
                });
            }
            is_new
        });
        Ok(())
    }

    /// That a recording cannot be had is no reason to stop a lane.
    fn judge(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Err(Failure::Transient(busy)) if busy.cause == Cause::Lock => Ok(()),
            Err(Failure::Definite(stop)) => {
                self.refused = true;
                let stop = stop.hint("Run walbraid setup, or grant what the documentation lists.");
                tracing::warn!("transactions cannot be recorded for walbraid dag: {stop}");
                Ok(())
            }
            other => other,
        }
    }
}

const LOOK: &str = "
SELECT request, transactions,
       extract(epoch FROM until - pg_catalog.clock_timestamp())::pg_catalog.float8
FROM walbraid.recordings
WHERE lane_id = $1 AND recording IS NULL AND until > pg_catalog.clock_timestamp()";

const TELL: &str = "
UPDATE walbraid.recordings
SET began_at = coalesce(began_at, pg_catalog.clock_timestamp()),
    recording = $5::text::pg_catalog.jsonb
WHERE lane_id = $1 AND request = $4
  AND EXISTS (SELECT FROM walbraid.lanes WHERE id = $1 AND epoch = $2 AND owner = $3)";
