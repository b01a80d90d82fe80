//! A session that reads the catalogue.
//!
//! A relation takes ten queries, the same ones for each, and to plan them takes the server longer
//! than to answer them. So each is prepared once, and planned once (`plan_cache_mode`).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Mutex;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use walbraid_wire::Sql;

use crate::policy::Failure;

/// The session, and what is prepared on it.
pub struct Session {
    sql: Sql,
    prepared: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
    /// Makes a session one that reads the catalogue.
    ///
    /// # Errors
    ///
    /// What the server says to `SET`, or that it says nothing any more.
    pub async fn new(sql: Sql) -> Result<Self, Failure> {
        sql.batch_execute("SET plan_cache_mode = force_generic_plan")
            .await?;
        let prepared = Mutex::default();
        Ok(Self { sql, prepared })
    }

    pub(super) async fn query(
        &self,
        query: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let statement = self.statement(query).await?;
        Ok(self.sql.query(&statement, parameters).await?)
    }

    pub(super) async fn query_one(
        &self,
        query: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Failure> {
        let statement = self.statement(query).await?;
        Ok(self.sql.query_one(&statement, parameters).await?)
    }

    async fn statement(&self, query: &'static str) -> Result<Statement, Failure> {
        let known = self.lock().get(query).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.sql.prepare(query).await?;
        self.lock().insert(query, statement.clone());
        Ok(statement)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        // A map of what is prepared is whole after any panic.
        let poisoned = std::sync::PoisonError::into_inner;
        self.prepared.lock().unwrap_or_else(poisoned)
    }
}

impl Deref for Session {
    type Target = Sql;

    fn deref(&self) -> &Sql {
        &self.sql
    }
}
