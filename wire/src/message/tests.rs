//! Golden bytes of messages, cut and spoilt in every place.
#![allow(clippy::unwrap_used)]
use super::*;

fn taken(bytes: &[u8]) -> Result<Option<BackendMessage>, String> {
    let mut buffer = BytesMut::from(bytes);
    let message = take(&mut buffer).map_err(|error| error.to_string())?;
    if message.is_some() {
        assert!(buffer.is_empty(), "{} bytes are left", buffer.len());
    }
    Ok(message)
}

#[test]
fn the_bytes_of_messages() {
    let check = |bytes: &[u8], expected: BackendMessage| {
        assert_eq!(taken(bytes), Ok(Some(expected)), "{}", bytes.escape_ascii());
        // Cut anywhere, it is not there yet; longer or shorter inside, it is refused.
        for end in 0..bytes.len() {
            assert_eq!(taken(&bytes[..end]), Ok(None));
        }
        let mut longer = [bytes, &[0]].concat();
        longer[4] += 1;
        if bytes[0] != b'd' && bytes[0] != b'K' {
            assert!(taken(&longer).is_err(), "{}", longer.escape_ascii());
        }
    };
    check(b"1\0\0\0\x04", BackendMessage::ParseComplete);
    check(b"2\0\0\0\x04", BackendMessage::BindComplete);
    check(b"3\0\0\0\x04", BackendMessage::CloseComplete);
    check(b"c\0\0\0\x04", BackendMessage::CopyDone);
    check(b"I\0\0\0\x04", BackendMessage::EmptyQueryResponse);
    check(b"n\0\0\0\x04", BackendMessage::NoData);
    check(b"s\0\0\0\x04", BackendMessage::PortalSuspended);
    check(
        b"Z\0\0\0\x05T",
        BackendMessage::ReadyForQuery(TransactionStatus::InTransaction),
    );
    check(b"W\0\0\0\x07\0\0\0", BackendMessage::CopyBothResponse);
    check(b"G\0\0\0\x09\0\0\x01\0\0", BackendMessage::CopyInResponse);
    check(
        b"H\0\0\0\x09\x01\0\x01\0\x01",
        BackendMessage::CopyOutResponse,
    );
    check(
        b"d\0\0\0\x06ab",
        BackendMessage::CopyData(Bytes::from_static(b"ab")),
    );
    check(b"d\0\0\0\x04", BackendMessage::CopyData(Bytes::new()));
    check(
        b"t\0\0\0\x0a\0\x01\0\0\0\x17",
        BackendMessage::ParameterDescription(vec![23]),
    );
    check(
        b"S\0\0\0\x08a\0b\0",
        BackendMessage::ParameterStatus {
            name: "a".to_owned(),
            value: "b".to_owned(),
        },
    );
    check(
        b"K\0\0\0\x0c\0\0\0\x05abcd",
        BackendMessage::BackendKeyData {
            process_id: 5,
            secret_key: Bytes::from_static(b"abcd"),
        },
    );
    check(
        b"A\0\0\0\x0c\0\0\0\x05a\0b\0",
        BackendMessage::NotificationResponse {
            process_id: 5,
            channel: "a".to_owned(),
            payload: "b".to_owned(),
        },
    );
    check(
        b"T\0\0\0\x1a\0\x01a\0\0\0\0\x05\0\x01\0\0\0\x17\0\x04\xff\xff\xff\xff\0\x01",
        BackendMessage::RowDescription(vec![Field {
            name: "a".to_owned(),
            table_oid: 5,
            attribute: 1,
            type_oid: 23,
            type_length: 4,
            type_modifier: -1,
            binary: true,
        }]),
    );
}

#[test]
fn rows() {
    let bytes = b"D\0\0\0\x14\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
    let Ok(Some(BackendMessage::DataRow(row))) = taken(bytes) else {
        panic!("no row");
    };
    let columns: Vec<Option<&[u8]>> = row.columns().collect();
    assert_eq!(columns, [Some(&b"ab"[..]), None, Some(b"")]);
    assert_eq!(
        (row.len(), row.text(0), row.text(1), row.text(3)),
        (3, Some("ab"), None, None)
    );
    assert_eq!(format!("{row:?}"), "DataRow(3 columns, 16 bytes)");
    for broken in [
        &b"D\0\0\0\x06\0\x01"[..],
        b"D\0\0\0\x06\xff\xff",
        b"D\0\0\0\x0a\0\x01\0\0\0\x05",
        b"D\0\0\0\x0a\0\x01\xff\xff\xff\xfe",
        b"D\0\0\0\x0b\0\x01\0\0\0\0x",
    ] {
        assert!(taken(broken).is_err(), "{}", broken.escape_ascii());
    }
}

#[test]
fn tags() {
    let check = |text: &str, command: Command, rows: Option<u64>| {
        let tag = CommandTag::parse(text.as_bytes()).unwrap();
        assert_eq!(tag, CommandTag { command, rows });
        assert_eq!(tag.to_string(), text);
    };
    check("BEGIN", Command::Begin, None);
    check("COMMIT", Command::Commit, None);
    check("ROLLBACK", Command::Rollback, None);
    check("INSERT 0 12", Command::Insert, Some(12));
    check("UPDATE 0", Command::Update, Some(0));
    check(
        "DELETE 18446744073709551615",
        Command::Delete,
        Some(u64::MAX),
    );
    check("MERGE 1", Command::Merge, Some(1));
    check("SELECT 1", Command::Select, Some(1));
    check("COPY 3", Command::Copy, Some(3));
    check("SET", Command::Set, None);
    check("PREPARE TRANSACTION", Command::PrepareTransaction, None);
    check("COMMIT PREPARED", Command::CommitPrepared, None);
    check("ROLLBACK PREPARED", Command::RollbackPrepared, None);
    check("TRUNCATE TABLE", Command::TruncateTable, None);
    check("CREATE TABLE", Command::Other("CREATE TABLE".into()), None);
    check(
        "DELETE 18446744073709551616",
        Command::Other("DELETE 18446744073709551616".into()),
        None,
    );
    check("UPDATE ", Command::Other("UPDATE ".into()), None);
}

#[test]
fn what_is_no_message() {
    let check = |bytes: &[u8], expected: &str| {
        assert_eq!(taken(bytes), Err(format!("protocol error: {expected}")));
    };
    check(b"Z\0\0\0\x03", "message 'Z' of impossible length 3");
    check(
        b"d\xff\xff\xff\xff",
        "message 'd' of impossible length 4294967295",
    );
    check(b"?\0\0\0\x05x", "message '?' of 1 bytes cannot be read");
    check(b"Z\0\0\0\x05x", "message 'Z' of 1 bytes cannot be read");
    check(b"C\0\0\0\x06ab", "message 'C' of 2 bytes cannot be read");
    check(b"E\0\0\0\x06Mx", "message 'E' of 2 bytes cannot be read");
}
