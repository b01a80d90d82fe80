//! A producer, as the chain needs it to behave: takes the slot, claims, goes back to its
//! predecessor, writes, confirms. It can be frozen at any step, lose the slot without knowing,
//! and crash with records in flight.

use std::collections::VecDeque;

use walbraid_schemas::chain::{Tail, TailStep};
use walbraid_schemas::envelope::NO_CLAIM;
use walbraid_schemas::{
    Body, Claim, Envelope, Heartbeat, LinkKind, Lsn, Notice, Part, Stop, StopKind, TableRef,
};

use crate::lane::{INCARNATION, Lane};
use crate::publisher::{Event, Publisher};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Writer {
    id: usize,
    view: u64,
    life: Option<Life>,
}

/// What a running producer knows under one claim.
#[derive(Debug)]
struct Life {
    confirmed: Lsn,
    /// Set when the claim is acknowledged.
    claim: Option<i64>,
    previous: Lsn,
    /// How far the walsender has delivered.
    received: Lsn,
    /// How far it was written.
    written: Lsn,
    in_flight: VecDeque<Envelope>,
    acknowledged: VecDeque<(i64, Lsn)>,
    seq: i64,
}

impl Writer {
    pub(crate) fn new(id: usize) -> Writer {
        Writer {
            id,
            view: 0,
            life: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.life.is_some()
    }

    pub(crate) fn view(&self) -> u64 {
        self.view
    }

    /// Starts, taking the slot from whoever holds it.
    pub(crate) fn start(&mut self, publisher: &mut Publisher, view: u64) {
        self.view = view;
        publisher.holder = Some(self.id);
        self.claim(publisher, VecDeque::new());
    }

    fn claim(&mut self, publisher: &Publisher, mut in_flight: VecDeque<Envelope>) {
        let confirmed = publisher.confirmed;
        let claim = Claim {
            generation: 0,
            id: [0; 16],
            confirmed_lsn: confirmed,
            system_identifier: String::new(),
            database: String::new(),
            slot: String::new(),
            publications: Vec::new(),
            protocol: 4,
            writer: String::new(),
        };
        in_flight.push_back(record(self.view, NO_CLAIM, Body::Claim(claim)));
        self.life = Some(Life {
            confirmed,
            claim: None,
            previous: Lsn::INVALID,
            received: confirmed,
            written: confirmed,
            in_flight,
            acknowledged: VecDeque::new(),
            seq: 0,
        });
    }

    pub(crate) fn crash(&mut self, publisher: &mut Publisher) {
        self.life = None;
        if publisher.holder == Some(self.id) {
            publisher.holder = None;
        }
    }

    /// Kafka takes the oldest record in flight.
    pub(crate) fn deliver(&mut self, lane: &mut Lane, random: &mut Random) {
        let Some(life) = &mut self.life else { return };
        let Some(record) = life.in_flight.pop_front() else {
            return;
        };
        let is_claim = matches!(record.body, Body::Claim(_));
        let end_lsn = record.end_lsn;
        let offset = lane.append(record.clone(), random);
        if is_claim {
            // A claim that is not the last in flight belongs to an earlier life.
            if life.in_flight.is_empty() {
                life.claim = Some(offset);
                life.previous = step_back(lane, offset, life.confirmed);
            }
            return;
        }
        if random.chance(3) {
            lane.append(record, random);
        }
        if life.claim.is_some() && !end_lsn.is_invalid() {
            life.acknowledged.push_back((offset, end_lsn));
        }
    }

    /// The walsender delivers, as long as the slot is ours.
    pub(crate) fn receive(&mut self, publisher: &Publisher) {
        if let Some(life) = &mut self.life
            && publisher.holder == Some(self.id)
        {
            life.received = publisher.wal_end;
        }
    }

    /// Writes the next link, if one has come.
    pub(crate) fn write(&mut self, publisher: &Publisher, random: &mut Random) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        let Some(claim) = life.claim else {
            return false;
        };
        let next = publisher
            .seen(self.view, life.written, life.received)
            .first()
            .copied();
        let Some(event) = next else { return false };
        for part in parts(&event, random) {
            let end_lsn = if part.last { event.end } else { Lsn::INVALID };
            life.in_flight.push_back(Envelope {
                seq: life.seq,
                end_lsn,
                previous_end_lsn: life.previous,
                ..record(self.view, claim, Body::Part(part))
            });
            life.seq += 1;
        }
        life.previous = event.end;
        life.written = event.end;
        true
    }

