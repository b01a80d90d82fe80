//! Old values that are not on the wire: when they are read, and what they are good for.
//!
//! The table is `users (id primary key, email unique)`, whose e-mails here are numbers.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::conflict::Dependence;
use walbraid_apply::engine::Config;
use walbraid_apply::event::Event;
use walbraid_apply::footprint::old_row;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::pace::Workers;
use walbraid_apply::relation::Relation;
use walbraid_apply::resolver::{Cost, OldRow, query};
use walbraid_schemas::row::{self, Value};
use walbraid_schemas::table::Carrier;
use walbraid_schemas::{Change, OldKind, OldTuple, Table};

use crate::lane::config;
use crate::pool::{Done, Pool};
use crate::tables;

const NOTHING: [&str; 0] = [];

/// Longer than a lane waits for a read.
const LONG_MS: u64 = 10_000;

#[track_caller]
fn are(done: &Done, expected: &[&str]) {
    assert_eq!(done, expected);
}

const COLUMNS: [&str; 2] = ["id", "email"];

fn table() -> Arc<Table> {
    tables::table("users", &COLUMNS)
}

fn relation() -> Relation {
    tables::relation("users", &COLUMNS, &[("index_2", 0), ("index_3", 1)])
}

fn tuple(id: i64, email: Value<'_>) -> Bytes {
    let mut out = Vec::new();
    row::write(Carrier::Int4, Value::Int(id), &mut out).unwrap();
    row::write(Carrier::Int4, email, &mut out).unwrap();
    out.into()
}

fn insert(id: i64, email: i64) -> Change {
    let new = tuple(id, Value::Int(email));
    Change::Insert { table: 0, new }
}

fn update(id: i64, email: i64) -> Change {
    Change::Update {
        table: 0,
        old: None,
        new: tuple(id, Value::Int(email)),
    }
}

fn delete(id: i64) -> Change {
    let old = OldTuple {
        kind: OldKind::Key,
        row: tuple(id, Value::NotSent),
    };
    Change::Delete { table: 0, old }
}

struct Users {
    pool: Pool,
    mapped: Mapped,
    read: u64,
}

impl Users {
    fn new(workers: usize) -> Self {
        Self::with(Config {
            workers: Workers::Fixed(workers),
            ..config()
        })
    }

    fn with(config: Config) -> Self {
        Self {
            pool: Pool::of(config, table(), relation()),
            mapped: Mapped::new(table(), Some(Arc::new(relation()))).unwrap(),
            read: 0,
        }
    }

    /// The next transaction, known by the next number from 1 on.
    fn makes(&mut self, changes: &[Change]) -> Done {
        self.pool.transaction(changes.to_vec())
    }

    /// The next read is answered: the e-mails of the rows asked for, in their order.
    fn answers(&mut self, emails: &[Option<i64>]) -> Done {
        let found = emails.iter().enumerate();
        let rows = found.filter_map(|(place, email)| {
            let text = (*email)?.to_string();
            let hashes = old_row(&self.mapped, &[Some(&text)]);
            Some(OldRow { place, hashes })
        });
        let rows = Some(rows.collect());
        self.answer(rows)
    }

    fn answer(&mut self, rows: Option<Vec<OldRow>>) -> Done {
        self.read += 1;
        let (read, took_us) = (self.read, 100);
        self.pool.step(Event::OldValues {
            read,
            rows,
            took_us,
        })
    }

    /// Time passes, in which nobody is found to wait for a lock.
    fn later(&mut self, ms: u64) -> Done {
        self.pool.step(Event::Blocked { waits: Vec::new() });
        self.pool.lane.now_ms += ms;
        let mut done = self.pool.step(Event::Tick);
        done.retain(|one| one != "ask");
        done
    }

    fn cost(&self) -> Cost {
        self.pool.lane.engine.status().old_values
    }

    fn serial(&self) -> u64 {
        self.pool.lane.engine.tally().serial_transactions
    }

    fn independent(&self) -> u64 {
        let tally = self.pool.lane.engine.tally();
        tally.transactions[Dependence::NoConflict as usize]
    }
}

/// A lane whose head changes nothing that matters, so that what comes behind is looked at.
fn behind_a_head(workers: usize) -> Users {
    let mut users = Users::new(workers);
    are(&users.makes(&[insert(100, 100)]), &["run 1 on 0"]);
    users
}

#[test]
fn rows_that_wait_are_read_and_what_differs_runs_side_by_side() {
    let mut users = behind_a_head(8);
    are(&users.makes(&[update(1, 11)]), &["read 1"]);
    // What gathers meanwhile goes with the next read, each row once.
    are(&users.makes(&[update(2, 22), delete(3)]), &NOTHING);
    are(&users.makes(&[update(2, 23)]), &NOTHING);
    are(&users.answers(&[Some(10)]), &["read 2 3", "run 2 on 1"]);
    are(&users.answers(&[Some(20), Some(30)]), &["run 3 on 2"]);
    assert_eq!(users.independent(), 3, "all but the last, whose row waits");
    // The row of the last is known: what is in flight was laid over.
    are(&users.makes(&[update(2, 24)]), &NOTHING);
    let cost = users.cost();
    assert_eq!((cost.reads, cost.rows, cost.unknown), (2, 3, 0));
}

