//! Bursts: what a worker relies on when it writes many statements before it reads one answer.

use walbraid_wire::{
    BackendMessage, Command, CommandTag, Connection, Format, Receiver, Sender, SqlState,
    TransactionStatus,
};

use crate::server::{run, session, subscriber, unique, within};

/// A session in two halves with a table of its own and statements prepared on it.
async fn prepared() -> (Receiver, Sender, String) {
    let table = unique("wire_burst");
    let mut connection = session(&subscriber()).await;
    run(
        &mut connection,
        &format!("CREATE TABLE {table} (id int PRIMARY KEY, v text)"),
    )
    .await;
    let (mut receiver, mut sender) = connection.into_split();
    sender.parse("begin", "BEGIN", &[]);
    sender.parse("commit", "COMMIT", &[]);
    sender.parse(
        "insert",
        &format!("INSERT INTO {table} VALUES ($1, $2)"),
        &[],
    );
    sender.parse(
        "update",
        &format!("UPDATE {table} SET v = $2 WHERE id = $1"),
        &[],
    );
    sender.sync();
    within(sender.send()).await.unwrap();
    let expected = vec![BackendMessage::ParseComplete; 4];
    assert_eq!(
        until_ready(&mut receiver).await,
        (expected, TransactionStatus::Idle)
    );
    (receiver, sender, table)
}

fn statement(sender: &mut Sender, name: &str, parameters: &[&str]) {
    sender.bind(name, &[], parameters.iter().map(Some));
    sender.execute(0);
}

async fn next(receiver: &mut Receiver) -> BackendMessage {
    within(receiver.next()).await.unwrap()
}

async fn until_ready(receiver: &mut Receiver) -> (Vec<BackendMessage>, TransactionStatus) {
    let mut messages = Vec::new();
    loop {
        match next(receiver).await {
            BackendMessage::ReadyForQuery(status) => return (messages, status),
            message => messages.push(message),
        }
    }
}

/// The tags of so many statements.
async fn tags(receiver: &mut Receiver, count: usize) -> Vec<String> {
    let mut tags = Vec::new();
    while tags.len() < count {
        match next(receiver).await {
            BackendMessage::BindComplete => {}
            BackendMessage::CommandComplete(tag) => tags.push(tag.to_string()),
            other => panic!("{other:?} after {tags:?}"),
        }
    }
    tags
}

async fn drop_table(table: &str) {
    run(
        &mut session(&subscriber()).await,
        &format!("DROP TABLE {table}"),
    )
    .await;
}

