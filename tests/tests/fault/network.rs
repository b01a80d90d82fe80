//! Networks that stall and break, by a proxy in front of a server.

use std::time::Duration;

use walbraid_tests::bank;
use walbraid_tests::bed::Bed;
use walbraid_tests::proxy::Proxy;
use walbraid_tests::session::with_port;
use walbraid_tests::trouble::{CARRYING, CATALOGUE, LANE};

/// Host and port of a URL of the stack.
fn authority(url: &str) -> String {
    let rest = url.split_once('@').unwrap().1;
    rest.split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_network_to_both_servers_breaks_and_stalls() {
    let bed = Bed::new().await;
    bed.both(bank::SCHEMA).await;
    let to_publisher = Proxy::to(&authority(&bed.publisher_url)).await;
    let to_subscriber = Proxy::to(&authority(&bed.subscriber_url)).await;
    let mut config = bed.config();
    config
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
