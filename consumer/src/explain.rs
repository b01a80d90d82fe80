//! Why transactions of a lane waited or were serial: counted by the engine, kept on the subscriber
//! in `walbraid.explained`, read from there by `walbraid explain`.
//!
//! Counts are those of the consumer that has the lane, since it was assigned to it. Keys are named
//! by table and index; no value of a row is in it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_postgres::{Client, Row};
use walbraid_apply::conflict::Dependence;
use walbraid_apply::engine::{Engine, Named, Tally};
use walbraid_apply::footprint::SpaceId;
use walbraid_apply::rule::Cause as Rerun;

use crate::fence::Ownership;
use crate::policy::{Cause, Failure};

/// No more often is it written.
const WRITE_MS: u64 = 3_000;

/// The counts of a lane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Explained {
    /// Connections that apply.
    pub workers: usize,
    /// Time that a transaction keeps its connection busy, microseconds, averaged.
    pub transaction_us: Option<u64>,
    /// How long connections were busy with what is committed, microseconds.
    pub busy_us: u64,
    /// Target transactions that were formed.
    pub units: u64,
    /// Transactions, by what was found of them.
    pub transactions: Transactions,
    /// The tables that were changed, the busiest first.
    pub tables: Vec<TableExplained>,
    /// Transactions that were serial because of no table of the subscriber.
    pub serial: Vec<Serial>,
    /// Target transactions that were rolled back and ran again, by cause.
    pub reruns: BTreeMap<String, u64>,
}

/// Transactions of a lane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Transactions {
    /// One connection applied them in order; nobody looked what they touch.
    pub in_order: u64,
    /// They depended on nothing unfinished.
    #[serde(rename = "NO_CONFLICT")]
    pub no_conflict: u64,
    /// They waited for earlier ones.
    #[serde(rename = "CONFLICT")]
    pub conflict: u64,
    /// Nothing could be said of them: they ran alone.
    #[serde(rename = "UNKNOWN")]
    pub unknown: u64,
    /// They were too large to be looked at: they ran alone.
    #[serde(rename = "BARRIER")]
    pub barrier: u64,
    /// Those that ran alone, or touched a table or index as a whole.
    pub serial: u64,
    /// Those that waited for one that ran alone.
    pub behind_alone: u64,
}

impl Transactions {
    /// Those that were looked at.
    pub fn looked_at(&self) -> u64 {
        self.no_conflict + self.conflict + self.unknown + self.barrier
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.in_order + self.looked_at()
    }
}

/// Transactions that changed a table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TableExplained {
    /// `schema.table`, of the subscriber.
    pub table: String,
    /// How many changed it, as far as they were looked at.
    pub transactions: u64,
    /// Those of them that depended on nothing unfinished.
    pub parallel: u64,
    /// Those that waited, for a key of this table or of another one.
    pub waited: u64,
    /// Those that ran alone, because of this table or of another one.
    pub alone: u64,
    /// The keys of this table that transactions waited for.
    pub waits: Vec<Wait>,
    /// Why transactions that changed it were serial.
    pub serial: Vec<Serial>,
}

/// Transactions that waited for a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Wait {
    /// `schema.table (index)`, or `schema.table`.
    pub key: String,
    /// How many they are.
    pub transactions: u64,
}

/// Transactions that were serial.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Serial {
    /// `schema.table (index)`, or `schema.table`; empty where it is because of no table.
    pub key: String,
    /// Why: see the names of reasons in the documentation.
    pub reason: String,
    /// The change that would mend it.
    pub remedy: String,
    /// How many they are.
    pub transactions: u64,
}

impl Explained {
    /// What the engine has counted; `resolver` as it is configured.
    pub(crate) fn of(engine: &Engine, resolver: bool) -> Self {
        let (status, tally) = (engine.status(), engine.tally());
        let (tables, serial) = tables(tally, resolver);
        let causes = Rerun::ALL.iter().zip(status.retries);
        Self {
            workers: status.workers,
            transaction_us: status.transaction_us,
            busy_us: tally.busy_us,
            units: tally.units,
            transactions: transactions(tally),
            tables,
            serial,
            reruns: causes
                .filter(|(_, times)| *times > 0)
                .map(|(cause, times)| (cause.name().to_owned(), times))
                .collect(),
        }
    }
}

fn transactions(tally: &Tally) -> Transactions {
    let by = |dependence| tally.transactions[dependence as usize];
    Transactions {
        in_order: tally.in_order,
        no_conflict: by(Dependence::NoConflict),
        conflict: by(Dependence::Conflict),
        unknown: by(Dependence::Unknown),
        barrier: by(Dependence::Barrier),
        serial: tally.serial_transactions,
        behind_alone: tally.behind_alone,
    }
}

/// What is known of each table, and what is because of none.
fn tables(tally: &Tally, resolver: bool) -> (Vec<TableExplained>, Vec<Serial>) {
    let mut tables: HashMap<SpaceId, TableExplained> = HashMap::new();
    for (space, table) in tally.tables() {
        let by = |dependence| table.transactions[dependence as usize];
        let explained = TableExplained {
            transactions: table.transactions.iter().sum(),
            parallel: by(Dependence::NoConflict),
            waited: by(Dependence::Conflict),
            alone: by(Dependence::Unknown) + by(Dependence::Barrier),
            ..TableExplained::named(&table.name)
        };
        tables.insert(space, explained);
    }
    for (_, tally) in tally.keys() {
        let wait = Wait {
            key: tally.key.name.to_string(),
            transactions: tally.transactions,
        };
        of(&mut tables, &tally.key).waits.push(wait);
    }
    let mut others = Vec::new();
    for (_, reason, tally) in tally.serial() {
        let name = tally.of.as_ref().map(|key| key.name.to_string());
        let serial = Serial {
            key: name.unwrap_or_default(),
            reason: reason.name().to_owned(),
            remedy: reason.remedy(resolver),
            transactions: tally.transactions,
        };
        match &tally.of {
            Some(key) => of(&mut tables, key).serial.push(serial),
            None => others.push(serial),
        }
    }
    let mut tables: Vec<TableExplained> = tables.into_values().collect();
    for table in &mut tables {
        busiest_first(&mut table.waits, |wait| (wait.transactions, &wait.key));
        busiest_first(&mut table.serial, |one| (one.transactions, &one.key));
    }
    busiest_first(&mut tables, |table| (table.transactions, &table.table));
    busiest_first(&mut others, |one| (one.transactions, &one.reason));
    (tables, others)
}

