//! The rows of the model subscriber: versions, row locks, unique checks, undo.
//!
//! A row has one committed version and at most one pending one, made by the session that holds the
//! row's lock. Whoever else wants the row waits for that session's end; of those who wait the first
//! holds the tuple lock, so the others wait for it. That is how PostgreSQL does it, as far as it
//! decides who waits for whom.

use super::schema::{Row, Schema, TABLES, Unique};
use super::world::{Hashes, World, add, take};

/// A connection, by the number of its worker.
pub type SessionId = usize;

/// Numbers rows; a row that goes away leaves its number.
pub type TupleId = u64;

/// How a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// FOR NO KEY UPDATE.
    Weak,
    /// FOR UPDATE: also against those who hold on to the row's key.
    Strong,
}

#[derive(Clone, Debug)]
pub struct Tuple {
    pub id: TupleId,
    pub committed: Option<Row>,
    pub writer: Option<(SessionId, Strength)>,
    pub pending: Option<Row>,
    /// Indexes that hold the pending version, a bit for each.
    pub entered: u8,
    /// FOR KEY SHARE.
    pub sharers: Vec<SessionId>,
    /// Who waits for the lock.
    pub queue: Vec<SessionId>,
    /// Counts the committed versions.
    pub version: u32,
}

/// What a unique check finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collision {
    Free,
    /// It depends on how this session ends.
    Waits(SessionId),
    Taken,
}

/// What a commit did to a row.
#[derive(Clone, Debug)]
pub struct Undo {
    table: usize,
    id: TupleId,
    before: Option<Row>,
}

#[derive(Debug)]
pub struct Heap {
    tables: Vec<Vec<Tuple>>,
    next_id: TupleId,
    /// Of what is committed.
    pub hashes: Hashes,
}

impl Tuple {
    /// The version that a session sees.
    pub fn seen_by(&self, session: SessionId) -> Option<Row> {
        match self.writer {
            Some((writer, _)) if writer == session => self.pending,
            _ => self.committed,
        }
    }

    fn is_written_by(&self, session: SessionId) -> bool {
        self.writer.is_some_and(|(writer, _)| writer == session)
    }

    /// Whom the session has to wait for before it may write the row; nobody, and it has the lock.
    pub fn lock(&mut self, session: SessionId, strength: Strength) -> Vec<SessionId> {
        if self.is_written_by(session) {
            if strength == Strength::Strong {
                let others = self.other_sharers(session);
                if !others.is_empty() {
                    return others;
                }
                self.writer = Some((session, strength));
            }
            return Vec::new();
        }
        let place = self.queue.iter().position(|one| *one == session);
        if place.is_some_and(|place| place > 0) {
            return vec![self.queue[0]];
        }
        let mut holders: Vec<SessionId> = self.writer.iter().map(|(writer, _)| *writer).collect();
        if holders.is_empty() && strength == Strength::Strong {
            holders = self.other_sharers(session);
        }
        if holders.is_empty() {
            self.queue.retain(|one| *one != session);
            self.writer = Some((session, strength));
            self.pending = self.committed;
            self.entered = 0;
            return Vec::new();
        }
        if place.is_none() {
            self.queue.push(session);
            if self.queue.len() > 1 {
                return vec![self.queue[0]];
            }
        }
        holders
    }

    fn other_sharers(&self, session: SessionId) -> Vec<SessionId> {
        let mut sharers = self.sharers.clone();
        sharers.retain(|one| *one != session);
        sharers
    }

    fn is_gone(&self) -> bool {
        self.committed.is_none() && self.writer.is_none()
    }
}

impl Heap {
    pub fn new(world: &World) -> Self {
        let mut heap = Self {
            tables: vec![Vec::new(); TABLES],
            next_id: 0,
            hashes: world.hashes(),
        };
        for (table, rows) in world.tables.iter().enumerate() {
            for row in rows {
                heap.push(table, Some(*row));
            }
        }
        heap
    }

    fn push(&mut self, table: usize, committed: Option<Row>) -> &mut Tuple {
        self.next_id += 1;
        self.tables[table].push(Tuple {
            id: self.next_id,
            committed,
            writer: None,
            pending: None,
            entered: 0,
            sharers: Vec::new(),
            queue: Vec::new(),
            version: 0,
        });
        self.tables[table].last_mut().unwrap()
    }