#[test]
fn a_value_that_is_handed_over_is_waited_for() {
    let mut users = behind_a_head(8);
    users.makes(&[update(1, 11)]);
    users.makes(&[update(2, 22)]);
    are(&users.answers(&[Some(10)]), &["read 2", "run 2 on 1"]);
    are(&users.answers(&[Some(20)]), &["run 3 on 2"]);
    // 20 was given up by 3, 10 by 2; nobody had 33.
    are(&users.makes(&[insert(5, 20)]), &NOTHING);
    are(&users.makes(&[insert(6, 10)]), &NOTHING);
    are(&users.makes(&[insert(7, 33)]), &["run 6 on 3"]);
    users.pool.counted(2, false);
    are(&users.pool.commits(1), &["commit 2", "run 5 on 1"]);
    users.pool.counted(3, false);
    are(&users.pool.commits(2), &["commit 3", "run 4 on 2"]);
}

#[test]
fn two_rows_that_swap_their_values_are_kept_in_order() {
    let mut users = behind_a_head(8);
    users.makes(&[update(1, 0), update(2, 10)]);
    users.makes(&[update(1, 20)]);
    users.makes(&[update(3, 33)]);
    are(
        &users.answers(&[Some(10), Some(20)]),
        &["read 3", "run 2 on 1"],
    );
    are(&users.answers(&[Some(30)]), &["run 4 on 2"]);
    assert_eq!(users.cost().unknown, 0);
}

#[test]
fn nothing_is_read_where_one_worker_applies_or_a_transaction_is_alone() {
    let mut users = Users::new(1);
    users.makes(&[update(1, 11)]);
    users.makes(&[update(2, 22)]);
    assert_eq!(users.cost(), Cost::default());
    let mut users = Users::new(2);
    are(&users.makes(&[update(1, 11)]), &["run 1 on 0"]);
    assert_eq!(users.cost().reads, 0);
    let mut users = Users::with(Config {
        workers: Workers::Fixed(2),
        resolver: false,
        ..config()
    });
    are(&users.makes(&[update(1, 11)]), &["run 1 on 0"]);
    assert_eq!(users.serial(), 0, "it found nothing and ran at once");
    // What it gives up is not known: it takes a value behind one that gave up any.
    are(&users.makes(&[update(2, 22)]), &["run 2 on 0"]);
    assert_eq!(users.cost(), Cost::default());
    assert_eq!(users.serial(), 1);
}

#[test]
fn a_read_that_fails_or_takes_too_long_makes_it_serial_and_no_more() {
    let mut users = behind_a_head(8);
    users.makes(&[delete(1)]);
    are(&users.answer(None), &["run 2 on 1"]);
    // It is not tried again at once, nor waited for.
    are(&users.makes(&[delete(2)]), &["run 3 on 2"]);
    are(&users.makes(&[insert(3, 33)]), &NOTHING);
    assert_eq!((users.cost().failed, users.cost().unknown), (1, 2));
    users.pool.commits(1);
    users.pool.lane.now_ms += LONG_MS;
    let done = users.makes(&[delete(4)]);
    assert!(done.contains(&"read 4".to_owned()), "{done:?}");
    // It would be waited for some time.
    are(&users.later(10), &NOTHING);
    assert!(users.later(LONG_MS).contains(&"run 5 on 0".to_owned()));
    are(&users.makes(&[delete(5)]), &["run 6 on 3"]);
    assert_eq!((users.cost().late, users.cost().unknown), (1, 4));
    // Its end is the end of that.
    are(&users.answers(&[Some(40)]), &NOTHING);
    are(&users.makes(&[delete(6)]), &["read 6"]);
}

#[test]
fn a_truncate_makes_worthless_what_was_read() {
    let mut users = behind_a_head(8);
    are(&users.makes(&[update(1, 11)]), &["read 1"]);
    are(&users.pool.truncates(), &NOTHING);
    // Nothing behind it is looked at before it has been.
    are(&users.makes(&[delete(2)]), &NOTHING);
    are(&users.answers(&[Some(10)]), &["run 2 on 1"]);
    assert_eq!(users.cost().reads, 1);
    users.pool.counted(2, false);
    are(&users.pool.commits(1), &["commit 2", "run 3 on 1"]);
    are(&users.pool.commits(2), &NOTHING);
    are(&users.makes(&[delete(3)]), &NOTHING);
    are(&users.pool.commits(3), &["read 2 3"]);
    are(&users.answers(&[None, None]), &["run 4 on 0", "run 5 on 1"]);
}

#[test]
fn a_take_over_drops_what_was_asked() {
    let mut users = behind_a_head(8);
    are(&users.makes(&[update(1, 11)]), &["read 1"]);
    users.pool.lane.engine.resume(crate::lane::position(100));
    users.pool.lane.begin();
    are(&users.answers(&[Some(10)]), &NOTHING);
    are(&users.makes(&[insert(100, 100)]), &["run 3 on 0"]);
    are(&users.makes(&[update(1, 11)]), &["read 1"]);
    are(&users.answers(&[Some(10)]), &["run 4 on 1"]);
}

#[test]
fn old_values_are_read_by_key_in_one_statement() {
    let text = query(&Mapped::new(table(), Some(Arc::new(relation()))).unwrap());
    assert_eq!((text.keys, text.columns), (1, 1));
    assert_eq!(
        text.sql,
        "SELECT k.n, CASE WHEN t.\"email\" IS NOT NULL \
         THEN pg_catalog.format('%s', t.\"email\") END \
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[])) WITH ORDINALITY AS k (k1, n) \
         JOIN ONLY \"public\".\"users\" AS t \
         ON t.\"id\" OPERATOR(\"pg_catalog\".=) k.k1::integer"
    );
}
