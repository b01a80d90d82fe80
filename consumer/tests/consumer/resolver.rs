//! A table with a second unique column under REPLICA IDENTITY DEFAULT, and several workers: the
//! wire never tells which e-mail a row gives up.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_postgres::types::ToSql;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::resolver::query;
use walbraid_consumer::config::Workers;
use walbraid_consumer::metrics::Metrics;
use walbraid_consumer::{Config, catalogue};
use walbraid_schemas::{Change, Table, Value};

use crate::bed::{Bed, connect};
use crate::log::{delete, insert, table, update};

const TABLES: &str = "
    CREATE TABLE users (id int PRIMARY KEY, email text NOT NULL UNIQUE, note text);
    CREATE TABLE other (id int PRIMARY KEY, note text);
    INSERT INTO other VALUES (1, 'here')";

const WORKERS: usize = 8;
const ROWS: i64 = 12;

fn users() -> Table {
    table("users", &["id int4*", "email text", "note text"])
}

fn config(bed: &Bed, resolver: bool) -> Config {
    let mut config = bed.config();
    config.apply.workers = Workers::Fixed(WORKERS);
    config.apply.group_transactions_max = 1;
    config.apply.resolver = resolver;
    config
}

fn metrics(bed: &Bed) -> Metrics {
    Metrics::new(&bed.name, &mut Registry::default())
}

/// The e-mails of the publisher's rows, and the changes that made them so.
struct Model {
    users: Table,
    emails: BTreeMap<i64, String>,
    random: u64,
}

impl Model {
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % end
    }

    fn set(&mut self, id: i64, email: String) -> Change {
        let note = format!("note {}", self.below(1_000));
        let values = [Value::Int(id), Value::Text(&email), Value::Text(&note)];
        let change = match self.emails.contains_key(&id) {
            true => update(0, &self.users, &values),
            false => insert(0, &self.users, &values),
        };
        self.emails.insert(id, email);
        change
    }

    fn gone(&mut self, id: i64) -> Change {
        self.emails.remove(&id);
        delete(
            0,
            &self.users,
            &[Value::Int(id), Value::NotSent, Value::NotSent],
        )
    }

    /// An e-mail of few that nobody has.
    fn free(&mut self) -> Option<String> {
        let email = format!("{}@example.org", self.below(16));
        let taken = self.emails.values().any(|other| *other == email);
        (!taken).then_some(email)
    }

    /// The next transactions: an e-mail is taken, handed over, swapped in one or in three, given
    /// up, or stays.
    fn next(&mut self) -> Vec<Vec<Change>> {
        let mut row = || 1 + self.below(ROWS as usize) as i64;
        let (one, two) = (row(), row());
        let (first, second) = (
            self.emails.get(&one).cloned(),
            self.emails.get(&two).cloned(),
        );
        match (self.below(6), first, second) {
            (0, Some(first), Some(second)) if one != two => {
                let between = format!("between {one} and {two}");
                vec![vec![
                    self.set(one, between),
                    self.set(two, first),
                    self.set(one, second),
                ]]
            }
            (1, Some(first), Some(second)) if one != two => {
                let between = format!("between {one} and {two}");
                vec![
                    vec![self.set(one, between)],
                    vec![self.set(two, first)],
                    vec![self.set(one, second)],
                ]
            }
            (2, Some(first), Some(_)) if one != two => {
                vec![vec![self.gone(one)], vec![self.set(two, first)]]
            }
            (3, Some(first), _) => vec![vec![self.set(one, first)]],
            (4, Some(_), _) => vec![vec![self.gone(one)]],
            _ => match self.free() {
                Some(email) => vec![vec![self.set(one, email)]],
                None => Vec::new(),
            },
        }
    }
}

/// What becomes of old values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OldValues {
    Read,
    /// The session that reads them is ended while it is needed.
    Disturbed,
    NotRead,
}

