//! Native logical replication between the same two databases, as the thing to compare with.

use std::time::Duration;

use walbraid_tests::bed::{Bed, PUBLICATION};
use walbraid_tests::wait::until;

/// A subscription that is off: its slot gathers a backlog on the publisher.
pub(crate) async fn subscribe(bed: &Bed) {
    let publisher = bed.publisher().await;
    let subscriber = bed.subscriber().await;
    let slot = slot(bed);
    publisher
        .run(&format!(
            "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
        ))
        .await;
    subscriber
        .run(&format!(
            "CREATE SUBSCRIPTION {slot} CONNECTION '{}' PUBLICATION {PUBLICATION} WITH (
                 create_slot = false, slot_name = '{slot}', copy_data = false, enabled = false)",
            bed.publisher_url
        ))
        .await;
}

/// Lets it apply.
pub(crate) async fn enable(bed: &Bed) {
    let subscriber = bed.subscriber().await;
    subscriber
        .run(&format!("ALTER SUBSCRIPTION {} ENABLE", slot(bed)))
        .await;
}

/// Takes it away with its slot.
pub(crate) async fn unsubscribe(bed: &Bed) {
    let subscriber = bed.subscriber().await;
    let slot = slot(bed);
    subscriber
        .run(&format!("ALTER SUBSCRIPTION {slot} DISABLE"))
        .await;
    subscriber
        .run(&format!("ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)"))
        .await;
    subscriber.run(&format!("DROP SUBSCRIPTION {slot}")).await;
    let publisher = bed.publisher().await;
    until(
        "the native slot is free",
        Duration::from_secs(30),
        async || {
            let dropped = publisher
                .try_rows(&format!("SELECT pg_drop_replication_slot('{slot}')"))
                .await;
            dropped.is_ok().then_some(())
        },
    )
    .await;
}

fn slot(bed: &Bed) -> String {
    format!("native_{}", bed.name)
}
