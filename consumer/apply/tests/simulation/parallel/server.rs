//! The model subscriber: sessions that run statements one phase at a time, and wait for each other.
//!
//! A statement looks its row up in what is committed when it starts (READ COMMITTED), locks it, and
//! looks at it again if it had to wait; then it enters the unique indexes one by one, then come the
//! foreign keys. Between two phases others may run. Whoever waits goes on only after some
//! transaction ended.

use std::sync::Arc;

use super::heap::{Collision, Heap, SessionId, Strength, TupleId, Undo, strength};
use super::schema::{HOT, Row, STAMPED, Schema, TABLES};
use super::world::{Op, World};
use crate::random::Random;

pub const UNIQUE_VIOLATION: &str = "23505";
pub const FOREIGN_KEY_VIOLATION: &str = "23503";

/// How a statement, or a COMMIT, goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Going,
    Waits,
    Done {
        /// A row was not found.
        missing: bool,
    },
    Error(&'static str),
}

/// What comes next in a statement.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Table,
    Locate,
    Lock {
        id: TupleId,
        version: u32,
    },
    Index {
        id: TupleId,
        old: Option<Row>,
        place: usize,
    },
    Parent {
        old: Option<Row>,
        new: Option<Row>,
    },
    ParentRow {
        old: Option<Row>,
        id: TupleId,
        key: Option<i32>,
    },
    Children {
        old: Option<Row>,
    },
}

#[derive(Debug)]
struct Statement {
    op: Op,
    phase: Phase,
}

#[derive(Debug, Default)]
struct Session {
    statement: Option<Statement>,
    /// Unique checks that are left to the commit: table, row, index.
    deferred: Vec<(usize, TupleId, usize)>,
    waits_for: Vec<SessionId>,
    waits_since: u64,
    in_block: bool,
}

#[derive(Debug, Default)]
struct TableLock {
    sharers: Vec<SessionId>,
    exclusive: Option<SessionId>,
    /// Who wants it alone.
    queue: Vec<SessionId>,
}

#[derive(Debug)]
pub struct Server {
    schema: Arc<Schema>,
    pub heap: Heap,
    tables: Vec<TableLock>,
    sessions: Vec<Session>,
    /// Counts the ends of transactions.
    ends: u64,
}

type Turn = Result<Option<Phase>, Progress>;

impl Server {
    pub fn new(schema: Arc<Schema>, world: &World) -> Self {
        let tables = std::iter::repeat_with(TableLock::default);
        Self {
            schema,
            heap: Heap::new(world),
            tables: tables.take(TABLES).collect(),
            sessions: Vec::new(),
            ends: 0,
        }
    }

    pub fn open(&mut self, session: SessionId) {
        while self.sessions.len() <= session {
            self.sessions.push(Session::default());
        }
    }

    pub fn begin(&mut self, session: SessionId) {
        assert!(!self.sessions[session].in_block, "a block in a block");
        self.sessions[session].in_block = true;
    }

    pub fn blocks(&self) -> usize {
        let open = self.sessions.iter().filter(|session| session.in_block);
        open.count()
    }

    /// True if it waits, and nothing has happened that could end that.
    pub fn is_waiting(&self, session: SessionId) -> bool {
        let session = &self.sessions[session];
        !session.waits_for.is_empty() && session.waits_since == self.ends
    }

    /// Who waits for whom.
    pub fn waits(&self) -> Vec<(SessionId, SessionId)> {
        let waiting = (0..self.sessions.len()).filter(|session| self.is_waiting(*session));
        let pairs = |waiting: SessionId| {
            let holding = self.sessions[waiting].waits_for.iter();
            holding.map(move |holding| (waiting, *holding))
        };
        waiting.flat_map(pairs).collect()
    }

    /// A session that waits for itself, by way of others.
    pub fn deadlocked(&self, random: &mut Random) -> Option<SessionId> {
        let waits = self.waits();
        if waits.len() < 2 {
            return None;
        }
        let mut caught = Vec::new();
        for start in 0..self.sessions.len() {
            let mut reached = Vec::new();
            let mut front = vec![start];
            while let Some(one) = front.pop() {
                for (_, next) in waits.iter().filter(|(waiting, _)| *waiting == one) {
                    if !reached.contains(next) {
                        reached.push(*next);
                        front.push(*next);
                    }
                }
            }
            if reached.contains(&start) {
                caught.push(start);
            }
        }
        (!caught.is_empty()).then(|| caught[random.below(caught.len())])
    }

