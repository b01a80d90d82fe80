//! Sessions: queries, parameters, cancel, and the ways in which one ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use walbraid_wire::{BackendMessage, Connection, Error, Severity, SqlState, Startup};

use crate::server::{
    connect, parse, publisher, publisher_with, run, session, stack_file, subscriber, unique,
    until_asleep, within,
};

#[tokio::test]
async fn simple_queries_and_their_errors() {
    let mut connection = session(&publisher()).await;
    let rows = run(
        &mut connection,
        "SELECT 1 AS a, NULL AS b, 'x' AS c; SELECT 2 AS d",
    )
    .await;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].get("a"), Some("1"));
    assert_eq!(rows[0].get("b"), None);
    assert_eq!(rows[0].get("c"), Some("x"));
    assert_eq!(rows[1].get("d"), Some("2"));
    let error = within(connection.simple_query("SELECT 1/0"))
        .await
        .unwrap_err();
    let server_error = error.server_error().unwrap();
    assert_eq!(server_error.sqlstate.code(), "22012");
    assert_eq!(server_error.severity, Severity::Error);
    assert!(!error.ends_session() && !error.is_transient());
    assert_eq!(
        run(&mut connection, "SELECT 3 AS a").await[0].get("a"),
        Some("3")
    );
    assert!(run(&mut connection, "").await.is_empty());
    within(connection.close()).await.unwrap();
}

#[tokio::test]
async fn settings_of_the_startup_win_over_the_options() {
    let options = publisher_with("user=postgres options='-c DateStyle=SQL -c work_mem=123kB'");
    let parameters = [
        ("DateStyle", "ISO"),
        ("TimeZone", "UTC"),
        ("bytea_output", "hex"),
    ];
    let startup = Startup {
        parameters: &parameters,
        ..Startup::default()
    };
    let mut connection = within(Connection::connect(&options, &startup))
        .await
        .unwrap();
    let show = |name: &str| format!("SELECT current_setting('{name}') AS v");
    let mut check = async |name: &str, expected: &str| {
        let rows = run(&mut connection, &show(name)).await;
        assert_eq!(rows[0].get("v"), Some(expected), "{name}");
    };
    check("DateStyle", "ISO, MDY").await;
    check("TimeZone", "UTC").await;
    check("work_mem", "123kB").await;
    check("client_encoding", "UTF8").await;
    assert_eq!(connection.parameter("TimeZone"), Some("UTC"));
    run(&mut connection, "SET TimeZone = 'Europe/Berlin'").await;
    assert_eq!(connection.parameter("TimeZone"), Some("Europe/Berlin"));
    let number = &run(&mut connection, &show("server_version_num")).await[0];
    let number: u32 = number.get("v").unwrap().parse().unwrap();
    assert_eq!(connection.server_version().number(), number);
}

#[tokio::test]
async fn over_a_unix_socket() {
    let url = crate::server::variable("WALBRAID_PUBLISHER_URL");
    let port = url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let directory = stack_file("home/sockets");
    let options = parse(&format!(
        "host={} port={port} user=postgres dbname=postgres",
        directory.display()
    ));
    let mut connection = session(&options).await;
    let rows = run(
        &mut connection,
        "SELECT inet_client_addr() IS NULL AS local",
    )
    .await;
    assert_eq!(rows[0].get("local"), Some("t"));
}

#[tokio::test]
async fn a_cancel_ends_what_runs() {
    let mut connection = session(&publisher()).await;
    let token = connection.cancel_token();
    let pid = connection.backend_pid();
    let cancelled = async {
        until_asleep(pid).await;
        within(token.cancel()).await.unwrap();
    };
    let (result, ()) = tokio::join!(
        within(connection.simple_query("SELECT pg_sleep(55)")),
        cancelled
    );
    let error = result.unwrap_err();
    assert_eq!(error.sqlstate(), Some(SqlState::QUERY_CANCELED));
    assert!(error.is_transient() && !error.ends_session());
    run(&mut connection, "SELECT 1").await;
}

