//! One owner a lane.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use walbraid_consumer::fence::{self, LaneKey, Taken};
use walbraid_consumer::policy::Failure;
use walbraid_consumer::stream;
use walbraid_wire::Sql;

use crate::bed::{Bed, START, a_stream, connect};

async fn take(bed: &Bed, sql: &Sql, owner: Uuid, last_epoch: i64) -> Result<Taken, Failure> {
    let stream = a_stream(&bed.name, bed.log.incarnation);
    let oid = stream::database_oid(sql).await.unwrap();
    let origins = stream::origins(oid, &stream, 0);
    let key = LaneKey {
        stream: &bed.name,
        lane: 0,
        start_lsn: START,
    };
    let stop = CancellationToken::new();
    let taken = fence::take(sql, &origins, &key, owner, last_epoch, &stop);
    tokio::time::timeout(Duration::from_secs(20), taken)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_ends_the_sessions_of_the_old_one() {
    let bed = Bed::new("fence", "SELECT 1").await;
    let (first, second) = (connect(&bed.url).await, connect(&bed.url).await);
    let taken = take(&bed, &first, Uuid::new_v4(), 0).await.unwrap();
    assert_eq!((taken.ownership.epoch, taken.applied_lsn), (1, START));
    // A worker in mid-transaction, that even holds the lane's row.
    let worker = connect(&bed.url).await;
    worker
        .batch_execute(&fence::share_sql(&taken.ownership))
        .await
        .unwrap();
    let owned = fence::owned_sql(&taken.ownership);
    assert_eq!(worker.query(owned.as_str(), &[]).await.unwrap().len(), 1);
    worker
        .batch_execute("BEGIN; UPDATE walbraid.lanes SET reason = 'x'")
        .await
        .unwrap();
    second
        .batch_execute("SET lock_timeout = 200")
        .await
        .unwrap();
    let taken = take(&bed, &second, Uuid::new_v4(), 0).await.unwrap();
    assert_eq!(taken.ownership.epoch, 2);
    assert!(worker.batch_execute("COMMIT").await.is_err());
    assert!(first.batch_execute("SELECT 1").await.is_err());
    // The old owner comes back and finds the other's epoch.
    let back = connect(&bed.url).await;
    back.batch_execute(&fence::share_sql(&taken.ownership))
        .await
        .unwrap();
    assert!(back.query(owned.as_str(), &[]).await.unwrap().is_empty());
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_the_subscriber_forgot_is_not_given_again() {
    let bed = Bed::new("epoch", "SELECT 1").await;
    let sql = connect(&bed.url).await;
    let taken = take(&bed, &sql, Uuid::new_v4(), 41).await.unwrap();
    assert_eq!(taken.ownership.epoch, 42);
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_owners_at_once_one_is_left() {
    let bed = Bed::new("race", "SELECT 1").await;
    let mut takers = Vec::new();
    for _ in 0..6 {
        takers.push(connect(&bed.url).await);
    }
    let all = takers.iter().map(|sql| take(&bed, sql, Uuid::new_v4(), 0));
    let mut won = Vec::new();
    for taken in futures_util::future::join_all(all).await {
        won.extend(taken.ok());
    }
    let epoch = bed.value("SELECT epoch FROM walbraid.lanes").await;
    let mut alive = 0;
    for taken in &won {
        let owned = fence::owned_sql(&taken.ownership);
        alive += bed.sql.query(owned.as_str(), &[]).await.unwrap().len();
    }
    assert!(alive <= 1, "{won:?}");
    assert!(
        won.iter()
            .all(|taken| taken.ownership.epoch.to_string() <= epoch)
    );
    bed.done().await;
}
