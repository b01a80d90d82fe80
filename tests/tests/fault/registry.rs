//! The Schema Registry away when a schema is needed.

use walbraid_tests::bed::Bed;
use walbraid_tests::stack::{Server, Stack};
use walbraid_tests::trouble::{CARRYING, SCHEMA};

#[tokio::test]
async fn a_new_table_waits_for_the_registry() {
    let bed = Bed::on(Stack::exclusive().await).await;
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
    let bed = Bed::on(Stack::exclusive().await).await;
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
