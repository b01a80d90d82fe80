//! What goes into the lane while nothing is wrong.

use walbraid_schemas::LinkKind;

use crate::place::{Place, insert, wal};

const TABLE: &str = "CREATE TABLE a (id serial PRIMARY KEY, b text)";

#[tokio::test(flavor = "multi_thread")]
async fn transactions_arrive_in_commit_order_and_are_confirmed() {
    let place = Place::new(TABLE).await;
    let producer = place.run();
    let publisher = place.publisher().await;
    let xids = insert(&publisher, "a", 50).await;
    place.holds(&xids).await;
    let links = place.links().await;
    assert!(
        links
            .iter()
            .all(|link| (link.kind, link.parts, link.changes) == (LinkKind::Transaction, 1, 1))
    );
    place.confirms(links.last().unwrap().end_lsn).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_publication_does_not_hold_the_wal() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    publisher.run("CREATE TABLE empty (a int)").await;
    let now = wal(&publisher).await;
    place.confirms(now).await;
    producer.end().await.unwrap();
    assert!(place.links().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_still_gets_heartbeats() {
    let mut place = Place::new(TABLE).await;
    place.config.intervals.heartbeat_idle_interval_ms = 300;
    let producer = place.run();
    let before = place.bed.topic.end_after(3).await;
    assert!(place.bed.topic.end_after(before as usize + 2).await > before);
    producer.end().await.unwrap();
    assert!(place.links().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_transaction_is_a_run_of_parts() {
    let mut place = Place::new(TABLE).await;
    place.config.limits.record_bytes_max = Some(20_000);
    let publisher = place.publisher().await;
    let producer = place.run();
    publisher
        .run("INSERT INTO a (b) SELECT repeat('x', 100) FROM generate_series(1, 5000)")
        .await;
    let xids = insert(&publisher, "a", 1).await;
    let links = place.gets(2).await;
    assert_eq!(links[1].xid, xids[0]);
    assert!(
        links[0].parts > 20 && links[0].changes == 5_000,
        "{links:?}"
    );
    place.confirms(links[1].end_lsn).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_larger_than_a_record_is_cut() {
    let mut place = Place::new(TABLE).await;
    place.config.limits.record_bytes_max = Some(20_000);
    place.config.limits.publish_memory_bytes = 100_000;
    let publisher = place.publisher().await;
    let producer = place.run();
    publisher
        .run("INSERT INTO a (b) VALUES (repeat('x', 3000000))")
        .await;
    let links = place.gets(1).await;
    assert!(links[0].parts > 150, "{links:?}");
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_truncates_and_new_shapes_are_carried() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    for sql in [
        "SELECT pg_logical_emit_message(false, 'outside', 'x')",
        "SELECT pg_logical_emit_message(true, 'inside', 'y')",
        "TRUNCATE a RESTART IDENTITY",
        "BEGIN; INSERT INTO a DEFAULT VALUES; ALTER TABLE a ADD c int; \
         INSERT INTO a DEFAULT VALUES; COMMIT",
        "CREATE TABLE \"B x\" (a int); INSERT INTO \"B x\" VALUES (1)",
    ] {
        publisher.run(sql).await;
    }
    let links = place.gets(5).await;
    let found: Vec<_> = links.iter().map(|link| (link.kind, link.changes)).collect();
    let transaction = |changes| (LinkKind::Transaction, changes);
    assert_eq!(
        found,
        [
            (LinkKind::Message, 1),
            transaction(1),
            transaction(1),
            transaction(2),
            transaction(1),
        ]
    );
    place.confirms(links[4].end_lsn).await;
    producer.end().await.unwrap();
}
