//! Which messages make which events, and which are refused.

use walbraid_decode::message::{ColumnBody, Framing, Message, Oids, Prepare, RelationBody};
use walbraid_decode::{Assembler, ChangeKind, Datum, Decoder, Event, Protocol, Streaming, Tuple};
use walbraid_schemas::Lsn;

const PLAIN: Protocol = Protocol {
    version: 4,
    streaming: Streaming::Off,
    two_phase: false,
};
const ALL: Protocol = Protocol {
    version: 4,
    streaming: Streaming::Parallel,
    two_phase: true,
};

const BEGIN: Message<'static> = Message::Begin {
    commit_lsn: Lsn(0x100),
    commit_time_us: 9,
    xid: 7,
};
const COMMIT: Message<'static> = Message::Commit {
    commit_lsn: Lsn(0x100),
    end_lsn: Lsn(0x130),
    commit_time_us: 9,
};
const ORIGIN: Message<'static> = Message::Origin {
    commit_lsn: Lsn(0xAB),
    name: "elsewhere",
};
const PREPARE: Prepare<'static> = Prepare {
    prepare_lsn: Lsn(1),
    end_lsn: Lsn(2),
    prepare_time_us: 0,
    xid: 7,
    gid: "g",
};

fn logical(transactional: bool) -> Message<'static> {
    let (lsn, prefix, content) = (Lsn(0x90), "p", b"c".as_slice());
    Message::Logical {
        xid: None,
        transactional,
        lsn,
        prefix,
        content,
    }
}

fn insert(relation: u32, row: &[u8]) -> Message<'_> {
    Message::Insert {
        xid: None,
        relation,
        new: Tuple::from_bytes(row).unwrap(),
    }
}

