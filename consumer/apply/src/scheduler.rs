//! Which worker runs a unit.
//!
//! A unit is ready when everything it depends on is committed. It is ready *for one worker* when
//! what is not committed of it has its COMMIT on the way on that worker: a connection runs what it
//! is given in order, so the dependency is kept by the connection, and the unit need not wait for a
//! round trip. Among workers that may take it, the one with the least to do does.
//!
//! A worker **holds** a unit whose COMMIT is not sent: that one waits for its turn, so nothing is
//! put behind it, or a later unit could keep an earlier one waiting for ever. Units are sent oldest
//! first for the same reason.

use crate::pace::Workers;
use crate::unit::UnitId;

/// A connection to the subscriber that applies units, by its place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// How much a worker may have before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightLimits {
    /// Units sent and not committed, of one worker.
    pub units_max: usize,
    /// Bytes of them; one unit is always allowed.
    pub bytes_max: usize,
}

/// What a worker has before it.
#[derive(Debug, Default)]
pub struct Worker {
    /// Its session is open.
    pub joined: bool,
    /// Runs sent now carry this number; it grows when runs are swept away.
    pub run: u64,
    /// Units sent and not committed, in order.
    pub units: Vec<UnitId>,
    /// Bytes of them.
    pub size_bytes: usize,
    /// The last of them, if its COMMIT is not sent.
    pub holds: Option<UnitId>,
    /// A unit that was called back and not yet reported as gone: nothing is sent meanwhile.
    pub abandoning: Option<UnitId>,
}

impl Worker {
    fn has_room(&self, size_bytes: usize, limits: InFlightLimits) -> bool {
        self.joined
            && self.abandoning.is_none()
            && self.holds.is_none()
            && (self.units.is_empty()
                || (self.units.len() < limits.units_max
                    && self.size_bytes + size_bytes <= limits.bytes_max))
    }

    /// A unit was given to it.
    pub fn takes(&mut self, unit: UnitId, size_bytes: usize, commit_sent: bool) {
        self.units.push(unit);
        self.size_bytes += size_bytes;
        self.holds = (!commit_sent).then_some(unit);
    }

    /// A unit is not with it any more.
    pub fn gives_up(&mut self, unit: UnitId, size_bytes: usize) {
        self.units.retain(|one| *one != unit);
        self.size_bytes -= size_bytes;
        self.holds.take_if(|held| *held == unit);
    }
}

/// Where a unit may run, as far as its predecessors go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Anywhere.
    Free,
    /// Behind its predecessors, on their worker.
    To(WorkerId),
    /// Nowhere yet.
    Nowhere,
}

/// The workers of a lane.
#[derive(Debug)]
pub struct Scheduler {
    workers: Vec<Worker>,
    limits: InFlightLimits,
    /// How many of the workers are to be open from the start.
    initial: usize,
    /// How many of the workers are given units, from the first on.
    effective: usize,
}

impl Scheduler {
    /// A pool of workers, all of them open if their number is fixed, else the first.
    pub fn new(workers: Workers, limits: InFlightLimits) -> Self {
        let mut scheduler = Self {
            workers: (0..workers.most()).map(|_| Worker::default()).collect(),
            limits,
            initial: workers.initial(),
            effective: workers.initial(),
        };
        scheduler.clear();
        scheduler
    }

    /// The worker that should run a unit of that size.
    pub fn place(&self, bound: Bound, size_bytes: usize) -> Option<WorkerId> {
        let room = |id: &WorkerId| {
            self.workers
                .get(id.0)
                .is_some_and(|worker| worker.has_room(size_bytes, self.limits))
        };
        match bound {
            Bound::Nowhere => None,
            Bound::To(worker) => Some(worker).filter(room),
            Bound::Free => (0..self.effective)
                .map(WorkerId)
                .filter(room)
                .min_by_key(|id| {
                    (
                        self.workers[id.0].units.len(),
                        self.workers[id.0].size_bytes,
                    )
                }),
        }
    }

    /// True if no worker could take anything.
    pub fn is_full(&self) -> bool {
        self.place(Bound::Free, 0).is_none()
    }

    /// True if some worker is yet to say that a unit is gone.
    pub fn is_calling_back(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|worker| worker.abandoning.is_some())
    }

    /// How many workers are given units.
    pub fn effective(&self) -> usize {
        self.effective
    }

    /// Lets that many workers be given units, as far as they are open; how many are not.
    pub fn set_effective(&mut self, workers: usize) -> usize {
        let wanted = workers.clamp(1, self.workers.len());
        let open = self.workers.iter().take_while(|worker| worker.joined);
        self.effective = wanted.min(open.count()).max(1);
        wanted - self.effective
    }

    /// So many workers are open, the first ones, before anything was given to any.
    pub fn open(&mut self, workers: usize) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.joined = number < workers;
        }
        self.set_effective(self.initial);
    }

    /// How many workers are open.
    pub fn joined(&self) -> usize {
        let joined = |worker: &&Worker| worker.joined;
        self.workers.iter().filter(joined).count()
    }

    /// How many more units may be unfinished in all.
    pub fn room(&self, unfinished: usize) -> usize {
        (self.limits.units_max.max(1) * self.effective).saturating_sub(unfinished)
    }

    /// A worker, if there is one of that number.
    pub fn worker(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(id.0)
    }

    /// Forgets what the workers have; runs go on with higher numbers, and only those workers are
    /// open that are from the start.
    pub fn clear(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            *worker = Worker {
                joined: number < self.initial,
                run: worker.run + 1,
                ..Worker::default()
            };
        }
        self.effective = self.initial;
    }
}
