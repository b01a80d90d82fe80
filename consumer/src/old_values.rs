//! Old values of rows: read from the subscriber on a session of its own.
//!
//! The engine asks (`Action::ReadOldValues`) for rows whose old values are not on the wire. Each
//! read is one statement in a snapshot of its own, taken after every COMMIT that was reported. The
//! session writes what the log writes (the same text settings), sees every row or fails
//! (`row_security = off`), and finds each row by an index, as the workers do.
//!
//! The session is opened at the first read, and takes one read at a time. It holds no lock of the
//! lane and writes nothing; losing it loses nothing: the read is answered as failed, the engine
//! goes on without, and the next read opens it anew. That is told once, and once when it is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use walbraid_apply::event::Event;
use walbraid_apply::footprint::old_row;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::resolver::{self, OldRow, ReadId};
use walbraid_wire::{ConnectOptions, Sql, sql};

use crate::flusher::in_time;
use crate::metrics::LaneMetrics;
use crate::policy::Failure;
use crate::session::TEXT_SETTINGS;

/// Statements kept; beyond it the session is opened anew.
const STATEMENTS_MAX: usize = 1_000;

/// Settings of the session, besides those of text.
const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "pg_catalog"),
    ("row_security", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "off"),
    ("statement_timeout", "10000"),
    ("lock_timeout", "1000"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

/// A read.
struct Question {
    read: ReadId,
    table: Arc<Mapped>,
    keys: Vec<Vec<String>>,
}

/// What the session is opened with, and who is told.
#[derive(Clone)]
struct Plan {
    options: ConnectOptions,
    name: String,
    answer_limit: Option<Duration>,
    events: mpsc::UnboundedSender<Event>,
    metrics: LaneMetrics,
}

/// The session, and what is asked on it.
pub(crate) struct OldValues {
    plan: Plan,
    /// None once it has ended.
    task: Option<Task>,
    ended: bool,
}

type Task = (mpsc::UnboundedSender<Question>, JoinHandle<()>);

impl OldValues {
    /// Nothing is opened yet.
    pub(crate) fn new(
        options: ConnectOptions,
        name: String,
        answer_limit: Option<Duration>,
        (events, metrics): (mpsc::UnboundedSender<Event>, LaneMetrics),
    ) -> Self {
        let plan = Plan {
            options,
            name,
            answer_limit,
            events,
            metrics,
        };
        Self {
            plan,
            task: None,
            ended: false,
        }
    }

    /// Reads rows; the engine has one read of a table under way at a time.
    pub(crate) fn read(&mut self, read: ReadId, table: Arc<Mapped>, keys: Vec<Vec<String>>) {
        if self.ended {
            return;
        }
        let (questions, _) = self.task.get_or_insert_with(|| {
            let (questions, asked) = mpsc::unbounded_channel();
            (questions, tokio::spawn(answer(self.plan.clone(), asked)))
        });
        let _ = questions.send(Question { read, table, keys });
    }

    /// Ends and awaits the session.
    pub(crate) async fn end(&mut self) {
        self.ended = true;
        if let Some((questions, task)) = self.task.take() {
            drop(questions);
            task.abort();
            let _ = task.await;
        }
    }
}

/// The session and its statements, by table.
struct Session {
    sql: Sql,
    statements: HashMap<u64, (Statement, usize)>,
}

async fn answer(plan: Plan, mut asked: mpsc::UnboundedReceiver<Question>) {
    let mut session = None;
    let mut works = true;
    while let Some(question) = asked.recv().await {
        let began = Instant::now();
        let reading = rows(&plan, &mut session, &question);
        let rows = match in_time(plan.answer_limit, reading).await {
            Ok(rows) => Some(rows),
            Err(failure) => {
                session = None;
                let table = question.table.relation().sql();
                tell(&mut works, Some((failure, &table)));
                None
            }
        };
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let metrics = &plan.metrics;
        metrics.old_values_reads.inc();
        metrics.old_values_time.inc_by(took_us);
        match &rows {
            Some(_) => {
                let asked = question.keys.first().map_or(0, Vec::len);
                metrics.old_values_rows.inc_by(asked as u64);
                tell(&mut works, None);
            }
            None => {
                metrics.old_values_failed.inc();
            }
        }
        let read = question.read;
        let _ = plan.events.send(Event::OldValues {
            read,
            rows,
            took_us,
        });
    }
}

/// Says once that it does not work, and once that it does again. What the server says may hold a
/// row's value, and is told at debug level alone.
fn tell(works: &mut bool, failure: Option<(Failure, &str)>) {
    match failure {
        Some((failure, table)) if *works => {
            let stop = failure.into_stop();
            let reason = stop.kind.name();
            tracing::info!(
                table,
                reason,
                "old values cannot be read, tables that need them are applied in order"
            );
            tracing::debug!("old values cannot be read: {}", stop.message);
            *works = false;
        }
        None if !*works => {
            tracing::info!("old values are read again");
            *works = true;
        }
        _ => {}
    }
}

async fn rows(
    plan: &Plan,
    session: &mut Option<Session>,
    question: &Question,
) -> Result<Vec<OldRow>, Failure> {
    let Question { table, keys, .. } = question;
    session.take_if(|session| session.statements.len() >= STATEMENTS_MAX);
    let session = match session {
        Some(session) => session,
        None => session.insert(open(plan).await?),
    };
    let (statement, columns) = session.statement(table).await?;
    let parameters: Vec<&(dyn ToSql + Sync)> = keys.iter().map(|keys| keys as _).collect();
    let found = session.sql.query(&statement, &parameters).await?;
    let mut rows = Vec::with_capacity(found.len());
    for row in &found {
        let number: i64 = row.try_get(0)?;
        let texts: Vec<Option<&str>> = (1..=columns)
            .map(|column| row.try_get(column))
            .collect::<Result<_, _>>()?;
        rows.push(OldRow {
            place: usize::try_from(number - 1).unwrap_or(usize::MAX),
            hashes: old_row(table, &texts),
        });
    }
    Ok(rows)
}

async fn open(plan: &Plan) -> Result<Session, Failure> {
    let mut settings = [TEXT_SETTINGS, SETTINGS].concat();
    settings.push(("application_name", &plan.name));
    Ok(Session {
        sql: sql(&plan.options, &settings).await?,
        statements: HashMap::new(),
    })
}

impl Session {
    /// The statement that reads a table's rows, and how many columns it answers with.
    async fn statement(&mut self, table: &Mapped) -> Result<(Statement, usize), Failure> {
        if let Some(known) = self.statements.get(&table.id()) {
            return Ok(known.clone());
        }
        let query = resolver::query(table);
        let made = (self.sql.prepare(&query.sql).await?, query.columns);
        self.statements.insert(table.id(), made.clone());
        Ok(made)
    }
}
