//! Networks that stall and break, by a proxy in front of a server.

use std::time::Duration;

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::proxy::Proxy;
use walbraid_tests::session::with_port;
use walbraid_tests::trouble::{CARRYING, CATALOGUE, LANE};
use walbraid_tests::wait::{PATIENCE, until};

/// Host and port of a URL of the stack.
fn authority(url: &str) -> String {
    let rest = url.split_once('@').unwrap().1;
    rest.split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_network_to_both_servers_breaks_and_stalls() {
    let bed = Bed::new().await.watched();
    bed.both(bank::SCHEMA).await;
    let to_publisher = Proxy::to(&authority(&bed.publisher_url)).await;
    let to_subscriber = Proxy::to(&authority(&bed.subscriber_url)).await;
    let mut config = bed.config();
    config
        .set("consumer", "workers", 8)
        .text(
            "publisher",
            "url",
            &with_port(&bed.publisher_url, to_publisher.port()),
        )
        .text(
            "subscriber",
            "url",
            &with_port(&bed.subscriber_url, to_subscriber.port()),
        );
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline.producer().expect(&[CARRYING]);
    pipeline.consumer().expect(&[LANE, CATALOGUE]);
    bank::open(&bed.publisher().await).await;
    pipeline.catch_up().await;
    for proxy in [&to_publisher, &to_subscriber] {
        let load = tokio::spawn({
            let url = bed.publisher_url.clone();
            async move { bank::load(&url, rand::random(), 2, 150).await }
        });
        proxy.cut();
        load.await.unwrap();
        proxy.pass(Duration::from_millis(2));
        pipeline.catch_up().await;
        proxy.freeze();
        bank::load(&bed.publisher_url, rand::random(), 2, 50).await;
        proxy.pass(Duration::ZERO);
        pipeline.catch_up().await;
        bed.assert_equal().await;
    }
    pipeline.producer().recovers(CARRYING, 1..=1).await;
    pipeline.consumer().recovers(LANE, 1..=1).await;
    pipeline.consumer().tells(CATALOGUE, 0..=1);
    pipeline.terminate().await;
}

/// A COMMIT waits for a lock before it is done.
const WAIT_IN_COMMIT: &str = "
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION wait();
    ALTER TABLE log ENABLE ALWAYS TRIGGER wait";

async fn answer_lost(workers: u32) {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE log (n int)").await;
    let subscriber = bed.subscriber().await;
    subscriber.run(WAIT_IN_COMMIT).await;
    let proxy = Proxy::to(&authority(&bed.subscriber_url)).await;
    let url = with_port(&bed.subscriber_url, proxy.port());
    let mut config = bed.config();
    config
        .text("subscriber", "url", &url)
        .set("consumer", "workers", workers)
        .set("consumer", "group", 1)
        .set("consumer", "lock_timeout_ms", 0)
        .set("consumer", "parallel_safe", "[\"public.log\"]");
    let mut pipeline = bed.pipeline_with(&config).await;
    pipeline
        .consumer()
        .expect(&[LANE, CATALOGUE])
        .expect_in_log("does not tell who waits for whose lock");
    pipeline.catch_up().await;
    subscriber.run("SELECT pg_advisory_lock(7)").await;
    let publisher = bed.publisher().await;
    for n in 0..20 {
        publisher
            .run(&format!("INSERT INTO log VALUES ({n})"))
            .await;
    }
    let waiting = "SELECT count(*) > 0 FROM pg_locks l, pg_database d
         WHERE datname = current_database() AND l.database = d.oid
           AND locktype = 'advisory' AND classid = 0 AND objid = 7 AND NOT granted";
    until("a COMMIT was sent", PATIENCE, async || {
        subscriber.holds(waiting).await.then_some(())
    })
    .await;
    proxy.freeze();
    subscriber.run("SELECT pg_advisory_unlock(7)").await;
    let committed = "SELECT count(*) > 0 FROM log";
    until("it is done", PATIENCE, async || {
        subscriber.holds(committed).await.then_some(())
    })
    .await;
    proxy.cut();
    let lost = "applying the lane failed";
    pipeline.consumer().wait_for_log(lost).await;
    proxy.pass(Duration::ZERO);
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(LANE, 1..=1).await;
    pipeline.consumer().tells(CATALOGUE, 0..=1);
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_applied_twice() {
    tokio::join!(answer_lost(1), answer_lost(8));
}
