//! Foreign keys, partitions, TRUNCATE, triggers, and shapes that change.

use std::sync::Arc;

use walbraid_apply::footprint::{self, NoOldValues, Scope, SpaceId};
use walbraid_apply::keys::{Call, Firing};
use walbraid_apply::mapping::{MappingError, Target};
use walbraid_schemas::Change;
use walbraid_schemas::row::Value::{Int, NotSent, Null, Text};

use crate::tables::{
    Of, Sketch, blind, delete, insert, reasons, root, table, traced, transaction, truncate, update,
};

const PARENT: u32 = 1;
const CHILD: u32 = 2;
const PARENT_KEY: u32 = 11;

fn parents(cascades: &[u32]) -> Target {
    let parents = table(PARENT, "parents", &["!id:int4", "x:int4"]).primary(PARENT_KEY, &["id"]);
    let parents = parents.referenced(PARENT_KEY, cascades);
    parents.keys(|keys| keys.truncates.push(root(CHILD))).map()
}

fn children() -> Sketch {
    table(CHILD, "children", &["!id:int4", "p:int4"]).primary(21, &["id"])
}

#[test]
fn parent_and_child() {
    let parents = parents(&[]);
    let children = children().references("p", PARENT, PARENT_KEY).map();
    let parent = |id| insert(&parents, &[Int(id), Int(0)]);
    let child = |id, p| insert(&children, &[Int(id), Int(p)]);
    let orphan = delete(&children, &[Int(1), NotSent]);
    let childless = |id| delete(&parents, &[Int(id), NotSent]);
    blind(
        "the child comes after its parent",
        &[parent(1), child(1, 1)],
        true,
    );
    blind("and not after another", &[parent(2), child(1, 1)], false);
    blind("children of one parent", &[child(1, 1), child(2, 1)], false);
    blind(
        "the parent goes after its child came",
        &[child(1, 1), childless(1)],
        true,
    );
    blind("another parent goes", &[child(1, 1), childless(2)], false);
    blind(
        "the parent goes after its child went",
        &[orphan.clone(), childless(1)],
        true,
    );
    blind(
        "a child goes after some parent went",
        &[childless(1), orphan],
        false,
    );
    let renamed = update(&parents, &[], &[Int(1), Int(7)]);
    blind(
        "a parent keeps its key",
        &[renamed.clone(), child(1, 1)],
        false,
    );
    blind("and again", &[child(1, 1), renamed], false);
    let moved = update(&parents, &[Int(1), NotSent], &[Int(5), Int(0)]);
    blind(
        "a parent moves to the key",
        &[moved.clone(), child(1, 5)],
        true,
    );
    blind("a parent moves away", &[child(1, 1), moved], true);
    let none = insert(&children, &[Int(1), Null]);
    blind("no parent at all", &[none, childless(1)], false);
    blind(
        "the parents' table is emptied",
        &[child(1, 1), truncate(&parents)],
        true,
    );
    blind(
        "and a child comes",
        &[truncate(&parents), child(1, 1)],
        true,
    );
}

#[test]
fn foreign_keys_that_are_not_checked_do_not_matter() {
    let parents = table(PARENT, "parents", &["!id:int4", "x:int4"]).primary(PARENT_KEY, &["id"]);
    let changes = [
        insert(&parents.map(), &[Int(1), Int(0)]),
        insert(&children().map(), &[Int(1), Int(1)]),
    ];
    blind("orphans are accepted", &changes, false);
}

#[test]
fn foreign_keys_that_act() {
    let parents = parents(&[CHILD]);
    let children = children().references("p", PARENT, PARENT_KEY).map();
    let gone = delete(&parents, &[Int(1), NotSent]);
    assert_eq!(reasons(&gone), ["foreign_key_action"]);
    let changes = [gone, update(&children, &[], &[Int(9), Int(4)])];
    blind("a cascade may change any child", &changes, true);
}

