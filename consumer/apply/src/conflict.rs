//! The conflict hash and the dependency analyzer.
//!
//! A conflict key is what two units may not touch at the same time ([`crate::footprint`] finds a
//! transaction's). The hash knows, of each key, the last unfinished unit that wrote it and those
//! that share it since; a unit that touches the key depends on those that its way of touching does
//! not go together with. Entries go when their unit commits, so the hash holds no more than what is
//! unfinished, and the dependency frontier is the same hash carried on and on.
//!
//! | touches | waits for | is waited for by |
//! |---|---|---|
//! | Write | the writer, the readers, the freers | everybody behind |
//! | Read | the writer | the next Write |
//! | Free | nobody | Take and Write behind |
//! | Take | the writer, the freers | nobody |
//!
//! One key stands for the whole lane: every unit reads it, and what must run alone writes it: a
//! barrier, a unit of which nothing is known, and whatever a limit cuts off. So there is one
//! mechanism for everything that waits.
//!
//! Units are analysed in the order of the log, so edges run along commit order only: no unit waits
//! for a later one, and none for itself, whatever the width of the hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::footprint::{Access, Scope, SpaceId, Touch};
use crate::unit::UnitId;

/// Room that is kept for the keys of the next unit; what a larger one needed is given back.
const SPARE_KEYS_MAX: usize = 4_096;

/// The key that stands for the whole lane.
pub const LANE: Touch = Touch {
    key: 0,
    access: Access::Write,
    space: SpaceId(0),
};

/// What the analyzer says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// It depends on nothing unfinished.
    NoConflict,
    /// It depends on unfinished units.
    Conflict,
    /// Nothing can be said: it must run as the head.
    Unknown,
    /// It depends on everything before it, and everything behind depends on it.
    Barrier,
}

impl Dependence {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 4] = [
        Self::NoConflict,
        Self::Conflict,
        Self::Unknown,
        Self::Barrier,
    ];

    /// The name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoConflict => "NO_CONFLICT",
            Self::Conflict => "CONFLICT",
            Self::Unknown => "UNKNOWN",
            Self::Barrier => "BARRIER",
        }
    }
}

/// An unfinished unit that another one waits for, and the first key found that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The earlier unit.
    pub unit: UnitId,
    /// Which key of which table.
    pub space: SpaceId,
}

/// A unit's dependence and the unfinished units it depends on, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The kind of dependence.
    pub dependence: Dependence,
    /// What it waits for.
    pub predecessors: Vec<Edge>,
}

/// Who touches a key and is not finished.
#[derive(Debug, Default)]
struct Entry {
    writer: Option<UnitId>,
    readers: Vec<UnitId>,
    freers: Vec<UnitId>,
}

