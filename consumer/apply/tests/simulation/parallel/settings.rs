//! What differs from run to run besides the history.

use walbraid_apply::coordinator::OnMissing;
use walbraid_apply::engine::Config;
use walbraid_apply::pace::Workers;
use walbraid_apply::rule::BackOff;
use walbraid_apply::scheduler::InFlightLimits;
use walbraid_apply::window::GroupLimits;

use super::schema::TABLES;
use super::world::World;
use crate::random::Random;

pub fn config(random: &mut Random) -> Config {
    let most = 2 + random.below(7);
    let workers = if random.once_in(3) {
        Workers::Auto { most }
    } else {
        Workers::Fixed(if random.once_in(10) { 1 } else { most })
    };
    let strict = random.once_in(2);
    Config {
        stream: "shop".to_owned(),
        workers,
        conflict_keys_max: [1, 12, 40, 10_000, 10_000][random.below(5)],
        resolver: !random.once_in(4),
        on_missing: if strict {
            OnMissing::Error
        } else {
            OnMissing::Skip
        },
        group: GroupLimits {
            transactions_max: 1 + random.below(5),
            bytes_max: 500 + random.below(8_000),
        },
        in_flight: InFlightLimits {
            units_max: 1 + random.below(4),
            bytes_max: 500 + random.below(20_000),
        },
        transaction_memory_bytes: 500 + random.below(8_000),
        buffer_bytes_max: 10_000 + random.below(20_000),
        run_idle_timeout_ms: 200,
        back_off: BackOff {
            first_ms: 5,
            max_ms: 50,
        },
    }
}

/// Somebody deleted a row of the subscriber.
pub fn without_a_row(random: &mut Random, mut world: World) -> World {
    let table = random.below(TABLES);
    let rows = &mut world.tables[table];
    if !rows.is_empty() {
        rows.remove(random.below(rows.len()));
    }
    world
}
