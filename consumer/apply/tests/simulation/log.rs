//! A WAL, and a log that producers wrote of it.

use bytes::Bytes;
use walbraid_schemas::envelope::{
    Body, Change, Claim, Envelope, Fragment, Heartbeat, LinkKind, NO_CLAIM, Part, TableRef,
    encode_change,
};
use walbraid_schemas::incarnation::Incarnation;
use walbraid_schemas::lsn::Lsn;

use crate::random::Random;

pub const INCARNATION: Incarnation = Incarnation([7; 16]);
pub const START: Lsn = Lsn(100);

/// A transaction of the publisher; its changes are told apart by their bytes.
#[derive(Clone, Debug)]
pub struct Link {
    pub xid: u32,
    pub commit_lsn: Lsn,
    pub end_lsn: Lsn,
    pub changes: Vec<Change>,
    /// Offset of the first record of the first whole copy in the log.
    pub first_offset: i64,
    /// Offset of the last record of that copy.
    pub last_offset: i64,
}

/// The lane's records by offset, and what they are about.
pub struct Log {
    pub links: Vec<Link>,
    pub records: Vec<Envelope>,
}

impl Log {
    pub fn new(random: &mut Random) -> Self {
        let links = wal(random);
        let mut log = Self {
            links,
            records: Vec::new(),
        };
        log.push(NO_CLAIM, START, START, Body::Heartbeat(Heartbeat {}));
        // What is confirmed: how many links are certain to be in the log.
        let mut confirmed = 0;
        while confirmed < log.links.len() {
            confirmed = log.produce(random, confirmed);
        }
        log
    }

    /// One life of a producer; answers how many links are confirmed after it.
    fn produce(&mut self, random: &mut Random, confirmed: usize) -> usize {
        let claim_offset = self.records.len() as i64;
        let confirmed_lsn = self.end_of(confirmed);
        self.push(NO_CLAIM, Lsn(0), Lsn(0), Body::Claim(claim(confirmed_lsn)));
        let zombie = random
            .once_in(3)
            .then(|| self.older_claim(claim_offset))
            .flatten();
        let last = self.links.len();
        let mut written = confirmed;
        while written < last {
            if let Some(older) = zombie
                && random.once_in(3)
            {
                let link = random.below(last);
                self.write(random, older, link, false);
            }
            if random.once_in(8) {
                let end = self.end_of(written);
                let next = self.links[written].commit_lsn;
                let quiet = Lsn(end.0 + random.below(30) as u64).min(next);
                self.push(claim_offset, quiet, end, Body::Heartbeat(Heartbeat {}));
            }
            if random.once_in(12) {
                // Dies, perhaps in the middle of a run; what is confirmed lags behind.
                if random.once_in(2) {
                    self.write(random, claim_offset, written, false);
                }
                return confirmed + random.below(written - confirmed + 1);
            }
            self.write(random, claim_offset, written, true);
            written += 1;
        }
        written
    }

    fn older_claim(&self, before: i64) -> Option<i64> {
        let claims = self.records.iter().enumerate();
        let mut older = claims
            .filter(|(offset, record)| {
                matches!(record.body, Body::Claim(_)) && (*offset as i64) < before
            })
            .map(|(offset, _)| offset as i64);
        older.next_back()
    }

    fn end_of(&self, links: usize) -> Lsn {
        links
            .checked_sub(1)
            .map_or(START, |last| self.links[last].end_lsn)
    }

    fn push(&mut self, claim_offset: i64, end_lsn: Lsn, previous_end_lsn: Lsn, body: Body) {
        let seq = self.records.len() as i64;
        let options_hash = if seq == 0 { 0 } else { 1 };
        self.records.push(Envelope {
            incarnation: INCARNATION,
            timeline: 1,
            claim_offset,
            options_hash,
            seq,
            end_lsn,
            previous_end_lsn,
            body,
        });
    }

    /// Writes a link in parts of random size; not whole if it is to break off.
    fn write(&mut self, random: &mut Random, claim_offset: i64, place: usize, whole: bool) {
        let link = self.links[place].clone();
        let previous = self.end_of(place);
        let mut bodies = cut(random, &link);
        let count = bodies.len();
        if !whole {
            bodies.truncate(random.below(count));
        }
        let first = self.records.len() as i64;
        for part in bodies {
            let end = if part.last { link.end_lsn } else { Lsn(0) };
            self.push(claim_offset, end, previous, Body::Part(part));
        }
        let known = &mut self.links[place];
        if whole && known.last_offset < 0 {
            known.first_offset = first;
            known.last_offset = self.records.len() as i64 - 1;
        }
    }
}

pub fn claim(confirmed_lsn: Lsn) -> Claim {
    Claim {
        generation: 1,
        id: [0; 16],
        confirmed_lsn,
        system_identifier: "1".to_owned(),
        database: "d".to_owned(),
        slot: "s".to_owned(),
        publications: vec!["p".to_owned()],
        protocol: 4,
        writer: "w:1".to_owned(),
    }
}

fn wal(random: &mut Random) -> Vec<Link> {
    let mut lsn = START.0 + 10;
    let count = 5 + random.below(40);
    (0..count)
        .map(|place| {
            let commit_lsn = Lsn(lsn);
            let end_lsn = Lsn(lsn + 1 + random.below(8) as u64);
            lsn = end_lsn.0 + random.below(20) as u64;
            let large = random.once_in(8);
            let changes = if large {
                8 + random.below(30)
            } else {
                random.below(5)
            };
            Link {
                xid: place as u32 + 1000,
                commit_lsn,
                end_lsn,
                changes: (0..changes)
                    .map(|number| change(random, place, number))
                    .collect(),
                first_offset: -1,
                last_offset: -1,
            }
        })
        .collect()
}

fn change(random: &mut Random, place: usize, number: usize) -> Change {
    if random.once_in(40) {
        return Change::Truncate {
            tables: vec![0],
            cascade: false,
            restart_identity: false,
        };
    }
    let padding = random.below(40);
    let row = format!("{place}/{number}/{}", "x".repeat(padding));
    Change::Insert {
        table: 0,
        new: Bytes::from(row),
    }
}

/// The link's parts.
fn cut(random: &mut Random, link: &Link) -> Vec<Part> {
    let mut parts: Vec<(Vec<Change>, Option<Fragment>)> = Vec::new();
    let most = 1 + random.below(6);
    let mut current = Vec::new();
    for change in &link.changes {
        if random.once_in(10) {
            parts.push((std::mem::take(&mut current), None));
            let mut datum = Vec::new();
            encode_change(change, &mut datum).unwrap();
            let at = random.below(datum.len());
            let (head, tail) = (datum[..at].to_vec(), datum[at..].to_vec());
            parts.push((
                vec![],
                Some(Fragment {
                    bytes: head.into(),
                    last: false,
                }),
            ));
            parts.push((
                vec![],
                Some(Fragment {
                    bytes: tail.into(),
                    last: true,
                }),
            ));
            continue;
        }
        current.push(change.clone());
        if current.len() >= most {
            parts.push((std::mem::take(&mut current), None));
        }
    }
    if !current.is_empty() || parts.is_empty() {
        parts.push((current, None));
    }
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(number, (changes, fragment))| Part {
            kind: LinkKind::Transaction,
            xid: link.xid,
            commit_lsn: link.commit_lsn,
            commit_time_us: 1,
            prepare_end_lsn: Lsn(0),
            gid: None,
            origin: None,
            number: number as u32,
            last: number + 1 == count,
            tables: vec![TableRef {
                schema_id: 1,
                fingerprint: 1,
            }],
            changes,
            fragment,
        })
        .collect()
}
