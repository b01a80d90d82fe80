//! Where the slot stands in the log.
//!
//! Owns the walk back from our own claim to the record that ends exactly at the slot's confirmed
//! LSN, and the comparison of what lies on the way with the publisher: is the log ahead of its WAL,
//! or on a timeline that it left? What that record says is the chain's ([`Tail`]). Does not read
//! Kafka (`lane`) and does not hold the slot.
//!
//! Everything below the confirmed LSN is in the log, because nothing is confirmed before Kafka has
//! it. So the record is there, or the slot was moved by others, or the log was lost. What the log
//! holds above it (records that were acknowledged and not yet confirmed) is simply written again:
//! readers drop what they have.
//!
//! The walk goes back in growing windows, each read forward, because only forward can a record be
//! told from one that an older claim wrote behind a newer one: such a record says nothing of how
//! far the log reaches. At the start of a window the newest claim is not known yet; the first
//! record names one, and a newer one corrects it.
//!
//! The walk ends early where the record cannot exist: once a record is known to be valid (its own
//! claim was seen in the window) and ends below the confirmed LSN, everything further back does so.

use std::collections::BTreeMap;
use std::ops::Range;

use walbraid_schemas::chain::{Tail, TailStep};
use walbraid_schemas::{Body, Envelope, Incarnation, Lsn, Stop, StopKind};

use crate::lane::{Found, LaneReader};
use crate::policy::Failure;
use crate::slot::BEGIN_ANEW;

/// Records in the first window of the walk, few as they may be large, and how windows grow.
const WINDOW_RECORDS: i64 = 32;
const WINDOW_GROWTH: i64 = 8;

/// What the walk saw.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    tail: Tail,
    incarnation: Incarnation,
    confirmed: Lsn,
    window_start: i64,
    newest_claim: Option<i64>,
    claim_in_window: bool,
    /// The end of the link before the confirmed LSN, as the record that ends there says.
    previous_end_lsn: Option<Lsn>,
    /// The incarnation of a record of another life that ends there.
    elsewhere: Option<Incarnation>,
    /// A valid record ends below the confirmed LSN, so nothing before it can end there.
    passed: bool,
    /// The newest end LSN on each timeline.
    highest: BTreeMap<u32, Lsn>,
    lowest: Option<Lsn>,
}

impl Scan {
    fn new(incarnation: Incarnation, confirmed: Lsn) -> Scan {
        Scan {
            tail: Tail::new(incarnation, confirmed),
            incarnation,
            confirmed,
            window_start: 0,
            newest_claim: None,
            claim_in_window: false,
            previous_end_lsn: None,
            elsewhere: None,
            passed: false,
            highest: BTreeMap::new(),
            lowest: None,
        }
    }

    fn begin_window(&mut self, start: i64) {
        self.window_start = start;
        self.newest_claim = None;
        self.claim_in_window = false;
    }

    /// Takes the next record of the window.
    fn record(&mut self, found: &Found) {
        let Envelope { claim_offset, .. } = found.envelope;
        if matches!(found.envelope.body, Body::Claim(_)) {
            self.newest_claim = self.newest_claim.max(Some(found.offset));
            self.claim_in_window = true;
            return;
        }
        if let TailStep::Found(previous_end_lsn) = self.tail.offer(&found.envelope) {
            self.previous_end_lsn = Some(previous_end_lsn);
        }
        if self
            .newest_claim
            .is_some_and(|newest| claim_offset < newest)
        {
            return;
        }
        if self.newest_claim.is_none_or(|newest| claim_offset > newest) {
            self.newest_claim = Some(claim_offset);
            self.claim_in_window = claim_offset >= self.window_start;
        }
        self.valid(&found.envelope);
    }

    fn valid(&mut self, envelope: &Envelope) {
        match &envelope.body {
            Body::Part(part) if part.last => {}
            Body::Heartbeat(_) => {}
            Body::Part(_) | Body::Claim(_) | Body::Notice(_) => return,
        }
        let end = envelope.end_lsn;
        if envelope.incarnation != self.incarnation {
            if end == self.confirmed {
                self.elsewhere = Some(envelope.incarnation);
            }
            return;
        }
        let highest = self.highest.entry(envelope.timeline).or_insert(end);
        *highest = end.max(*highest);
        self.lowest = Some(self.lowest.map_or(end, |lowest| lowest.min(end)));
        self.passed |= end < self.confirmed && self.claim_in_window;
    }
}

/// Walks back from `end`, the offset of our own claim.
pub(crate) async fn scan(
    reader: &LaneReader,
    incarnation: Incarnation,
    confirmed: Lsn,
    end: i64,
) -> Result<Scan, Failure> {
    let start = reader.offsets().await?.start;
    let mut scan = Scan::new(incarnation, confirmed);
    let mut records = WINDOW_RECORDS;
    let mut window = window_before(end, records, start);
    while !window.is_empty() {
        scan.begin_window(window.start);
        scan = reader
            .fold(window.clone(), scan, |scan, found| scan.record(&found))
            .await?;
        if scan.previous_end_lsn.is_some() || scan.passed {
            break;
        }
        records *= WINDOW_GROWTH;
        tracing::debug!(
            "slot's place in the log not found behind offset {}",
            window.start
        );
        window = window_before(window.start, records, start);
    }
    Ok(scan)
}