/// Messages one after another; the events, or the first refusal.
fn events(protocol: Protocol, messages: &[Message<'_>]) -> Result<Vec<String>, String> {
    let mut assembler = Assembler::new(Decoder::new(protocol));
    let mut lines = Vec::new();
    let mut framing = Framing {
        in_stream: false,
        parallel: true,
    };
    for message in messages {
        let mut bytes = Vec::new();
        message.write(framing, &mut bytes);
        framing.in_stream = matches!(message, Message::StreamStart { .. });
        let events = assembler
            .push(Lsn(0xAB), &bytes)
            .map_err(|refusal| refusal.to_string())?;
        lines.extend(events.map(|event| line(&event)));
    }
    Ok(lines)
}

fn line(event: &Event<'_>) -> String {
    match event {
        Event::Begin(begin) => {
            let origin = begin
                .origin
                .as_ref()
                .map(|origin| format!(" from {}", origin.name));
            format!(
                "begin {} {}{}",
                begin.xid,
                begin.commit_lsn,
                origin.unwrap_or_default()
            )
        }
        Event::Relation(relation) => format!("shape {} {}", relation.shape, relation.table.name),
        Event::Change(change) => match &change.kind {
            ChangeKind::Insert { relation, .. } => format!("insert {}", relation.shape),
            ChangeKind::Update { relation, .. } => format!("update {}", relation.shape),
            ChangeKind::Delete { relation, .. } => format!("delete {}", relation.shape),
            ChangeKind::Truncate { relations, .. } => {
                let shapes: Vec<u32> = relations.iter().map(|relation| relation.shape).collect();
                format!("truncate {shapes:?}")
            }
            ChangeKind::Message(message) => format!("message {}", message.prefix),
        },
        Event::Commit(commit) => format!("commit {}", commit.end_lsn),
        Event::Message(message) => format!("outside {}", message.lsn),
        Event::Empty(commit) => format!("empty {}", commit.end_lsn),
    }
}

/// Columns of a relation with one int4 column of this name.
fn columns(name: &str) -> Vec<u8> {
    let column = ColumnBody {
        key: true,
        name,
        type_oid: 23,
        type_modifier: -1,
    };
    RelationBody::build_columns(&[column])
}

fn relation<'a>(oid: u32, name: &'a str, columns: &'a [u8]) -> Message<'a> {
    let body = RelationBody::new(None, oid, "public", name, b'd');
    Message::Relation(body.with_columns(1, columns).unwrap())
}

#[test]
fn events_of_messages() {
    let check = |messages: &[Message<'_>], expected: &[&str]| {
        let expected = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(events(PLAIN, messages), Ok(expected), "{messages:?}");
    };
    let row = Tuple::build(&[Datum::Text(b"1")]);
    let (id, renamed) = (columns("id"), columns("key"));
    let (a, b) = (relation(1, "a", &id), relation(2, "b", &id));
    let both = [1_u32.to_be_bytes(), 2_u32.to_be_bytes()].concat();
    let truncate = Message::Truncate {
        xid: None,
        cascade: false,
        restart_identity: false,
        relations: Oids::from_bytes(&both),
    };

    check(&[], &[]);
    check(&[BEGIN, COMMIT], &["empty 0/130"]);
    check(&[BEGIN, ORIGIN, COMMIT], &["empty 0/130"]);
    check(&[BEGIN, a, COMMIT], &["empty 0/130"]);
    check(
        &[BEGIN, a, insert(1, &row), insert(1, &row), COMMIT],
        &[
            "begin 7 0/100",
            "shape 0 a",
            "insert 0",
            "insert 0",
            "commit 0/130",
        ],
    );
    check(
        &[BEGIN, ORIGIN, a, insert(1, &row), COMMIT],
        &[
            "begin 7 0/100 from elsewhere",
            "shape 0 a",
            "insert 0",
            "commit 0/130",
        ],
    );
    // The same shape described again is the same shape; another one is announced.
    check(
        &[
            BEGIN,
            a,
            insert(1, &row),
            a,
            insert(1, &row),
            relation(1, "a", &renamed),
            insert(1, &row),
            COMMIT,
        ],
        &[
            "begin 7 0/100",
            "shape 0 a",
            "insert 0",
            "insert 0",
            "shape 1 a",
            "insert 1",
            "commit 0/130",
        ],
    );
    // Shapes are announced when they are used, not when they are described.
    check(
        &[BEGIN, a, b, insert(2, &row), truncate, COMMIT],
        &[
            "begin 7 0/100",
            "shape 1 b",
            "insert 1",
            "shape 0 a",
            "truncate [0, 1]",
            "commit 0/130",
        ],
    );
    check(&[logical(false)], &["outside 0/90"]);
    check(
        &[BEGIN, logical(true), COMMIT, logical(false), BEGIN, COMMIT],
        &[
            "begin 7 0/100",
            "message p",
            "commit 0/130",
            "outside 0/90",
            "empty 0/130",
        ],
    );
}

#[test]
fn refusals() {
    let check = |messages: &[Message<'_>], expected: &str| {
        assert_eq!(
            events(PLAIN, messages),
            Err(expected.to_owned()),
            "{messages:?}"
        );
    };
    let row = Tuple::build(&[Datum::Text(b"1")]);
    let wide = Tuple::build(&[Datum::Null, Datum::Null]);
    let id = columns("id");
    let a = relation(1, "a", &id);
    let odd = ColumnBody {
        key: false,
        name: "odd",
        type_oid: 16999,
        type_modifier: -1,
    };
    let odd = RelationBody::build_columns(&[odd]);

    check(
        &[COMMIT],
        "unexpected Commit message at LSN 0/AB: no transaction is open",
    );
    check(
        &[BEGIN, BEGIN],
        "unexpected Begin message at LSN 0/AB: a transaction is open",
    );
    check(
        &[a, insert(1, &row)],
        "unexpected Insert message at LSN 0/AB: no transaction is open",
    );
    check(
        &[logical(true)],
        "unexpected Message message at LSN 0/AB: no transaction is open",
    );
    check(
        &[BEGIN, logical(false)],
        "unexpected Message message at LSN 0/AB: a transaction is open",
    );
    let nowhere = Message::Logical {
        xid: None,
        transactional: false,
        lsn: Lsn(0),
        prefix: "",
        content: b"",
    };
    check(
        &[nowhere],
        "unexpected Message message at LSN 0/AB: its own LSN is 0/0",
    );
    let misplaced = "unexpected Origin message at LSN 0/AB: \
                     it does not follow the begin of a transaction";
    check(&[ORIGIN], misplaced);
    check(&[BEGIN, ORIGIN, ORIGIN], misplaced);
    check(&[BEGIN, a, insert(1, &row), ORIGIN], misplaced);
    check(
        &[BEGIN, insert(1, &row)],
        "Insert message at LSN 0/AB names relation 1, which was not described before",
    );
    check(
        &[BEGIN, a, insert(1, &wide)],
        "Insert message at LSN 0/AB for relation public.a has 2 columns, expected 1",
    );
    check(
        &[BEGIN, relation(1, "a", &odd)],
        "column \"odd\" of relation public.a at LSN 0/AB has type 16999, \
         which is neither built in nor was described before",
    );
    let commit = |commit_lsn, end_lsn, commit_time_us| Message::Commit {
        commit_lsn: Lsn(commit_lsn),
        end_lsn: Lsn(end_lsn),
        commit_time_us,
    };
    let mismatch = |field| {
        format!(
            "commit of transaction 7 at LSN 0/AB does not match its begin: {field} is different"
        )
    };
    check(
        &[BEGIN, commit(0x101, 0x130, 9)],
        &mismatch("the commit LSN"),
    );
    check(
        &[BEGIN, commit(0x100, 0x130, 8)],
        &mismatch("the commit time"),
    );
    check(
        &[BEGIN, commit(0x100, 0x100, 9)],
        &mismatch("the order of commit LSN and end LSN"),
    );
}

#[test]
fn streamed_and_two_phase_messages_are_refused_by_name() {
    let stream = [
        Message::StreamStart {
            xid: 7,
            first_segment: true,
        },
        Message::StreamStop,
        Message::StreamCommit {
            xid: 7,
            commit_lsn: Lsn(1),
            end_lsn: Lsn(2),
            commit_time_us: 0,
        },
        Message::StreamAbort {
            xid: 7,
            subxid: 7,
            abort: None,
        },
        Message::StreamPrepare(PREPARE),
    ];
    let two_phase = [
        Message::BeginPrepare(PREPARE),
        Message::Prepare(PREPARE),
        Message::CommitPrepared {
            commit_lsn: Lsn(1),
            end_lsn: Lsn(2),
            commit_time_us: 0,
            xid: 7,
            gid: "g",
        },
        Message::RollbackPrepared {
            prepare_end_lsn: Lsn(1),
            rollback_end_lsn: Lsn(2),
            prepare_time_us: 0,
            rollback_time_us: 0,
            xid: 7,
            gid: "g",
        },
    ];
    let check = |message: &Message<'_>, option: &str, form: &str| {
        let kind = message.kind();
        let mut bytes = Vec::new();
        message.write(Framing::default(), &mut bytes);
        let refusal = Assembler::new(Decoder::new(PLAIN)).push(Lsn(0xAB), &bytes);
        assert_eq!(
            refusal.unwrap_err().to_string(),
            format!("unexpected {kind} message at LSN 0/AB: \"{option}\" was not asked for")
        );
        if *message == Message::StreamStop {
            return;
        }
        let refusal = events(ALL, std::slice::from_ref(message));
        assert_eq!(
            refusal,
            Err(format!(
                "unexpected {kind} message at LSN 0/AB: {form} transactions are not supported"
            ))
        );
    };
    stream[..4]
        .iter()
        .for_each(|message| check(message, "streaming", "streamed"));
    check(&stream[4], "streaming", "two-phase");
    two_phase
        .iter()
        .for_each(|message| check(message, "two_phase", "two-phase"));
}