#[tokio::test]
async fn a_terminated_session_says_why_before_it_is_closed() {
    let connection = session(&publisher()).await;
    let pid = connection.backend_pid();
    let (mut receiver, mut sender) = connection.into_split();
    let mut other = session(&publisher()).await;
    run(&mut other, &format!("SELECT pg_terminate_backend({pid})")).await;
    let message = within(receiver.next()).await.unwrap();
    let BackendMessage::ErrorResponse(error) = message else {
        panic!("{message:?}");
    };
    assert_eq!(
        (error.sqlstate, error.severity),
        (SqlState::ADMIN_SHUTDOWN, Severity::Fatal)
    );
    assert!(error.ends_session());
    for _ in 0..2 {
        let error = within(receiver.next()).await.unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error:?}");
        assert!(error.is_transient() && error.ends_session());
    }
    // Writing fails sooner or later, and does not hang.
    sender.query("SELECT 1");
    while within(sender.send()).await.is_ok() {
        sender.query(&"x".repeat(1024 * 1024));
    }
}

#[tokio::test]
async fn a_session_ended_in_a_query_tells_the_servers_words() {
    let mut connection = session(&publisher()).await;
    let error = within(connection.simple_query("SELECT pg_terminate_backend(pg_backend_pid())"))
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some(SqlState::ADMIN_SHUTDOWN));
    assert!(error.ends_session() && error.is_transient());
}

#[tokio::test]
async fn a_query_on_a_session_that_was_ended_tells_why() {
    let mut connection = session(&publisher()).await;
    let pid = connection.backend_pid();
    let mut other = session(&publisher()).await;
    run(&mut other, &format!("SELECT pg_terminate_backend({pid})")).await;
    let present = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid}");
    while !run(&mut other, &present).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let error = within(connection.simple_query("SELECT 1"))
        .await
        .unwrap_err();
    assert_eq!(
        error.sqlstate(),
        Some(SqlState::ADMIN_SHUTDOWN),
        "{error:?}"
    );
}

#[tokio::test]
async fn nothing_listens() {
    // Bound and dropped: a port nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = connect(&parse(&format!("host=127.0.0.1 port={port}")))
        .await
        .unwrap_err();
    let Error::Unreachable { server, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*server, format!("127.0.0.1:{port}"));
    assert!(error.is_transient());
    let error = connect(&parse("host=name.invalid")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let error = connect(&parse("host=/nonexistent")).await.unwrap_err();
    let expected = "could not connect to server at socket \"/nonexistent/.s.PGSQL.5432\"";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_runs_into_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!("host=127.0.0.1 port={port} connect_timeout=1 sslmode=disable");
    let error = connect(&parse(&text)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("could not connect to server at 127.0.0.1:{port}: timeout expired")
    );
}

#[tokio::test]
async fn the_next_host_is_tried() {
    let silent = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let place = crate::server::variable("WALBRAID_PUBLISHER_URL");
    let port = place.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let text = |target: &str| {
        format!(
            "host=127.0.0.1,127.0.0.1 port={silent},{port} user=postgres dbname=postgres \
             target_session_attrs={target}"
        )
    };
    for target in ["any", "read-write", "primary", "prefer-standby"] {
        session(&parse(&text(target))).await;
    }
    let error = connect(&parse(&text("standby"))).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "could not connect to server at 127.0.0.1:{port}: server is not in hot standby mode"
        )
    );
}

#[tokio::test]
async fn a_database_that_is_not_there() {
    let options = publisher().with_database("no such database");
    let error = connect(&options).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some(SqlState::INVALID_CATALOG_NAME));
    assert!(!error.is_transient());
    assert!(error.to_string().contains("no such database"), "{error}");
}

#[tokio::test]
async fn too_many_connections_is_transient() {
    let role = unique("wire_limited");
    let mut connection = session(&publisher()).await;
    run(
        &mut connection,
        &format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0 IN ROLE auth_trust"),
    )
    .await;
    let error = connect(&publisher_with(&format!("user={role}")))
        .await
        .unwrap_err();
    run(&mut connection, &format!("DROP ROLE {role}")).await;
    assert_eq!(error.sqlstate(), Some(SqlState::TOO_MANY_CONNECTIONS));
    assert!(error.is_transient());
}

