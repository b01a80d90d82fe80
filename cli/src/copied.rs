//! Published tables that do not hold the same rows on both sides when a stream begins.
//!
//! Nothing is copied: a stream carries what is committed from its start on. Rows that were there
//! before must have been brought over otherwise, or updates of them find nothing. Only numbers of
//! rows are compared, and only up to a bound, because this is a reminder and no verification.

use tokio_postgres::Client;
use walbraid_schemas::Stop;

use crate::config::Config;
use crate::session::{OrStop, Session};

const ROWS_MAX: i64 = 100_000;

/// Warns of each such table.
pub(crate) async fn warn(
    config: &Config,
    publisher: &Session,
    subscriber: &Session,
) -> Result<(), Stop> {
    for (schema, table) in published(config, publisher).await? {
        let name = format!("{}.{}", quoted(&schema), quoted(&table));
        // A table that may not be read or is not there is for `check` to say.
        let (Ok(left), Ok(right)) = (rows(publisher, &name).await, rows(subscriber, &name).await)
        else {
            continue;
        };
        if left > 0 && left != right {
            tracing::warn!(
                "table {name} has {left} rows on the publisher and {right} on the subscriber; \
                 nothing is copied, a stream begins where its slot was made"
            );
        }
    }
    Ok(())
}

/// The tables of the configured publications.
pub(crate) async fn published(
    config: &Config,
    publisher: &Session,
) -> Result<Vec<(String, String)>, Stop> {
    let sql = "SELECT DISTINCT schemaname::text, tablename::text
               FROM pg_catalog.pg_publication_tables WHERE pubname = ANY ($1) ORDER BY 1, 2";
    let names = &config.producer.publisher.publications;
    let rows = publisher.query(sql, &[names]).await.or_stop("publisher")?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// The number of rows, at most one more than the bound.
async fn rows(client: &Client, name: &str) -> Result<i64, tokio_postgres::Error> {
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM {name} LIMIT {}) AS t",
        ROWS_MAX + 1
    );
    Ok(client.query_one(&sql, &[]).await?.get(0))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