/// Applies a random load, and compares; how many reads there were.
async fn loaded(name: &str, old_values: OldValues) -> u64 {
    const TRANSACTIONS: usize = 600;
    let bed = Bed::new(name, TABLES).await;
    let fill = format!("INSERT INTO users SELECT n, 'old ' || n FROM generate_series(1, {ROWS}) n");
    bed.sql.batch_execute(&fill).await.unwrap();
    let seed = u64::from(std::process::id()) << 20 | 0x9e37;
    println!("seed {seed}");
    let mut model = Model {
        users: users(),
        emails: (1..=ROWS).map(|id| (id, format!("old {id}"))).collect(),
        random: seed,
    };
    let tables = [bed.log.table(&model.users).await];
    // When it begins there is a backlog, so that the first changes of rows do not come alone.
    let mut written = 0;
    let metrics = metrics(&bed);
    let mut consumer = None;
    while written < TRANSACTIONS {
        for changes in model.next() {
            bed.log.transaction(&tables, changes).await;
            written += 1;
        }
        if written > TRANSACTIONS / 2 {
            let config = || config(&bed, old_values != OldValues::NotRead);
            consumer.get_or_insert_with(|| bed.consume_counted(config(), metrics.clone()));
        }
    }
    let disturb = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '% old values'";
    if old_values == OldValues::Disturbed {
        bed.until("a session was ended", async || {
            !bed.sql.query(disturb, &[]).await.unwrap().is_empty()
        })
        .await;
    }
    bed.drained().await;
    let rows = bed
        .value("SELECT coalesce(string_agg(id || ' ' || email, ', ' ORDER BY id), '') FROM users")
        .await;
    let expected = model.emails.iter();
    let expected: Vec<String> = expected
        .map(|(id, email)| format!("{id} {email}"))
        .collect();
    assert_eq!(rows, expected.join(", "), "seed {seed}");
    assert_eq!(bed.lane().await.state, "running", "seed {seed}");
    let lane = metrics.lane(0);
    assert_eq!(lane.missing_updates.get() + lane.missing_deletes.get(), 0);
    if old_values != OldValues::Disturbed {
        assert_eq!(lane.old_values_failed.get(), 0, "seed {seed}");
    }
    consumer.unwrap().stop().await;
    bed.done().await;
    lane.old_values_reads.get()
}

