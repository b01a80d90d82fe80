//! Several members of one group.

use walbraid_schemas::Value;

use crate::bed::Bed;
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
