//! The `walbraid` schema: made, found, upgraded, refused.

use walbraid_consumer::policy::Failure;
use walbraid_consumer::schema::{self, Installed, STEPS, VERSION};
use walbraid_schemas::notice::StopKind;
use walbraid_wire::Sql;

use crate::bed::{connect, variable, with_database};

/// A database of its own.
struct Place {
    name: String,
    sql: Sql,
}

impl Place {
    async fn new(test: &str) -> Self {
        let name = format!("c{}_schema_{test}", std::process::id());
        let server = variable("WALBRAID_SUBSCRIBER_URL");
        let create = format!("CREATE DATABASE {name}");
        connect(&server).await.batch_execute(&create).await.unwrap();
        let sql = connect(&with_database(&server, &name)).await;
        Self { name, sql }
    }

    async fn flag(&self, query: &str) -> bool {
        let row = self.sql.query_one(&format!("SELECT {query}"), &[]).await;
        row.unwrap().get(0)
    }

    async fn done(self, cleaning: &str) {
        self.sql.batch_execute(cleaning).await.unwrap();
        let _ = self.sql.close().await;
        let server = variable("WALBRAID_SUBSCRIBER_URL");
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        connect(&server).await.batch_execute(&drop).await.unwrap();
    }
}

fn hint(failure: Failure) -> String {
    let stop = failure.into_stop();
    assert_eq!(stop.kind, StopKind::NotSetUp, "{stop}");
    stop.hint.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_schema_is_upgraded_and_whoever_may_apply_still_may() {
    let place = Place::new("upgrade").await;
    let (sql, role) = (&place.sql, &place.name);
    sql.batch_execute(STEPS[0]).await.unwrap();
    let rights = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA walbraid TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA walbraid TO {role};
         GRANT UPDATE ON walbraid.lanes TO {role};
         GRANT INSERT, DELETE ON walbraid.progress TO {role}"
    );
    sql.batch_execute(&rights).await.unwrap();
    let refused = schema::require(sql).await.unwrap_err();
    assert_eq!(hint(refused), "Run walbraid setup, which upgrades it.");

    assert_eq!(schema::install(sql).await.unwrap(), Installed::Upgraded);
    assert_eq!(schema::version(sql).await.unwrap(), Some(VERSION));
    assert_eq!(schema::install(sql).await.unwrap(), Installed::Found);
    schema::require(sql).await.unwrap();
    for table in ["explained", "recordings"] {
        for right in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
            let may = format!("has_table_privilege('{role}', 'walbraid.{table}', '{right}')");
            assert!(place.flag(&may).await, "{may}");
        }
    }
    let cleaning = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    place.done(&cleaning).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_schema_is_of_the_newest_version_and_goes_as_a_whole() {
    let place = Place::new("new").await;
    let sql = &place.sql;
    assert_eq!(schema::install(sql).await.unwrap(), Installed::Made);
    assert_eq!(schema::version(sql).await.unwrap(), Some(VERSION));
    assert_eq!(schema::install(sql).await.unwrap(), Installed::Found);
    assert!(schema::remove(sql).await.unwrap());
    assert!(place.flag("to_regnamespace('walbraid') IS NULL").await);
    place.done("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused_and_left_as_it_is() {
    let place = Place::new("newer").await;
    let sql = &place.sql;
    schema::install(sql).await.unwrap();
    let newer = format!("UPDATE walbraid.version SET version = {}", VERSION + 1);
    sql.batch_execute(&newer).await.unwrap();
    let expected = "Use the walbraid that made it, or a newer one.";
    assert_eq!(hint(schema::install(sql).await.unwrap_err()), expected);
    assert_eq!(hint(schema::require(sql).await.unwrap_err()), expected);
    assert_eq!(schema::version(sql).await.unwrap(), Some(VERSION + 1));
    place.done("").await;
}
