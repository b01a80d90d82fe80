//! What the subscriber must hold after each transaction, up to the one that it must refuse.

use std::collections::BTreeMap;

use walbraid_schemas::notice::StopKind;

use super::history::History;
use super::schema::Schema;
use super::world::{Hashes, Side, World};

pub struct Oracle {
    pub states: BTreeMap<usize, Hashes>,
    /// How many transactions stand before the one that is refused, and what for.
    pub refusal: Option<(usize, StopKind)>,
}

impl Oracle {
    /// From `world`, which is what is held after the first `from` transactions.
    pub fn new(
        history: &History,
        schema: &Schema,
        side: Side,
        poison: Option<(u32, usize)>,
        (from, mut world): (usize, World),
    ) -> Self {
        let mut states = BTreeMap::from([(from, world.hashes())]);
        for (place, link) in history.links.iter().enumerate().skip(from) {
            let poisoned = |(xid, change)| xid == link.xid && change < link.ops.len();
            let result = if poison.is_some_and(poisoned) {
                Err(StopKind::RowRefused)
            } else {
                world.transact(schema, side, &link.ops)
            };
            if let Err(kind) = result {
                let refusal = Some((place, kind));
                return Self { states, refusal };
            }
            states.insert(place + 1, world.hashes());
        }
        let refusal = None;
        Self { states, refusal }
    }
}
