//! A history of the publisher that breaks no constraint, and the log of it.
//!
//! Values come from small ranges, so that rows are hot, unique values go from row to row and from
//! transaction to transaction, and a key is inserted, deleted and inserted again.

use bytes::Bytes;
use walbraid_schemas::envelope::{
    Body, Change, Envelope, Heartbeat, LinkKind, NO_CLAIM, OldKind, OldTuple, Part, TableRef,
};
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::row::{self, Value};
use walbraid_schemas::table::Carrier;

use super::schema::{
    CHILD, HEAP, HOT, MAIL, MAIL_FULL, ONE_NULL, ORPHAN, PARENT, Row, STAMPED, Schema,
};
use super::world::{Op, Side, World};
use crate::log::{INCARNATION, START, claim};
use crate::random::Random;

/// A transaction of the publisher, or a message of its own.
#[derive(Clone, Debug)]
pub struct Link {
    pub xid: u32,
    pub end_lsn: Lsn,
    pub ops: Vec<Op>,
    pub last_offset: usize,
}

/// A record of the lane, and the tables that its changes name.
#[derive(Clone, Debug)]
pub struct Logged {
    pub envelope: Envelope,
    pub tables: Vec<usize>,
}

pub struct History {
    pub start: World,
    pub links: Vec<Link>,
    pub records: Vec<Logged>,
}

/// Offset of the only claim.
const CLAIM: i64 = 1;

impl History {
    pub fn new(random: &mut Random, schema: &Schema) -> Self {
        let mut world = World::empty();
        let tables = choose(random, schema);
        for _ in 0..12 {
            let op = op(random, &tables, &world, true);
            try_op(&mut world, schema, &op);
        }
        if world.check_deferred(schema).is_err() {
            world = World::empty();
        }
        let mut history = Self {
            start: world.clone(),
            links: Vec::new(),
            records: Vec::new(),
        };
        history.push(
            NO_CLAIM,
            START,
            START,
            Body::Heartbeat(Heartbeat {}),
            vec![],
        );
        let body = Body::Claim(claim(START));
        history.push(NO_CLAIM, Lsn(0), Lsn(0), body, vec![]);
        let transactions = 6 + random.below(30);
        for _ in 0..transactions {
            let ops = transaction(random, schema, &tables, &mut world);
            history.link(random, schema, ops);
        }
        history
    }

    fn push(&mut self, claim: i64, end: Lsn, previous: Lsn, body: Body, tables: Vec<usize>) {
        let seq = self.records.len() as i64;
        let envelope = Envelope {
            incarnation: INCARNATION,
            timeline: 1,
            claim_offset: claim,
            options_hash: i64::from(seq > 0),
            seq,
            end_lsn: end,
            previous_end_lsn: previous,
            body,
        };
        self.records.push(Logged { envelope, tables });
    }

    fn link(&mut self, random: &mut Random, schema: &Schema, ops: Vec<Op>) {
        let previous = self.links.last().map_or(START, |link| link.end_lsn);
        let commit_lsn = Lsn(previous.0 + 1 + random.below(5) as u64);
        let end_lsn = Lsn(commit_lsn.0 + 1 + random.below(5) as u64);
        let xid = 1_000 + self.links.len() as u32;
        let alone = matches!(ops[..], [Op::Message]);
        let kind = if alone && random.once_in(2) {
            LinkKind::Message
        } else {
            LinkKind::Transaction
        };
        let most = if random.once_in(3) {
            1 + random.below(3)
        } else {
            ops.len().max(1)
        };
        let chunks: Vec<&[Op]> = match ops.len() {
            0 => vec![&[]],
            _ => ops.chunks(most).collect(),
        };
        for (number, chunk) in chunks.iter().enumerate() {
            let last = number + 1 == chunks.len();
            let (changes, tables) = encode(schema, chunk);
            let end = if last { end_lsn } else { Lsn(0) };
            let part = Part {
                kind,
                xid,
                commit_lsn,
                commit_time_us: 1,
                prepare_end_lsn: Lsn(0),
                gid: None,
                origin: None,
                number: number as u32,
                last,
                tables: vec![
                    TableRef {
                        schema_id: 1,
                        fingerprint: 1,
                    };
                    tables.len()
                ],
                changes,
                fragment: None,
            };
            self.push(CLAIM, end, previous, Body::Part(part), tables);
        }
        self.links.push(Link {
            xid,
            end_lsn,
            ops,
            last_offset: self.records.len() - 1,
        });
    }

    /// The publisher's tables after so many transactions.
    pub fn after(&self, schema: &Schema, links: usize) -> World {
        let mut world = self.start.clone();
        for link in &self.links[..links] {
            let applied = world.transact(schema, Side::Publisher, &link.ops);
            applied.expect("the history breaks a constraint of its own");
        }
        world
    }
}

fn try_op(world: &mut World, schema: &Schema, op: &Op) -> bool {
    let mut next = world.clone();
    let done = next.apply(schema, Side::Publisher, op) == Ok(true);
    if done {
        *world = next;
    }
    done
}

fn transaction(
    random: &mut Random,
    schema: &Schema,
    tables: &[usize],
    world: &mut World,
) -> Vec<Op> {
    let count = match random.below(12) {
        0 => 0,
        1 => 6 + random.below(8),
        2 => return vec![Op::Message],
        _ => 1 + random.below(4),
    };
    let mut next = world.clone();
    let mut ops = Vec::new();
    for _ in 0..count {
        let wanted = match random.below(10) {
            0 => swap(random, schema, &next),
            _ => vec![op(random, tables, &next, false)],
        };
        let mut trial = next.clone();
        if wanted.iter().all(|op| try_op(&mut trial, schema, op)) {
            next = trial;
            ops.extend(wanted);
        }
    }
    if next.check_deferred(schema).is_err() {
        return Vec::new();
    }
    *world = next;
    ops
}

