//! Conflict keys against the servers that decide what is equal.
//!
//! For every type, operator class and collation: values are written by the publisher's server as
//! its walsender writes them, and stored on the subscriber; of each pair that the subscriber calls
//! equal, the changes must meet in a key. What is not equal should not meet; for types whose
//! equality is mirrored exactly it never does. What is read back as an old value is the same number
//! as what was written.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::SimpleQueryMessage;
use walbraid_apply::footprint::{
    self, Access, Footprint, NewRow, NoOldValues, Old, OldValues, Scope, SpaceId, Touch, old_row,
};
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::resolver::query;
use walbraid_apply::unit::{Piece, Transaction};
use walbraid_consumer::catalogue;
use walbraid_schemas::{Carrier, Change, Column, Identity, LinkKind, Lsn, Table, row};
use walbraid_wire::Sql;

use crate::bed::{connect, variable, with_database};
use crate::scalars::SCALARS;
use crate::texts::TEXTS;
use crate::values::{Case, Meets, Random};

const RANDOM_VALUES: usize = 60;

struct Servers {
    publisher: Sql,
    subscriber: Sql,
    /// As the consumer's own session reads the catalogue.
    reader: catalogue::Session,
    database: String,
}

impl Servers {
    async fn new(test: &str) -> Self {
        let database = format!("k{}_{test}", std::process::id());
        let url = variable("WALBRAID_SUBSCRIBER_URL");
        let admin = connect(&url).await;
        let made = format!("CREATE DATABASE {database}");
        admin.batch_execute(&made).await.unwrap();
        let url = with_database(&url, &database);
        let (subscriber, reader) = (connect(&url).await, connect(&url).await);
        let publisher = connect(&variable("WALBRAID_PUBLISHER_URL")).await;
        let pinned = "SET search_path = pg_catalog; SET TimeZone = 'UTC'";
        reader.batch_execute(pinned).await.unwrap();
        let text = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';
                    SET extra_float_digits = 3; SET bytea_output = 'hex'; SET lc_monetary = 'C'";
        publisher.batch_execute(text).await.unwrap();
        subscriber.batch_execute(text).await.unwrap();
        subscriber
            .batch_execute(crate::values::OBJECTS)
            .await
            .unwrap();
        Self {
            publisher,
            subscriber,
            reader: catalogue::Session::new(reader).await.unwrap(),
            database,
        }
    }

    async fn done(self) {
        let admin = connect(&variable("WALBRAID_SUBSCRIBER_URL")).await;
        let dropped = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        admin.batch_execute(&dropped).await.unwrap();
    }

    /// The text of each literal as a value of the type, as the type's output function writes it.
    async fn written(&self, case: &Case, literals: &[String]) -> Vec<String> {
        // What the publisher's own server may lack is written by the subscriber.
        let server = match case.published_by_subscriber {
            true => &self.subscriber,
            false => &self.publisher,
        };
        let literals: Vec<String> = literals
            .iter()
            .enumerate()
            .map(|(number, literal)| format!("({number}, {literal}::{})", case.published))
            .collect();
        let query = format!(
            "SELECT v FROM (VALUES {}) t (i, v) ORDER BY i",
            literals.join(", ")
        );
        let rows = server.simple_query(&query).await;
        let rows = rows.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let text = |row: SimpleQueryMessage| match row {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
            _ => None,
        };
        rows.into_iter().filter_map(text).collect()
    }

    /// The published table on the subscriber's, as the consumer maps them.
    async fn mapped(&self, case: &Case) -> Target {
        let type_name = case.type_name.to_owned();
        let columns = [("id", "pg_catalog.int4".to_owned()), ("v", type_name)];
        let columns = columns.map(|(name, type_name)| Column {
            name: name.to_owned(),
            carrier: Carrier::of(&type_name),
            type_name,
            type_modifier: -1,
            key: name == "id",
        });
        let table = Table {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            identity: Identity::Default,
            columns: columns.to_vec(),
        };
        let relation = catalogue::read_with_keys(&self.reader, "public", "t")
            .await
            .unwrap();
        Ok(Arc::new(
            Mapped::new(Arc::new(table), relation.map(Arc::new)).unwrap(),
        ))
    }
}

/// An INSERT of the value.
fn insert(target: &Target, id: usize, text: &str) -> Transaction {
    let table = target.as_ref().unwrap().table();
    let mut new = Vec::new();
    let texts = [id.to_string(), text.to_owned()];
    for (column, text) in table.columns.iter().zip(texts) {
        row::write_text(column.carrier, text.as_bytes(), &mut new).unwrap();
    }
    let change = Change::Insert {
        table: 0,
        new: new.into(),
    };
    Transaction {
        kind: LinkKind::Transaction,
        xid: 1,
        commit_lsn: Lsn(1),
        commit_time_us: 0,
        origin: None,
        pieces: vec![Arc::new(Piece::new(vec![change], vec![target.clone()], 1))],
        first_offset: 0,
        ending: None,
    }
}

/// What an INSERT of the value touches.
fn touches(target: &Target, id: usize, text: &str) -> Footprint {
    let mut footprint = Footprint::default();
    let transaction = insert(target, id, text);
    footprint::add(&transaction, &mut NoOldValues, &mut footprint);
    assert_eq!(
        footprint.scope,
        Scope::Keys,
        "{:?}",
        target.as_ref().unwrap().relation().keys
    );
    footprint
}

/// What the last change made of its row.
#[derive(Debug, Default)]
struct Told(Option<Vec<Option<u64>>>);

