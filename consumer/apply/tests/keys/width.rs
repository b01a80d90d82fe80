//! Keys that collide: fewer bits only ever make more transactions wait.

use walbraid_apply::footprint::Access;
use walbraid_schemas::row::Value::{Int, NotSent};

use crate::tables::{Memory, Of, delete, insert, table, traced, transaction, update};

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

#[test]
fn eight_bits_lose_no_edge() {
    let t = table(1, "t", &["!id:int4", "u:int4"])
        .primary(11, &["id"])
        .unique(12, &["u"])
        .map();
    let mut state = 42;
    let mut change = || -> Of {
        let (id, u) = (next(&mut state) % 30, next(&mut state) % 30);
        let row = [Int(id as i64), Int(u as i64)];
        match next(&mut state) % 3 {
            0 => insert(&t, &row),
            1 => update(&t, &[], &row),
            _ => delete(&t, &[row[0], NotSent]),
        }
    };
    let transactions: Vec<_> = (0..120)
        .map(|_| transaction(&[change(), change(), change()]))
        .collect();
    let touched = traced(&transactions, &mut Memory::default());
    let (mut edges, mut narrow_edges) = (0, 0);
    for (place, later) in touched.iter().enumerate() {
        for earlier in &touched[..place] {
            let wide = later.waits_for(earlier);
            let narrow = later.narrow(8).waits_for(&earlier.narrow(8));
            assert!(narrow || !wide);
            edges += usize::from(wide);
            narrow_edges += usize::from(narrow);
        }
    }
    assert!(edges > 0 && edges < narrow_edges, "{edges} {narrow_edges}");
}

/// A transaction that touches a key twice, or two keys that collide, says so twice and no more; it
/// is for the graph to know that nobody waits for himself.
#[test]
fn a_key_twice_in_one_transaction() {
    let t = table(1, "t", &["!id:int4", "u:int4"])
        .primary(11, &["id"])
        .unique(12, &["u"])
        .map();
    let row = [Int(1), Int(2)];
    let steps = [
        insert(&t, &row),
        update(&t, &[], &row),
        delete(&t, &[row[0], NotSent]),
        insert(&t, &row),
    ];
    let touched = traced(&[transaction(&steps)], &mut Memory::default());
    let writes = touched[0]
        .touches
        .iter()
        .filter(|touch| touch.access == Access::Write);
    let mut keys: Vec<u64> = writes.map(|touch| touch.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 2, "the row and its value");
    let reads = touched[0]
        .touches
        .iter()
        .filter(|touch| touch.access == Access::Read);
    assert_eq!(reads.count(), 1, "the table's key is read once");
}