/// Two rows exchange their unique values.
fn swap(random: &mut Random, schema: &Schema, world: &World) -> Vec<Op> {
    let table = [MAIL, MAIL_FULL][random.below(2)];
    let rows = &world.tables[table];
    if rows.len() < 2 {
        return Vec::new();
    }
    let first = random.below(rows.len());
    let second = (first + 1 + random.below(rows.len() - 1)) % rows.len();
    let (old, other) = (rows[first], rows[second]);
    let with = |row: Row, value| [row[0], value, row[2]];
    let update = |old: Row, new: Row| Op::Update { table, old, new };
    if schema.tables[table].uniques[1].deferred {
        let swapped = update(old, with(old, other[1]));
        return vec![swapped, update(other, with(other, old[1]))];
    }
    let held = with(old, None);
    vec![
        update(old, held),
        update(other, with(other, old[1])),
        update(held, with(old, other[1])),
    ]
}

/// The tables of a run: some, so that its transactions meet.
fn choose(random: &mut Random, schema: &Schema) -> Vec<usize> {
    const SORTS: [&[usize]; 7] = [
        &[HOT],
        &[MAIL],
        &[MAIL_FULL],
        &[ONE_NULL],
        &[PARENT, CHILD, CHILD],
        &[PARENT, ORPHAN, CHILD],
        &[HEAP],
    ];
    if random.once_in(6) {
        return vec![MAIL];
    }
    let mut tables = Vec::new();
    for _ in 0..1 + random.below(4) {
        tables.extend(SORTS[random.below(SORTS.len())]);
    }
    if schema.stamps {
        tables.extend([HOT, STAMPED, STAMPED]);
    }
    tables
}

/// Some statement; it may break a constraint.
fn op(random: &mut Random, tables: &[usize], world: &World, insert: bool) -> Op {
    let table = tables[random.below(tables.len())];
    if !insert && random.once_in(60) {
        let tables = match table {
            PARENT | CHILD | ORPHAN => vec![PARENT, CHILD, ORPHAN],
            _ => vec![table],
        };
        return Op::Truncate { tables };
    }
    let rows = &world.tables[table];
    let some = (!rows.is_empty()).then(|| rows[random.below(rows.len().max(1))]);
    let (Some(old), false) = (some, insert || random.once_in(3)) else {
        let new = row(random, table);
        return Op::Insert { table, new };
    };
    match random.below(10) {
        0..=2 => Op::Delete { table, old },
        3 if table != STAMPED => {
            let new = [row(random, table)[0], old[1], old[2]];
            Op::Update { table, old, new }
        }
        4..=6 if table != STAMPED => {
            let new = [old[0], row(random, table)[1], old[2]];
            Op::Update { table, old, new }
        }
        _ => {
            let new = [old[0], old[1], row(random, table)[2]];
            Op::Update { table, old, new }
        }
    }
}

fn row(random: &mut Random, table: usize) -> Row {
    let mut value = |most: usize| Some(1 + random.below(most) as i32);
    let row = match table {
        HOT => [value(3), None, value(50)],
        HEAP => [value(2), value(2), value(2)],
        STAMPED => [value(6), None, value(50)],
        PARENT => [value(4), None, value(50)],
        _ => [value(6), value(4), value(50)],
    };
    let null = random.once_in(4) && matches!(table, MAIL | MAIL_FULL | ONE_NULL | CHILD | HEAP);
    if null { [row[0], None, row[2]] } else { row }
}

/// The changes of a part, and the tables that they name.
fn encode(schema: &Schema, ops: &[Op]) -> (Vec<Change>, Vec<usize>) {
    let mut tables: Vec<usize> = Vec::new();
    let mut number = |table: usize| {
        let known = tables.iter().position(|one| *one == table);
        let place = known.unwrap_or_else(|| {
            tables.push(table);
            tables.len() - 1
        });
        place as u32
    };
    let changes = ops.iter().map(|op| match *op {
        Op::Insert { table, new } => Change::Insert {
            table: number(table),
            new: datum(&new, false),
        },
        Op::Update { table, old, new } => {
            let spec = &schema.tables[table];
            Change::Update {
                table: number(table),
                old: (spec.full || old[0] != new[0]).then(|| old_tuple(spec.full, &old)),
                new: datum(&new, false),
            }
        }
        Op::Delete { table, old } => Change::Delete {
            table: number(table),
            old: old_tuple(schema.tables[table].full, &old),
        },
        Op::Truncate { ref tables } => Change::Truncate {
            tables: tables.iter().map(|table| number(*table)).collect(),
            cascade: false,
            restart_identity: false,
        },
        Op::Message => Change::Message {
            prefix: "m".to_owned(),
            content: Bytes::new(),
            lsn: Lsn(1),
            transactional: true,
        },
    });
    let changes = changes.collect();
    (changes, tables)
}

fn old_tuple(full: bool, old: &Row) -> OldTuple {
    OldTuple {
        kind: if full { OldKind::Full } else { OldKind::Key },
        row: datum(old, !full),
    }
}

fn datum(values: &Row, key: bool) -> Bytes {
    let mut datum = Vec::new();
    for (place, value) in values.iter().enumerate() {
        let value = match value {
            _ if key && place > 0 => Value::NotSent,
            Some(value) => Value::Int(i64::from(*value)),
            None => Value::Null,
        };
        row::write(Carrier::Int4, value, &mut datum).unwrap();
    }
    datum.into()
}