    /// True if some session holds the table alone.
    pub fn is_locked(&self, table: usize) -> bool {
        self.tables[table].exclusive.is_some()
    }

    pub fn start(&mut self, session: SessionId, op: Op) {
        let statement = Statement {
            op,
            phase: Phase::Table,
        };
        self.sessions[session].statement = Some(statement);
    }

    pub fn is_executing(&self, session: SessionId) -> bool {
        self.sessions[session].statement.is_some()
    }

    /// Lets the session's statement go on by some phases.
    pub fn go_on(&mut self, session: SessionId, random: &mut Random) -> Progress {
        let Some(mut statement) = self.sessions[session].statement.take() else {
            return Progress::Done { missing: false };
        };
        self.sessions[session].waits_for.clear();
        loop {
            match self.turn(session, &statement, random) {
                Ok(Some(phase)) => statement.phase = phase,
                Ok(None) => return Progress::Done { missing: false },
                Err(Progress::Waits) => {
                    self.sessions[session].statement = Some(statement);
                    return Progress::Waits;
                }
                Err(end) => return end,
            }
            if random.once_in(4) {
                self.sessions[session].statement = Some(statement);
                return Progress::Going;
            }
        }
    }

    fn turn(&mut self, session: SessionId, statement: &Statement, random: &mut Random) -> Turn {
        let op = &statement.op;
        let (table, old, new) = match *op {
            Op::Insert { table, new } => (table, None, Some(new)),
            Op::Update { table, old, new } => (table, Some(old), Some(new)),
            Op::Delete { table, old } => (table, Some(old), None),
            Op::Truncate { ref tables } => return self.truncate(session, tables),
            Op::Message => return Ok(None),
        };
        match statement.phase {
            Phase::Table => {
                self.share(session, table)?;
                Ok(Some(Phase::Locate))
            }
            Phase::Locate => match (old, new) {
                (Some(old), _) => self.locate(session, table, old, random),
                (None, Some(new)) => Ok(Some(self.insert(session, table, new))),
                (None, None) => Ok(None),
            },
            Phase::Lock { id, version } => self.lock(session, table, (id, version), old, new),
            Phase::Index { id, old, place } => self.enter(session, table, id, old, place),
            Phase::Parent { old, new } => self.parent(session, table, old, new),
            Phase::ParentRow { old, id, key } => self.parent_row(session, table, old, id, key),
            Phase::Children { old } => self.children(session, table, old),
        }
    }

    fn wait(&mut self, session: SessionId, waits_for: Vec<SessionId>) -> Progress {
        let ends = self.ends;
        let waiting = &mut self.sessions[session];
        waiting.waits_for = waits_for;
        waiting.waits_since = ends;
        Progress::Waits
    }

    /// The lock that every statement takes on its table.
    fn share(&mut self, session: SessionId, table: usize) -> Result<(), Progress> {
        let lock = &mut self.tables[table];
        if lock.sharers.contains(&session) || lock.exclusive == Some(session) {
            return Ok(());
        }
        let before = lock.exclusive.or(lock.queue.first().copied());
        match before.filter(|before| *before != session) {
            Some(before) => Err(self.wait(session, vec![before])),
            None => {
                lock.sharers.push(session);
                Ok(())
            }
        }
    }

    fn truncate(&mut self, session: SessionId, tables: &[usize]) -> Turn {
        for &table in tables {
            let lock = &mut self.tables[table];
            if lock.exclusive == Some(session) {
                continue;
            }
            let mut holders: Vec<SessionId> = lock.exclusive.into_iter().collect();
            holders.extend(lock.sharers.iter().filter(|one| **one != session));
            holders.extend(lock.queue.iter().take_while(|one| **one != session));
            if !holders.is_empty() {
                if !lock.queue.contains(&session) {
                    lock.queue.push(session);
                }
                return Err(self.wait(session, holders));
            }
            lock.queue.retain(|one| *one != session);
            lock.exclusive = Some(session);
        }
        for &table in tables {
            self.heap.truncate(session, table);
        }
        Ok(None)
    }

