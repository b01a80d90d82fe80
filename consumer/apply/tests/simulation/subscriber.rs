//! A subscriber that keeps what it is given, and the workers' sessions on it.

use std::collections::VecDeque;
use std::sync::Arc;

use walbraid_apply::action::Action;
use walbraid_apply::coordinator::Commit;
use walbraid_apply::event::{CommitTag, Event};
use walbraid_apply::failure::{Failure, Place, ServerFailure};
use walbraid_apply::missing::{Missing, MissingKind};
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::{Ending, Piece, Unit, UnitId};
use walbraid_schemas::chain::Position;
use walbraid_schemas::envelope::Change;
use walbraid_schemas::lsn::Lsn;

use crate::log::{INCARNATION, START};
use crate::random::Random;

/// A transaction as it was committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub commit_lsn: Lsn,
    pub changes: Vec<Change>,
}

/// Another state of the database.
struct Commitment {
    transactions: Vec<Applied>,
    position: Position,
    claim: (i64, Option<i64>),
}

/// What the subscriber holds.
pub struct Subscriber {
    commits: Vec<Commitment>,
    flushed: usize,
    /// Refused until somebody mends it.
    pub poison: Option<(u32, Poison)>,
}

/// How a transaction is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// A constraint.
    Check,
    /// A missing row; only seen where counts are read.
    Missing,
}

impl Subscriber {
    pub fn new() -> Self {
        Self {
            commits: Vec::new(),
            flushed: 0,
            poison: None,
        }
    }

    pub fn applied(&self) -> impl Iterator<Item = &Applied> {
        self.commits.iter().flat_map(|commit| &commit.transactions)
    }

    /// The transactions behind the first `count`.
    pub fn applied_since(&self, count: usize) -> impl Iterator<Item = &Applied> {
        self.applied().skip(count)
    }

    /// Progress of the lane: what the origins say, and the lane's row.
    pub fn position(&self) -> Position {
        match self.commits.last() {
            None => Position::start(INCARNATION, START),
            Some(commit) => Position {
                claim_offset: commit.claim.0,
                options_hash: commit.claim.1,
                ..commit.position
            },
        }
    }

    pub fn flush(&mut self) -> Option<Lsn> {
        self.flushed = self.commits.len();
        self.commits.last().map(|commit| commit.position.end_lsn)
    }

    pub fn flushed_lsn(&self) -> Lsn {
        let last = self.flushed.checked_sub(1).map(|last| &self.commits[last]);
        last.map_or(START, |commit| commit.position.end_lsn)
    }

    /// Stops at once: the newest commits that were not flushed are gone, as many as it likes.
    pub fn crash(&mut self, random: &mut Random) {
        let volatile = self.commits.len() - self.flushed;
        let kept = self.flushed + random.below(volatile + 1);
        self.commits.truncate(kept);
        self.flushed = kept;
    }

    fn commit(&mut self, block: Block, ending: &Ending) {
        let before = self.position();
        let claim = if block.claim_changed || ending.claim_changed {
            (ending.position.claim_offset, ending.position.options_hash)
        } else {
            (before.claim_offset, before.options_hash)
        };
        let held = (ending.position.claim_offset, ending.position.options_hash);
        assert_eq!(
            claim, held,
            "the lane's row does not hold the position's claim"
        );
        self.commits.push(Commitment {
            transactions: block.transactions,
            position: ending.position,
            claim,
        });
    }
}

/// A block that is open on a session.
struct Block {
    unit: UnitId,
    run: u64,
    commit: Commit,
    claim_changed: bool,
    transactions: Vec<Applied>,
    refused: Option<Failure>,
    ending: Option<Ending>,
    counted: bool,
}

/// A worker and its session.
pub struct Worker {
    id: WorkerId,
    orders: VecDeque<Action>,
    block: Option<Block>,
    swept: Option<u64>,
    counts_matter: bool,
}

impl Worker {
    pub fn new(id: usize, counts_matter: bool) -> Self {
        Self {
            id: WorkerId(id),
            orders: VecDeque::new(),
            block: None,
            swept: None,
            counts_matter,
        }
    }

    pub fn order(&mut self, action: Action) {
        self.orders.push_back(action);
    }