fn window_before(end: i64, records: i64, start: i64) -> Range<i64> {
    start.max(end - records)..end
}

/// The publisher as the log is compared with it.
#[derive(Debug, Clone)]
pub(crate) struct Timelines {
    /// The publisher's timeline.
    pub current: u32,
    /// How far its WAL is written.
    pub wal_end: Lsn,
    /// The timelines that it left, each with where it left it.
    pub left: BTreeMap<u32, Lsn>,
}

/// The end of the link before the slot's place in the log, or why the log is not this slot's.
pub(crate) fn previous_end_lsn(
    scan: &Scan,
    timelines: &Timelines,
    slot: &str,
) -> Result<Lsn, Stop> {
    if let Some(stop) = diverged(scan, timelines) {
        return Err(stop);
    }
    match (scan.previous_end_lsn, scan.elsewhere) {
        (Some(previous_end_lsn), _) => Ok(previous_end_lsn),
        (None, Some(other)) => Err(Stop::new(
            StopKind::Incarnation,
            format!("slot \"{slot}\" stands in incarnation {other} of the stream"),
        )
        .detail(format!(
            "The newest record of the lane belongs to {}.",
            scan.incarnation
        ))
        .hint("Another slot was set up for this lane: use that one.")),
        (None, None) => Err(lost(scan, slot)),
    }
}

fn lost(scan: &Scan, slot: &str) -> Stop {
    let confirmed = scan.confirmed;
    let highest = scan.highest.values().max();
    match (scan.lowest, highest) {
        (Some(lowest), _) if lowest > confirmed => Stop::new(
            StopKind::LogTruncated,
            format!("slot \"{slot}\" stands at {confirmed}, before the log's first record"),
        )
        .detail(format!(
            "The log begins at {lowest}; what was before it is gone."
        ))
        .hint(BEGIN_ANEW),
        (Some(_), Some(highest)) => Stop::new(
            StopKind::SlotAheadOfLog,
            format!("slot \"{slot}\" stands at {confirmed}, where no record of the log ends"),
        )
        .detail(format!(
            "The log reaches {highest}. The slot was advanced, or dropped and made anew; \
             transactions between may be missing."
        ))
        .hint(BEGIN_ANEW),
        _ => Stop::new(
            StopKind::SlotAheadOfLog,
            format!("slot \"{slot}\" stands at {confirmed}, and the log is empty"),
        )
        .detail("The topic was emptied or made anew since.")
        .hint(BEGIN_ANEW),
    }
}

/// Whether the log holds what this publisher never wrote.
fn diverged(scan: &Scan, timelines: &Timelines) -> Option<Stop> {
    let current = timelines.current;
    scan.highest.iter().find_map(|(timeline, end)| {
        let (limit, what) = match timelines.left.get(timeline) {
            _ if *timeline == current => (timelines.wal_end, "the publisher's WAL ends"),
            Some(left) => (*left, "the publisher left that timeline"),
            None => {
                let message = format!("the log reaches {end} on timeline {timeline}");
                return Some(
                    Stop::new(StopKind::Timeline, message)
                        .detail(format!(
                            "The publisher is on timeline {current} and never was there."
                        ))
                        .hint(DIVERGED),
                );
            }
        };
        (*end > limit).then(|| {
            let message = format!("the log reaches {end} on timeline {timeline}");
            Stop::new(StopKind::Timeline, message)
                .detail(format!("{} at {limit}.", capital(what)))
                .hint(DIVERGED)
        })
    })
}

