//! Which worker runs a unit.
//!
//! A unit is ready when everything it depends on is committed. It is ready *for one worker* when
//! what is not committed of it was sent to that worker: a connection runs what it is given in
//! order, so the dependency is kept by the connection, and the unit need not wait for a round trip.
//! Among workers that may take it, the one with the least to do does.

use crate::unit::UnitId;

/// A connection to the subscriber that applies units, by its place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Runs sent now carry this number; it grows when runs are swept away.
    pub run: u64,
    /// Units sent and not committed, in order.
    pub units: Vec<UnitId>,
    /// Bytes of them.
    pub size_bytes: usize,
    /// A unit that was called back and not yet reported as gone: nothing is sent meanwhile.
    pub abandoning: Option<UnitId>,
}

impl Worker {
    fn has_room(&self, size_bytes: usize, limits: InFlightLimits) -> bool {
        self.abandoning.is_none()
            && (self.units.is_empty()
                || (self.units.len() < limits.units_max
                    && self.size_bytes + size_bytes <= limits.bytes_max))
    }
}

/// The workers of a lane.
#[derive(Debug)]
pub struct Scheduler {
    workers: Vec<Worker>,
    limits: InFlightLimits,
}

impl Scheduler {
    /// A pool of that many workers.
    pub fn new(workers: usize, limits: InFlightLimits) -> Self {
        let workers = (0..workers.max(1)).map(|_| Worker::default()).collect();
        Self { workers, limits }
    }

    /// The worker that should run a unit of that size, whose unfinished predecessors were sent to
    /// `sent_to` (none: not sent at all).
    pub fn place(
        &self,
        sent_to: impl IntoIterator<Item = Option<WorkerId>>,
        size_bytes: usize,
    ) -> Option<WorkerId> {
        let mut bound: Option<WorkerId> = None;
        for worker in sent_to {
            let worker = worker?;
            if *bound.get_or_insert(worker) != worker {
                return None;
            }
        }
        let room = |id: &WorkerId| {
            self.workers
                .get(id.0)
                .is_some_and(|worker| worker.has_room(size_bytes, self.limits))
        };
        match bound {
            Some(worker) => Some(worker).filter(room),
            None => (0..self.workers.len())
                .map(WorkerId)
                .filter(room)
                .min_by_key(|id| self.workers[id.0].size_bytes),
        }
    }

    /// How many more units may be unfinished in all.
    pub fn room(&self, unfinished: usize) -> usize {
        (self.limits.units_max.max(1) * self.workers.len()).saturating_sub(unfinished)
    }

    /// A worker, if there is one of that number.
    pub fn worker(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(id.0)
    }

    /// Forgets what the workers have; runs go on with higher numbers.
    pub fn clear(&mut self) {
        for worker in &mut self.workers {
            let run = worker.run + 1;
            *worker = Worker {
                run,
                ..Worker::default()
            };
        }
    }
}
