//! Transactions of unusual size and shape.

use std::fmt::Write;

use walbraid_tests::bed::Bed;

#[tokio::test]
async fn a_transaction_of_many_rows_travels_in_parts() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        .await;
    let mut config = bed.config();
    config.set("producer", "record_bytes_max", 20_000);
    let mut pipeline = bed.pipeline_with(&config).await;
    let publisher = bed.publisher().await;
    publisher
        .run("INSERT INTO t SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i")
        .await;
    publisher
        .run("UPDATE t SET v = v || id; DELETE FROM t WHERE id % 3 = 0")
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    assert!(
        bed.topic.records().await.len() > 100,
        "the transaction was not split"
    );
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_row_larger_than_a_record_is_split_and_joined() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v text, b bytea)")
        .await;
    bed.both("ALTER TABLE t REPLICA IDENTITY FULL").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    // Text that does not compress, 3 MB, beside a topic's limit of 1 MB.
    let noise =
        "(SELECT string_agg(md5(i::text || random()), '') FROM generate_series(1, 100000) i)";
    publisher
        .run(&format!(
            "INSERT INTO t VALUES (1, {noise}, decode({noise}, 'hex'))"
        ))
        .await;
    publisher.run("UPDATE t SET v = reverse(v)").await;
    publisher.run("INSERT INTO t VALUES (2, 'small', '')").await;
    publisher
        .run(&format!(
            "UPDATE t SET b = decode({noise}, 'hex') WHERE id = 1"
        ))
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    publisher.run("DELETE FROM t").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn keys_handed_on_and_swapped_inside_a_transaction() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE e (id int PRIMARY KEY, v text)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run("INSERT INTO e VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        .await;
    publisher
        .run(
            "BEGIN; UPDATE e SET id = 99 WHERE id = 1; UPDATE e SET id = 1 WHERE id = 2;
             UPDATE e SET id = 2 WHERE id = 99; COMMIT",
        )
        .await;
    publisher
        .run("BEGIN; DELETE FROM e WHERE id = 3; INSERT INTO e VALUES (3, 'd'); COMMIT")
        .await;
    publisher
        .run(
            "BEGIN; INSERT INTO e VALUES (9, 'x'); UPDATE e SET v = 'y' WHERE id = 9;
             DELETE FROM e WHERE id = 9; INSERT INTO e VALUES (9, 'z'); COMMIT",
        )
        .await;
    publisher.run("UPDATE e SET id = id + 100").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_unique_value_handed_over_between_transactions() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE h (id int PRIMARY KEY, u int UNIQUE)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO h VALUES (0, 1)").await;
    let mut script = String::new();
    for id in 0..300 {
        let next = id + 1;
        write!(script, "DELETE FROM h WHERE id = {id};").unwrap();
        write!(script, "INSERT INTO h VALUES ({next}, 1);").unwrap();
        write!(script, "UPDATE h SET u = 2 WHERE id = {next};").unwrap();
        write!(
            script,
            "INSERT INTO h VALUES (-{next}, 1); DELETE FROM h WHERE id < 0;"
        )
        .unwrap();
        write!(script, "UPDATE h SET u = 1 WHERE id = {next};").unwrap();
    }
    // One statement a transaction: simple queries with several statements would be one.
    for statement in script.split_terminator(';') {
        publisher.run(statement).await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn messages_pass_without_harm() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(
            "SELECT pg_logical_emit_message(false, 'p', 'between');
             BEGIN; INSERT INTO t VALUES (1);
             SELECT pg_logical_emit_message(false, 'p', 'not of the transaction');
             SELECT pg_logical_emit_message(true, 'p', 'of the transaction');
             INSERT INTO t VALUES (2); COMMIT",
        )
        .await;
    publisher
        .run("SELECT pg_logical_emit_message(true, 'p', 'alone')")
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_quiet_publication_does_not_hold_the_publishers_wal() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let publisher = bed.publisher().await;
    publisher
        .run("DROP PUBLICATION everything; CREATE PUBLICATION everything FOR TABLE t")
        .await;
    publisher.run("CREATE TABLE busy (v text)").await;
    let mut pipeline = bed.pipeline().await;
    let end = publisher
        .value(
            "INSERT INTO busy SELECT repeat('x', 100) FROM generate_series(1, 20000);
             SELECT pg_current_wal_insert_lsn()",
        )
        .await;
    let passed = format!(
        "SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{}'",
        bed.name
    );
    walbraid_tests::wait::until(
        "the slot passes",
        walbraid_tests::wait::PATIENCE,
        async || publisher.holds(&passed).await.then_some(()),
    )
    .await;
    pipeline.terminate().await;
}
