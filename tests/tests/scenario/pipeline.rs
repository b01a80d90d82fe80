//! The main job: what commits on the publisher arrives on the subscriber, whole, once, in order.

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::watch::Watch;

#[tokio::test]
async fn a_mixed_load_arrives_and_no_reader_sees_half_of_a_transaction() {
    let bed = Bed::new().await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    let watch = Watch::start(&bed.subscriber_url, bank::INVARIANT).await;
    bank::open(&bed.publisher().await).await;
    bank::load(&bed.publisher_url, rand::random(), 4, 300).await;
    pipeline.catch_up().await;
    watch.finish().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn what_was_committed_while_nothing_ran_arrives() {
    let bed = Bed::new().await;
    bed.both(bank::SCHEMA).await;
    let mut pipeline = bed.pipeline().await;
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    pipeline.terminate().await;

    bank::load(&bed.publisher_url, rand::random(), 2, 200).await;
    pipeline.start_producer();
    pipeline.start_consumer();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn each_transaction_is_one_target_transaction_where_the_group_is_one() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut config = bed.config();
    config.set("consumer", "group", 1);
    let mut pipeline = bed.set_up(&config).await;
    pipeline.start_producer();
    let publisher = bed.publisher().await;
    for id in 0..200 {
        let insert = format!("INSERT INTO t VALUES ({id}, 0), (-{id} - 1, 0)");
        publisher.run(&insert).await;
    }
    pipeline.start_consumer();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    let subscriber = bed.subscriber().await;
    assert_eq!(
        subscriber
            .value("SELECT count(DISTINCT xmin::text) FROM t")
            .await,
        "200"
    );
    pipeline.terminate().await;
}

#[tokio::test]
async fn the_order_of_commits_is_kept_across_sessions() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE a (n bigint); CREATE TABLE b (n bigint)")
        .await;
    bed.both("INSERT INTO a VALUES (0); INSERT INTO b VALUES (0)")
        .await;
    bed.both("ALTER TABLE a REPLICA IDENTITY FULL; ALTER TABLE b REPLICA IDENTITY FULL")
        .await;
    let mut pipeline = bed.pipeline().await;
    let rule = "SELECT (SELECT n FROM a) - (SELECT n FROM b) BETWEEN 0 AND 1";
    let watch = Watch::start(&bed.subscriber_url, rule).await;
    let (first, second) = (bed.publisher().await, bed.publisher().await);
    for _ in 0..500 {
        first.run("UPDATE a SET n = n + 1").await;
        second.run("UPDATE b SET n = n + 1").await;
    }
    pipeline.catch_up().await;
    watch.finish().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_transaction_rolled_back_leaves_nothing() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run("BEGIN; INSERT INTO t SELECT generate_series(1, 1000); ROLLBACK")
        .await;
    publisher
        .run(
            "BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (2);
             SAVEPOINT b; INSERT INTO t VALUES (3); RELEASE b; ROLLBACK TO a;
             INSERT INTO t VALUES (4); COMMIT",
        )
        .await;
    pipeline.catch_up().await;
    let subscriber = bed.subscriber().await;
    assert_eq!(
        subscriber
            .value("SELECT string_agg(id::text, ',') FROM t")
            .await,
        "1,4"
    );
    pipeline.terminate().await;
}

#[tokio::test]
async fn time_limits_and_text_settings_of_the_databases_change_nothing() {
    let bed = Bed::new().await;
    bed.both(
        "CREATE TABLE t (id int PRIMARY KEY, names text[], day date, span interval, ratio float8);
         DO $$ DECLARE it text; BEGIN
             FOREACH it IN ARRAY ARRAY['idle_session_timeout = 1500',
                 'idle_in_transaction_session_timeout = 200', 'statement_timeout = 5000',
                 'array_nulls = off', 'DateStyle = \"SQL, DMY\"', 'IntervalStyle = sql_standard',
                 'extra_float_digits = -15', 'transaction_timeout = 3000'] LOOP
                 IF EXISTS (SELECT FROM pg_settings WHERE name = split_part(it, ' ', 1)) THEN
                     EXECUTE format('ALTER DATABASE %I SET ', current_database()) || it;
                 END IF;
             END LOOP;
         END $$",
    )
    .await;
    let mut pipeline = bed.pipeline().await;
    for id in [1, 2] {
        bed.publisher()
            .await
            .run(&format!(
                "SET array_nulls = on; INSERT INTO t VALUES ({id}, '{{NULL,\"NULL\"}}', \
                 '2026-02-01', '-1 mon 2 days -3:00', 0.1::float8 + 0.2)"
            ))
            .await;
        pipeline.catch_up().await;
    }
    bed.assert_equal().await;
    pipeline.terminate().await;
}