#[test]
fn foreign_keys_that_cannot_be_compared() {
    let parents = parents(&[]);
    let children = table(CHILD, "children", &["!id:int4", "p:text"]).primary(21, &["id"]);
    let children = children.references("p", PARENT, PARENT_KEY).map();
    let child = insert(&children, &[Int(1), Text("1")]);
    assert_eq!(reasons(&child), ["foreign_key"]);
    blind(
        "any parent",
        &[insert(&parents, &[Int(2), Int(0)]), child],
        true,
    );
}

#[test]
fn truncate_writes_the_tables_that_reference() {
    let (parents, children) = (parents(&[]), children().map());
    let row = |t: &Target| insert(t, &[Int(1), Int(1)]);
    blind("itself", &[row(&parents), truncate(&parents)], true);
    blind("a child", &[row(&children), truncate(&parents)], true);
    blind("and behind it", &[truncate(&parents), row(&children)], true);
    blind("not a parent", &[row(&parents), truncate(&children)], false);
}

#[test]
fn partitions_are_their_root() {
    let whole = table(1, "t", &["!id:int4", "u:int4"]).primary(11, &["id"]);
    let whole = whole.unique(19, &["u"]).full().map();
    let part = table(5, "t_1", &["u:int4", "!id:int4"]).primary(11, &["id"]);
    let part = part
        .unique(19, &["u"])
        .full()
        .keys(|keys| keys.root = Some(root(1)))
        .map();
    let by_root = |id, u| insert(&whole, &[Int(id), Int(u)]);
    let by_part = |id, u| delete(&part, &[Int(u), Int(id)]);
    blind("the same row", &[by_root(1, 5), by_part(1, 6)], true);
    blind(
        "the same value of a partition's own index",
        &[by_root(1, 5), by_part(2, 5)],
        true,
    );
    blind("another row", &[by_root(1, 5), by_part(2, 6)], false);
    blind(
        "emptied by its root",
        &[truncate(&whole), by_part(1, 5)],
        true,
    );
    blind(
        "emptied by a partition",
        &[truncate(&part), by_root(1, 5)],
        true,
    );
}

#[test]
fn a_whole_row_is_the_same_in_any_order_of_columns() {
    let whole = table(1, "t", &["a:int4", "b:int4"]).full().map();
    let part = table(5, "t_1", &["b:int4", "a:int4"]).full();
    let part = part.keys(|keys| keys.root = Some(root(1))).map();
    let row = |t: &Target, one, other| delete(t, &[Int(one), Int(other)]);
    blind("the same row", &[row(&whole, 1, 2), row(&part, 2, 1)], true);
    blind("another row", &[row(&whole, 1, 2), row(&part, 1, 2)], false);
}

#[test]
fn partitions_may_have_indexes_of_their_own() {
    let part = |oid, index| {
        let part = table(oid, "part", &["!id:int4", "u:int4"])
            .primary(11, &["id"])
            .full();
        part.unique(index, &["u"])
            .keys(|keys| keys.root = Some(root(1)))
            .map()
    };
    let (one, two) = (part(5, 15), part(6, 16));
    let row = |t: &Target, id| insert(t, &[Int(id), Int(0)]);
    blind(
        "partitions by turns",
        &[row(&one, 1), row(&two, 2), row(&one, 3), row(&two, 4)],
        false,
    );
    blind("the same row", &[row(&one, 1), row(&two, 1)], true);
}

