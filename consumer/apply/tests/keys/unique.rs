//! Rows, unique indexes, and values that go from row to row.

use walbraid_apply::mapping::Target;
use walbraid_schemas::row::Value::{self, Float8, Int, NotSent, Null, Text, Unchanged};

use crate::tables::{Memory, Of, blind, check, delete, insert, reasons, table, update};

/// A primary key and a unique column whose old value is not on the wire.
fn people() -> Target {
    table(1, "people", &["!id:int4", "email:text", "note:text"])
        .primary(11, &["id"])
        .unique(12, &["email"])
        .map()
}

fn person<'a>(id: i64, email: &'a str) -> [Value<'a>; 3] {
    [Int(id), Text(email), Null]
}

fn gone(id: i64) -> [Value<'static>; 3] {
    [Int(id), NotSent, NotSent]
}

#[test]
fn rows() {
    let people = people();
    let add = |id, email| insert(&people, &person(id, email));
    blind("other rows", &[add(1, "a"), add(2, "b")], false);
    blind(
        "the same row",
        &[add(1, "a"), delete(&people, &gone(1))],
        true,
    );
    let set = |id, email| update(&people, &[], &person(id, email));
    blind(
        "an insert and its update",
        &[add(1, "a"), set(1, "b")],
        true,
    );
    let moved = update(&people, &gone(1), &person(5, "a"));
    blind(
        "a row moves to the key",
        &[moved.clone(), delete(&people, &gone(5))],
        true,
    );
    blind("a row moves from the key", &[moved, add(1, "c")], true);
    let other = table(2, "others", &["!id:int4", "email:text", "note:text"]);
    let other = other.primary(21, &["id"]).unique(22, &["email"]).map();
    let changes = [add(1, "a"), insert(&other, &person(1, "a"))];
    blind("the same values in another table", &changes, false);
}

#[test]
fn a_value_is_handed_over_blindly() {
    let people = people();
    let add = |id, email| insert(&people, &person(id, email));
    let remove = |id| delete(&people, &gone(id));
    let set = |id, email| update(&people, &[], &person(id, email));
    blind("taken after a free", &[remove(3), add(7, "x")], true);
    blind(
        "taken after an update that frees",
        &[set(3, "y"), add(8, "x")],
        true,
    );
    blind(
        "a free after a taker of another row",
        &[add(7, "x"), remove(3)],
        false,
    );
    blind(
        "frees do not wait for each other",
        &[remove(3), remove(4)],
        false,
    );
    blind(
        "takers do not wait for each other",
        &[add(7, "x"), add(8, "y")],
        false,
    );
    blind("both take one value", &[add(7, "x"), add(8, "x")], true);
    let none = insert(&people, &[Int(9), Null, Null]);
    blind("a NULL takes nothing", &[remove(3), none], false);
    assert_eq!(reasons(&remove(3)), ["unknown_old_value"]);
    assert!(reasons(&add(3, "x")).is_empty());
}

#[test]
fn a_value_is_handed_over_that_is_known() {
    let people = people();
    let add = |id, email| insert(&people, &person(id, email));
    let remove = |id| delete(&people, &gone(id));
    let set = |id, email| update(&people, &[], &person(id, email));
    let with = |what: &str, rows: &[Of], changes: &[Of], waits| {
        let mut memory = Memory::default();
        let known: Vec<_> = rows
            .iter()
            .map(|row| crate::tables::transaction(std::slice::from_ref(row)))
            .collect();
        crate::tables::traced(&known, &mut memory);
        check(what, &mut memory, changes, waits);
    };
    let rows = [add(1, "a"), add(2, "b")];
    with("another value", &rows, &[remove(1), add(7, "x")], false);
    with("the value", &rows, &[remove(1), add(7, "a")], true);
    with(
        "updates of two rows",
        &rows,
        &[set(1, "c"), set(2, "d")],
        false,
    );
    with(
        "an update that keeps the value",
        &rows,
        &[set(1, "a"), set(2, "d")],
        false,
    );
    with(
        "a swap by way of a third value",
        &rows,
        &[set(1, "t"), set(2, "a")],
        true,
    );
    with(
        "the second step of it",
        &rows,
        &[set(1, "t"), set(2, "a"), set(1, "b")],
        true,
    );
    with(
        "a row that is not there",
        &[add(1, "a"), remove(1)],
        &[remove(1), add(7, "a")],
        false,
    );
    let moved = update(&people, &gone(1), &person(9, "a"));
    with(
        "known after the row moved",
        &[add(1, "a"), moved],
        &[remove(9), add(2, "a")],
        true,
    );
    let toast = update(&people, &[], &[Int(1), Unchanged, Text("n")]);
    with(
        "toasted and unchanged",
        &rows,
        &[toast.clone(), add(7, "a")],
        false,
    );
    with(
        "and still known",
        &[add(1, "a"), toast],
        &[remove(1), add(7, "a")],
        true,
    );
    let toast = update(&people, &[], &[Int(1), Unchanged, Text("m")]);
    let gone_after = [add(1, "a"), toast];
    with(
        "and no other value",
        &gone_after,
        &[remove(1), add(7, "z")],
        false,
    );
}

