//! The graph of dependencies between unfinished units.
//!
//! Edges run along the log's order only, one for each pair, so there is no cycle and no unit waits
//! for itself or for a later one. A node goes when its unit commits.

use std::collections::HashMap;

use crate::conflict::Edge;
use crate::unit::UnitId;

/// Unfinished units and what they wait for.
#[derive(Debug, Default)]
pub struct Dag {
    nodes: HashMap<UnitId, Node>,
}

#[derive(Debug, Default)]
struct Node {
    predecessors: Vec<Edge>,
    successors: Vec<UnitId>,
}

impl Dag {
    /// Adds a unit behind its unfinished predecessors.
    pub fn add(&mut self, unit: UnitId, predecessors: &[Edge]) {
        let mut waits_for: Vec<Edge> = Vec::with_capacity(predecessors.len());
        for &edge in predecessors {
            let known = edge.unit == unit || waits_for.iter().any(|one| one.unit == edge.unit);
            if !known && let Some(node) = self.nodes.get_mut(&edge.unit) {
                node.successors.push(unit);
                waits_for.push(edge);
            }
        }
        let predecessors = waits_for;
        let successors = Vec::new();
        let node = Node {
            predecessors,
            successors,
        };
        self.nodes.insert(unit, node);
    }

    /// Unfinished units that this one waits for.
    pub fn predecessors(&self, unit: UnitId) -> &[Edge] {
        self.nodes.get(&unit).map_or(&[], |node| &node.predecessors)
    }

    /// The unit committed: its successors wait for one less.
    pub fn committed(&mut self, unit: UnitId) {
        let Some(node) = self.nodes.remove(&unit) else {
            return;
        };
        for successor in node.successors {
            if let Some(waiting) = self.nodes.get_mut(&successor) {
                waiting.predecessors.retain(|edge| edge.unit != unit);
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
    use crate::footprint::SpaceId;

    #[test]
    fn a_unit_waits_for_what_is_unfinished_and_never_for_itself() {
        let mut dag = Dag::default();
        let edge = |unit| Edge {
            unit: UnitId(unit),
            space: SpaceId(0),
        };
        let [a, b, c] = [UnitId(1), UnitId(2), UnitId(3)];
        dag.add(a, &[]);
        dag.add(b, &[edge(1), edge(1), edge(2)]);
        dag.add(c, &[edge(1), edge(2), edge(99)]);
        assert_eq!(dag.predecessors(b), [edge(1)]);
        assert_eq!(dag.predecessors(c), [edge(1), edge(2)]);
        dag.committed(a);
        assert_eq!(dag.predecessors(b), []);
        assert_eq!(dag.predecessors(c), [edge(2)]);
        dag.committed(b);
        dag.committed(c);
        assert!(dag.is_empty());
    }
}
