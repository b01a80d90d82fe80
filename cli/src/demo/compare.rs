//! Both sides of every table, row by row.
//!
//! Each server sums a hash of its rows' text, which needs no order and no memory; both pin what the
//! text depends on. Where the sums differ, the rows' hashes are fetched and the first keys that
//! differ are named.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Error};

use super::shop::{SCHEMA, TABLES, Table};

/// What text depends on, beyond the value.
const PIN: &str = "SET DateStyle = ISO; SET IntervalStyle = postgres; SET TimeZone = 'UTC';
SET extra_float_digits = 3; SET bytea_output = hex";

const KEYS_MAX: usize = 5;

/// How a table compares.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The table.
    pub(super) table: &'static str,
    /// Rows on the publisher.
    pub(super) rows: i64,
    /// Nothing, or what differs.
    pub(super) difference: Option<String>,
}

/// Compares every table.
pub(super) async fn compare(
    publisher: &Client,
    subscriber: &Client,
) -> Result<Vec<Comparison>, Error> {
    publisher.batch_execute(PIN).await?;
    subscriber.batch_execute(PIN).await?;
    let mut comparisons = Vec::new();
    for table in TABLES {
        let (left, right) = tokio::try_join!(sum(publisher, table), sum(subscriber, table))?;
        let difference = match left == right {
            true => None,
            false => Some(describe(publisher, subscriber, table, right.0).await?),
        };
        comparisons.push(Comparison {
            table: table.name,
            rows: left.0,
            difference,
        });
    }
    Ok(comparisons)
}

async fn sum(client: &Client, table: &Table) -> Result<(i64, String), Error> {
    let sql = format!(
        "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0)::text
         FROM {SCHEMA}.{} AS t",
        table.name
    );
    let row = client.query_one(&sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

async fn describe(
    publisher: &Client,
    subscriber: &Client,
    table: &Table,
    rows: i64,
) -> Result<String, Error> {
    let (left, right) = tokio::try_join!(hashes(publisher, table), hashes(subscriber, table))?;
    let mut keys: Vec<&str> = Vec::new();
    for (key, hash) in &left {
        if right.get(key) != Some(hash) {
            keys.push(key);
        }
    }
    keys.extend(
        right
            .keys()
            .filter(|key| !left.contains_key(*key))
            .map(String::as_str),
    );
    let count = keys.len();
    keys.truncate(KEYS_MAX);
    Ok(format!(
        "{rows} rows on the subscriber; {count} keys differ: {}",
        keys.join(", ")
    ))
}

async fn hashes(client: &Client, table: &Table) -> Result<BTreeMap<String, String>, Error> {
    let key = match table.key {
        "" => "md5(t::text)".to_owned(),
        key => format!("concat_ws('/', {key})"),
    };
    // Rows without a key can be equal: their number is part of what is compared.
    let sql = format!(
        "SELECT {key}, count(*) || ' ' || min(md5(t::text)) FROM {SCHEMA}.{} AS t GROUP BY 1",
        table.name
    );
    let rows = client.query(&sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
