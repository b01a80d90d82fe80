//! A lane with several workers, whose rows have numbers; answered by hand, worker by worker.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::action::Action;
use walbraid_apply::coordinator::Commit;
use walbraid_apply::engine::Config;
use walbraid_apply::event::{CommitTag, Event};
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::pace::Workers;
use walbraid_apply::relation::Relation;
use walbraid_apply::scheduler::WorkerId;
use walbraid_apply::unit::UnitId;
use walbraid_schemas::row::{self, Value};
use walbraid_schemas::{Body, Change, Table};

use crate::lane::{Lane, config, part, refusal};
use crate::tables;

/// A unit on its way: its worker, run and number, the xid it is known by, how it commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) worker: usize,
    run: u64,
    unit: UnitId,
    pub(crate) xid: u32,
    pub(crate) commit: Commit,
}

/// What the engine did, in few words: `run 2 on 1`, `commit 2`, `call back 3`, `ask`.
pub(crate) type Done = Vec<String>;

pub(crate) struct Pool {
    pub(crate) lane: Lane,
    table: Arc<Table>,
    target: Target,
    runs: Vec<Run>,
    called_back: Option<Run>,
    /// When the engine wants to be stepped.
    pub(crate) alarm: Option<u64>,
    transactions: u32,
}

impl Pool {
    pub(crate) fn new(workers: usize) -> Self {
        let mut config = config();
        config.in_flight.units_max = 4;
        config.workers = Workers::Fixed(workers);
        Self::with(config)
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::of(config, table(), relation())
    }

    pub(crate) fn of(mut config: Config, table: Arc<Table>, relation: Relation) -> Self {
        config.group.transactions_max = 1;
        let target = Mapped::new(Arc::clone(&table), Some(Arc::new(relation)));
        Self {
            lane: Lane::new(config),
            target: target.map(Arc::new).map_err(Arc::new),
            table,
            runs: Vec::new(),
            called_back: None,
            alarm: None,
            transactions: 0,
        }
    }

    /// The next transaction, known by the next number from 1 on, updates rows.
    pub(crate) fn updates(&mut self, rows: &[i64]) -> Done {
        let changes = rows.iter().map(|id| Change::Update {
            table: 0,
            old: None,
            new: self.row(*id),
        });
        let changes = changes.collect();
        self.transaction(changes)
    }

    /// The next transaction inserts a row.
    pub(crate) fn inserts(&mut self, id: i64) -> Done {
        let new = self.row(id);
        self.transaction(vec![Change::Insert { table: 0, new }])
    }

    /// The next transaction empties the table.
    pub(crate) fn truncates(&mut self) -> Done {
        self.transaction(vec![Change::Truncate {
            tables: vec![0],
            cascade: false,
            restart_identity: false,
        }])
    }

    pub(crate) fn transaction(&mut self, changes: Vec<Change>) -> Done {
        self.transactions += 1;
        let (previous, end) = self.lane.next_end();
        let mut part = part(end, 0, true);
        part.xid = self.transactions;
        part.changes = changes;
        let targets = vec![self.target.clone()];
        let actions = self
            .lane
            .record(1, end, previous, Body::Part(part), targets);
        self.done(&actions)
    }

    fn row(&self, id: i64) -> Bytes {
        let mut out = Vec::new();
        for column in &self.table.columns {
            row::write(column.carrier, Value::Int(id), &mut out).unwrap();
        }
        out.into()
    }

    pub(crate) fn step(&mut self, event: Event) -> Done {
        let actions = self.lane.step(event);
        self.done(&actions)
    }

    /// The newest run of a transaction.
    pub(crate) fn run(&self, xid: u32) -> Run {
        let mut runs = self.runs.iter().rev();
        *runs.find(|run| run.xid == xid).expect("it was not sent")
    }

    pub(crate) fn counted(&mut self, xid: u32, missing: bool) -> Done {
        let Run {
            worker, run, unit, ..
        } = self.run(xid);
        let worker = WorkerId(worker);
        self.step(Event::Counted {
            worker,
            run,
            unit,
            missing,
        })
    }

    pub(crate) fn commits(&mut self, xid: u32) -> Done {
        let Run {
            worker, run, unit, ..
        } = self.run(xid);
        self.step(Event::Committed {
            worker: WorkerId(worker),
            run,
            unit,
            tag: CommitTag::Commit,
            busy_us: 10_000,
        })
    }

    pub(crate) fn fails(&mut self, xid: u32, sqlstate: &str) -> Done {
        let Run {
            worker, run, unit, ..
        } = self.run(xid);
        self.step(Event::Failed {
            worker: WorkerId(worker),
            run,
            unit,
            failure: Box::new(refusal(sqlstate)),
        })
    }

    /// The worker says that the unit which was called back is gone.
    pub(crate) fn is_gone(&mut self) -> Done {
        let Run {
            worker, run, unit, ..
        } = self.called_back.take().expect("none was called back");
        let worker = WorkerId(worker);
        self.step(Event::Abandoned { worker, run, unit })
    }

    fn done(&mut self, actions: &[Action]) -> Done {
        let mut done = Vec::new();
        for action in actions {
            match action {
                Action::Run {
                    worker,
                    run,
                    unit,
                    commit,
                } => {
                    let xid = unit.transactions[0].xid;
                    self.runs.push(Run {
                        worker: worker.0,
                        run: *run,
                        unit: unit.id,
                        xid,
                        commit: *commit,
                    });
                    done.push(format!("run {xid} on {}", worker.0));
                }
                Action::Commit { unit, .. } => done.push(format!("commit {}", self.xid(*unit))),
                Action::Abandon { unit, .. } => {
                    let xid = self.xid(*unit);
                    self.called_back = Some(self.run(xid));
                    done.push(format!("call back {xid}"));
                }
                Action::ReadOldValues { keys, .. } => {
                    let keys: Vec<String> = keys.iter().map(|texts| texts.join(" ")).collect();
                    done.push(format!("read {}", keys.join(", ")));
                }
                Action::WakeAt { at_ms } => self.alarm = Some(*at_ms),
                Action::AskBlocked => done.push("ask".to_owned()),
                Action::Connect => done.push("connect".to_owned()),
                Action::Stop(stop) => done.push(format!("stop: {}", stop.message)),
                Action::TakeOver { reason } => done.push(reason.reason().to_owned()),
                _ => {}
            }
        }
        done
    }

    fn xid(&self, unit: UnitId) -> u32 {
        let mut runs = self.runs.iter().rev();
        runs.find(|run| run.unit == unit)
            .expect("it was not sent")
            .xid
    }
}

pub(crate) fn table() -> Arc<Table> {
    tables::table("account", &["id", "amount"])
}

pub(crate) fn relation() -> Relation {
    tables::relation("account", &["id", "amount"], &[("account_pkey", 0)])
}