#[test]
fn one_key_comes_and_goes_in_three_transactions() {
    let people = people();
    let add = |id, email| insert(&people, &person(id, email));
    let steps = [add(1, "a"), delete(&people, &gone(1)), add(1, "a")];
    blind("second after first", &steps[..2], true);
    blind("third after second", &steps[1..], true);
    blind("third after first", &steps, true);
}

#[test]
fn toasted_columns() {
    let pairs = table(1, "pairs", &["!id:int4", "a:text", "b:text"]);
    let pairs = pairs.primary(11, &["id"]).unique(12, &["a", "b"]).map();
    let both = update(&pairs, &[], &[Int(1), Unchanged, Unchanged]);
    let other = insert(&pairs, &[Int(2), Text("x"), Text("y")]);
    blind("no column changed", &[both.clone(), other.clone()], false);
    assert!(reasons(&both).is_empty());
    let half = update(&pairs, &[], &[Int(1), Unchanged, Text("y")]);
    blind(
        "half of the value is not known",
        &[half.clone(), other],
        true,
    );
    assert!(reasons(&half).contains(&"unknown_new_value"));
}

#[test]
fn a_toasted_column_has_its_old_value() {
    let t = table(1, "t", &["!id:int4", "a:text", "b:text"]).primary(11, &["id"]);
    let t = t.unique(12, &["a", "b"]).full().map();
    let row = |id, a, b| [Int(id), Text(a), Text(b)];
    let set = update(&t, &row(1, "x", "y"), &[Int(1), Unchanged, Text("z")]);
    blind("taken", &[set.clone(), insert(&t, &row(2, "x", "z"))], true);
    blind("another", &[set, insert(&t, &row(2, "x", "w"))], false);
}

#[test]
fn a_toasted_key_that_did_not_change() {
    let t = table(1, "t", &["!id:text", "x:int4"])
        .primary(11, &["id"])
        .map();
    let set = |id, x| update(&t, &[Text(id), NotSent], &[Unchanged, Int(x)]);
    blind("the same row", &[set("a", 1), set("a", 2)], true);
    blind("another row", &[set("a", 1), set("b", 2)], false);
    assert!(reasons(&set("a", 1)).is_empty());
}

/// That the identity did not change is known of values that are not told apart by their hash, too.
#[test]
fn an_identity_that_did_not_change() {
    let t = table(1, "t", &["!id:int4", "!code:citext", "x:int4"]).primary(11, &["id", "code"]);
    let t = t.unique(12, &["code"]).map();
    let row = |id, code| [Int(id), Text(code), Int(0)];
    let set = |id, code| update(&t, &[], &row(id, code));
    blind(
        "both keep their codes",
        &[set(1, "kim"), set(2, "im")],
        false,
    );
    let moved = update(&t, &[Int(2), Text("im"), NotSent], &row(2, "x"));
    blind(
        "one gives up what may be the same",
        &[insert(&t, &row(1, "kim")), moved],
        true,
    );
}

#[test]
fn nulls() {
    let by = |distinct: bool| {
        table(1, "t", &["!id:int4", "u:int4"])
            .primary(11, &["id"])
            .index(12, &["u"], |index| index.nulls_distinct = distinct)
            .full()
            .map()
    };
    for (distinct, waits) in [(true, false), (false, true)] {
        let t = by(distinct);
        let changes = [delete(&t, &[Int(1), Null]), insert(&t, &[Int(2), Null])];
        blind(&format!("distinct: {distinct}"), &changes, waits);
    }
}

#[test]
fn full_identity_tells_all_old_values() {
    let t = table(1, "t", &["!id:int4", "u:text"])
        .primary(11, &["id"])
        .unique(12, &["u"]);
    let t = t.full().map();
    let row = |id, u| [Int(id), Text(u)];
    let remove = delete(&t, &row(1, "a"));
    blind(
        "the value",
        &[remove.clone(), insert(&t, &row(2, "a"))],
        true,
    );
    blind(
        "another",
        &[remove.clone(), insert(&t, &row(2, "b"))],
        false,
    );
    assert!(reasons(&remove).is_empty());
    let set = update(&t, &row(1, "a"), &row(1, "b"));
    blind(
        "it moves away",
        &[set.clone(), insert(&t, &row(2, "a"))],
        true,
    );
    blind("and there", &[set, delete(&t, &row(3, "b"))], true);
    let kept = update(&t, &row(1, "a"), &[Int(1), Unchanged]);
    blind("it stays", &[kept, insert(&t, &row(2, "c"))], false);
}

#[test]
fn a_row_leaves_a_partial_index_with_its_value() {
    let t = table(1, "t", &["!id:int4", "u:text", "live:int4"]).primary(11, &["id"]);
    let t = t
        .index(12, &["u"], |index| index.partial = true)
        .full()
        .map();
    let row = |id, u, live| [Int(id), Text(u), Int(live)];
    let leaves = update(&t, &row(1, "a", 1), &row(1, "a", 0));
    blind(
        "taken",
        &[leaves.clone(), insert(&t, &row(2, "a", 1))],
        true,
    );
    blind(
        "another value",
        &[leaves, insert(&t, &row(2, "b", 1))],
        false,
    );
}

