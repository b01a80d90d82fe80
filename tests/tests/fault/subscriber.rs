//! The subscriber crashes, refuses, blocks, or ends our sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::disk::FullDisk;
use walbraid_tests::process::Process;
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::trouble::{CATALOGUE, LANE, TARGET};
use walbraid_tests::wait::{PATIENCE, until};

#[tokio::test]
async fn a_crash_that_takes_back_commits_leaves_neither_hole_nor_double() {
    const CRASHES: usize = 4;
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both(bank::SCHEMA).await;
    // Nobody flushes often: commits of the last moments, which returned, are lost with the server.
    let mut config = bed.config();
    config.set("consumer", "flush_interval_ms", 2000);
    let subscriber = bed.subscriber().await;
    for lazy in ["wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'"] {
        subscriber.run(&format!("ALTER SYSTEM SET {lazy}")).await;
    }
    subscriber.run("SELECT pg_reload_conf()").await;
    let eight = bed.write(config.clone().set("consumer", "workers", 8), "eight");
    let mut pipeline = bed.pipeline_with(&config).await;
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    // It lasts until the last crash: what is taken back is what was committed just before one.
    let enough = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (url, enough) = (bed.publisher_url.clone(), Arc::clone(&enough));
        async move {
            while !enough.load(Ordering::Relaxed) {
                bank::load(&url, rand::random(), 2, 50).await;
            }
        }
    });
    let mut taken_back = 0;
    for config in [pipeline.config.clone(), eight] {
        pipeline.consumer.take().unwrap().terminate().await;
        pipeline.config = config;
        pipeline.start_consumer();
        pipeline
            .consumer()
            .expect(&[LANE, CATALOGUE])
            .expect_in_log("does not tell who waits for whose lock");
        for number in 1..=CRASHES / 2 {
            pipeline.consumer().wait_for_log("lane taken").await;
            let there = crash(&bed).await;
            let position = taken_at(pipeline.consumer(), 1 + number).await;
            let is_back = format!("SELECT '{position}'::pg_lsn < '{there}'");
            taken_back += usize::from(bed.publisher().await.holds(&is_back).await);
        }
        pipeline.consumer().recovers(LANE, 1..=CRASHES / 2).await;
        pipeline.consumer().tells(CATALOGUE, 0..=CRASHES / 2);
    }
    enough.store(true, Ordering::Relaxed);
    load.await.unwrap();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    assert!(taken_back > 0, "{CRASHES} crashes took nothing back");
    bed.subscriber().await.run("ALTER SYSTEM RESET ALL").await;
    pipeline.terminate().await;
}

/// Crashes the subscriber once it has moved on, and starts it; up to where it had been seen.
async fn crash(bed: &Bed) -> String {
    let subscriber = bed.subscriber().await;
    let applied = "SELECT count(*) FROM transfer";
    let before: u64 = subscriber.value(applied).await.parse().unwrap();
    until("the subscriber moves on", PATIENCE, async || {
        let now: u64 = subscriber.value(applied).await.parse().unwrap();
        (now > before + 50).then_some(())
    })
    .await;
    let newest = "SELECT max(end_lsn) FROM walbraid.progress";
    let there = subscriber.value(newest).await;
    bed.stack.kill(Server::Subscriber).await;
    bed.stack.start(Server::Subscriber).await;
    there
}

/// Where the lane was when the consumer took it for the so many-th time.
async fn taken_at(consumer: &Process, times: usize) -> String {
    let what = format!("the lane is taken {times} times");
    until(&what, PATIENCE, async || {
        let log = consumer.log();
        let taken = log.iter().rev().find(|line| line.contains("lane taken"));
        let line = taken.filter(|_| consumer.count_in_log("lane taken") >= times)?;
        Some(line.split_once("position=")?.1.to_owned())
    })
    .await
}

