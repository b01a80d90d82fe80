//! A session on one of the PostgreSQL servers, for what a test does itself.

use std::ops::Deref;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::wait::{PATIENCE, until};

/// A client with the task that drives its connection; both end together.
pub struct Session {
    client: Client,
    connection: JoinHandle<()>,
}

impl Session {
    /// Opens a session.
    pub async fn open(url: &str) -> Self {
        Self::try_open(url)
            .await
            .unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
    }

    /// Opens a session on a server that may be down.
    pub async fn try_open(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // An error of the connection reaches every call that is waiting for it.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, connection })
    }

    /// Runs statements that must succeed.
    pub async fn run(&self, sql: &str) {
        if let Err(error) = self.client.batch_execute(sql).await {
            panic!("{sql}\n{}", describe(&error));
        }
    }

    /// Waits until nobody reads the slot: a walsender outlives the end of its client for a moment.
    pub async fn until_free(&self, slot: &str) {
        let free = format!(
            "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        );
        until("nobody reads the slot", PATIENCE, async || {
            self.holds(&free).await.then_some(())
        })
        .await;
    }

    /// All rows of a query, as text.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{sql}\n{}", describe(&error)),
        }
    }

    /// All rows of a query that may fail, as text.
    pub async fn try_rows(
        &self,
        sql: &str,
    ) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        let messages = self.client.simple_query(sql).await?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|i| row.get(i).map(str::to_owned))
                    .collect(),
            ),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The one value of a query that gives one row with one column that is not null.
    pub async fn value(&self, sql: &str) -> String {
        let mut rows = self.rows(sql).await;
        assert!(
            rows.len() == 1 && rows[0].len() == 1,
            "not one value: {sql}: {rows:?}"
        );
        rows.remove(0)
            .remove(0)
            .unwrap_or_else(|| panic!("null: {sql}"))
    }

    /// Whether a query that gives one boolean gives true.
    pub async fn holds(&self, sql: &str) -> bool {
        self.value(sql).await == "t"
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!(
            "{}: {} ({})",
            server.severity(),
            server.message(),
            server.code().code()
        ),
        None => error.to_string(),
    }
}

/// `url` with another database in it.
pub fn with_database(url: &str, database: &str) -> String {
    let (path, query) = match url.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority = path.find("://").map_or(0, |at| at + 3);
    let end = path[authority..]
        .find('/')
        .map_or(path.len(), |at| authority + at);
    format!("{}/{database}{query}", &path[..end])
}

/// `url` with another port in it, for a proxy on this machine.
pub fn with_port(url: &str, port: u16) -> String {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..]
        .find(['/', '?'])
        .map_or(url.len(), |at| authority + at);
    let colon = url[authority..end]
        .rfind(':')
        .map_or(end, |at| authority + at);
    format!("{}:{port}{}", &url[..colon], &url[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_changed_in_one_place() {
        let url = "postgres://postgres@127.0.0.1:5000/postgres?sslmode=disable";
        assert_eq!(
            with_database(url, "a"),
            "postgres://postgres@127.0.0.1:5000/a?sslmode=disable"
        );
        assert_eq!(with_database("postgres://h:1", "a"), "postgres://h:1/a");
        assert_eq!(
            with_port(url, 7),
            "postgres://postgres@127.0.0.1:7/postgres?sslmode=disable"
        );
        assert_eq!(with_port("http://h:1/x", 7), "http://h:7/x");
    }
}