#[test]
fn values_that_cannot_be_hashed() {
    let base = || {
        table(1, "t", &["!id:int4", "a:int4", "b:text"])
            .primary(11, &["id"])
            .full()
    };
    let row = |id, a| [Int(id), Int(a), Text("x")];
    let pair = |t: &Target, a, b| [insert(t, &row(1, a)), delete(t, &row(2, b))];
    let expression = base().unique(12, &["()"]).map();
    blind("an expression", &pair(&expression, 1, 2), true);
    assert_eq!(reasons(&insert(&expression, &row(1, 1))), ["expression"]);
    let partly = base().unique(12, &["a", "()"]).map();
    blind("one of two columns is hashed", &pair(&partly, 1, 2), false);
    blind("and the same", &pair(&partly, 1, 1), true);
    let overlap = base().index(12, &[], |index| index.exclusion = true).map();
    blind("an exclusion constraint", &pair(&overlap, 1, 2), true);
    assert_eq!(reasons(&insert(&overlap, &row(1, 1))), ["exclusion"]);
    let rooms = base()
        .index(12, &["a"], |index| index.exclusion = true)
        .map();
    blind("in other rooms", &pair(&rooms, 1, 2), false);
    blind("in one room", &pair(&rooms, 1, 1), true);
    let kept = [
        update(&rooms, &row(1, 1), &row(1, 1)),
        insert(&rooms, &row(3, 1)),
    ];
    blind("in one room, moved in time", &kept, true);
    let collation = base().index(12, &["b"], |index| {
        index.columns[0].key_type.deterministic = false;
    });
    assert_eq!(
        reasons(&insert(&collation.map(), &row(1, 1))),
        ["incomparable_key"]
    );
}

#[test]
fn columns_that_the_subscriber_fills() {
    let t = table(1, "t", &["!id:int4", "x:int4", "+y:int4"]).primary(11, &["id"]);
    let t = t.generated("y").unique(12, &["y"]).map();
    let changes = [
        update(&t, &[], &[Int(1), Int(5)]),
        insert(&t, &[Int(2), Int(6)]),
    ];
    blind("generated", &changes, true);
    assert_eq!(reasons(&changes[0]), ["not_published"]);
    let t = table(1, "t", &["!id:int4", "x:int4", "+y:int4"]).primary(11, &["id"]);
    let t = t.unique(12, &["y"]).map();
    let changes = [insert(&t, &[Int(1), Int(5)]), insert(&t, &[Int(2), Int(6)])];
    blind("by a default", &changes, true);
    let kept = [
        update(&t, &[], &[Int(1), Int(5)]),
        update(&t, &[], &[Int(2), Int(6)]),
    ];
    blind("an update leaves it alone", &kept, false);
}

#[test]
fn rows_without_a_key() {
    let t = table(1, "t", &["a:float8", "b:text", "c:json"])
        .full()
        .map();
    let row = |a, b| [Float8(a), b, Text("{}")];
    let (zero, minus) = (row(0.0, Null), row(-0.0, Null));
    blind(
        "equal rows",
        &[delete(&t, &zero), update(&t, &minus, &row(5.0, Null))],
        true,
    );
    blind(
        "NULL and text",
        &[delete(&t, &zero), delete(&t, &row(0.0, Text("x")))],
        false,
    );
    blind(
        "it becomes the row",
        &[update(&t, &row(5.0, Null), &zero), delete(&t, &minus)],
        true,
    );
    let two = table(1, "t", &["a:int4", "b:int4"]).full().map();
    let (left, right) = ([Int(1), Null], [Null, Int(1)]);
    blind(
        "NULLs in other places",
        &[delete(&two, &left), delete(&two, &right)],
        false,
    );
    let t = table(1, "t", &["c:json"]).full().map();
    blind(
        "nothing compares",
        &[delete(&t, &[Text("1")]), delete(&t, &[Text("2")])],
        true,
    );
    assert_eq!(reasons(&delete(&t, &[Text("1")])), ["no_key"]);
    let log = table(1, "log", &["a:int4"]).map();
    blind(
        "only inserts",
        &[insert(&log, &[Int(1)]), insert(&log, &[Int(1)])],
        false,
    );
}

#[test]
fn a_text_that_the_column_reads_otherwise_may_be_any_value() {
    let mut sketch = table(1, "t", &["!id:int4", "u:text"]).primary(11, &["id"]);
    sketch = sketch.index(12, &["u"], |index| {
        index.columns[0].key_type = crate::tables::key_type("numeric");
    });
    let t = sketch.map();
    let row = |id, u| insert(&t, &[Int(id), Text(u)]);
    blind("equal numbers", &[row(1, "1.0"), row(2, "1.00")], true);
    blind("other numbers", &[row(1, "1.0"), row(2, "1.1")], false);
    blind("a space in front", &[row(1, "1.0"), row(2, " 7")], true);
    assert_eq!(reasons(&row(2, " 7")), ["unknown_new_value"]);
}