#[tokio::test(flavor = "multi_thread")]
async fn emails_are_handed_over_and_swapped_between_rows() {
    assert!(loaded("emails", OldValues::Read).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_that_reads_old_values_may_be_lost() {
    assert!(loaded("emails_lost", OldValues::Disturbed).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn emails_are_handed_over_in_order_where_old_values_are_not_read() {
    assert_eq!(loaded("emails_off", OldValues::NotRead).await, 0);
}

/// The head waits for somebody else's lock; six rows get other e-mails, then a row of a table that
/// nobody waits for comes. How many transactions have run when that one has.
async fn ahead_of_a_head(name: &str, resolver: bool) -> usize {
    const ROWS: i64 = 6;
    assert!(ROWS as usize + 2 <= WORKERS, "each may have a worker");
    let bed = Bed::new(name, TABLES).await;
    let fill = format!("INSERT INTO users SELECT n, 'old ' || n FROM generate_series(1, {ROWS}) n");
    bed.sql.batch_execute(&fill).await.unwrap();
    let (users, other) = (users(), table("other", &["id int4*", "note text"]));
    let tables = [bed.log.table(&users).await, bed.log.table(&other).await];
    let note = |id, note| [Value::Int(id), Value::Text(note)];
    let head = update(1, &other, &note(1, "head"));
    bed.log.transaction(&tables, vec![head]).await;
    for id in 1..=ROWS {
        let email = format!("new {id}");
        let row = [Value::Int(id), Value::Text(&email), Value::Null];
        let change = update(0, &users, &row);
        bed.log.transaction(&tables, vec![change]).await;
    }
    let last = insert(1, &other, &note(2, "last"));
    bed.log.transaction(&tables, vec![last]).await;
    let blocker = connect(&bed.url).await;
    blocker
        .batch_execute("BEGIN; SELECT FROM other WHERE id = 1 FOR UPDATE")
        .await
        .unwrap();
    let consumer = bed.consume_with(config(&bed, resolver));
    // Who has run waits for its turn, its changes done and its locks held.
    let waiting = "
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.application_name LIKE '% worker %'
          AND a.wait_event = 'ClientRead'
          AND EXISTS (SELECT FROM pg_locks l
                      WHERE l.pid = a.pid AND l.mode = 'RowExclusiveLock'
                        AND l.relation = 'TABLE'::regclass)";
    let waiting = |table| format!("SELECT count(*) {}", waiting.replace("TABLE", table));
    bed.until("the last has run", async || {
        bed.value(&waiting("other")).await == "1"
    })
    .await;
    let expected = if resolver { ROWS } else { 1 };
    bed.until("who depends on nothing has run", async || {
        bed.value(&waiting("users")).await == expected.to_string()
    })
    .await;
    let ran = bed.value(&waiting("users")).await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    bed.drained().await;
    let changed = bed
        .value("SELECT count(*) FROM users WHERE email LIKE 'new %'")
        .await;
    assert_eq!(changed, ROWS.to_string());
    consumer.stop().await;
    bed.done().await;
    ran.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_change_their_emails_run_side_by_side() {
    assert_eq!(ahead_of_a_head("ahead", true).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_change_their_emails_wait_where_old_values_are_not_read() {
    assert_eq!(ahead_of_a_head("ahead_off", false).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_values_are_found_in_partitions_by_keys_of_any_type() {
    let tables = "
        CREATE TYPE kind AS ENUM ('big', 'Small');
        CREATE DOMAIN size AS kind;
        CREATE TABLE parted (
            a uuid, b date, c numeric(9, 3), d bytea, e boolean, f text, g size, v text,
            PRIMARY KEY (a, b, c, d, e, f, g), UNIQUE (v, b)
        ) PARTITION BY RANGE (b);
        CREATE TABLE early PARTITION OF parted FOR VALUES FROM ('2000-01-01') TO ('2020-01-01');
        CREATE TABLE late PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2040-01-01');
        INSERT INTO parted VALUES
            ('00000000-0000-0000-0000-00000000000a', '2010-02-03', 1.5, '\\x00ff', true, 'it''s',
             'Small', 'one'),
            ('00000000-0000-0000-0000-00000000000b', '2030-02-03', 1.5, '\\x00ff', true, 'it''s',
             'big', NULL)";
    let bed = Bed::new("parted", tables).await;
    let published = table(
        "parted",
        &[
            "a uuid*",
            "b date*",
            "c numeric*",
            "d bytea*",
            "e bool*",
            "f text*",
            "g text*",
            "v text",
        ],
    );
    let reader = catalogue::Session::new(connect(&bed.url).await).await;
    let relation = catalogue::read_with_keys(&reader.unwrap(), "public", "parted")
        .await
        .unwrap();
    let mapped = Mapped::new(Arc::new(published), relation.map(Arc::new)).unwrap();
    let query = query(&mapped);
    let keys = [
        [
            "00000000-0000-0000-0000-00000000000b",
            "00000000-0000-0000-0000-00000000000a",
        ],
        ["2030-02-03", "2010-02-03"],
        ["1.500", "1.500"],
        ["\\x00ff", "\\x00ff"],
        ["t", "t"],
        ["it's", "it's"],
        ["big", "Small"],
    ];
    let parameters: Vec<Vec<&str>> = keys.iter().map(|texts| texts.to_vec()).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|texts| texts as _).collect();
    let found = bed.sql.query(&query.sql, &parameters).await.unwrap();
    let mut found: Vec<(i64, Option<String>)> = found
        .iter()
        .map(|row| (row.get(0), row.get(query.columns)))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [(1, None), (2, Some("one".to_owned()))],
        "{}",
        query.sql
    );
    bed.done().await;
}