/// Speaks these bytes to whoever connects, after the startup packet, and closes.
async fn scripted(script: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.unwrap();
        let mut packet = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut packet).await.unwrap();
        stream.write_all(&script).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    port
}

#[tokio::test]
async fn servers_that_do_not_keep_to_the_protocol() {
    let check = async |script: &[u8], expected: &str| {
        let port = scripted(script.to_vec()).await;
        let text = format!("host=127.0.0.1 port={port} user=u sslmode=disable password=p");
        let error = connect(&parse(&text)).await.unwrap_err();
        let error = error.to_string().replace(&port.to_string(), "PORT");
        assert_eq!(error, expected);
    };
    let closed = "could not connect to server at 127.0.0.1:PORT: \
                  server closed the connection unexpectedly";
    check(b"", closed).await;
    check(b"R\0\0\0\x08\0\0", closed).await;
    check(b"R\0\0\0\x08\0\0\0\0S\0\0\0\x20se", closed).await;
    check(
        b"HTTP/1.1 400 Bad Request\r\n",
        "protocol error: message 'H' of impossible length 1414811695",
    )
    .await;
    check(
        b"R\x01\0\0\0",
        "protocol error: message of 16777212 bytes from 127.0.0.1:PORT before the session stands",
    )
    .await;
    check(
        b"Z\0\0\0\x05I",
        "protocol error: message 'Z' while authenticating",
    )
    .await;
    check(
        b"R\0\0\0\x03",
        "protocol error: message 'R' of impossible length 3",
    )
    .await;
    // SASL begun, then "ok" without the server's proof.
    check(
        b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0R\0\0\0\x08\0\0\0\0",
        "authentication failed at server 127.0.0.1:PORT: the server ends SCRAM without proving \
         itself",
    )
    .await;
    check(
        b"R\0\0\0\x08\0\0\0\x07",
        "authentication failed at server 127.0.0.1:PORT: the server asks for a method \
         (Kerberos, GSSAPI or SSPI) that is not supported",
    )
    .await;
}

#[tokio::test]
async fn a_stream_cut_inside_a_message() {
    let mut script = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0018.1\0Z\0\0\0\x05I".to_vec();
    script.extend_from_slice(b"C\0\0\0\x0dSELECT 1\0D\0\0\0\x40\0\x01cut");
    let port = scripted(script).await;
    let text = format!("host=127.0.0.1 port={port} user=u sslmode=disable");
    let (mut receiver, _sender) = session(&parse(&text)).await.into_split();
    let message = within(receiver.next()).await.unwrap();
    assert!(
        matches!(message, BackendMessage::CommandComplete(_)),
        "{message:?}"
    );
    let error = within(receiver.next()).await.unwrap_err();
    assert!(matches!(error, Error::Closed { source: None }), "{error:?}");
}

#[tokio::test]
async fn a_call_that_is_dropped_loses_nothing() {
    let (mut receiver, mut sender) = session(&subscriber()).await.into_split();
    for _ in 0..100 {
        sender.query("SELECT repeat('x', 100000) FROM generate_series(1, 3)");
    }
    let mut written = false;
    let (mut rows, mut ready) = (0, 0);
    while ready < 100 {
        // Both operations are dropped and begun anew again and again.
        tokio::select! {
            sent = sender.send(), if !written => {
                sent.unwrap();
                written = true;
            }
            message = receiver.next() => match message.unwrap() {
                BackendMessage::DataRow(row) => {
                    assert_eq!(row.column(0).map(<[u8]>::len), Some(100_000));
                    rows += 1;
                }
                BackendMessage::ReadyForQuery(_) => ready += 1,
                _ => {}
            },
            () = tokio::time::sleep(Duration::from_micros(10)) => {}
        }
    }
    assert_eq!(rows, 300);
}