async fn rows(table: &str) -> Vec<i32> {
    let mut connection: Connection = session(&subscriber()).await;
    let rows = run(
        &mut connection,
        &format!("SELECT id FROM {table} ORDER BY id"),
    )
    .await;
    rows.iter()
        .map(|row| row.value(0).unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn flush_brings_answers_and_sync_only_ends_it() {
    let (mut receiver, mut sender, table) = prepared().await;
    for burst in 0..3 {
        for id in burst * 10..burst * 10 + 10 {
            statement(&mut sender, "begin", &[]);
            statement(&mut sender, "insert", &[&id.to_string(), "x"]);
            statement(&mut sender, "update", &[&id.to_string(), "y"]);
            statement(&mut sender, "commit", &[]);
        }
        sender.flush_request();
        within(sender.send()).await.unwrap();
        let expected = ["BEGIN", "INSERT 0 1", "UPDATE 1", "COMMIT"].repeat(10);
        assert_eq!(tags(&mut receiver, 40).await, expected);
        // Shown before any Sync.
        assert_eq!(rows(&table).await.len(), (burst as usize + 1) * 10);
    }
    sender.sync();
    within(sender.send()).await.unwrap();
    assert_eq!(
        until_ready(&mut receiver).await,
        (vec![], TransactionStatus::Idle)
    );
    drop_table(&table).await;
}

#[tokio::test]
async fn two_bursts_in_flight_stop_at_the_prefix() {
    let (mut receiver, mut sender, table) = prepared().await;
    for id in ["1", "2", "2", "3", "4"] {
        statement(&mut sender, "begin", &[]);
        statement(&mut sender, "insert", &[id, "x"]);
        statement(&mut sender, "commit", &[]);
        // A burst of its own for each, sent without waiting.
        sender.flush_request();
        within(sender.send()).await.unwrap();
    }
    let mut seen = tags(&mut receiver, 7).await;
    assert_eq!(seen.split_off(4), ["INSERT 0 1", "COMMIT", "BEGIN"]);
    assert_eq!(next(&mut receiver).await, BackendMessage::BindComplete);
    let BackendMessage::ErrorResponse(error) = next(&mut receiver).await else {
        panic!("no error");
    };
    assert_eq!(error.sqlstate, SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.constraint, Some(format!("{table}_pkey")));
    assert_eq!(error.table.as_deref(), Some(table.as_str()));
    sender.sync();
    within(sender.send()).await.unwrap();
    assert_eq!(
        until_ready(&mut receiver).await,
        (vec![], TransactionStatus::Failed)
    );
    assert_eq!(rows(&table).await, [1, 2]);
    sender.query("ROLLBACK");
    within(sender.send()).await.unwrap();
    let tag = CommandTag {
        command: Command::Rollback,
        rows: None,
    };
    let expected = vec![BackendMessage::CommandComplete(tag)];
    assert_eq!(
        until_ready(&mut receiver).await,
        (expected, TransactionStatus::Idle)
    );
    drop_table(&table).await;
}

#[tokio::test]
async fn a_row_not_found_is_a_count() {
    let (mut receiver, mut sender, table) = prepared().await;
    statement(&mut sender, "update", &["1", "x"]);
    sender.sync();
    within(sender.send()).await.unwrap();
    assert_eq!(next(&mut receiver).await, BackendMessage::BindComplete);
    let BackendMessage::CommandComplete(tag) = next(&mut receiver).await else {
        panic!("no tag");
    };
    assert_eq!((tag.command, tag.rows), (Command::Update, Some(0)));
    drop_table(&table).await;
}

#[tokio::test]
async fn null_binary_and_text_arrive() {
    let (mut receiver, mut sender, table) = prepared().await;
    let mut bind = sender.bind_with("insert", &[Format::Binary, Format::Text]);
    bind.value(&7_i32.to_be_bytes());
    bind.value_with(|buffer| buffer.extend_from_slice("größer".as_bytes()));
    bind.finish();
    sender.execute(0);
    let mut bind = sender.bind_with("insert", &[]);
    bind.value(b"8");
    bind.null();
    bind.finish();
    sender.execute(0);
    // Never finished: never there.
    let mut bind = sender.bind_with("insert", &[]);
    bind.value(b"9");
    drop(bind);
    sender.sync();
    within(sender.send()).await.unwrap();
    assert_eq!(until_ready(&mut receiver).await.0.len(), 4);
    sender.parse("", &format!("SELECT id, v FROM {table} ORDER BY id"), &[]);
    sender.bind("", &[], std::iter::empty::<Option<&[u8]>>());
    sender.execute(0);
    sender.sync();
    within(sender.send()).await.unwrap();
    let (messages, _) = until_ready(&mut receiver).await;
    let rows: Vec<(Option<&str>, Option<&str>)> = messages
        .iter()
        .filter_map(|message| match message {
            BackendMessage::DataRow(row) => Some((row.text(0), row.text(1))),
            _ => None,
        })
        .collect();
    assert_eq!(rows, [(Some("7"), Some("größer")), (Some("8"), None)]);
    drop_table(&table).await;
}

/// One task for both halves, a burst far beyond what socket buffers hold in either direction: the
/// server's answers (32 MB of rows) must be read while the burst is written.
#[tokio::test]
async fn a_burst_beyond_all_buffers_does_not_stand_still() {
    let mut connection = session(&subscriber()).await;
    run(&mut connection, "SET statement_timeout = '50s'").await;
    let (mut receiver, mut sender) = connection.into_split();
    sender.parse("echo", "SELECT $1::text", &[]);
    let value = "v".repeat(16 * 1024);
    for _ in 0..2000 {
        statement(&mut sender, "echo", &[&value]);
    }
    sender.sync();
    within(sender.send_reading(&mut receiver)).await.unwrap();
    let (messages, _) = until_ready(&mut receiver).await;
    let rows = messages
        .iter()
        .filter(|m| matches!(m, BackendMessage::DataRow(_)))
        .count();
    assert_eq!(rows, 2000);
}

#[tokio::test]
async fn what_cannot_be_encoded_spoils_the_sender() {
    let (_, mut sender, table) = prepared().await;
    sender.query("SELECT 'a\0b'");
    for _ in 0..2 {
        let error = within(sender.send()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "protocol error: a name or a statement holds a zero byte"
        );
    }
    drop_table(&table).await;
}
