//! Several members of one group.

use std::collections::BTreeMap;

use rdkafka::mocking::MockCluster;
use tokio::sync::mpsc;
use walbraid_consumer::client::Clients;
use walbraid_consumer::group::{Group, Membership};
use walbraid_schemas::Value;

use crate::bed::{Bed, PATIENCE};
use crate::log::{insert, table};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_member_stands_by_and_takes_over() {
    let bed = Bed::new("standby", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let write = async |from: i64| {
        for id in from..from + 20 {
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[Value::Int(id)])])
                .await;
        }
    };
    let first = bed.consume();
    write(0).await;
    bed.drained().await;
    let second = bed.consume();
    write(20).await;
    bed.drained().await;
    // Killed in mid-work: its sessions are gone with its sockets, the group notices in time.
    first.kill().await;
    write(40).await;
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "60");
    let third = bed.consume();
    second.stop().await;
    write(60).await;
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "80");
    third.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lane_is_finished_before_it_is_given_away() {
    let bed = Bed::new("revoked", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    // With this strategy every newcomer makes every member give up what it has.
    let mut config = bed.config();
    let properties = &mut config.kafka.properties;
    properties.insert(
        "partition.assignment.strategy".to_owned(),
        "range".to_owned(),
    );
    let mut members = Vec::new();
    for round in 0..4 {
        members.push(bed.consume_with(config.clone()));
        for id in 0..100 {
            let id = Value::Int(round * 100 + id);
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[id])])
                .await;
        }
        bed.drained().await;
    }
    for member in members {
        member.stop().await;
    }
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "400");
    let newest = "SELECT max(end_lsn) FROM walbraid.progress";
    assert_eq!(bed.value(newest).await, bed.log.end_lsn().to_string());
    bed.done().await;
}

/// Its broker is back before its session runs out: it has not to join anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_hears_that_its_group_is_back() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("back", 1, 1).unwrap();
    let property = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let clients = Clients {
        properties: BTreeMap::from([
            property("bootstrap.servers", &cluster.bootstrap_servers()),
            property("session.timeout.ms", "45000"),
        ]),
        group_id: "back".to_owned(),
        queue_bytes: 1 << 20,
    };
    let (tell, mut events) = mpsc::unbounded_channel();
    let group = Group::join(&clients, "back", tell).unwrap();
    let mut heard = async |what: &str, is_it: fn(&Membership) -> bool| {
        let hear = async { while !is_it(&events.recv().await.unwrap()) {} };
        let heard = tokio::time::timeout(PATIENCE, hear).await;
        heard.unwrap_or_else(|_| panic!("not heard: {what}"));
    };
    heard("a lane", |event| matches!(event, Membership::Assigned(_))).await;
    cluster.broker_down(1).unwrap();
    heard("trouble", |event| matches!(event, Membership::Trouble(_))).await;
    cluster.broker_up(1).unwrap();
    heard("an answer", |event| matches!(event, Membership::Answered)).await;
    drop(events);
    group.leave().await;
}