    fn insert(&mut self, session: SessionId, table: usize, mut new: Row) -> Phase {
        if table == STAMPED && self.schema.stamps {
            let hot = self.heap.rows(HOT).iter();
            let seen: Vec<Row> = hot.filter_map(|row| row.seen_by(session)).collect();
            new[1] = super::world::stamp(&seen);
        }
        let id = self.heap.insert(session, table, new);
        let (old, place) = (None, 0);
        Phase::Index { id, old, place }
    }

    fn locate(&mut self, session: SessionId, table: usize, old: Row, random: &mut Random) -> Turn {
        let keyed = self.schema.tables[table].keyed;
        let rows = self.heap.rows(table).iter();
        let found: Vec<(TupleId, u32)> = rows
            .filter(|row| {
                row.seen_by(session)
                    .is_some_and(|row| is(keyed, &row, &old))
            })
            .map(|row| (row.id, row.version))
            .collect();
        if found.is_empty() {
            return Err(Progress::Done { missing: true });
        }
        let (id, version) = found[random.below(found.len())];
        Ok(Some(Phase::Lock { id, version }))
    }

    fn lock(
        &mut self,
        session: SessionId,
        table: usize,
        (id, version): (TupleId, u32),
        old: Option<Row>,
        new: Option<Row>,
    ) -> Turn {
        let gone = Err(Progress::Done { missing: true });
        let spec = &self.schema.tables[table];
        let Some(row) = self.heap.row(table, id) else {
            return gone;
        };
        let Some(current) = row.seen_by(session) else {
            return gone;
        };
        let strength = strength(&self.schema, table, &current, new.as_ref());
        let holders = row.lock(session, strength);
        if !holders.is_empty() {
            return Err(self.wait(session, holders));
        }
        let same = if spec.keyed {
            old.is_some_and(|old| is(true, &current, &old))
        } else {
            // What the row must equal is looked at again in any case.
            let rechecked = row.version == version || !self.schema.rechecks_ctid;
            rechecked && old.is_some_and(|old| is(false, &current, &old))
        };
        if !same {
            return gone;
        }
        row.pending = new;
        row.entered = 0;
        let Some(new) = new else {
            let old = Some(current);
            return Ok(Some(Phase::Children { old }));
        };
        let moves = spec
            .uniques
            .iter()
            .any(|one| current[one.column] != new[one.column]);
        let old = Some(current);
        Ok(Some(if moves {
            Phase::Index { id, old, place: 0 }
        } else {
            let new = Some(new);
            Phase::Parent { old, new }
        }))
    }

    fn enter(
        &mut self,
        session: SessionId,
        table: usize,
        id: TupleId,
        old: Option<Row>,
        place: usize,
    ) -> Turn {
        let new = self.heap.row(table, id).and_then(|row| row.pending);
        let Some(unique) = self.schema.tables[table].uniques.get(place).copied() else {
            return Ok(Some(Phase::Parent { old, new }));
        };
        let value = new.and_then(|new| new[unique.column]);
        match self
            .heap
            .collides(table, (place, unique), value, session, id)
        {
            Collision::Free => {}
            _ if unique.deferred => self.sessions[session].deferred.push((table, id, place)),
            Collision::Waits(holder) => return Err(self.wait(session, vec![holder])),
            Collision::Taken => return Err(Progress::Error(UNIQUE_VIOLATION)),
        }
        if let Some(row) = self.heap.row(table, id) {
            row.entered |= 1 << place;
        }
        let place = place + 1;
        Ok(Some(Phase::Index { id, old, place }))
    }