const DIVERGED: &str = "The publisher was restored, or promoted before it had everything: the \
    subscriber may hold transactions that it has not. Compare both, then set up anew.";

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use walbraid_schemas::{Claim, Heartbeat, LinkKind, Part};

    use super::*;

    const OURS: Incarnation = Incarnation([7; 16]);

    fn envelope(claim_offset: i64, timeline: u32, end: u64, previous: u64, body: Body) -> Envelope {
        Envelope {
            incarnation: OURS,
            timeline,
            claim_offset,
            options_hash: 1,
            seq: 0,
            end_lsn: Lsn(end),
            previous_end_lsn: Lsn(previous),
            body,
        }
    }

    fn claim() -> Envelope {
        let claim = Claim {
            generation: 1,
            id: [0; 16],
            confirmed_lsn: Lsn(0),
            system_identifier: "1".to_owned(),
            database: "d".to_owned(),
            slot: "s".to_owned(),
            publications: Vec::new(),
            protocol: 4,
            writer: "w".to_owned(),
        };
        envelope(-1, 1, 0, 0, Body::Claim(claim))
    }

    fn beat(claim_offset: i64, end: u64, previous: u64) -> Envelope {
        envelope(
            claim_offset,
            1,
            end,
            previous,
            Body::Heartbeat(Heartbeat {}),
        )
    }

    fn link(claim_offset: i64, end: u64, previous: u64) -> Envelope {
        let part = Part {
            kind: LinkKind::Transaction,
            xid: 1,
            commit_lsn: Lsn(end - 1),
            commit_time_us: 0,
            prepare_end_lsn: Lsn(0),
            gid: None,
            origin: None,
            number: 0,
            last: true,
            tables: Vec::new(),
            changes: Vec::new(),
            fragment: None,
        };
        envelope(claim_offset, 1, end, previous, Body::Part(part))
    }

    /// Scans `records` as one window that starts at `start` for a slot at `confirmed`.
    fn scanned(confirmed: u64, start: i64, records: &[Envelope]) -> Scan {
        let mut scan = Scan::new(OURS, Lsn(confirmed));
        scan.begin_window(start);
        for (index, envelope) in records.iter().enumerate() {
            let offset = start + index as i64;
            scan.record(&Found {
                offset,
                key: None,
                schema_id: 1,
                envelope: envelope.clone(),
            });
        }
        scan
    }

    fn check(confirmed: u64, records: &[Envelope], expected: Option<u64>) {
        let scan = scanned(confirmed, 0, records);
        let previous = scan.previous_end_lsn.map(|lsn| lsn.0);
        assert_eq!(previous, expected, "{records:?}");
    }

    #[test]
    fn a_link_or_a_heartbeat_at_the_confirmed_lsn_is_the_place() {
        check(100, &[beat(-1, 100, 100)], Some(100));
        check(
            120,
            &[beat(-1, 100, 100), claim(), link(1, 120, 100)],
            Some(120),
        );
        check(
            150,
            &[claim(), link(0, 120, 100), beat(0, 150, 120)],
            Some(120),
        );
        check(130, &[claim(), link(0, 120, 100), link(0, 140, 120)], None);
    }

    #[test]
    fn what_an_older_claim_wrote_behind_a_newer_one_does_not_count() {
        let records = [
            claim(),
            link(0, 120, 100),
            claim(),
            link(0, 190, 120),
            link(2, 140, 120),
        ];
        let scan = scanned(140, 0, &records);
        assert_eq!(scan.previous_end_lsn, Some(Lsn(140)));
        assert_eq!(scan.highest, BTreeMap::from([(1, Lsn(140))]));
    }

    #[test]
    fn the_walk_ends_where_the_record_cannot_exist() {
        let own_claim_seen = scanned(130, 0, &[claim(), link(0, 120, 100), link(0, 140, 120)]);
        assert!(own_claim_seen.passed);
        let claim_further_back = scanned(130, 50, &[link(10, 120, 100), link(10, 140, 120)]);
        assert!(!claim_further_back.passed);
    }

    fn stops(scan: &Scan, timelines: &Timelines) -> Option<StopKind> {
        previous_end_lsn(scan, timelines, "s")
            .err()
            .map(|stop| stop.kind)
    }

    #[test]
    fn a_log_that_is_not_the_publishers_has_a_name() {
        let at = |current, wal_end, left: &[(u32, u64)]| Timelines {
            current,
            wal_end: Lsn(wal_end),
            left: left
                .iter()
                .map(|(timeline, lsn)| (*timeline, Lsn(*lsn)))
                .collect(),
        };
        let scan = scanned(120, 0, &[claim(), link(0, 120, 100), link(0, 140, 120)]);
        assert_eq!(stops(&scan, &at(1, 140, &[])), None);
        assert_eq!(stops(&scan, &at(2, 200, &[(1, 140)])), None);
        assert_eq!(stops(&scan, &at(1, 130, &[])), Some(StopKind::Timeline));
        assert_eq!(
            stops(&scan, &at(2, 200, &[(1, 139)])),
            Some(StopKind::Timeline)
        );
        assert_eq!(
            stops(&scan, &at(3, 200, &[(2, 150)])),
            Some(StopKind::Timeline)
        );
        let missing = scanned(130, 0, &[claim(), link(0, 120, 100), link(0, 140, 120)]);
        assert_eq!(
            stops(&missing, &at(1, 140, &[])),
            Some(StopKind::SlotAheadOfLog)
        );
        let before = scanned(90, 0, &[claim(), link(0, 120, 100)]);
        assert_eq!(
            stops(&before, &at(1, 140, &[])),
            Some(StopKind::LogTruncated)
        );
        let mut other = beat(-1, 120, 100);
        other.incarnation = Incarnation([8; 16]);
        let other = scanned(120, 0, &[other, beat(-1, 150, 150)]);
        assert_eq!(stops(&other, &at(1, 150, &[])), Some(StopKind::Incarnation));
    }
}
