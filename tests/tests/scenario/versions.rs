//! Every supported version of PostgreSQL, on both sides.

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::stack::Stack;

async fn check(publisher: u32, subscriber: u32) {
    let bed = Bed::on(Stack::own(publisher, subscriber).await).await;
    bed.both(bank::SCHEMA).await;
    bed.both(
        "CREATE TABLE big (id int PRIMARY KEY, v text); ALTER TABLE big REPLICA IDENTITY FULL",
    )
    .await;
    let mut pipeline = bed.pipeline().await;
    let session = bed.publisher().await;
    bank::open(&session).await;
    bank::load(&bed.publisher_url, rand::random(), 2, 100).await;
    session
        .run("INSERT INTO big SELECT i, repeat('y', i) FROM generate_series(1, 3000) i")
        .await;
    session
        .run("UPDATE big SET id = -id WHERE id < 100; TRUNCATE pending")
        .await;
    session.run("DELETE FROM big WHERE id > 9").await;
    session
        .run("SELECT pg_logical_emit_message(true, 'p', 'm')")
        .await;
    // An empty transaction: 14 sends it.
    session
        .run("BEGIN; CREATE TEMP TABLE none (id int); INSERT INTO none VALUES (1); COMMIT")
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.restart_producer().await;
    pipeline.restart_consumer().await;
    session.run("INSERT INTO big VALUES (5000, 'after')").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn from_the_oldest_to_the_newest() {
    check(14, 18).await;
}

#[tokio::test]
async fn from_the_newest_to_the_oldest() {
    check(18, 14).await;
}

#[tokio::test]
async fn between_versions_in_the_middle() {
    check(15, 17).await;
    check(16, 15).await;
    check(17, 16).await;
}
