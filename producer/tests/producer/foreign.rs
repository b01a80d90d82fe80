//! Others in our lane: claims, zombies, junk, and a second producer.

use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use walbraid_schemas::{Body, Envelope, Heartbeat, StopKind, envelope, frame};
use walbraid_tests::wait::{PATIENCE, until};

use crate::place::{Place, insert};

const TABLE: &str = "CREATE TABLE a (id serial PRIMARY KEY, b text)";

/// Writes bytes into the place's lane, as anybody may.
async fn write(place: &Place, payload: &[u8]) {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &place.bed.topic.kafka);
    let producer: FutureProducer = client.create().unwrap();
    let record = FutureRecord::<[u8], [u8]>::to(&place.bed.topic.name).partition(0);
    producer
        .send(record.payload(payload), PATIENCE)
        .await
        .unwrap();
}

async fn write_envelope(place: &Place, envelope: &Envelope) {
    let mut payload = Vec::new();
    frame::write(1, &mut payload);
    envelope::encode(envelope, &mut payload).unwrap();
    write(place, &payload).await;
}

async fn first_claim(place: &Place) -> Envelope {
    until("the lane is claimed", PATIENCE, async || {
        let records = place.records().await;
        let claim = records
            .into_iter()
            .find(|(_, e)| matches!(e.body, Body::Claim(_)));
        claim.map(|(_, envelope)| envelope)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_late_is_answered_with_a_claim() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let mut xids = insert(&publisher, "a", 20).await;
    let claim = first_claim(&place).await;
    write_envelope(&place, &claim).await;
    xids.extend(insert(&publisher, "a", 20).await);
    place.holds(&xids).await;
    assert_eq!(producer.metric("claims_total"), 2);
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_zombie_writes_is_void_and_does_no_harm() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let mut xids = insert(&publisher, "a", 5).await;
    let zombie = place.run();
    place.holds(&xids).await;
    zombie.end().await.unwrap();
    let producer = place.run();
    xids.extend(insert(&publisher, "a", 5).await);
    place.holds(&xids).await;
    let last = place
        .records()
        .await
        .into_iter()
        .rfind(|(_, e)| matches!(e.body, Body::Part(_)));
    let mut late = last.unwrap().1;
    let (zombie_claim, _) = place.records().await[1].clone();
    late.claim_offset = zombie_claim;
    late.previous_end_lsn = late.end_lsn;
    late.end_lsn.0 += 8;
    write_envelope(&place, &late).await;
    xids.extend(insert(&publisher, "a", 5).await);
    place.holds(&xids).await;
    assert_eq!(producer.metric("claims_total"), 1);
    let end_lsn = place.links().await.last().unwrap().end_lsn;
    place.confirms(end_lsn).await;
    producer.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_producer_stops_and_the_first_goes_on() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let first = place.run();
    let mut xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    let second = place.run().stopped().await;
    assert_eq!(second.kind, StopKind::SlotInUse);
    xids.extend(insert(&publisher, "a", 5).await);
    place.holds(&xids).await;
    assert_eq!(first.metric("claims_total"), 1);
    first.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_ahead_of_the_publisher_is_a_stop() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
    let mut records = place.records().await;
    let (_, mut ahead) = records.pop().unwrap();
    ahead.end_lsn.0 = ahead.previous_end_lsn.0.max(ahead.end_lsn.0) + (1 << 40);
    ahead.body = Body::Heartbeat(Heartbeat {});
    write_envelope(&place, &ahead).await;
    let stop = place.run().stopped().await;
    assert_eq!(stop.kind, StopKind::Timeline, "{stop}");
}
