//! A lane, and a consumer that reads it as a real one would.

use walbraid_schemas::chain::{Position, Reader, Start, Verdict};
use walbraid_schemas::{Body, Envelope, Incarnation, Lsn, Part, Stop};

use crate::random::Random;

pub(crate) const INCARNATION: Incarnation = Incarnation([7; 16]);

/// The records of a lane. Offsets rise and need not be dense.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) records: Vec<(i64, Envelope)>,
    next_offset: i64,
}

impl Lane {
    pub(crate) fn append(&mut self, record: Envelope, random: &mut Random) -> i64 {
        if random.chance(5) {
            self.next_offset += 1;
        }
        let offset = self.next_offset;
        self.records.push((offset, record));
        self.next_offset += 1;
        offset
    }

    pub(crate) fn end(&self) -> i64 {
        self.next_offset
    }

    pub(crate) fn from(&self, offset: i64) -> &[(i64, Envelope)] {
        &self.records[self.records.partition_point(|(at, _)| *at < offset)..]
    }

    pub(crate) fn has_claim_in(&self, from: i64, to: i64) -> bool {
        let records = self
            .from(from)
            .iter()
            .take_while(|(offset, _)| *offset <= to);
        records
            .into_iter()
            .any(|(_, record)| matches!(record.body, Body::Claim(_)))
    }
}

/// A whole link, as a consumer got it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) position: Position,
    pub(crate) commit_lsn: Lsn,
    pub(crate) rows: usize,
    /// The offset of its last part.
    pub(crate) offset: i64,
}

/// A move of the covered LSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) view: i64,
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
    pub(crate) link: bool,
}

/// What came of reading a lane to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) links: Vec<Link>,
    pub(crate) moves: Vec<Move>,
    pub(crate) position: Position,
    pub(crate) covered: Lsn,
    pub(crate) stop: Option<Stop>,
    /// The reader saw no record that told it where it is.
    pub(crate) waiting: bool,
    pub(crate) seeks: u64,
    pub(crate) voided: u64,
    pub(crate) nothing: u64,
}

impl Reading {
    pub(crate) fn ends(&self) -> Vec<Lsn> {
        self.links
            .iter()
            .map(|link| link.position.end_lsn)
            .collect()
    }
}

/// Reads from `offset` to the lane's end, seeking back as far as the reader asks, down to `head`.
pub(crate) fn read(
    lane: &Lane,
    head: i64,
    position: Position,
    offset: i64,
    random: &mut Random,
) -> Reading {
    let mut from = offset.max(head);
    let mut seeks = 0;
    loop {
        let start = if from <= head {
            Start::LogStart
        } else {
            Start::Offset
        };
        let (reading, seek_back) = read_once(lane, from, position, start);
        if !seek_back {
            return Reading { seeks, ..reading };
        }
        assert!(
            start == Start::Offset,
            "asked to seek back at the log's start"
        );
        let first = lane.from(from).first();
        assert!(
            first.is_none_or(|(offset, _)| *offset > position.claim_offset),
            "asked to seek back from the position's claim"
        );
        seeks += 1;
        from -= 1 + random.below(1 + (from - head).min(9) as u64) as i64;
    }
}

fn read_once(lane: &Lane, from: i64, position: Position, start: Start) -> (Reading, bool) {
    let mut reader = Reader::new(position, start);
    let mut kept: Vec<Part> = Vec::new();
    let mut reading = Reading {
        links: Vec::new(),
        moves: Vec::new(),
        position,
        covered: position.end_lsn,
        stop: None,
        waiting: true,
        seeks: 0,
        voided: 0,
        nothing: 0,
    };
    for (offset, record) in lane.from(from) {
        let before = reader.quiet_until();
        let step = reader.offer(*offset, record);
        if step.voided {
            assert!(!kept.is_empty(), "voided a run that was not there");
            kept.clear();
            reading.voided += 1;
        }
        match step.verdict {
            Verdict::Part => keep(&mut kept, record),
            Verdict::Link(position) => {
                keep(&mut kept, record);
                reading.links.push(whole(&mut kept, position, *offset));
            }
            Verdict::Quiet(_) | Verdict::Claim | Verdict::Notice => {}
            Verdict::Nothing(_) => reading.nothing += 1,
            Verdict::SeekBack => return (reading, true),
            Verdict::Stop(stop) => {
                reading.stop = Some(stop);
                break;
            }
        }
        let after = reader.quiet_until();
        assert!(
            before <= after && reader.position().end_lsn <= after,
            "the covered LSN fell"
        );
        if before < after {
            let link = matches!(record.body, Body::Part(_));
            let view = record.options_hash;
            reading.moves.push(Move {
                view,
                from: before,
                to: after,
                link,
            });
        }
    }
    reading.position = reader.position();
    reading.covered = reader.quiet_until();
    reading.waiting = !reader.is_following() && reading.stop.is_none();
    (reading, false)
}

fn keep(kept: &mut Vec<Part>, record: &Envelope) {
    match &record.body {
        Body::Part(part) => kept.push(part.clone()),
        body => panic!("told to keep {body:?}"),
    }
}

/// Joins the parts; a part's rows are numbered in the place where its tables would be.
fn whole(kept: &mut Vec<Part>, position: Position, offset: i64) -> Link {
    let rows: Vec<i32> = kept
        .iter()
        .flat_map(|part| part.tables.iter().map(|row| row.schema_id))
        .collect();
    let expected: Vec<i32> = (0..rows.len() as i32).collect();
    assert_eq!(
        rows, expected,
        "the rows of the link at {} are not whole",
        position.end_lsn
    );
    let numbers: Vec<u32> = kept.iter().map(|part| part.number).collect();
    assert_eq!(numbers, (0..kept.len() as u32).collect::<Vec<_>>());
    let commit_lsn = kept[0].commit_lsn;
    assert!(kept.iter().all(|part| part.commit_lsn == commit_lsn));
    kept.clear();
    Link {
        position,
        commit_lsn,
        rows: rows.len(),
        offset,
    }
}