    /// Does the next thing; says what happened.
    pub fn step(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: bool,
    ) -> Vec<Event> {
        let held = self.block.as_ref().is_some_and(|block| block.counted);
        let place = if held {
            // Behind a held COMMIT only that COMMIT may go, or the call back of its unit.
            let ends =
                |order: &Action| matches!(order, Action::Commit { .. } | Action::Abandon { .. });
            self.orders.iter().position(ends)
        } else {
            (!self.orders.is_empty()).then_some(0)
        };
        let Some(order) = place.and_then(|place| self.orders.remove(place)) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        match order {
            Action::Run {
                run, unit, commit, ..
            } => {
                if self.swept.is_none_or(|swept| run > swept) {
                    self.begin(run, &unit, commit, subscriber);
                    self.go_on(subscriber, random, faults, &mut events);
                }
            }
            Action::Extend {
                run,
                unit,
                extension,
                ..
            } => {
                let size_bytes = extension.piece.size_bytes();
                events.push(Event::Consumed { unit, size_bytes });
                let block = self
                    .block
                    .as_mut()
                    .filter(|block| (block.run, block.unit) == (run, unit));
                if let Some(block) = block {
                    let transaction = block.transactions.last_mut().unwrap();
                    apply(&extension.piece, transaction);
                    block.ending = extension.ending;
                    self.go_on(subscriber, random, faults, &mut events);
                }
            }
            Action::Commit { run, unit, .. } => {
                let block = self
                    .block
                    .take_if(|block| (block.run, block.unit) == (run, unit));
                if let Some(block) = block {
                    self.commit(block, subscriber, random, faults, &mut events);
                }
            }
            Action::Abandon { run, unit, .. } => {
                let block = self
                    .block
                    .take_if(|block| (block.run, block.unit) == (run, unit));
                if block.is_some() {
                    events.push(Event::Abandoned {
                        worker: self.id,
                        run,
                        unit,
                    });
                }
            }
            other => panic!("not an order: {other:?}"),
        }
        events
    }

    fn begin(&mut self, run: u64, unit: &Arc<Unit>, commit: Commit, subscriber: &Subscriber) {
        assert!(self.block.is_none(), "a block in a block");
        let mut refused = None;
        let mut transactions = Vec::new();
        for (place, transaction) in unit.transactions.iter().enumerate() {
            let mut applied = Applied {
                commit_lsn: transaction.commit_lsn,
                changes: Vec::new(),
            };
            for piece in &transaction.pieces {
                apply(piece, &mut applied);
            }
            transactions.push(applied);
            match subscriber.poison {
                Some((xid, Poison::Check)) if xid == transaction.xid => {
                    refused = refused.or(Some(check_violation(place)));
                }
                Some((xid, Poison::Missing)) if xid == transaction.xid && self.counts_matter => {
                    refused = refused.or(Some(missing(place)));
                }
                _ => {}
            }
        }
        self.block = Some(Block {
            unit: unit.id,
            run,
            commit,
            claim_changed: unit.claim_changed(),
            transactions,
            refused,
            ending: unit.ending().cloned(),
            counted: false,
        });
    }

    fn go_on(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: bool,
        events: &mut Vec<Event>,
    ) {
        let Some(block) = &mut self.block else { return };
        // A constraint is found as soon as the row comes, a missing row once all counts are there.
        let known = matches!(block.refused, Some(Failure::Server { .. })) || block.ending.is_some();
        let refused = if known { block.refused.take() } else { None };
        let failure = refused
            .or_else(|| (faults && random.once_in(25)).then(|| server(transient(random), None)));
        if let Some(failure) = failure {
            let (run, unit) = (block.run, block.unit);
            self.block = None;
            self.swept = Some(run);
            let failure = Box::new(failure);
            events.push(Event::Failed {
                worker: self.id,
                run,
                unit,
                failure,
            });
            return;
        }
        if block.ending.is_none() {
            return;
        }
        match block.commit {
            Commit::WhenCounted => {
                block.counted = true;
                events.push(Event::Counted {
                    worker: self.id,
                    run: block.run,
                    unit: block.unit,
                    missing: false,
                });
            }
            Commit::InBurst => {
                if let Some(block) = self.block.take() {
                    self.commit(block, subscriber, random, faults, events);
                }
            }
        }
    }

    fn commit(
        &mut self,
        block: Block,
        subscriber: &mut Subscriber,
        random: &mut Random,
        faults: bool,
        events: &mut Vec<Event>,
    ) {
        let (run, unit, worker) = (block.run, block.unit, self.id);
        if faults && random.once_in(150) {
            self.swept = Some(run);
            events.push(Event::Committed {
                worker,
                run,
                unit,
                tag: CommitTag::RollBack,
                busy_us: 0,
            });
            return;
        }
        let ending = block.ending.clone().unwrap();
        subscriber.commit(block, &ending);
        events.push(Event::Committed {
            worker,
            run,
            unit,
            tag: CommitTag::Commit,
            busy_us: 0,
        });
    }
}

fn apply(piece: &Piece, transaction: &mut Applied) {
    assert!(
        piece.mapping_error().is_none(),
        "a piece that cannot be mapped was sent"
    );
    transaction.changes.extend(piece.changes().iter().cloned());
}

fn transient(random: &mut Random) -> &'static str {
    ["40P01", "55P03", "40001", "57014", "53100", "25006"][random.below(6)]
}

fn server(sqlstate: &str, place: Option<Place>) -> Failure {
    let error = ServerFailure {
        sqlstate: sqlstate.to_owned(),
        message: "the server's words".to_owned(),
        ..ServerFailure::default()
    };
    Failure::Server {
        error,
        place,
        relation: None,
    }
}

fn check_violation(transaction: usize) -> Failure {
    server(
        "23514",
        Some(Place {
            transaction,
            change: 0,
        }),
    )
}

fn missing(transaction: usize) -> Failure {
    let missing = Missing {
        kind: MissingKind::Update,
        relation: "s.t".to_owned(),
        columns: vec!["id".to_owned()],
        unique: true,
    };
    Failure::Missing {
        missing,
        place: Place {
            transaction,
            change: 0,
        },
    }
}