    /// Writes a heartbeat: up to what was received, or only as far as the next link's start.
    pub(crate) fn beat(&mut self, publisher: &Publisher, random: &mut Random) {
        let Some(life) = &mut self.life else { return };
        let Some(claim) = life.claim else { return };
        let next = publisher
            .seen(self.view, life.written, life.received)
            .first()
            .copied();
        let bound = next.map_or(life.received, |event| event.commit);
        let boundaries = publisher
            .wal
            .iter()
            .flat_map(|event| [event.commit, event.end]);
        let mut ends: Vec<Lsn> = boundaries
            .filter(|lsn| *lsn >= life.written && *lsn <= bound)
            .collect();
        ends.push(bound);
        let end_lsn = if random.chance(50) {
            bound
        } else {
            ends[random.index(ends.len())]
        };
        life.in_flight.push_back(Envelope {
            end_lsn,
            previous_end_lsn: life.previous,
            ..record(self.view, claim, Body::Heartbeat(Heartbeat {}))
        });
    }

    pub(crate) fn notice(&mut self) {
        if let Some(life) = &mut self.life
            && let Some(claim) = life.claim
        {
            let notice = Notice::from(&Stop::new(StopKind::DiskFull, "a"));
            life.in_flight
                .push_back(record(self.view, claim, Body::Notice(notice)));
        }
    }

    /// Confirms some of what is acknowledged; claims again, or ends, at a foreign claim.
    pub(crate) fn confirm(&mut self, publisher: &mut Publisher, lane: &Lane, random: &mut Random) {
        let holds = publisher.holder == Some(self.id);
        let Some(life) = &mut self.life else { return };
        let Some(claim) = life.claim else { return };
        for _ in 0..=random.below(4) {
            let Some((offset, end_lsn)) = life.acknowledged.front().copied() else {
                return;
            };
            if lane.has_claim_in(claim + 1, offset) {
                if holds {
                    let in_flight = std::mem::take(&mut life.in_flight);
                    return self.claim(publisher, in_flight);
                }
                return self.crash(publisher);
            }
            if holds {
                publisher.confirm(end_lsn);
            }
            life.acknowledged.pop_front();
        }
    }

    /// Whether everything received is acknowledged and confirmed.
    pub(crate) fn is_done(&self, publisher: &Publisher) -> bool {
        self.life.as_ref().is_some_and(|life| {
            life.claim.is_some() && life.in_flight.is_empty() && life.acknowledged.is_empty()
        }) && publisher.confirmed == publisher.wal_end
    }
}

fn step_back(lane: &Lane, claim: i64, confirmed: Lsn) -> Lsn {
    let tail = Tail::new(INCARNATION, confirmed);
    for (_, record) in lane
        .records
        .iter()
        .rev()
        .skip_while(|(offset, _)| *offset >= claim)
    {
        if let TailStep::Found(previous) = tail.offer(record) {
            return previous;
        }
    }
    panic!("{}", tail.not_found());
}

fn parts(event: &Event, random: &mut Random) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut row = 0;
    while row < event.rows {
        let rows = (1 + random.index(3)).min(event.rows - row);
        let numbered = row..row + rows;
        row += rows;
        parts.push(Part {
            kind: LinkKind::Transaction,
            xid: 1,
            commit_lsn: event.commit,
            commit_time_us: 0,
            prepare_end_lsn: Lsn::INVALID,
            gid: None,
            origin: None,
            number: parts.len() as u32,
            last: row == event.rows,
            tables: numbered
                .map(|row| TableRef {
                    schema_id: row as i32,
                    fingerprint: 0,
                })
                .collect(),
            changes: Vec::new(),
            fragment: None,
        });
    }
    parts
}

/// A record of the stream in a view.
pub(crate) fn record(view: u64, claim_offset: i64, body: Body) -> Envelope {
    Envelope {
        incarnation: INCARNATION,
        timeline: 1,
        claim_offset,
        options_hash: view as i64,
        seq: 0,
        end_lsn: Lsn::INVALID,
        previous_end_lsn: Lsn::INVALID,
        body,
    }
}
