//! Messages of 100 MB in both directions: read and written in one piece, copied once.

use std::time::Instant;

use walbraid_wire::BackendMessage;

use crate::server::{session, subscriber, within};

const LARGE_BYTES: usize = 100 * 1024 * 1024;

#[tokio::test]
async fn a_row_of_100_megabytes() {
    let (mut receiver, mut sender) = session(&subscriber()).await.into_split();
    sender.parse("", "SELECT $1::text, octet_length($1::text)", &[]);
    let mut bind = sender.bind_with("", &[]);
    bind.value_with(|buffer| buffer.resize(buffer.len() + LARGE_BYTES, b'x'));
    bind.finish();
    sender.execute(0);
    sender.sync();
    let start = Instant::now();
    within(sender.send_reading(&mut receiver)).await.unwrap();
    loop {
        match within(receiver.next()).await.unwrap() {
            BackendMessage::DataRow(row) => {
                assert_eq!(row.column(0).map(<[u8]>::len), Some(LARGE_BYTES));
                assert_eq!(row.text(1), Some(LARGE_BYTES.to_string().as_str()));
            }
            BackendMessage::ReadyForQuery(_) => break,
            BackendMessage::ErrorResponse(error) => panic!("{error}"),
            _ => {}
        }
    }
    // Quadratic copying would take minutes; this is a few hundred milliseconds.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[tokio::test]
async fn copy_data_of_100_megabytes() {
    let (mut receiver, mut sender) = session(&subscriber()).await.into_split();
    sender.query(&format!(
        "COPY (SELECT repeat('y', {LARGE_BYTES})) TO STDOUT"
    ));
    within(sender.send()).await.unwrap();
    let mut lengths = Vec::new();
    loop {
        match within(receiver.next()).await.unwrap() {
            BackendMessage::CopyData(data) => lengths.push(data.len()),
            BackendMessage::ReadyForQuery(_) => break,
            BackendMessage::ErrorResponse(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(lengths, [LARGE_BYTES + 1]);
}