#[test]
fn what_fires_runs_alone_unless_declared_safe() {
    let base = || table(1, "t", &["!id:int4", "+y:int4"]).primary(11, &["id"]);
    let trigger = |safe| {
        base().keys(|keys| {
            keys.declared_safe = safe;
            keys.fires.push(Firing {
                name: "audit".into(),
                insert: true,
                update: false,
                delete: false,
                truncate: true,
            });
        })
    };
    let called = |default_of| {
        base().keys(|keys| {
            let function = "public.look_up".into();
            keys.calls.push(Call {
                function,
                default_of,
            });
        })
    };
    let secured = || base().keys(|keys| keys.row_security = true);
    let add = |sketch: Sketch| insert(&sketch.map(), &[Int(1)]);
    let remove = |sketch: Sketch| delete(&sketch.map(), &[Int(1)]);
    let none: [&str; 0] = [];
    assert_eq!(reasons(&add(trigger(false))), ["trigger"]);
    assert_eq!(reasons(&remove(trigger(false))), none);
    assert_eq!(reasons(&truncate(&trigger(false).map())), ["trigger"]);
    assert_eq!(reasons(&add(trigger(true))), none);
    assert_eq!(reasons(&add(called(None))), ["foreign_table_expression"]);
    assert_eq!(reasons(&remove(called(None))), none);
    assert_eq!(reasons(&add(called(Some(1)))), ["foreign_table_expression"]);
    assert_eq!(
        reasons(&add(called(Some(0)))),
        none,
        "the default of a published column"
    );
    assert_eq!(reasons(&remove(secured())), ["row_security"]);
}

#[test]
fn another_shape_waits_for_the_one_before() {
    let by_id = table(1, "t", &["!id:int4", "u:int4"])
        .primary(11, &["id"])
        .unique(12, &["u"]);
    let mut by_u = table(1, "t", &["id:int4", "!u:int4"])
        .primary(11, &["id"])
        .unique(12, &["u"]);
    by_u.relation.replica_identity = Some(walbraid_apply::relation::UniqueIndex {
        columns: vec![walbraid_apply::relation::IndexColumn {
            column: 1,
            equality: walbraid_apply::relation::Operator::builtin("="),
        }],
    });
    let (by_id, by_u) = (by_id.map(), by_u.map());
    let first = update(&by_id, &[], &[Int(1), Int(5)]);
    let second = delete(&by_u, &[NotSent, Int(7)]);
    let third = delete(&by_u, &[NotSent, Int(8)]);
    blind(
        "it could be any row",
        &[first.clone(), second.clone()],
        true,
    );
    let steps = [first, second, third].map(|change| transaction(&[change]));
    let touched = traced(&steps, &mut NoOldValues);
    assert!(touched[1].reasons.contains(&"shape_changed"));
    assert!(!touched[2].reasons.contains(&"shape_changed"));
}

#[test]
fn nothing_can_be_said_of_what_is_not_mapped_or_read() {
    let missing = Err(Arc::new(MappingError::RelationMissing {
        schema: "public".to_owned(),
        name: "t".to_owned(),
    }));
    let new = vec![9_u8; 3].into();
    let change = Of(Change::Insert { table: 0, new }, missing);
    assert_eq!(reasons(&change), ["unmapped"]);
    let t = table(1, "t", &["!id:int4"]).primary(11, &["id"]).map();
    assert_eq!(reasons(&Of(change.0, t)), ["undecodable"]);
    let log = table(1, "log", &["a:int4"]).map();
    assert_eq!(reasons(&delete(&log, &[NotSent])), ["no_identity"]);
}

#[test]
fn keys_have_names() {
    let children = children().references("p", PARENT, PARENT_KEY).map();
    let transaction = transaction(&[insert(&children, &[Int(1), Int(1)])]);
    let name = |oid| footprint::space_name(SpaceId(oid), &transaction);
    assert_eq!(name(CHILD).as_deref(), Some("public.children"));
    assert_eq!(name(21).as_deref(), Some("public.children (index_21)"));
    assert_eq!(name(PARENT_KEY).as_deref(), Some("public.t1 (index_11)"));
    assert_eq!(name(4), None);
    let touched = traced(std::slice::from_ref(&transaction), &mut NoOldValues);
    assert_eq!(touched[0].scope, Scope::Keys);
    for touch in &touched[0].touches {
        assert!(footprint::space_name(touch.space, &transaction).is_some());
    }
}
