//! Kafka or the registry is away: the lane says so, and says when that is over.

use rdkafka::mocking::MockCluster;
use walbraid_schemas::Value;

use crate::bed::Bed;
use crate::log::{insert, table};
use crate::proxy::Proxy;

const N: &str = "CREATE TABLE n (id int8 PRIMARY KEY)";

/// Waits until the lane's row says this, for a reason that holds these words.
async fn says(bed: &Bed, state: &str, words: &str) {
    bed.until(&format!("the lane is {state}"), async || {
        let lane = bed.lane().await;
        let reason = lane.reason.unwrap_or_default();
        lane.state == state && reason.message.contains(words)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_kafka_is_back_runs_though_nothing_new_is_in_the_log() {
    let cluster = MockCluster::new(1).unwrap();
    let bed = Bed::on_mock("kafka_away", N, &cluster).await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    bed.drained().await;
    says(&bed, "running", "").await;
    cluster.broker_down(1).unwrap();
    says(&bed, "retrying", "Kafka").await;
    cluster.broker_up(1).unwrap();
    says(&bed, "running", "").await;
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(2)])])
        .await;
    bed.drained().await;
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_waits_for_the_registry_says_so() {
    let bed = Bed::new("registry_away", N).await;
    let proxy = Proxy::to(&bed.registry).await;
    let mut config = bed.config();
    config.registry.urls = vec![proxy.address_in(&bed.registry)];
    config.registry.timeout_ms = 300;
    let consumer = bed.consume_with(config);
    // The claim and what is before it have the schema of the envelope only.
    bed.until("the first records are read", async || {
        bed.lane().await.state == "running"
    })
    .await;
    proxy.freeze();
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    says(&bed, "retrying", "registry").await;
    proxy.thaw();
    bed.drained().await;
    says(&bed, "running", "").await;
    consumer.stop().await;
    bed.done().await;
}