    pub fn rows(&self, table: usize) -> &[Tuple] {
        &self.tables[table]
    }

    pub fn row(&mut self, table: usize, id: TupleId) -> Option<&mut Tuple> {
        self.tables[table].iter_mut().find(|row| row.id == id)
    }

    /// What is committed, to be compared with a hash kept by commits.
    pub fn count_hashes(&self) -> Hashes {
        let mut hashes = [0; TABLES];
        for (table, rows) in self.tables.iter().enumerate() {
            for row in rows.iter().filter_map(|row| row.committed) {
                add(&mut hashes, table, &row);
            }
        }
        hashes
    }

    pub fn insert(&mut self, session: SessionId, table: usize, new: Row) -> TupleId {
        let row = self.push(table, None);
        row.writer = Some((session, Strength::Strong));
        row.pending = Some(new);
        row.id
    }

    /// All rows go; the session holds the table's lock alone.
    pub fn truncate(&mut self, session: SessionId, table: usize) -> Vec<TupleId> {
        let rows = self.tables[table].iter_mut();
        rows.map(|row| {
            row.writer = Some((session, Strength::Strong));
            row.pending = None;
            row.id
        })
        .collect()
    }

    /// What stands in the way of a value in a unique index, seen with everything in progress.
    pub fn collides(
        &self,
        table: usize,
        (place, unique): (usize, Unique),
        value: Option<i32>,
        session: SessionId,
        own: TupleId,
    ) -> Collision {
        if value.is_none() && unique.nulls_distinct {
            return Collision::Free;
        }
        let is = |row: Option<Row>| row.is_some_and(|row| row[unique.column] == value);
        for row in self.tables[table].iter().filter(|row| row.id != own) {
            let entered = row.entered & (1 << place) != 0;
            let collision = match row.writer {
                Some((writer, _)) if writer == session => {
                    is(row.pending).then_some(Collision::Taken)
                }
                Some((writer, _)) => (is(row.committed) || (entered && is(row.pending)))
                    .then_some(Collision::Waits(writer)),
                None => is(row.committed).then_some(Collision::Taken),
            };
            if let Some(collision) = collision {
                return collision;
            }
        }
        Collision::Free
    }

    /// The session's transaction ends.
    pub fn end(&mut self, session: SessionId, commits: bool) -> Vec<Undo> {
        let mut undo = Vec::new();
        for (table, rows) in self.tables.iter_mut().enumerate() {
            for row in rows.iter_mut() {
                row.sharers.retain(|one| *one != session);
                row.queue.retain(|one| *one != session);
                if !row.is_written_by(session) {
                    continue;
                }
                row.writer = None;
                let pending = row.pending.take();
                if commits && pending != row.committed {
                    undo.push(Undo {
                        table,
                        id: row.id,
                        before: row.committed,
                    });
                    set(&mut self.hashes, table, row, pending);
                }
            }
            rows.retain(|row| !row.is_gone());
        }
        undo
    }

    /// Takes a commit back; nobody works.
    pub fn take_back(&mut self, undo: Vec<Undo>) {
        for Undo { table, id, before } in undo {
            if self.row(table, id).is_none() {
                self.push(table, None).id = id;
            }
            let row = self.tables[table].iter_mut().find(|row| row.id == id);
            set(&mut self.hashes, table, row.unwrap(), before);
        }
        for rows in &mut self.tables {
            rows.retain(|row| !row.is_gone());
        }
    }
}

fn set(hashes: &mut Hashes, table: usize, row: &mut Tuple, committed: Option<Row>) {
    if let Some(before) = row.committed {
        take(hashes, table, &before);
    }
    if let Some(after) = committed {
        add(hashes, table, &after);
    }
    row.committed = committed;
    row.version += 1;
}

/// The strength that an UPDATE needs: a column of a unique index makes it a change of key.
pub fn strength(schema: &Schema, table: usize, old: &Row, new: Option<&Row>) -> Strength {
    let moves = |unique: &Unique| new.is_none_or(|new| old[unique.column] != new[unique.column]);
    if schema.tables[table].uniques.iter().any(moves) || new.is_none() {
        Strength::Strong
    } else {
        Strength::Weak
    }
}