#[tokio::test]
async fn our_sessions_ended_again_and_again() {
    let bed = Bed::new().await.watched();
    bed.both(bank::SCHEMA).await;
    let mut config = bed.config();
    config.set("consumer", "workers", 8);
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.consumer().expect(&[LANE, CATALOGUE]);
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    let load = tokio::spawn({
        let url = bed.publisher_url.clone();
        async move { bank::load(&url, rand::random(), 2, 600).await }
    });
    let killer = bed.subscriber().await;
    let mut ended = 0;
    while !load.is_finished() {
        ended += 1;
        killer
            .run(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE 'walbraid %'",
            )
            .await;
        let ours = "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE 'walbraid %'";
        until("they come back", PATIENCE, async || {
            killer.holds(ours).await.then_some(())
        })
        .await;
    }
    load.await.unwrap();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(LANE, 1..=ended).await;
    pipeline.consumer().tells(CATALOGUE, 0..=ended);
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_row_locked_by_somebody_else_is_waited_for() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut config = bed.config();
    config.set("consumer", "lock_timeout_ms", 300);
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.consumer().expect(&[TARGET]);
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1, 0)").await;
    pipeline.catch_up().await;
    let holder = bed.subscriber().await;
    holder
        .run("BEGIN; SELECT FROM t WHERE id = 1 FOR UPDATE")
        .await;
    publisher.run("UPDATE t SET v = 1").await;
    pipeline.run(&["wait", "--timeout", "2"]).await.expect(3);
    holder.run("COMMIT").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(TARGET, 1..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_no_stop() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut config = bed.config();
    config.set("consumer", "lock_timeout_ms", 0);
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.consumer().expect(&[TARGET]);
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1, 0), (2, 0)").await;
    pipeline.catch_up().await;
    let other = bed.subscriber().await;
    // The other session waits with patience: it is the apply session that is the victim.
    other
        .run("SET deadlock_timeout = '1min'; BEGIN; SELECT FROM t WHERE id = 2 FOR UPDATE")
        .await;
    publisher
        .run("BEGIN; UPDATE t SET v = 1 WHERE id = 1; UPDATE t SET v = 1 WHERE id = 2; COMMIT")
        .await;
    let waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
    until("apply waits for the row", PATIENCE, async || {
        other.holds(waiting).await.then_some(())
    })
    .await;
    other
        .run("SELECT FROM t WHERE id = 1 FOR UPDATE; COMMIT")
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(TARGET, 1..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn read_only_for_a_while() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.catch_up().await;
    pipeline.consumer.take().unwrap().terminate().await;
    let subscriber = bed.subscriber().await;
    let set = |value| {
        format!(
            "ALTER DATABASE {} SET default_transaction_read_only = {value}",
            bed.name
        )
    };
    subscriber.run(&set("on")).await;
    pipeline.start_consumer();
    bed.publisher().await.run("INSERT INTO t VALUES (1)").await;
    // Sessions that ask for read-write get it: a default is not a refusal.
    pipeline.catch_up().await;
    subscriber
        .run("SET default_transaction_read_only = off")
        .await;
    subscriber.run(&set("off")).await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_full_disk_is_waited_for() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    pipeline.consumer().expect(&[TARGET]);
    let subscriber = bed.subscriber().await;
    let disk = FullDisk::under(&subscriber, "t").await;
    let publisher = bed.publisher().await;
    for id in 1..=3 {
        publisher.run(&format!("INSERT INTO t VALUES ({id})")).await;
    }
    let reason = pipeline.reason_of("retrying").await;
    assert!(reason.contains("No space left on device"), "{reason}");
    // It is tried again and again, and nothing is said of it.
    let tries = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before: u64 = subscriber.value(tries).await.parse().unwrap();
    until("it is tried again", PATIENCE, async || {
        let now: u64 = subscriber.value(tries).await.parse().unwrap();
        (now >= before + 3).then_some(())
    })
    .await;
    pipeline.run(&["wait", "--timeout", "1"]).await.expect(3);
    disk.mend(&subscriber).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(TARGET, 1..=1).await;
    assert_eq!(pipeline.consumer().count_in_log("No space left"), 1);
    assert_eq!(pipeline.reason_of("running").await, "");
    pipeline.terminate().await;
}
