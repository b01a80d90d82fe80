//! Slots of every kind a version has, and every option of the stream: taken, or refused by name.

use walbraid_wire::SqlState;
use walbraid_wire::replication::{
    OriginFilter, ReplicationOptions, SlotOptions, Snapshot, Streaming,
};

use crate::server::{publisher, run, session, unique, walsender, within};
use crate::source::Source;

/// Every option, on whatever version this is: taken by the server, or refused by name before
/// anything is sent.
#[tokio::test]
async fn options_by_version() {
    let source = Source::new("wire_options", &SlotOptions::default()).await;
    let major = source.version.major;
    let check = async |change: fn(&mut ReplicationOptions), name: &str, needs: u32| {
        let mut options = source.options();
        change(&mut options);
        let started = source.start(&options).await;
        if major >= needs {
            let (receiver, status) = started.unwrap_or_else(|error| panic!("{name}: {error}"));
            within(status.close()).await.unwrap();
            drop(receiver);
            let mut other = session(&publisher()).await;
            let active = format!(
                "SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = '{}'",
                source.name
            );
            while !run(&mut other, &active).await.is_empty() {
                tokio::task::yield_now().await;
            }
        } else {
            let refused = started.err().map(|error| error.to_string());
            let expected =
                format!("{name} needs PostgreSQL {needs} or newer, the server is {major}");
            assert_eq!(refused, Some(expected));
        }
    };
    check(|options| options.streaming = Streaming::On, "streaming", 14).await;
    check(
        |options| options.streaming = Streaming::Parallel,
        "streaming parallel",
        16,
    )
    .await;
    check(|options| options.two_phase = true, "two_phase", 15).await;
    check(|options| options.binary = true, "binary", 14).await;
    check(|options| options.messages = false, "messages", 14).await;
    check(|options| options.origin = OriginFilter::None, "origin", 16).await;
    check(
        |options| options.protocol_version = 1,
        "proto_version 1",
        14,
    )
    .await;
    check(
        |options| options.protocol_version = 2,
        "proto_version 2",
        14,
    )
    .await;
    check(
        |options| options.protocol_version = 3,
        "proto_version 3",
        15,
    )
    .await;
    check(
        |options| options.protocol_version = 4,
        "proto_version 4",
        16,
    )
    .await;
    source.drop().await;
}

#[tokio::test]
async fn slots_of_every_kind() {
    let check = async |options: SlotOptions, name: &'static str, needs: u32, column: &str| {
        let mut connection = walsender(&publisher()).await;
        let major = connection.server_version().major;
        let slot = unique("wire_slot");
        let created = within(connection.create_slot(&slot, &options)).await;
        if major < needs {
            let refused = created.err().map(|error| error.to_string());
            let expected =
                format!("{name} needs PostgreSQL {needs} or newer, the server is {major}");
            assert_eq!(refused, Some(expected));
            return;
        }
        let created = created.unwrap_or_else(|error| panic!("{name}: {error}"));
        let exported = options.snapshot == Snapshot::Export;
        assert_eq!(created.snapshot.is_some(), exported, "{name}");
        let mut other = session(&publisher()).await;
        if let Some(snapshot) = created.snapshot {
            let sql = format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; \
                 COMMIT"
            );
            run(&mut other, &sql).await;
        }
        let sql = format!("SELECT {column} FROM pg_replication_slots WHERE slot_name = '{slot}'");
        assert_eq!(run(&mut other, &sql).await[0].value(0), Some("t"), "{name}");
        within(connection.drop_slot(&slot, true)).await.unwrap();
        assert!(run(&mut other, &sql).await.is_empty(), "{name}");
    };
    let plain = SlotOptions::default;
    check(plain(), "a slot", 14, "plugin = 'pgoutput'").await;
    check(
        SlotOptions {
            temporary: true,
            ..plain()
        },
        "temporary",
        14,
        "temporary",
    )
    .await;
    let export = SlotOptions {
        snapshot: Snapshot::Export,
        ..plain()
    };
    check(export, "snapshot", 14, "true").await;
    check(
        SlotOptions {
            two_phase: true,
            ..plain()
        },
        "two_phase",
        15,
        "two_phase",
    )
    .await;
    check(
        SlotOptions {
            failover: true,
            ..plain()
        },
        "failover",
        17,
        "failover",
    )
    .await;
}

