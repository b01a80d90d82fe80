//! Logs as text, and what a reader says of each record: the language of [`super::stories`].
//!
//! A line is `offset record => verdict`. Records: `setup S`, `claim OPTIONS C`,
//! `link CLAIM OPTIONS PREVIOUS END`, `part CLAIM OPTIONS PREVIOUS END NUMBER` (`NUMBER.` is the
//! last), `beat CLAIM OPTIONS PREVIOUS END`, `notice CLAIM OPTIONS`; `other` in front makes it a
//! record of another incarnation. Links commit one byte before their end.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::envelope::NO_CLAIM;
use crate::{
    Body, Claim, Envelope, Heartbeat, Incarnation, LinkKind, Lsn, Notice, Part, Stop, StopKind,
};

pub(super) const OURS: Incarnation = Incarnation([1; 16]);
const OTHER: Incarnation = Incarnation([2; 16]);

pub(super) fn fresh() -> Position {
    Position::start(OURS, Lsn(10))
}

pub(super) fn at(end_lsn: u64, claim_offset: i64, options: &str) -> Position {
    Position {
        incarnation: OURS,
        end_lsn: Lsn(end_lsn),
        claim_offset,
        options_hash: Some(hash(options)),
    }
}

fn hash(options: &str) -> i64 {
    options.bytes().next().map_or(0, i64::from)
}

pub(super) fn check(story: &str, position: Position, start: Start, log: &str) -> Reader {
    let mut reader = Reader::new(position, start);
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (said, expected) = line.split_once(" => ").unwrap();
        let (offset, record) = said.trim().split_once(' ').unwrap();
        let step = reader.offer(offset.parse().unwrap(), &parse(record));
        assert_eq!(tell(&step), expected.trim(), "{story}: {line} {step:?}");
    }
    reader
}

fn tell(step: &Step) -> String {
    let verdict = match &step.verdict {
        Verdict::Part => "part".to_owned(),
        Verdict::Link(_) => "link".to_owned(),
        Verdict::Quiet(_) => "quiet".to_owned(),
        Verdict::Claim => "claim".to_owned(),
        Verdict::Notice => "notice".to_owned(),
        Verdict::Nothing(why) => format!("{why:?}").to_lowercase(),
        Verdict::SeekBack => "seek back".to_owned(),
        Verdict::Stop(stop) => format!("stop {}", stop.kind),
    };
    if step.voided {
        format!("voids, {verdict}")
    } else {
        verdict
    }
}

pub(super) fn parse(text: &str) -> Envelope {
    let (text, incarnation) = match text.strip_prefix("other ") {
        Some(rest) => (rest, OTHER),
        None => (text, OURS),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |index: usize| words[index].trim_end_matches('.').parse::<u64>().unwrap();
    let record = |claim_offset: i64, options: &str, previous: u64, end: u64, body: Body| Envelope {
        incarnation,
        timeline: 1,
        claim_offset,
        options_hash: hash(options),
        seq: 0,
        end_lsn: Lsn(end),
        previous_end_lsn: Lsn(previous),
        body,
    };
    let part = |end: u64, number: u32, last: bool| {
        Body::Part(Part {
            kind: LinkKind::Transaction,
            xid: 1,
            commit_lsn: Lsn(end - 1),
            commit_time_us: 0,
            prepare_end_lsn: Lsn::INVALID,
            gid: None,
            origin: None,
            number,
            last,
            tables: Vec::new(),
            changes: Vec::new(),
            fragment: None,
        })
    };
    let heartbeat = Body::Heartbeat(Heartbeat {});
    match words[0] {
        "setup" => record(NO_CLAIM, "", number(1), number(1), heartbeat),
        "claim" => record(NO_CLAIM, words[1], 0, 0, Body::Claim(claim(number(2)))),
        "beat" => record(number(1) as i64, words[2], number(3), number(4), heartbeat),
        "notice" => {
            let notice = Notice::from(&Stop::new(StopKind::DiskFull, "a"));
            record(number(1) as i64, words[2], 0, 0, Body::Notice(notice))
        }
        "link" => {
            let (previous, end) = (number(3), number(4));
            record(
                number(1) as i64,
                words[2],
                previous,
                end,
                part(end, 0, true),
            )
        }
        "part" => {
            let last = words[5].ends_with('.');
            let body = part(number(4), number(5) as u32, last);
            let end = if last { number(4) } else { 0 };
            record(number(1) as i64, words[2], number(3), end, body)
        }
        word => panic!("no record: {word}"),
    }
}

fn claim(confirmed: u64) -> Claim {
    Claim {
        generation: 0,
        id: [0; 16],
        confirmed_lsn: Lsn(confirmed),
        system_identifier: String::new(),
        database: String::new(),
        slot: String::new(),
        publications: Vec::new(),
        protocol: 4,
        writer: String::new(),
    }
}