fn busiest_first<T>(list: &mut [T], by: impl Fn(&T) -> (u64, &String)) {
    list.sort_by(|one, other| {
        let ((one, name), (other, other_name)) = (by(one), by(other));
        other.cmp(&one).then_with(|| name.cmp(other_name))
    });
}

/// The table of a key; it may not have been changed itself.
fn of<'a>(tables: &'a mut HashMap<SpaceId, TableExplained>, key: &Named) -> &'a mut TableExplained {
    let unchanged = || TableExplained::named(&key.table_name);
    tables.entry(key.table).or_insert_with(unchanged)
}

impl TableExplained {
    fn named(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            transactions: 0,
            parallel: 0,
            waited: 0,
            alone: 0,
            waits: Vec::new(),
            serial: Vec::new(),
        }
    }
}

/// Writes what a lane explains, on the side session.
pub(crate) struct Explainer {
    explained: watch::Receiver<Explained>,
    /// When the consumer's counts begin.
    since: SystemTime,
    written_at: Option<Instant>,
    /// It may not be written: said once.
    refused: bool,
}

impl Explainer {
    /// Writes what comes.
    pub(crate) fn new(explained: watch::Receiver<Explained>, since: SystemTime) -> Self {
        Self {
            explained,
            since,
            written_at: None,
            refused: false,
        }
    }

    /// True if there is something to write, and it is time to.
    pub(crate) fn is_due(&self) -> bool {
        let written = self.written_at.is_none_or(|at| {
            let interval = Duration::from_millis(WRITE_MS);
            at.elapsed() >= interval
        });
        written && self.has_news()
    }

    /// True if there is something to write.
    pub(crate) fn has_news(&self) -> bool {
        !self.refused && self.explained.has_changed().unwrap_or_default()
    }

    /// Writes it. That it may not be written is no reason to stop a lane.
    pub(crate) async fn write(&mut self, sql: &Client, owner: &Ownership) -> Result<(), Failure> {
        self.written_at = Some(Instant::now());
        let tally = serde_json::to_string(&*self.explained.borrow_and_update());
        let Ok(tally) = tally else {
            return Ok(());
        };
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [
            &owner.lane_id,
            &owner.epoch,
            &owner.owner,
            &self.since,
            &tally,
        ];
        match sql.execute(WRITE, &values).await.map_err(Failure::from) {
            Ok(_) => Ok(()),
            // The lane's row is locked for a moment: it is written next time.
            Err(Failure::Transient(busy)) if busy.cause == Cause::Lock => Ok(()),
            Err(Failure::Definite(stop)) => {
                self.refused = true;
                let stop = stop.hint("Run walbraid setup, or grant what the documentation lists.");
                tracing::warn!("what explain shows cannot be written: {stop}");
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}

const WRITE: &str = "
INSERT INTO walbraid.explained (lane_id, since, tally, updated_at)
SELECT id, $4, $5::text::pg_catalog.jsonb, pg_catalog.clock_timestamp()
FROM walbraid.lanes WHERE id = $1 AND epoch = $2 AND owner = $3
ON CONFLICT (lane_id) DO UPDATE
SET since = excluded.since, tally = excluded.tally, updated_at = excluded.updated_at";

/// What is known of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneExplained {
    /// The lane's number.
    pub lane: u32,
    /// The consumer that owns the lane: host and process id.
    pub member: Option<String>,
    /// What was counted; none if nothing ever was.
    pub counted: Option<Counted>,
}

/// Counts, and of when.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// When they begin.
    pub since: SystemTime,
    /// When they were written.
    pub updated: SystemTime,
    /// The counts.
    pub explained: Explained,
}

/// Reads what the lanes of a stream explain, in the order of their numbers.
pub async fn read(client: &Client, stream: &str) -> Result<Vec<LaneExplained>, Failure> {
    let sql = "SELECT l.lane, l.member, e.since, e.updated_at, e.tally::text \
               FROM walbraid.lanes l LEFT JOIN walbraid.explained e ON e.lane_id = l.id \
               WHERE l.stream = $1 ORDER BY l.lane";
    let rows = client.query(sql, &[&stream]).await?;
    rows.iter().map(lane_explained).collect()
}

fn lane_explained(row: &Row) -> Result<LaneExplained, Failure> {
    let tally: Option<String> = row.try_get(4)?;
    let counted = match tally.map(|text| serde_json::from_str(&text)) {
        // Another version's may lack something; it will soon be written anew.
        None | Some(Err(_)) => None,
        Some(Ok(explained)) => Some(Counted {
            since: row.try_get(2)?,
            updated: row.try_get(3)?,
            explained,
        }),
    };
    Ok(LaneExplained {
        lane: row.try_get::<_, i32>(0)?.try_into().unwrap_or_default(),
        member: row.try_get(1)?,
        counted,
    })
}