#[tokio::test]
async fn a_snapshot_is_used_by_the_session_itself() {
    let mut source = Source::new("wire_snapshot", &SlotOptions::default()).await;
    source.run("INSERT INTO $name (v) VALUES ('before')").await;
    let mut connection = walsender(&publisher()).await;
    run(
        &mut connection,
        "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ",
    )
    .await;
    let options = SlotOptions {
        temporary: true,
        snapshot: Snapshot::Use,
        ..SlotOptions::default()
    };
    let slot = unique("wire_used");
    within(connection.create_slot(&slot, &options))
        .await
        .unwrap();
    source.run("INSERT INTO $name (v) VALUES ('after')").await;
    let rows = run(&mut connection, &format!("SELECT v FROM {}", source.name)).await;
    assert_eq!(rows.len(), 1);
    run(&mut connection, "COMMIT").await;
    within(connection.close()).await.unwrap();
    source.drop().await;
}

#[tokio::test]
async fn a_slot_that_waits_too_long_is_given_up() {
    let mut holder = session(&publisher()).await;
    run(&mut holder, "BEGIN; SELECT pg_current_xact_id()").await;
    let mut connection = walsender(&publisher()).await;
    let options = SlotOptions {
        lock_timeout_ms: Some(100),
        ..SlotOptions::default()
    };
    let slot = unique("wire_waiting");
    let error = within(connection.create_slot(&slot, &options))
        .await
        .unwrap_err();
    assert_eq!(
        error.sqlstate(),
        Some(SqlState::LOCK_NOT_AVAILABLE),
        "{error:?}"
    );
    assert!(error.is_transient() && !error.ends_session());
    let rows = run(
        &mut connection,
        "SELECT current_setting('lock_timeout') AS v",
    )
    .await;
    assert_eq!(rows[0].get("v"), Some("0"));
    run(&mut holder, "ROLLBACK").await;
    within(connection.create_slot(&slot, &SlotOptions::default()))
        .await
        .unwrap();
    within(connection.drop_slot(&slot, false)).await.unwrap();
}

#[tokio::test]
async fn what_a_slot_refuses() {
    let source = Source::new("wire_refused", &SlotOptions::default()).await;
    let mut connection = walsender(&publisher()).await;
    let error = within(connection.create_slot(&source.name, &SlotOptions::default())).await;
    assert_eq!(
        error.unwrap_err().sqlstate(),
        Some(SqlState::DUPLICATE_OBJECT)
    );
    let error = within(connection.drop_slot("wire_no_such_slot", false))
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some(SqlState::UNDEFINED_OBJECT));
    let (receiver, status) = source.start(&source.options()).await.unwrap();
    let error = source.start(&source.options()).await.err().unwrap();
    assert_eq!(error.sqlstate(), Some(SqlState::OBJECT_IN_USE));
    assert!(error.is_transient());
    within(status.close()).await.unwrap();
    drop(receiver);
    let mut options = source.options();
    options.slot = "wire_no_such_slot".to_owned();
    let error = source.start(&options).await.err().unwrap();
    assert_eq!(error.sqlstate(), Some(SqlState::UNDEFINED_OBJECT));
    source.drop().await;
}

#[tokio::test]
async fn the_system_and_its_history() {
    let mut connection = walsender(&publisher()).await;
    let system = within(connection.identify_system()).await.unwrap();
    let control = "SELECT system_identifier::text AS v FROM pg_control_system()";
    let mut other = session(&publisher()).await;
    let rows = run(&mut other, control).await;
    assert_eq!(rows[0].get("v"), Some(system.system_identifier.as_str()));
    assert_eq!(
        (system.timeline, system.database.as_deref()),
        (1, Some("postgres"))
    );
    assert!(!system.wal_lsn.is_invalid());
    assert!(
        within(connection.timeline_history(1))
            .await
            .unwrap()
            .is_empty()
    );
    let error = within(connection.timeline_history(99)).await.unwrap_err();
    assert!(error.server_error().is_some(), "{error:?}");
}
