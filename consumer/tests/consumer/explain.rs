//! What a lane explains: kept on the subscriber, and exposed as metrics.

use prometheus_client::registry::Registry;
use walbraid_consumer::config::Workers;
use walbraid_consumer::explain::{self, Explained};
use walbraid_consumer::metrics::Metrics;
use walbraid_schemas::row::Value;

use crate::bed::Bed;
use crate::log::{insert, table};

const TABLES: &str = "
CREATE TABLE n (id int8 PRIMARY KEY);
CREATE TABLE audited (id int8 PRIMARY KEY);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER audit AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION note();
ALTER TABLE audited ENABLE ALWAYS TRIGGER audit";

async fn explained(bed: &Bed) -> Option<Explained> {
    let mut lanes = explain::read(&bed.sql, &bed.name).await.unwrap();
    Some(lanes.remove(0).counted?.explained)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_counted_is_kept_and_exposed() {
    let bed = Bed::new("explain", TABLES).await;
    assert_eq!(explained(&bed).await, None, "nobody has applied the lane");
    let (n, audited) = (table("n", &["id int8*"]), table("audited", &["id int8*"]));
    let n_ref = [bed.log.table(&n).await];
    let audited_ref = [bed.log.table(&audited).await];
    let mut config = bed.config();
    config.apply.workers = Workers::Fixed(4);
    config.apply.group_transactions_max = 1;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&bed.name, &mut registry);
    let consumer = bed.consume_counted(config, metrics);
    for id in 0..3 {
        let row = [Value::Int(id)];
        let insert_n = vec![insert(0, &n, &row)];
        bed.log.transaction(&n_ref, insert_n).await;
    }
    let row = [Value::Int(1)];
    let insert_audited = vec![insert(0, &audited, &row)];
    bed.log.transaction(&audited_ref, insert_audited).await;
    bed.drained().await;
    // The newest counts are written at the end.
    consumer.stop().await;
    let explained = explained(&bed).await.unwrap();
    assert_eq!(explained.workers, 4);
    assert_eq!(explained.transactions.all(), 4);
    assert_eq!(explained.transactions.unknown, 1);
    assert_eq!(explained.transactions.serial, 1);
    let find = |name: &str| explained.tables.iter().find(|table| table.table == name);
    let n = find("public.n").unwrap();
    assert_eq!((n.transactions, n.alone, n.serial.len()), (3, 0, 0));
    let audited = find("public.audited").unwrap();
    assert_eq!((audited.transactions, audited.alone), (1, 1));
    let serial = &audited.serial[0];
    assert_eq!(
        (serial.reason.as_str(), serial.transactions),
        ("trigger", 1)
    );
    assert!(serial.remedy.contains("\"audit\""), "{}", serial.remedy);

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let lane = format!("stream=\"{}\",lane=\"0\"", bed.name);
    for line in [
        format!("dependence_transactions_total{{{lane},dependence=\"UNKNOWN\"}} 1"),
        format!(
            "serial_transactions_total{{{lane},table=\"public.audited\",reason=\"trigger\"}} 1"
        ),
        format!("workers{{{lane}}} 4"),
    ] {
        let line = format!("walbraid_consumer_{line}");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_write_it_applies_all_the_same() {
    let bed = Bed::new("unexplained", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let grant = "GRANT INSERT ON n TO {role}; REVOKE ALL ON walbraid.explained FROM {role};";
    let Some(config) = bed.plain_role(grant).await else {
        bed.done().await;
        return;
    };
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume_with(config);
    let row = [Value::Int(1)];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row)])
        .await;
    bed.drained().await;
    consumer.stop().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "1");
    assert_eq!(explained(&bed).await, None);
    assert_eq!(bed.lane().await.state, "idle");
    bed.drop_plain_role().await;
    bed.done().await;
}
