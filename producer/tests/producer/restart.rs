//! Producers that end, well or badly, and the next one.

use std::time::Duration;

use walbraid_tests::wait::{PATIENCE, moment, until};

use crate::place::{Place, insert};

const TABLE: &str = "CREATE TABLE a (id serial PRIMARY KEY, b text)";

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_ends_well_leaves_nothing_to_repeat() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let mut xids = Vec::new();
    for _ in 0..3 {
        let producer = place.run();
        xids.extend(insert(&publisher, "a", 20).await);
        place.holds(&xids).await;
        producer.end().await.unwrap();
        let last = place.links().await.last().unwrap().end_lsn;
        assert!(place.confirmed().await >= last);
    }
    assert_eq!(place.parts().await, xids.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_at_any_moment_leave_no_hole_and_no_double() {
    let mut place = Place::new(TABLE).await;
    // Long enough that most of what is written is never confirmed, and so written again.
    place.config.intervals.status_interval_ms = 400;
    let publisher = place.publisher().await;
    let load = tokio::spawn(async move { insert(&publisher, "a", 1_500).await });
    for round in 0..8 {
        let producer = place.run();
        let records = place.bed.topic.records().await.len();
        place.bed.topic.end_after(records + 1).await;
        moment(Duration::from_millis(37 * round)).await;
        producer.crash().await;
    }
    let producer = place.run();
    let xids = load.await.unwrap();
    place.holds(&xids).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_the_middle_of_a_run_of_parts_voids_it() {
    let mut place = Place::new(TABLE).await;
    place.config.limits.record_bytes_max = Some(20_000);
    let publisher = place.publisher().await;
    let producer = place.run();
    let rows = "INSERT INTO a (b) SELECT repeat('x', 500) FROM generate_series(1, 40000)";
    let work = tokio::spawn({
        let publisher = place.publisher().await;
        async move { publisher.run(rows).await }
    });
    place.bed.topic.end_after(40).await;
    producer.crash().await;
    work.await.unwrap();
    let again = place.run();
    let xids = insert(&publisher, "a", 1).await;
    let links = place.gets(2).await;
    assert_eq!((links[0].changes, links[1].xid), (40_000, xids[0]));
    again.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walsender_that_is_ended_under_load_is_connected_again() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let load = tokio::spawn(async move { insert(&publisher, "a", 1_000).await });
    let other = place.publisher().await;
    let end = format!(
        "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots \
         WHERE slot_name = '{}' AND active",
        place.config.publisher.slot
    );
    // The slot is held before the lane is claimed: only a walsender whose claim is written is one
    // that is followed by another claim.
    for claims in 1..=4 {
        until("the lane is claimed", PATIENCE, async || {
            (producer.metric("claims_total") >= claims).then_some(())
        })
        .await;
        until("the walsender is ended", PATIENCE, async || {
            (other.value(&end).await == "1").then_some(())
        })
        .await;
        until("the lane is claimed anew", PATIENCE, async || {
            (producer.metric("claims_total") > claims).then_some(())
        })
        .await;
    }
    let xids = load.await.unwrap();
    place.holds(&xids).await;
    producer.end().await.unwrap();
}