#[test]
fn bytes_that_are_no_message_are_refused_with_kind_and_field() {
    let check = |bytes: &[u8], expected: &str| {
        let refusal = Assembler::new(Decoder::new(PLAIN)).push(Lsn(0x16_0000_00AB), bytes);
        assert_eq!(refusal.unwrap_err().to_string(), expected);
    };
    let at = "message (\"B\") at LSN 16/AB:";
    check(
        b"B\0\0",
        &format!("could not decode the Begin {at} commit LSN is cut off"),
    );
    check(
        b"B\0\0\0\0\0\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0",
        &format!("could not decode the Begin {at} commit time is out of range"),
    );
    check(
        b"B\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0!",
        &format!("could not decode the Begin {at} end of message is followed by more bytes"),
    );
    check(
        b"I\0\0\0\x01X",
        "could not decode the Insert message (\"I\") at LSN 16/AB: kind of tuple is not N",
    );
    check(
        b"I\0\0\0\x01N\0\x01t\xFF\xFF\xFF\xFF",
        "could not decode the Insert message (\"I\") at LSN 16/AB: \
         length of column is negative",
    );
    check(
        b"I\0\0\0\x01N\0\x01t\x7F\xFF\xFF\xFFabc",
        "could not decode the Insert message (\"I\") at LSN 16/AB: value of column is cut off",
    );
    check(
        b"O\0\0\0\0\0\0\0\0elsewhere",
        "could not decode the Origin message (\"O\") at LSN 16/AB: origin name has no end",
    );
    check(
        b"z",
        "could not decode the unknown message (\"z\") at LSN 16/AB: kind of message is unknown",
    );
}
