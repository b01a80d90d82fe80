//! The walsender's stream, and status updates that flow whatever its reader does.

use std::time::Duration;

use walbraid_schemas::Lsn;
use walbraid_wire::replication::{ReplicationMessage, ReplicationReceiver, SlotOptions};
use walbraid_wire::{Connection, Replication, SqlState, Startup};

use crate::server::{publisher, publisher_with, walsender, within};
use crate::source::Source;

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