/// The unfinished units that touch each key.
#[derive(Debug)]
pub struct ConflictHash {
    entries: HashMap<u64, Entry, BuildHasherDefault<AsItIs>>,
    touched: HashMap<UnitId, Vec<u64>>,
    touches: usize,
    touches_max: usize,
    spare: Vec<Vec<u64>>,
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl ConflictHash {
    /// A hash that holds at most that many touches; a unit that would pass it runs alone.
    pub fn new(touches_max: usize) -> Self {
        Self {
            entries: HashMap::default(),
            touched: HashMap::new(),
            touches: 0,
            touches_max,
            spare: Vec::new(),
        }
    }

    /// Finds what the unit depends on and enters its keys.
    pub fn analyze(&mut self, unit: UnitId, scope: &Scope, touches: &[Touch]) -> Analysis {
        let fits = self.touches + touches.len() < self.touches_max;
        let mut predecessors = Vec::new();
        let alone = match scope {
            Scope::Keys if fits => None,
            Scope::Keys | Scope::Lane(_) => Some(Dependence::Unknown),
            Scope::Barrier => Some(Dependence::Barrier),
        };
        let mut touched = self.spare.pop().unwrap_or_default();
        let lane = match alone {
            Some(_) => LANE,
            None => Touch {
                access: Access::Read,
                ..LANE
            },
        };
        self.enter(unit, lane, &mut touched, &mut predecessors);
        if alone.is_none() {
            for touch in touches {
                self.enter(unit, *touch, &mut touched, &mut predecessors);
            }
        }
        self.touches += touched.len();
        self.touched.insert(unit, touched);
        let dependence = alone.unwrap_or(if predecessors.is_empty() {
            Dependence::NoConflict
        } else {
            Dependence::Conflict
        });
        Analysis {
            dependence,
            predecessors,
        }
    }

    fn enter(
        &mut self,
        unit: UnitId,
        touch: Touch,
        touched: &mut Vec<u64>,
        predecessors: &mut Vec<Edge>,
    ) {
        let Touch { key, access, space } = touch;
        if access == Access::Take {
            if let Some(entry) = self.entries.get(&key) {
                entry.add(entry.writer, unit, space, predecessors);
                entry.add(entry.freers.iter().copied(), unit, space, predecessors);
            }
            return;
        }
        let entry = self.entries.entry(key).or_default();
        match access {
            Access::Write => {
                if entry.writer == Some(unit) {
                    return;
                }
                entry.add(entry.writer, unit, space, predecessors);
                entry.add(entry.readers.iter().copied(), unit, space, predecessors);
                entry.add(entry.freers.iter().copied(), unit, space, predecessors);
                entry.writer = Some(unit);
                entry.readers.clear();
                entry.freers.clear();
            }
            Access::Read => {
                if entry.writer == Some(unit) || entry.readers.last() == Some(&unit) {
                    return;
                }
                entry.add(entry.writer, unit, space, predecessors);
                entry.readers.push(unit);
            }
            Access::Free => {
                if entry.writer == Some(unit) || entry.freers.last() == Some(&unit) {
                    return;
                }
                entry.freers.push(unit);
            }
            Access::Take => {}
        }
        touched.push(key);
    }

    /// The unit committed: nothing depends on it any more.
    pub fn committed(&mut self, unit: UnitId) {
        let Some(mut touched) = self.touched.remove(&unit) else {
            return;
        };
        self.touches -= touched.len();
        for key in touched.drain(..) {
            if let std::collections::hash_map::Entry::Occupied(mut at) = self.entries.entry(key) {
                let entry = at.get_mut();
                entry.writer.take_if(|writer| *writer == unit);
                forget(&mut entry.readers, unit);
                forget(&mut entry.freers, unit);
                if entry.is_free() {
                    at.remove();
                }
            }
        }
        if touched.capacity() <= SPARE_KEYS_MAX {
            self.spare.push(touched);
        }
    }

    /// Touches of unfinished units.
    pub fn touches(&self) -> usize {
        self.touches
    }

    /// Keys that unfinished units touch.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no unfinished unit touches any key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.touched.clear();
        self.touches = 0;
    }
}

impl Entry {
    fn is_free(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.freers.is_empty()
    }

    fn add(
        &self,
        before: impl IntoIterator<Item = UnitId>,
        unit: UnitId,
        space: SpaceId,
        predecessors: &mut Vec<Edge>,
    ) {
        for before in before {
            let known = predecessors.iter().any(|edge| edge.unit == before);
            if before != unit && !known {
                let unit = before;
                predecessors.push(Edge { unit, space });
            }
        }
    }
}