    /// The row's own reference.
    fn parent(
        &mut self,
        session: SessionId,
        table: usize,
        old: Option<Row>,
        new: Option<Row>,
    ) -> Turn {
        let spec = &self.schema.tables[table];
        let key = new.and_then(|new| new[1]);
        let changed = old.is_none_or(|old| old[1] != key);
        let parent = spec
            .parent
            .filter(|_| spec.enforced && changed && key.is_some());
        let Some(parent) = parent else {
            return Ok(Some(Phase::Children { old }));
        };
        self.share(session, parent)?;
        let mut rows = self.heap.rows(parent).iter();
        let is = |row: &Row| row[0] == key;
        match rows.find(|row| row.seen_by(session).as_ref().is_some_and(is)) {
            Some(row) => {
                let id = row.id;
                Ok(Some(Phase::ParentRow { old, id, key }))
            }
            None => Err(Progress::Error(FOREIGN_KEY_VIOLATION)),
        }
    }

    fn parent_row(
        &mut self,
        session: SessionId,
        table: usize,
        old: Option<Row>,
        id: TupleId,
        key: Option<i32>,
    ) -> Turn {
        let parent = self.schema.tables[table].parent.unwrap_or_default();
        let Some(row) = self.heap.row(parent, id) else {
            return Err(Progress::Error(FOREIGN_KEY_VIOLATION));
        };
        match row.writer {
            Some((writer, Strength::Strong)) if writer != session => {
                return Err(self.wait(session, vec![writer]));
            }
            _ => {}
        }
        if row.seen_by(session).is_none_or(|row| row[0] != key) {
            return Err(Progress::Error(FOREIGN_KEY_VIOLATION));
        }
        if !row.sharers.contains(&session) {
            row.sharers.push(session);
        }
        Ok(Some(Phase::Children { old }))
    }

    /// References to the row that goes, or to the key that it gives up.
    fn children(&mut self, session: SessionId, table: usize, old: Option<Row>) -> Turn {
        let Some(key) = old.map(|old| old[0]) else {
            return Ok(None);
        };
        let mut rows = self.heap.rows(table).iter();
        let has_key = |row: &Row| row[0] == key;
        if rows.any(|row| row.seen_by(session).as_ref().is_some_and(has_key)) {
            return Ok(None);
        }
        let schema = Arc::clone(&self.schema);
        for child in schema.children(table) {
            self.share(session, child)?;
            let rows = self.heap.rows(child).iter();
            let refers = |row: &Row| row[1] == key;
            for row in rows {
                if !row.seen_by(session).as_ref().is_some_and(refers) {
                    continue;
                }
                match row.writer {
                    Some((writer, _)) if writer != session => {
                        return Err(self.wait(session, vec![writer]));
                    }
                    _ => return Err(Progress::Error(FOREIGN_KEY_VIOLATION)),
                }
            }
        }
        Ok(None)
    }

    /// The checks that were left to the commit.
    pub fn check_deferred(&mut self, session: SessionId) -> Progress {
        self.sessions[session].waits_for.clear();
        while let Some((table, id, place)) = self.sessions[session].deferred.last().copied() {
            let unique = self.schema.tables[table].uniques[place];
            let value = self.heap.row(table, id).and_then(|row| row.pending);
            let collision = match value {
                Some(row) => {
                    let value = row[unique.column];
                    self.heap
                        .collides(table, (place, unique), value, session, id)
                }
                None => Collision::Free,
            };
            match collision {
                Collision::Free => self.sessions[session].deferred.pop(),
                Collision::Waits(holder) => return self.wait(session, vec![holder]),
                Collision::Taken => return Progress::Error(UNIQUE_VIOLATION),
            };
        }
        Progress::Done { missing: false }
    }

    /// The session's block ends; what a commit did.
    pub fn end(&mut self, session: SessionId, commits: bool) -> Vec<Undo> {
        self.ends += 1;
        self.sessions[session] = Session::default();
        for lock in &mut self.tables {
            lock.sharers.retain(|one| *one != session);
            lock.queue.retain(|one| *one != session);
            lock.exclusive.take_if(|one| *one == session);
        }
        self.heap.end(session, commits)
    }

    /// All sessions end.
    pub fn end_all(&mut self) {
        for session in 0..self.sessions.len() {
            self.end(session, false);
        }
    }
}

fn is(keyed: bool, row: &Row, wanted: &Row) -> bool {
    if keyed {
        row[0] == wanted[0]
    } else {
        row == wanted
    }
}
