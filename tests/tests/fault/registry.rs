//! The Schema Registry away when a schema is needed, failing, or refusing one.

use walbraid_tests::bed::Bed;
use walbraid_tests::front::Front;
use walbraid_tests::process::run;
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::trouble::{CARRYING, SCHEMA};

/// Requests refused that show that it is tried again.
const TRIES: usize = 4;

#[tokio::test]
async fn a_new_table_waits_for_the_registry() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO a VALUES (1)").await;
    pipeline.catch_up().await;
    pipeline.producer().expect(&[CARRYING]);
    bed.stack.kill(Server::Registry).await;
    publisher.run("INSERT INTO b VALUES (1)").await;
    pipeline.producer().wait_for_log("egistry").await;
    publisher.run("INSERT INTO a VALUES (2)").await;
    bed.stack.start(Server::Registry).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 1..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_consumer_that_knows_no_schema_waits_for_the_registry() {
    let bed = Bed::on(Stack::exclusive().await).await.watched();
    bed.both("CREATE TABLE a (id int PRIMARY KEY)").await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO a VALUES (1)").await;
    pipeline.catch_up().await;
    publisher.run("INSERT INTO a VALUES (2)").await;
    bed.stack.stop(Server::Registry).await;
    pipeline.restart_consumer().await;
    pipeline.consumer().expect(&[SCHEMA]);
    publisher.run("INSERT INTO a VALUES (3)").await;
    pipeline.consumer().wait_for_log("egistry").await;
    bed.stack.start(Server::Registry).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.consumer().recovers(SCHEMA, 1..=1).await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_registry_that_answers_5xx_is_waited_for_at_the_start_and_in_mid_run() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        .await;
    let registry = Front::of(&bed.stack.addresses.registry_url).await;
    let mut config = bed.config();
    config.text("registry", "url", &registry.url);
    let file = bed.write(&config, "refused");
    registry.refuse("", "/", 503);
    let message = run(&file, &["setup"]).await.stops(24);
    assert!(message.contains("503"), "{message}");
    assert!(
        !message.contains("teardown"),
        "it made something: {message}"
    );
    let checked = run(&file, &["check"]).await.expect(24);
    assert!(checked.stdout.contains("503"), "{}", checked.stdout);

    registry.pass();
    let mut pipeline = bed.set_up(&config).await;
    registry.refuse("", "/", 503);
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO a VALUES (1)").await;
    pipeline.start_producer();
    pipeline.producer().expect(&[CARRYING]);
    registry.refused(TRIES).await;
    registry.pass();
    pipeline.producer().recovers(CARRYING, 1..=1).await;
    bed.topic.end_after(3).await;

    registry.refuse("GET", "/schemas/", 500);
    pipeline.start_consumer();
    pipeline.consumer().expect(&[SCHEMA]);
    registry.refused(TRIES).await;
    registry.pass();
    pipeline.catch_up().await;
    pipeline.consumer().recovers(SCHEMA, 1..=1).await;

    registry.refuse("POST", "/subjects/", 502);
    publisher.run("INSERT INTO b VALUES (1)").await;
    registry.refused(TRIES).await;
    publisher.run("INSERT INTO a VALUES (2)").await;
    registry.pass();
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.producer().recovers(CARRYING, 2..=2).await;
    pipeline.terminate().await;
}

/// What setup finds only when it writes leaves a slot, of which it speaks.
#[tokio::test]
async fn a_setup_that_fails_at_the_end_says_what_stays_and_teardown_removes_it() {
    let bed = Bed::new().await.unwatched("nothing runs");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let registry = Front::of(&bed.stack.addresses.registry_url).await;
    let mut config = bed.config();
    config.text("registry", "url", &registry.url);
    let file = bed.write(&config, "walbraid");
    registry.refuse("POST", "/subjects/", 503);
    let left = run(&file, &["setup"]).await.expect(24).stderr;
    assert!(left.contains("holds the publisher's WAL"), "{left}");
    assert!(left.contains("walbraid teardown"), "{left}");
    let removed = run(&file, &["teardown"]).await.expect(0).stdout;
    for what in ["slot", "topic", "stream", "schema"] {
        assert!(removed.contains(&format!("removed {what}")), "{removed}");
    }
}

/// A registry that keeps its own rules: the compatibility of a subject is not ours to set.
#[tokio::test]
async fn a_schema_that_the_registry_refuses_stops_by_its_subject_and_goes_on_when_it_is_taken() {
    let bed = Bed::new().await.watched();
    bed.both("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let registry = Front::of(&bed.stack.addresses.registry_url).await;
    registry.refuse("PUT", "/config/", 405);
    let mut config = bed.config();
    config.text("registry", "url", &registry.url);
    let mut pipeline = bed.pipeline_with(&config).await;
    // Said once for each subject, when it is made.
    pipeline
        .producer()
        .expect_in_log("could not be set to NONE");
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (1, 1)").await;
    pipeline.catch_up().await;

    let subject = format!("{}.public.t", bed.topic.name);
    set_compatibility(&bed, &subject, "BACKWARD").await;
    bed.both("ALTER TABLE t ALTER v TYPE text").await;
    publisher.run("INSERT INTO t VALUES (2, 'two')").await;
    let message = pipeline.producer().stops(25).await;
    for part in [&subject, "409", "DETAIL:  ", "HINT:  "] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    let message = pipeline.run(&["wait", "--timeout", "1"]).await.stops(4);
    assert!(message.contains(&subject), "{message}");
    let reason = pipeline.reason_of("stopped").await;
    assert!(reason.contains(&subject), "{reason}");

    set_compatibility(&bed, &subject, "NONE").await;
    pipeline.start_producer();
    pipeline
        .producer()
        .expect_in_log("could not be set to NONE")
        .wait_for_log("claimed lane")
        .await;
    pipeline.catch_up().await;

    registry.refuse("POST", "/subjects/", 403);
    bed.both("ALTER TABLE t ADD w int").await;
    publisher.run("INSERT INTO t VALUES (3, 'three', 3)").await;
    let message = pipeline.producer().stops(24).await;
    for part in ["403", "DETAIL:  ", "HINT:  "] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    registry.pass();
    pipeline.start_producer();
    pipeline.producer().wait_for_log("claimed lane").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

async fn set_compatibility(bed: &Bed, subject: &str, level: &str) {
    let url = format!("{}/config/{subject}", bed.stack.addresses.registry_url);
    let request = reqwest::Client::new()
        .put(url)
        .header("content-type", "application/vnd.schemaregistry.v1+json")
        .body(format!(r#"{{"compatibility": "{level}"}}"#));
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
}
