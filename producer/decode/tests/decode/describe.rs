//! Messages as lines of text, in the form that the second decoder (`golden/second.py`) gives them.

use std::fmt::Write;

use walbraid_decode::message::{Message, Prepare, RelationBody};
use walbraid_decode::{Datum, OldTuple, Tuple};

/// Longer values are cut off, and the number of bytes that is not shown follows.
const SHOWN: usize = 60;

/// One message as one line, without its WAL position.
pub(crate) fn describe(message: &Message<'_>) -> String {
    let mut out = message.kind().to_owned();
    let xid_of = |xid: &Option<u32>| xid.map(|xid| format!(" xid={xid}")).unwrap_or_default();
    match message {
        Message::Begin {
            commit_lsn,
            commit_time_us,
            xid,
        } => {
            out += &format!(" commit_lsn={commit_lsn} commit_time_us={commit_time_us} xid={xid}");
        }
        Message::Commit {
            commit_lsn,
            end_lsn,
            commit_time_us,
        } => {
            out += &format!(" commit_lsn={commit_lsn} end_lsn={end_lsn}");
            out += &format!(" commit_time_us={commit_time_us}");
        }
        Message::Origin { commit_lsn, name } => {
            out += &format!(" commit_lsn={commit_lsn} name={}", text(name));
        }
        Message::Relation(body) => out += &(xid_of(&body.xid) + &relation(body)),
        Message::Type {
            xid,
            oid,
            schema,
            name,
        } => {
            out += &xid_of(xid);
            out += &format!(" oid={oid} name={}.{}", text(schema), text(name));
        }
        Message::Insert { xid, relation, new } => {
            out += &format!("{} relation={relation} new={}", xid_of(xid), row(*new));
        }
        Message::Update {
            xid,
            relation,
            old,
            new,
        } => {
            out += &format!("{} relation={relation}", xid_of(xid));
            out += &old.map(old_row).unwrap_or_default();
            out += &format!(" new={}", row(*new));
        }
        Message::Delete { xid, relation, old } => {
            out += &format!("{} relation={relation}{}", xid_of(xid), old_row(*old));
        }
        Message::Truncate {
            xid,
            cascade,
            restart_identity,
            relations,
        } => {
            out += &xid_of(xid);
            out += &format!(" cascade={}", u8::from(*cascade));
            out += &format!(" restart_identity={}", u8::from(*restart_identity));
            relations
                .iter()
                .for_each(|oid| out += &format!(" relation={oid}"));
        }
        Message::Logical {
            xid,
            transactional,
            lsn,
            prefix,
            content,
        } => {
            out += &xid_of(xid);
            out += &format!(" transactional={} lsn={lsn}", u8::from(*transactional));
            out += &format!(" prefix={} content={}", text(prefix), value(content));
        }
        other => stream_or_two_phase(other, &mut out),
    }
    out
}

fn stream_or_two_phase(message: &Message<'_>, out: &mut String) {
    let line = match message {
        Message::StreamStart { xid, first_segment } => {
            format!(" xid={xid} first_segment={}", u8::from(*first_segment))
        }
        Message::StreamCommit {
            xid,
            commit_lsn,
            end_lsn,
            commit_time_us,
        } => format!(
            " xid={xid} commit_lsn={commit_lsn} end_lsn={end_lsn} commit_time_us={commit_time_us}"
        ),
        Message::StreamAbort { xid, subxid, abort } => {
            let place = abort
                .map(|abort| format!(" abort_lsn={} abort_time_us={}", abort.lsn, abort.time_us));
            format!(" xid={xid} subxid={subxid}{}", place.unwrap_or_default())
        }
        Message::BeginPrepare(body) | Message::Prepare(body) | Message::StreamPrepare(body) => {
            prepare(body)
        }
        Message::CommitPrepared {
            commit_lsn,
            end_lsn,
            commit_time_us,
            xid,
            gid,
        } => format!(
            " commit_lsn={commit_lsn} end_lsn={end_lsn} commit_time_us={commit_time_us} xid={xid} \
             gid={}",
            text(gid)
        ),
        Message::RollbackPrepared {
            prepare_end_lsn,
            rollback_end_lsn,
            prepare_time_us,
            rollback_time_us,
            xid,
            gid,
        } => format!(
            " prepare_end_lsn={prepare_end_lsn} rollback_end_lsn={rollback_end_lsn} \
             prepare_time_us={prepare_time_us} rollback_time_us={rollback_time_us} xid={xid} \
             gid={}",
            text(gid)
        ),
        _ => String::new(),
    };
    out.push_str(&line);
}

fn prepare(body: &Prepare<'_>) -> String {
    format!(
        " prepare_lsn={} end_lsn={} prepare_time_us={} xid={} gid={}",
        body.prepare_lsn,
        body.end_lsn,
        body.prepare_time_us,
        body.xid,
        text(body.gid)
    )
}

fn relation(body: &RelationBody<'_>) -> String {
    let mut out = format!(
        " oid={} name={}.{} identity={}",
        body.oid,
        text(body.schema),
        text(body.name),
        char::from(body.identity)
    );
    for column in body.columns() {
        let key = if column.key { "key " } else { "" };
        let name = text(column.name);
        let (oid, modifier) = (column.type_oid, column.type_modifier);
        write!(out, " [{key}{name} type={oid} modifier={modifier}]").unwrap();
    }
    out
}

fn old_row(old: OldTuple<'_>) -> String {
    match old {
        OldTuple::Key(tuple) => format!(" key={}", row(tuple)),
        OldTuple::Full(tuple) => format!(" old={}", row(tuple)),
    }
}

fn row(tuple: Tuple<'_>) -> String {
    let columns: Vec<String> = tuple
        .columns()
        .map(|datum| match datum {
            Datum::Null => "n".to_owned(),
            Datum::Unchanged => "u".to_owned(),
            Datum::Text(text) => format!("t{}", value(text)),
            Datum::Binary(bytes) => format!("b{}", value(bytes)),
        })
        .collect();
    format!("({})", columns.join(" "))
}

fn text(text: &str) -> String {
    format!("\"{}\"", text.as_bytes().escape_ascii())
}

fn value(bytes: &[u8]) -> String {
    match bytes.split_at_checked(SHOWN) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("\"{}\"+{}", shown.escape_ascii(), rest.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
