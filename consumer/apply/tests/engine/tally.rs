//! What is counted of dependence: by table, by key, by reason; and what is not looked at.

use walbraid_apply::conflict::Dependence;
use walbraid_apply::engine::{Config, Tally};
use walbraid_apply::keys::Firing;
use walbraid_apply::pace::Workers;
use walbraid_apply::relation::Relation;

use crate::lane::{Lane, config, mapped};
use crate::pool::{self, Pool};

/// The tally in lines: sums, tables, keys, reasons.
fn lines(tally: &Tally) -> Vec<String> {
    let by = |counts: &[u64; Dependence::ALL.len()]| {
        let named = Dependence::ALL.iter().zip(counts);
        let counted = named.filter(|(_, count)| **count > 0);
        let texts = counted.map(|(dependence, count)| format!(" {} {count}", dependence.name()));
        texts.collect::<String>()
    };
    let mut lines = vec![format!(
        "units {}, in order {}, serial {}, behind {}:{}",
        tally.units,
        tally.in_order,
        tally.serial_transactions,
        tally.behind_alone,
        by(&tally.transactions)
    )];
    let tables = tally.tables();
    lines.extend(tables.map(|(_, table)| format!("{}:{}", table.name, by(&table.transactions))));
    for (_, tally) in tally.keys() {
        assert_eq!(&*tally.key.table_name, "public.account");
        lines.push(format!("{} waited {}", tally.key.name, tally.transactions));
    }
    for (_, reason, serial) in tally.serial() {
        let name = serial.of.as_ref().map_or("no table", |of| &of.name);
        lines.push(format!("{name} {reason} {}", serial.transactions));
    }
    lines
}

fn pool(workers: usize, change: impl FnOnce(&mut Config, &mut Relation)) -> Pool {
    let mut config = config();
    config.workers = Workers::Fixed(workers);
    let mut relation = pool::relation();
    change(&mut config, &mut relation);
    Pool::of(config, pool::table(), relation)
}

#[track_caller]
fn check(pool: &Pool, expected: &[&str]) {
    assert_eq!(lines(pool.lane.engine.tally()), expected);
}

#[test]
fn what_runs_side_by_side_and_what_waits_for_a_row() {
    let mut pool = pool(4, |_, _| {});
    pool.updates(&[1, 2]);
    pool.updates(&[3]);
    pool.updates(&[2, 3]);
    check(
        &pool,
        &[
            "units 3, in order 0, serial 0, behind 0: NO_CONFLICT 2 CONFLICT 1",
            "public.account: NO_CONFLICT 2 CONFLICT 1",
            "public.account (account_pkey) waited 1",
        ],
    );
}

#[test]
fn what_one_connection_applies_in_order_is_counted_apart() {
    let mut pool = pool(1, |_, _| {});
    pool.updates(&[1]);
    pool.updates(&[1]);
    check(&pool, &["units 2, in order 2, serial 0, behind 0:"]);
}

#[test]
fn a_trigger_is_named_with_its_table_and_others_wait_behind() {
    let mut pool = pool(4, |_, relation| {
        relation.keys.fires.push(Firing {
            name: "audit".into(),
            insert: true,
            update: false,
            delete: false,
            truncate: false,
        });
    });
    pool.updates(&[1]);
    pool.inserts(2);
    pool.updates(&[3]);
    check(
        &pool,
        &[
            "units 3, in order 0, serial 1, behind 1: NO_CONFLICT 1 CONFLICT 1 UNKNOWN 1",
            "public.account: NO_CONFLICT 1 CONFLICT 1 UNKNOWN 1",
            "public.account trigger 1",
        ],
    );
}

#[test]
fn what_a_limit_cuts_off_is_serial_because_of_no_table() {
    let mut pool = pool(4, |config, _| config.conflict_keys_max = 4);
    pool.updates(&[1, 2, 3, 4, 5]);
    check(
        &pool,
        &[
            "units 1, in order 0, serial 1, behind 0: UNKNOWN 1",
            "public.account: UNKNOWN 1",
            "no table keys_limit 1",
        ],
    );
}

#[test]
fn a_truncate_makes_others_wait_for_the_table() {
    let mut pool = pool(4, |_, _| {});
    pool.updates(&[1]);
    pool.truncates();
    check(
        &pool,
        &[
            "units 2, in order 0, serial 0, behind 0: NO_CONFLICT 1 CONFLICT 1",
            "public.account: NO_CONFLICT 1 CONFLICT 1",
            "public.account waited 1",
        ],
    );
}

#[test]
fn what_runs_again_is_not_counted_again() {
    let mut pool = pool(4, |_, _| {});
    pool.updates(&[1]);
    pool.updates(&[2]);
    let before = lines(pool.lane.engine.tally());
    pool.fails(2, "23505");
    pool.commits(1);
    assert_eq!(lines(pool.lane.engine.tally()), before);
    assert_eq!(pool.lane.engine.tally().busy_us, 10_000);
}

#[test]
fn a_unit_that_is_run_again_one_by_one_is_not_counted_again() {
    let mut lane = Lane::new(config());
    for _ in 0..5 {
        lane.transaction();
    }
    lane.commit();
    lane.commit();
    lane.fail("23505");
    assert_eq!(lane.xids(), [[130], [140]]);
    let tally = lane.engine.tally();
    assert_eq!((tally.units, tally.in_order), (3, 5));
}

#[test]
fn a_transaction_in_several_pieces_is_one_of_its_table() {
    let mut lane = Lane::new(Config {
        workers: Workers::Fixed(4),
        ..config()
    });
    lane.parts(0..3, 3, &mapped());
    let tables = lane.engine.tally().tables();
    let transactions: Vec<u64> = tables
        .map(|(_, table)| table.transactions.iter().sum())
        .collect();
    assert_eq!(transactions, [1]);
}