/// Units commit in order, so the one that goes is mostly the first.
fn forget(units: &mut Vec<UnitId>, unit: UnitId) {
    if let Some(place) = units.iter().position(|one| *one == unit) {
        units.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(key: u64, access: Access) -> Touch {
        let space = SpaceId(1);
        Touch { key, access, space }
    }

    type Touches<'a> = &'a [(u64, Access)];

    /// Analyses units, numbered from 1, that touch what is given; whom the last one waits for.
    fn waits_for(units: &[Touches<'_>]) -> Vec<u64> {
        let mut hash = ConflictHash::new(1_000);
        let mut last = Vec::new();
        for (number, touches) in units.iter().enumerate() {
            let touches = touches.iter().map(|(key, access)| touch(*key, *access));
            let touches: Vec<Touch> = touches.collect();
            let analysis = hash.analyze(UnitId(number as u64 + 1), &Scope::Keys, &touches);
            last = analysis
                .predecessors
                .iter()
                .map(|edge| edge.unit.0)
                .collect();
        }
        for number in 1..=units.len() as u64 {
            hash.committed(UnitId(number));
        }
        assert!(hash.is_empty() && hash.touches() == 0);
        last
    }

    #[test]
    fn who_waits_for_whom() {
        use Access::{Free, Read, Take, Write};
        let cases: &[(&[Touches<'_>], &[u64])] = &[
            (&[&[(7, Write)], &[(8, Write)]], &[]),
            (&[&[(7, Write)], &[(7, Write)]], &[1]),
            (&[&[(7, Write)], &[(7, Write)], &[(7, Write)]], &[2]),
            (&[&[(7, Read)], &[(7, Read)]], &[]),
            (&[&[(7, Write)], &[(7, Read)], &[(7, Read)]], &[1]),
            (&[&[(7, Read)], &[(7, Read)], &[(7, Write)]], &[1, 2]),
            (&[&[(7, Free)], &[(7, Free)]], &[]),
            (&[&[(7, Free)], &[(7, Free)], &[(7, Take)]], &[1, 2]),
            (&[&[(7, Take)], &[(7, Free)]], &[]),
            (&[&[(7, Take)], &[(7, Take)]], &[]),
            (&[&[(7, Free)], &[(7, Write)], &[(7, Take)]], &[2]),
            // One edge a pair, whatever they share; none to itself.
            (
                &[&[(7, Write), (8, Write)], &[(8, Write), (7, Write)]],
                &[1],
            ),
            (
                &[&[(7, Write), (7, Write), (7, Read), (7, Free), (7, Take)]],
                &[],
            ),
            (&[&[(7, Read), (7, Write)]], &[]),
            (&[&[(7, Free), (7, Take), (7, Write)]], &[]),
        ];
        for (units, expected) in cases {
            assert_eq!(waits_for(units), *expected, "{units:?}");
        }
    }

    #[test]
    fn what_stands_alone_waits_for_all_and_all_wait_for_it() {
        let mut hash = ConflictHash::new(1_000);
        hash.analyze(UnitId(1), &Scope::Keys, &[]);
        hash.analyze(UnitId(2), &Scope::Keys, &[touch(7, Access::Write)]);
        let analysis = hash.analyze(UnitId(3), &Scope::Barrier, &[]);
        assert_eq!(analysis.dependence, Dependence::Barrier);
        let units = |analysis: &Analysis| -> Vec<u64> {
            analysis
                .predecessors
                .iter()
                .map(|edge| edge.unit.0)
                .collect()
        };
        assert_eq!(units(&analysis), [1, 2]);
        let analysis = hash.analyze(UnitId(4), &Scope::Keys, &[]);
        assert_eq!(analysis.dependence, Dependence::Conflict);
        assert_eq!(units(&analysis), [3]);
        hash.committed(UnitId(3));
        let analysis = hash.analyze(UnitId(5), &Scope::Keys, &[]);
        assert_eq!(analysis.dependence, Dependence::NoConflict);
    }

    #[test]
    fn a_unit_beyond_the_limit_runs_alone() {
        let mut hash = ConflictHash::new(10);
        let many: Vec<Touch> = (1..7).map(|key| touch(key, Access::Write)).collect();
        let dependence = |hash: &mut ConflictHash, unit| {
            hash.analyze(UnitId(unit), &Scope::Keys, &many).dependence
        };
        assert_eq!(dependence(&mut hash, 1), Dependence::NoConflict);
        assert_eq!(dependence(&mut hash, 2), Dependence::Unknown);
        assert!(hash.touches() <= 10);
        hash.committed(UnitId(1));
        hash.committed(UnitId(2));
        assert_eq!(dependence(&mut hash, 3), Dependence::NoConflict);
    }
}