impl OldValues for Told {
    fn old(&mut self, _: SpaceId, _: u64) -> Old<'_> {
        Old::Unknown
    }

    fn write(&mut self, _: SpaceId, _: u64, new: NewRow<'_>) {
        self.0 = match new {
            NewRow::Hashes(hashes) => Some(hashes.to_vec()),
            NewRow::Gone | NewRow::Unknown => None,
        };
    }

    fn forget(&mut self) {}
}

/// Reads the twin's values as the key resolver would; what is wrong with them.
async fn read_back(servers: &Servers, target: &Target, texts: &[String]) -> Vec<String> {
    let told = |(id, text): (usize, &String)| {
        let mut told = Told::default();
        let transaction = insert(target, id, text);
        footprint::add(&transaction, &mut told, &mut Footprint::default());
        told.0
    };
    let told: Vec<_> = texts.iter().enumerate().map(told).collect();
    if told.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mapped = target.as_ref().unwrap();
    let query = query(mapped);
    let sql = query.sql.replace("\"public\".\"t\"", "\"public\".\"twin\"");
    let keys: Vec<String> = (0..texts.len()).map(|id| id.to_string()).collect();
    let found = servers.subscriber.query(&sql, &[&keys]).await.unwrap();
    assert_eq!(found.len(), texts.len(), "{sql}");
    let mut findings = Vec::new();
    for row in &found {
        let place = row.get::<_, i64>(0) as usize - 1;
        let values: Vec<Option<&str>> = (1..=query.columns).map(|column| row.get(column)).collect();
        let read = old_row(mapped, &values).map(|hashes| hashes.to_vec());
        if told[place].is_some() && read != told[place] {
            let (text, values) = (&texts[place], &values);
            findings.push(format!("written as {text:?}, read as {values:?}"));
        }
    }
    findings
}

fn meet(left: &[Touch], right: &[Touch]) -> bool {
    let writes = |touch: &Touch| touch.access == Access::Write;
    let mut pairs = left
        .iter()
        .flat_map(|one| right.iter().map(move |other| (one, other)));
    pairs.any(|(one, other)| one.key == other.key && (writes(one) || writes(other)))
}

/// Makes the table of the case, stores the texts in a twin without the index, and answers which
/// pairs the subscriber calls equal.
async fn equal_pairs(
    servers: &Servers,
    case: &Case,
    texts: &[String],
) -> HashMap<(usize, usize), bool> {
    let tables = format!(
        "DROP TABLE IF EXISTS t, twin;
         CREATE TABLE t (id int PRIMARY KEY, v {column}); {index};
         CREATE TABLE twin (id int, v {column})",
        column = case.column,
        index = case.index,
    );
    let made = servers.subscriber.batch_execute(&tables).await;
    made.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
    let row = |(id, text): (usize, &String)| {
        let text = text.replace('\\', "\\\\").replace('\'', "''");
        format!("INSERT INTO twin VALUES ({id}, E'{text}');")
    };
    let rows: String = texts.iter().enumerate().map(row).collect();
    let stored = servers.subscriber.batch_execute(&rows).await;
    stored.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
    let query = format!(
        "SELECT a.id, b.id, ({}) IS TRUE FROM twin a JOIN twin b ON a.id < b.id",
        case.equal
    );
    let rows = servers.subscriber.query(&query, &[]).await.unwrap();
    let pair = |id: i32| id as usize;
    rows.iter()
        .map(|row| ((pair(row.get(0)), pair(row.get(1))), row.get(2)))
        .collect()
}

/// What is wrong with the case.
async fn check(servers: &Servers, case: &Case, seed: u64) -> Vec<String> {
    let mut literals: Vec<String> = case.values.iter().map(|&text| text.to_owned()).collect();
    if let Some(make) = case.random {
        let mut random = Random::new(seed);
        literals.extend((0..RANDOM_VALUES).map(|_| make(&mut random)));
    }
    let texts = servers.written(case, &literals).await;
    assert_eq!(texts.len(), literals.len(), "{}", case.name);
    let equal = equal_pairs(servers, case, &texts).await;
    let target = servers.mapped(case).await;
    let touched: Vec<Footprint> = texts
        .iter()
        .enumerate()
        .map(|(id, text)| touches(&target, id, text))
        .collect();
    let mut findings = read_back(servers, &target, &texts).await;
    let (mut unlike, mut met) = (0, 0);
    for ((one, other), equal) in equal {
        let meets = meet(&touched[one].touches, &touched[other].touches);
        if equal && !meets {
            findings.push(format!(
                "equal but apart: {:?} {:?}",
                texts[one], texts[other]
            ));
        }
        if !equal && meets && case.meets == Meets::Never {
            findings.push(format!(
                "unequal but met: {:?} {:?}",
                texts[one], texts[other]
            ));
        }
        unlike += usize::from(!equal);
        met += usize::from(!equal && meets);
    }
    match case.meets {
        Meets::Never | Meets::Often => {}
        Meets::Seldom if met * 3 > unlike => findings.push(format!("{met} of {unlike} met")),
        Meets::Seldom => {}
        Meets::Always if met != unlike => findings.push(format!("only {met} of {unlike} met")),
        Meets::Always => {
            if touched.iter().any(|one| one.serial.is_empty()) {
                findings.push("nothing is said of it".to_owned());
            }
        }
    }
    findings
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_calls_equal_meets_in_a_key() {
    let servers = Servers::new("equal").await;
    let seed = rand::random();
    println!("seed {seed}");
    let mut findings = Vec::new();
    for case in SCALARS.iter().chain(TEXTS) {
        let found = check(&servers, case, seed).await;
        findings.extend(found.iter().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(findings.is_empty(), "seed {seed}\n{}", findings.join("\n"));
    servers.done().await;
}
