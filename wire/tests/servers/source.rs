//! What a test of replication needs on the publisher, under a name of its own.

use walbraid_wire::replication::{
    ReplicationOptions, ReplicationReceiver, SlotOptions, StatusSender,
};
use walbraid_wire::{Connection, Error, ServerVersion};

use crate::server::{publisher, run, session, unique, walsender, within};

/// A table, a publication and a slot, all of one name.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) version: ServerVersion,
    sql: Connection,
}

impl Source {
    pub(crate) async fn new(prefix: &str, options: &SlotOptions) -> Source {
        let name = unique(prefix);
        let mut sql = session(&publisher()).await;
        run(
            &mut sql,
            &format!("CREATE TABLE {name} (id serial PRIMARY KEY, v text)"),
        )
        .await;
        run(
            &mut sql,
            &format!("CREATE PUBLICATION {name} FOR TABLE {name}"),
        )
        .await;
        let mut connection = walsender(&publisher()).await;
        let slot = within(connection.create_slot(&name, options))
            .await
            .unwrap();
        assert_eq!(slot.name, name);
        assert!(!slot.consistent_point.is_invalid());
        let version = connection.server_version();
        within(connection.close()).await.unwrap();
        Source { name, version, sql }
    }

    pub(crate) fn options(&self) -> ReplicationOptions {
        let publications = [self.name.clone()];
        ReplicationOptions::new(self.version, &self.name, &publications)
    }

    pub(crate) async fn start(
        &self,
        options: &ReplicationOptions,
    ) -> Result<(ReplicationReceiver, StatusSender), Error> {
        within(walsender(&publisher()).await.start_replication(options)).await
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Vec<walbraid_wire::TextRow> {
        run(&mut self.sql, &sql.replace("$name", &self.name)).await
    }

    pub(crate) async fn slot(&mut self, column: &str) -> Option<String> {
        let sql = format!("SELECT {column} FROM pg_replication_slots WHERE slot_name = '$name'");
        self.run(&sql).await.remove(0).value(0).map(str::to_owned)
    }

    pub(crate) async fn until(&mut self, condition: &str) {
        let sql =
            format!("SELECT 1 FROM pg_replication_slots WHERE slot_name = '$name' AND {condition}");
        within(async {
            while self.run(&sql).await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn drop(mut self) {
        self.until("NOT active").await;
        self.run("SELECT pg_drop_replication_slot('$name')").await;
        self.run("DROP PUBLICATION $name; DROP TABLE $name").await;
    }
}
