//! The walsender: slots of every kind the version has, its stream, and status updates that flow
//! whatever the reader does.

use std::time::Duration;

use walbraid_schemas::Lsn;
use walbraid_wire::replication::{
    OriginFilter, ReplicationMessage, ReplicationOptions, ReplicationReceiver, SlotOptions,
    Snapshot, StatusSender, Streaming,
};
use walbraid_wire::{Connection, Error, Replication, ServerVersion, SqlState, Startup};

use crate::server::{publisher, publisher_with, run, session, unique, walsender, within};

/// A table, a publication and a slot, all of one name.
struct Source {
    name: String,
    version: ServerVersion,
    sql: Connection,
}

impl Source {
    async fn new(prefix: &str, options: &SlotOptions) -> Source {
        let name = unique(prefix);
        let mut sql = session(&publisher()).await;
        run(
            &mut sql,
            &format!("CREATE TABLE {name} (id serial PRIMARY KEY, v text)"),
        )
        .await;
        run(
            &mut sql,
            &format!("CREATE PUBLICATION {name} FOR TABLE {name}"),
        )
        .await;
        let mut connection = walsender(&publisher()).await;
        let slot = within(connection.create_slot(&name, options))
            .await
            .unwrap();
        assert_eq!(slot.name, name);
        assert!(!slot.consistent_point.is_invalid());
        let version = connection.server_version();
        within(connection.close()).await.unwrap();
        Source { name, version, sql }
    }

    fn options(&self) -> ReplicationOptions {
        let publications = [self.name.clone()];
        ReplicationOptions::new(self.version, &self.name, &publications)
    }

    async fn start(
        &self,
        options: &ReplicationOptions,
    ) -> Result<(ReplicationReceiver, StatusSender), Error> {
        within(walsender(&publisher()).await.start_replication(options)).await
    }

    async fn run(&mut self, sql: &str) -> Vec<walbraid_wire::TextRow> {
        run(&mut self.sql, &sql.replace("$name", &self.name)).await
    }

    async fn slot(&mut self, column: &str) -> Option<String> {
        let sql = format!("SELECT {column} FROM pg_replication_slots WHERE slot_name = '$name'");
        self.run(&sql).await.remove(0).value(0).map(str::to_owned)
    }

