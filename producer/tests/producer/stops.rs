//! What a person must mend: each has a name of its own.

use walbraid_producer::{Config, Finding, Standing, check, slot, standing};
use walbraid_schemas::{Body, StopKind};
use walbraid_tests::session::with_database;
use walbraid_wire::{ConnectOptions, Environment};

use crate::place::{Place, insert, wal};

const TABLE: &str = "CREATE TABLE a (id serial PRIMARY KEY, b text)";

/// A producer that is told `change` stops for `kind`; its message says `words`.
async fn stops(place: &Place, kind: StopKind, words: &str, change: impl FnOnce(&mut Config)) {
    let mut config = place.config.clone();
    change(&mut config);
    let stop = place.run_with(config).stopped().await;
    assert_eq!(stop.kind, kind, "{stop}");
    assert!(stop.message.contains(words), "{stop}");
}

/// The kind of the notice at the end of the lane, if one stands there.
async fn last_word(place: &Place) -> Option<String> {
    match place.records().await.pop()?.1.body {
        Body::Notice(notice) => Some(notice.kind),
        _ => None,
    }
}

fn connect(url: &str) -> ConnectOptions {
    ConnectOptions::parse(url, &Environment::empty()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_is_a_stop_that_names_it() {
    let place = Place::new(TABLE).await;
    stops(&place, StopKind::SlotMissing, "\"no_slot\"", |config| {
        config.publisher.slot = "no_slot".to_owned();
    })
    .await;
    stops(
        &place,
        StopKind::Publication,
        "\"no_publication\"",
        |config| {
            config
                .publisher
                .publications
                .push("no_publication".to_owned());
        },
    )
    .await;
    stops(&place, StopKind::TopicMissing, "\"no_topic\"", |config| {
        config.kafka.topic = "no_topic".to_owned();
    })
    .await;
    stops(&place, StopKind::TopicMismatch, "1 partitions", |config| {
        config.kafka.partitions = 3;
    })
    .await;
    stops(
        &place,
        StopKind::TopicMismatch,
        "belongs to stream",
        |config| {
            config.stream = "another".to_owned();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_not_ours_is_a_stop() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let other = format!("{}_other", place.bed.name);
    publisher
        .run(&format!(
            "SELECT pg_create_logical_replication_slot('{other}', 'test_decoding')"
        ))
        .await;
    stops(&place, StopKind::SlotForeign, "test_decoding", |config| {
        config.publisher.slot = other.clone();
    })
    .await;
    stops(
        &place,
        StopKind::SlotForeign,
        "belongs to database",
        |config| {
            // A database that has the publication too, and not the slot.
            config.publisher.connect =
                connect(&with_database(&place.bed.publisher_url, "template1"));
            config.publisher.publications.clear();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_publication_is_a_stop() {
    let place = Place::new(TABLE).await;
    place
        .publisher()
        .await
        .run("CREATE PUBLICATION empty")
        .await;
    stops(
        &place,
        StopKind::Publication,
        "\"empty\" has no tables",
        |config| {
            config.publisher.publications = vec!["empty".to_owned()];
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_the_right_or_with_a_wrong_password_is_a_stop() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let role = place.bed.name.clone();
    publisher
        .run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'"))
        .await;
    let url = |password: &str| {
        let host = place.bed.publisher_url.split_once('@').unwrap().1;
        format!("postgres://{role}:{password}@{host}")
    };
    stops(&place, StopKind::Authentication, &role, |config| {
        config.publisher.connect = connect(&url("wrong"));
    })
    .await;
    stops(&place, StopKind::MissingRight, &role, |config| {
        config.publisher.connect = connect(&url("right"));
    })
    .await;
    publisher.run(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_advanced_is_ahead_of_the_log() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
    publisher.until_free(&place.config.publisher.slot).await;
    assert_eq!(standing::look(&place.config).await.unwrap(), None);
    insert(&publisher, "a", 5).await;
    let advance = format!(
        "SELECT pg_replication_slot_advance('{}', '{}')",
        place.config.publisher.slot,
        wal(&publisher).await
    );
    publisher.run(&advance).await;
    stops(
        &place,
        StopKind::SlotAheadOfLog,
        "no record of the log ends",
        |_| {},
    )
    .await;
    assert_eq!(
        last_word(&place).await.as_deref(),
        Some("slot-ahead-of-log")
    );
    // Who asks before starting one hears the same.
    let stop = standing::look(&place.config).await.unwrap().unwrap();
    assert_eq!(stop.kind, StopKind::SlotAheadOfLog, "{stop}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_made_anew_is_ahead_of_the_log() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
    publisher.until_free(&place.config.publisher.slot).await;
    assert!(
        slot::drop(&publisher, &place.config.publisher.slot)
            .await
            .unwrap()
    );
    insert(&publisher, "a", 5).await;
    slot::create(&place.config.publisher).await.unwrap();
    stops(
        &place,
        StopKind::SlotAheadOfLog,
        "no record of the log ends",
        |_| {},
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_removed_under_a_producer_is_a_stop() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    place.bed.topic.delete().await;
    insert(&publisher, "a", 5).await;
    let stop = producer.stopped().await;
    assert_eq!(stop.kind, StopKind::TopicMissing, "{stop}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_emptied_is_not_set_up() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    let producer = place.run();
    let xids = insert(&publisher, "a", 5).await;
    place.holds(&xids).await;
    producer.end().await.unwrap();
    let end = place.bed.topic.end_after(1).await;
    place.bed.topic.delete_before(end).await;
    stops(&place, StopKind::NotSetUp, "is empty", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_the_topic_refuses_are_a_stop() {
    let place = Place::new(TABLE).await;
    let publisher = place.publisher().await;
    // Nothing is asked of the topic again while the producer runs.
    let producer = place.run();
    let xids = insert(&publisher, "a", 1).await;
    place.holds(&xids).await;
    place
        .bed
        .topic
        .configure("max.message.bytes", "50000")
        .await;
    publisher
        .run("INSERT INTO a (b) VALUES (repeat('x', 200000))")
        .await;
    let xids = [xids, insert(&publisher, "a", 1).await].concat();
    // The topic is asked again, and the row is cut to what it takes.
    let links = place.gets(3).await;
    assert_eq!([links[0].xid, links[2].xid], xids[..]);
    assert!(links[1].parts > 3, "{links:?}");
    producer.end().await.unwrap();
    stops(&place, StopKind::RecordTooLarge, "records of", |config| {
        config.limits.record_bytes_max = Some(100_000);
    })
    .await;
    assert_eq!(last_word(&place).await.as_deref(), Some("record-too-large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_has_to_wait_too_long_is_not_made_and_names_who_is_in_the_way() {
    let place = Place::new(TABLE).await;
    let open = place.publisher().await;
    open.run("BEGIN; INSERT INTO a DEFAULT VALUES").await;
    let pid = open.value("SELECT pg_backend_pid()").await;
    let mut publisher = place.config.publisher.clone();
    publisher.slot.push_str("_other");
    publisher.slot_lock_timeout_ms = 300;
    let stop = slot::create(&publisher).await.unwrap_err();
    assert_eq!(stop.kind, StopKind::OpenTransactions, "{stop}");
    assert!(
        stop.detail
            .as_ref()
            .is_some_and(|detail| detail.contains(&pid)),
        "{stop}"
    );
    assert_eq!(slot::inspect(&open, &publisher.slot).await.unwrap(), None);
    open.run("ROLLBACK").await;
    publisher.slot_lock_timeout_ms = 60_000;
    slot::create(&publisher).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_find_what_would_stop_the_producer_and_change_nothing() {
    let place = Place::new(TABLE).await;
    let records = place.records().await.len();
    let bad = |findings: &[Finding]| -> Vec<StopKind> {
        findings
            .iter()
            .filter_map(|finding| match &finding.standing {
                Standing::Bad(stop) => Some(stop.kind),
                Standing::Good | Standing::Doubtful(_) => None,
            })
            .collect()
    };
    let findings = check::check(&place.config).await;
    assert_eq!(bad(&findings), [], "{findings:?}");
    let doubted = |findings: &[Finding]| {
        let mut doubtful = findings
            .iter()
            .filter(|finding| matches!(finding.standing, Standing::Doubtful(_)));
        doubtful.any(|finding| finding.subject == "publisher: row filters")
    };
    assert!(!doubted(&findings), "{findings:?}");
    let filtered = "CREATE PUBLICATION filtered FOR TABLE a WHERE (id > 5)";
    place.publisher().await.run(filtered).await;
    let mut config = place.config.clone();
    config.publisher.publications = vec!["filtered".to_owned()];
    let findings = check::check(&config).await;
    assert!(doubted(&findings), "{findings:?}");
    let mut config = place.config.clone();
    config.publisher.publications = vec!["nothing".to_owned()];
    config.kafka.topic = "no_topic".to_owned();
    config.registry.urls = vec!["http://127.0.0.1:9/".to_owned()];
    let findings = check::check(&config).await;
    let expected = [
        StopKind::Publication,
        StopKind::TopicMissing,
        StopKind::RegistryUnreachable,
    ];
    assert_eq!(bad(&findings), expected, "{findings:?}");
    assert_eq!(place.records().await.len(), records);
}
