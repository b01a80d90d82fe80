//! The graph of dependencies between unfinished units.
//!
//! Edges run along the log's order only, one for each pair, so there is no cycle and no unit waits
//! for itself or for a later one. A node goes when its unit commits.

use std::collections::HashMap;

use crate::unit::UnitId;

/// Unfinished units and what they wait for.
#[derive(Debug, Default)]
pub struct Dag {
    nodes: HashMap<UnitId, Node>,
}

#[derive(Debug, Default)]
struct Node {
    predecessors: Vec<UnitId>,
    successors: Vec<UnitId>,
}

impl Dag {
    /// Adds a unit behind its unfinished predecessors.
    pub fn add(&mut self, unit: UnitId, predecessors: &[UnitId]) {
        let mut waits_for = Vec::with_capacity(predecessors.len());
        for &predecessor in predecessors {
            let known = predecessor != unit && !waits_for.contains(&predecessor);
            if known && let Some(node) = self.nodes.get_mut(&predecessor) {
                node.successors.push(unit);
                waits_for.push(predecessor);
            }
        }
        self.nodes.insert(
            unit,
            Node {
                predecessors: waits_for,
                successors: Vec::new(),
            },
        );
    }

    /// Unfinished units that this one waits for.
    pub fn predecessors(&self, unit: UnitId) -> &[UnitId] {
        self.nodes.get(&unit).map_or(&[], |node| &node.predecessors)
    }

    /// The unit committed: its successors wait for one less.
    pub fn committed(&mut self, unit: UnitId) {
        let Some(node) = self.nodes.remove(&unit) else {
            return;
        };
        for successor in node.successors {
            if let Some(waiting) = self.nodes.get_mut(&successor) {
                waiting
                    .predecessors
                    .retain(|predecessor| *predecessor != unit);
            }
        }
    }

    /// How many units are unfinished.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_waits_for_what_is_unfinished_and_never_for_itself() {
        let mut dag = Dag::default();
        let [a, b, c] = [UnitId(1), UnitId(2), UnitId(3)];
        dag.add(a, &[]);
        dag.add(b, &[a, a, b]);
        dag.add(c, &[a, b, UnitId(99)]);
        assert_eq!(dag.predecessors(b), [a]);
        assert_eq!(dag.predecessors(c), [a, b]);
        dag.committed(a);
        assert_eq!(dag.predecessors(b), []);
        assert_eq!(dag.predecessors(c), [b]);
        dag.committed(b);
        dag.committed(c);
        assert!(dag.is_empty());
    }
}