    async fn until(&mut self, condition: &str) {
        let sql =
            format!("SELECT 1 FROM pg_replication_slots WHERE slot_name = '$name' AND {condition}");
        within(async {
            while self.run(&sql).await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn drop(mut self) {
        self.until("NOT active").await;
        self.run("SELECT pg_drop_replication_slot('$name')").await;
        self.run("DROP PUBLICATION $name; DROP TABLE $name").await;
    }
}

/// The kind byte of the next message of the output plugin, and the message.
async fn next(receiver: &mut ReplicationReceiver) -> (char, bytes::Bytes) {
    loop {
        match within(receiver.next()).await.unwrap() {
            ReplicationMessage::XLogData(data) => {
                return (char::from(data.data[0]), data.data);
            }
            ReplicationMessage::Keepalive(_) => {}
            ReplicationMessage::End => panic!("the end"),
        }
    }
}

/// Reads to the end of the next transaction; the kinds of its messages and its end LSN. What comes
/// or not because of other tests' tables is passed over: empty transactions, which 14 sends, and
/// relations, which any change of any catalogue brings again.
async fn transaction(receiver: &mut ReplicationReceiver) -> (String, Lsn) {
    let mut kinds = String::new();
    loop {
        let (kind, message) = next(receiver).await;
        if kind == 'R' {
            continue;
        }
        kinds.push(kind);
        match (kind, kinds.as_str()) {
            ('C', "BC") => kinds.clear(),
            ('C', _) => {
                let end: [u8; 8] = message[10..18].try_into().unwrap();
                return (kinds, Lsn(u64::from_be_bytes(end)));
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_stream_is_read_confirmed_and_resumed() {
    let mut source = Source::new("wire_stream", &SlotOptions::default()).await;
    let (mut receiver, mut status) = source.start(&source.options()).await.unwrap();
    source
        .run("INSERT INTO $name (v) VALUES ('a'), ('b')")
        .await;
    let (kinds, first_end) = transaction(&mut receiver).await;
    assert_eq!(kinds, "BIIC");
    within(status.send(first_end, first_end, first_end, true))
        .await
        .unwrap();
    source
        .until(&format!("confirmed_flush_lsn = '{first_end}'"))
        .await;
    source.run("INSERT INTO $name (v) VALUES ('c')").await;
    let (kinds, _) = transaction(&mut receiver).await;
    assert_eq!(kinds, "BIC");
    within(status.close()).await.unwrap();
    source.until("NOT active").await;
    // What was not confirmed comes again.
    let (mut receiver, mut status) = source.start(&source.options()).await.unwrap();
    let (kinds, end) = transaction(&mut receiver).await;
    assert_eq!(kinds, "BIC");
    assert!(end > first_end);
    // The ordinary end: both sides say it.
    within(status.finish()).await.unwrap();
    loop {
        match within(receiver.next()).await.unwrap() {
            ReplicationMessage::End => break,
            ReplicationMessage::Keepalive(_) | ReplicationMessage::XLogData(_) => {}
        }
    }
    drop((receiver, status));
    source.drop().await;
}

/// The walsender has far more to send than any buffer holds, and nobody reads; the updates of
/// another task arrive all the same, and a short wal_sender_timeout does not end the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_updates_flow_while_nobody_reads() {
    let mut source = Source::new("wire_status", &SlotOptions::default()).await;
    let startup = Startup {
        replication: Replication::Database,
        parameters: &[("wal_sender_timeout", "1s")],
        ..Startup::default()
    };
    let walsender = within(Connection::connect(&publisher(), &startup))
        .await
        .unwrap();
    let started = within(walsender.start_replication(&source.options())).await;
    let (mut receiver, mut status) = started.unwrap();
    source.run("INSERT INTO $name (v) VALUES ('first')").await;
    let (_, confirmed) = transaction(&mut receiver).await;
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let updates = tokio::spawn(async move {
        let mut sent = 0;
        loop {
            status
                .send(confirmed, confirmed, confirmed, false)
                .await
                .unwrap();
            sent += 1;
            let pause = Duration::from_millis(100);
            if tokio::time::timeout(pause, &mut stopped).await.is_ok() {
                return (status, sent);
            }
        }
    });
    source
        .until(&format!("confirmed_flush_lsn = '{confirmed}'"))
        .await;
    // 300 MB: beyond the socket's buffers, so the walsender waits for us to read.
    source
        .run("INSERT INTO $name (v) SELECT repeat('x', 100000) FROM generate_series(1, 3000)")
        .await;
    let blocked = "SELECT 1 FROM pg_stat_activity JOIN pg_replication_slots ON pid = active_pid
        WHERE slot_name = '$name' AND wait_event = 'WalSenderWriteData'";
    within(async {
        while source.run(blocked).await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Three times the time-out, without a read.
    let now = "SELECT extract(epoch FROM clock_timestamp()) * 1000";
    let ms = |rows: Vec<walbraid_wire::TextRow>| rows[0].value(0).unwrap().parse::<f64>().unwrap();
    let start = ms(source.run(now).await);
    while ms(source.run(now).await) < start + 3000.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(source.slot("active").await.as_deref(), Some("t"));
    let (kinds, end) = transaction(&mut receiver).await;
    assert_eq!(kinds.len(), 3002);
    assert!(end > confirmed);
    stop.send(()).unwrap();
    let (status, sent) = within(updates).await.unwrap();
    assert!(sent > 20, "{sent}");
    within(status.close()).await.unwrap();
    drop(receiver);
    source.drop().await;
}

#[tokio::test]
async fn many_small_transactions_arrive_whole_while_behind() {
    let mut source = Source::new("wire_many", &SlotOptions::default()).await;
    source.run("SET synchronous_commit = off").await;
    source
        .run(
            "DO $$ BEGIN FOR i IN 1..20000 LOOP INSERT INTO $name (v) VALUES (i); COMMIT;
             END LOOP; END $$",
        )
        .await;
    let over_tls = publisher_with("user=postgres sslmode=require");
    for options in [publisher_with("user=postgres sslmode=disable"), over_tls] {
        let walsender = walsender(&options).await;
        let started = within(walsender.start_replication(&source.options())).await;
        let (mut receiver, status) = started.unwrap();
        let mut last = Lsn::INVALID;
        for _ in 0..20_000 {
            let (kinds, end) = transaction(&mut receiver).await;
            assert_eq!(kinds, "BIC");
            assert!(end > last);
            last = end;
        }
        // Idle again: one commit is seen without another to push it.
        source.run("INSERT INTO $name (v) VALUES ('last')").await;
        assert!(transaction(&mut receiver).await.1 > last);
        within(status.close()).await.unwrap();
        drop(receiver);
        source.until("NOT active").await;
    }
    source.drop().await;
}

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
async fn names_that_need_quotes() {
    let mut source = Source::new("wire_quoted", &SlotOptions::default()).await;
    let odd = format!("{} it's \"odd\", isn't it", source.name);
    let quoted = format!("\"{}\"", odd.replace('"', "\"\""));
    source
        .run(&format!("CREATE PUBLICATION {quoted} FOR TABLE $name"))
        .await;
    // On 14 a publication has to be there at every change that is decoded.
    let mut connection = walsender(&publisher()).await;
    within(connection.drop_slot(&source.name, false))
        .await
        .unwrap();
    within(connection.create_slot(&source.name, &SlotOptions::default()))
        .await
        .unwrap();
    let mut options = source.options();
    options.publications.push(odd);
    let (mut receiver, status) = source.start(&options).await.unwrap();
    source.run("INSERT INTO $name (v) VALUES ('a')").await;
    assert_eq!(transaction(&mut receiver).await.0, "BIC");
    within(status.close()).await.unwrap();
    drop(receiver);
    source.run(&format!("DROP PUBLICATION {quoted}")).await;
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

#[tokio::test]
async fn a_walsender_that_is_terminated_says_why() {
    let mut source = Source::new("wire_terminated", &SlotOptions::default()).await;
    let (mut receiver, mut status) = source.start(&source.options()).await.unwrap();
    source.run("INSERT INTO $name (v) VALUES ('a')").await;
    transaction(&mut receiver).await;
    source
        .run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
              WHERE slot_name = '$name'",
        )
        .await;
    let error = loop {
        match within(receiver.next()).await {
            Ok(ReplicationMessage::Keepalive(_) | ReplicationMessage::XLogData(_)) => {}
            Ok(ReplicationMessage::End) => panic!("the end"),
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.sqlstate(),
        Some(SqlState::ADMIN_SHUTDOWN),
        "{error:?}"
    );
    assert!(error.is_transient() && error.ends_session());
    let sent = async {
        while status.send(Lsn(1), Lsn(0), Lsn(0), false).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    within(sent).await;
    source.drop().await;
}
