//! The SQL of changes: which statement, which parameters, in which order.

#![allow(clippy::unwrap_used)]

mod tables;

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::binding::{BuildError, Builder};
use walbraid_apply::mapping::{Mapped, MappingError};
use walbraid_apply::missing::Missing;
use walbraid_apply::relation::RelationKind;
use walbraid_apply::statement::Expect;
use walbraid_schemas::envelope::Change;
use walbraid_schemas::row::Value;
use walbraid_schemas::table::Identity;

use Value::{Bool, Bytes as Binary, Float8, Int, NotSent, Null, Text, Unchanged};
use tables::{built, check, delete, insert, mapped, relation, table, tuple, update};

#[test]
fn columns_meet_by_name_in_any_order() {
    let table = table(Identity::Default, &["!id:int4", "select:text", "a.b:bool"]);
    let target = mapped(
        &table,
        relation(&["extra:text", "a.b:text", "select:text", "id:int4"], &[3]),
    );
    check(
        &target,
        &insert(&table, &[Int(-7), Text("it's"), Bool(true)]),
        "INSERT INTO \"s\".\"t\" (\"id\", \"select\", \"a.b\") VALUES ($1, $2, $3) | -7, it's, t",
    );
    check(
        &target,
        &update(&table, None, &[Int(1), Null, Bool(false)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"select\" = $2, \"a.b\" = $3 \
         WHERE t.\"id\" = $1 | 1, null, f",
    );
    check(
        &target,
        &update(
            &table,
            Some(&[Int(1), NotSent, NotSent]),
            &[Int(2), Text(""), Bool(false)],
        ),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"id\" = $1, \"select\" = $2, \"a.b\" = $3 \
         WHERE t.\"id\" = $4 | 2, , f, 1",
    );
    check(
        &target,
        &delete(&table, &[Int(1), NotSent, NotSent]),
        "DELETE FROM ONLY \"s\".\"t\" AS t WHERE t.\"id\" = $1 | 1",
    );
}

#[test]
fn what_is_not_sent_is_not_named() {
    let table = table(Identity::Default, &["!id:int4", "big:text", "v:int4"]);
    let target = mapped(&table, relation(&["id:int4", "big:text", "v:int4"], &[0]));
    check(
        &target,
        &update(&table, None, &[Int(1), Unchanged, Int(5)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"v\" = $2 WHERE t.\"id\" = $1 | 1, 5",
    );
    check(
        &target,
        &insert(&table, &[Int(1), NotSent, Int(5)]),
        "INSERT INTO \"s\".\"t\" (\"id\", \"v\") VALUES ($1, $2) | 1, 5",
    );
    check(
        &target,
        &update(&table, None, &[Int(1), Unchanged, Unchanged]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"id\" = t.\"id\" WHERE t.\"id\" = $1 | 1",
    );
}

#[test]
fn a_toasted_key_is_found_by_its_old_tuple() {
    let table = table(Identity::Default, &["!id:text", "v:int4"]);
    let target = mapped(&table, relation(&["id:text", "v:int4"], &[0]));
    check(
        &target,
        &update(&table, Some(&[Text("key"), NotSent]), &[Unchanged, Int(5)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"v\" = $1 WHERE t.\"id\" = $2 | 5, key",
    );
    let error = Builder::new(false)
        .build(
            &update(&table, None, &[Unchanged, Int(5)]),
            std::slice::from_ref(&target),
        )
        .unwrap_err();
    assert!(matches!(error, BuildError::KeyNotSent { .. }), "{error}");
}

#[test]
fn a_generated_column_is_not_written_and_must_come_out_as_published() {
    let table = table(Identity::Default, &["!id:int4", "x:int4", "y:int4"]);
    let target = mapped(
        &table,
        relation(&["id:int4", "x:int4", "y:int4 generated"], &[0]),
    );
    let text = "::pg_catalog.text COLLATE pg_catalog.\"C\"";
    let guard = format!(
        "RETURNING CASE WHEN \"y\"{text} IS DISTINCT FROM $3::int4{text} \
         THEN (SELECT 1 FROM pg_catalog.generate_series(1, 2)) END"
    );
    check(
        &target,
        &insert(&table, &[Int(1), Int(2), Int(4)]),
        &format!("INSERT INTO \"s\".\"t\" (\"id\", \"x\") VALUES ($1, $2) {guard} | 1, 2, 4"),
    );
    check(
        &target,
        &update(&table, None, &[Int(1), Int(2), Int(4)]),
        &format!(
            "UPDATE ONLY \"s\".\"t\" AS t SET \"x\" = $2 WHERE t.\"id\" = $1 {guard} | 1, 2, 4"
        ),
    );
    check(
        &target,
        &update(&table, None, &[Int(1), Int(2), Unchanged]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"x\" = $2 WHERE t.\"id\" = $1 | 1, 2",
    );
}

#[test]
fn an_always_identity_is_inserted_and_never_updated() {
    let table = table(Identity::Default, &["!id:int4", "v:int4"]);
    let target = mapped(
        &table,
        relation(&["id:int4 notnull always", "v:int4", "own:text"], &[0]),
    );
    check(
        &target,
        &insert(&table, &[Int(1), Int(2)]),
        "INSERT INTO \"s\".\"t\" (\"id\", \"v\") OVERRIDING SYSTEM VALUE VALUES ($1, $2) | 1, 2",
    );
    check(
        &target,
        &update(&table, None, &[Int(1), Int(2)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"v\" = $2 WHERE t.\"id\" = $1 | 1, 2",
    );
    check(
        &target,
        &update(&table, Some(&[Int(1), NotSent]), &[Int(1), Int(2)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"v\" = $1 WHERE t.\"id\" = $2 | 2, 1",
    );
    check(
        &target,
        &update(&table, Some(&[Int(1), NotSent]), &[Int(9), Unchanged]),
        "WITH gone AS (DELETE FROM ONLY \"s\".\"t\" AS t WHERE t.\"id\" = $2 RETURNING t.*) \
         INSERT INTO \"s\".\"t\" (\"id\", \"v\", \"own\") OVERRIDING SYSTEM VALUE \
         SELECT $1, gone.\"v\", gone.\"own\" FROM gone | 9, 1",
    );
}

#[test]
fn a_table_of_one_always_identity_is_only_locked() {
    let table = table(Identity::Default, &["!id:int4"]);
    let target = mapped(&table, relation(&["id:int4 notnull always"], &[0]));
    check(
        &target,
        &update(&table, None, &[Int(1)]),
        "SELECT FROM ONLY \"s\".\"t\" AS t WHERE t.\"id\" = $1 FOR NO KEY UPDATE | 1",
    );
}

#[test]
fn full_identity_uses_the_subscribers_primary_key() {
    let table = table(Identity::Full, &["a:int4", "id:int4"]);
    let target = mapped(&table, relation(&["id:int4", "a:int4"], &[0]));
    check(
        &target,
        &update(&table, Some(&[Null, Int(3)]), &[Int(5), Int(3)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"a\" = $1, \"id\" = $2 WHERE t.\"id\" = $3 | 5, 3, 3",
    );
    check(
        &target,
        &delete(&table, &[Null, Int(3)]),
        "DELETE FROM ONLY \"s\".\"t\" AS t WHERE t.\"id\" = $1 | 3",
    );
}

#[test]
fn full_identity_without_a_key_takes_exactly_one_row() {
    let table = table(Identity::Full, &["a:int4", "j:json"]);
    let target = mapped(&table, relation(&["a:int4", "j:json"], &[]));
    let sql = built(&target, &delete(&table, &[Int(1), Null]));
    let text = "::pg_catalog.text COLLATE pg_catalog.\"C\"";
    let null = "IS NOT DISTINCT FROM NULL";
    let expected = format!(
        "DELETE FROM ONLY \"s\".\"t\" AS t WHERE t.ctid = \
         (SELECT s.ctid FROM ONLY \"s\".\"t\" AS s \
         WHERE (s.\"a\" = $1 OR (s.\"a\" {null} AND $1 {null})) \
         AND (s.\"j\"{text} OPERATOR(pg_catalog.=) $2{text} OR (s.\"j\" {null} AND $2 {null})) \
         ORDER BY ((s.\"a\"{text} OPERATOR(pg_catalog.=) $1::int4{text} OR s.\"a\" {null}) \
         AND (s.\"j\"{text} OPERATOR(pg_catalog.=) $2::json{text} OR s.\"j\" {null})) DESC, \
         s.tableoid, s.ctid LIMIT 1) \
         AND (t.\"a\" = $1 OR (t.\"a\" {null} AND $1 {null})) \
         AND (t.\"j\"{text} OPERATOR(pg_catalog.=) $2{text} OR (t.\"j\" {null} AND $2 {null})) \
         | 1, null"
    );
    assert_eq!(sql, expected);
}

#[test]
fn of_rows_without_columns_any_one_is_taken() {
    let table = table(Identity::Full, &[]);
    let sql = built(&mapped(&table, relation(&[], &[])), &delete(&table, &[]));
    assert_eq!(
        sql,
        "DELETE FROM ONLY \"s\".\"t\" AS t WHERE t.ctid = \
         (SELECT s.ctid FROM ONLY \"s\".\"t\" AS s WHERE true \
         ORDER BY s.tableoid, s.ctid LIMIT 1) AND true | "
    );
}

#[test]
fn a_partitioned_target_is_found_by_ctid_and_tableoid() {
    let table = table(Identity::Full, &["a:int4"]);
    let mut relation = relation(&["a:int4"], &[]);
    relation.kind = RelationKind::Partitioned;
    let sql = built(&mapped(&table, relation), &delete(&table, &[Int(1)]));
    assert!(
        sql.starts_with("DELETE FROM \"s\".\"t\" AS t WHERE t.ctid = (SELECT s.ctid"),
        "{sql}"
    );
    assert!(
        sql.contains(" AND t.tableoid = (SELECT s.tableoid FROM \"s\".\"t\" AS s"),
        "{sql}"
    );
}

#[test]
fn a_key_outside_the_publishers_identity_is_not_used() {
    // The subscriber's primary key may have been changed by the very UPDATE.
    let table = table(Identity::Index, &["id:int4", "!u:text"]);
    let target = mapped(&table, relation(&["id:int4", "u:text"], &[0]));
    let sql = built(&target, &update(&table, None, &[Int(1), Text("x")]));
    assert!(
        sql.starts_with("UPDATE ONLY \"s\".\"t\" AS t SET \"id\" = $1 WHERE t.ctid = "),
        "{sql}"
    );
    assert!(sql.contains("(s.\"u\" = $2 OR"), "{sql}");
}

#[test]
fn operators_are_those_of_the_type() {
    let table = table(Identity::Default, &["!k:x", "v:int4"]);
    let target = mapped(&table, relation(&["k:citext", "v:int4"], &[0]));
    check(
        &target,
        &update(&table, None, &[Text("Bob"), Int(1)]),
        "UPDATE ONLY \"s\".\"t\" AS t SET \"v\" = $2 WHERE t.\"k\" OPERATOR(\"Ext\".=) $1 | Bob, 1",
    );
}

#[test]
fn bytea_is_binary_only_where_both_sides_are() {
    let table = table(Identity::Default, &["!id:int4", "b:bytea", "c:bytea"]);
    let target = mapped(&table, relation(&["id:int4", "b:bytea", "c:text"], &[0]));
    check(
        &target,
        &insert(&table, &[Int(1), Binary(&[0, 255]), Binary(&[0, 255])]),
        "INSERT INTO \"s\".\"t\" (\"id\", \"b\", \"c\") VALUES ($1, $2, $3) \
         | 1, b:[0, 255], \\x00ff",
    );
}

#[test]
fn floats_are_spelt_as_the_publisher_did() {
    let table = table(Identity::Default, &["!id:int4", "f:float8", "g:float8"]);
    let target = mapped(&table, relation(&["id:int4", "f:float8", "g:text"], &[0]));
    check(
        &target,
        &insert(&table, &[Int(1), Float8(-0.0), Float8(1e300)]),
        "INSERT INTO \"s\".\"t\" (\"id\", \"f\", \"g\") VALUES ($1, $2, $3) | 1, -0, 1e+300",
    );
}

#[test]
fn statements_are_made_once_for_each_shape() {
    let names: Vec<String> = (0..70).map(|n| format!("c{n}:int4")).collect();
    let names: Vec<&str> = std::iter::once("!id:int4")
        .chain(names.iter().map(String::as_str))
        .collect();
    let own: Vec<&str> = names
        .iter()
        .map(|name| name.trim_start_matches('!'))
        .collect();
    let table = table(Identity::Default, &names);
    let target = mapped(&table, relation(&own, &[0]));
    let mut values = vec![Int(1); 71];
    let mut builder = Builder::new(false);
    let mut id = |values: &[Value<'_>]| {
        let change = update(&table, None, values);
        let statement = builder
            .build(&change, std::slice::from_ref(&target))
            .unwrap()
            .unwrap();
        statement.id()
    };
    let whole = id(&values);
    values[70] = Unchanged;
    let without_last = id(&values);
    values[1] = Unchanged;
    let without_two = id(&values);
    assert!(whole != without_last && without_last != without_two);
    assert_eq!(id(&values), without_two);
    values[1] = Int(5);
    assert_eq!(id(&values), without_last);
    values[70] = Int(5);
    assert_eq!(id(&values), whole);
}

#[test]
fn truncate_names_all_tables_at_once() {
    let table = table(Identity::Default, &["!id:int4"]);
    let plain = mapped(&table, relation(&["id:int4"], &[0]));
    let mut other = relation(&["id:int4"], &[0]);
    other.name = "root".to_owned();
    other.kind = RelationKind::Partitioned;
    let root = mapped(&table, other);
    let change = Change::Truncate {
        tables: vec![0, 1, 0],
        cascade: true,
        restart_identity: true,
    };
    let sql = |cascade: bool| {
        let targets = [plain.clone(), root.clone()];
        let statement = Builder::new(cascade)
            .build(&change, &targets)
            .unwrap()
            .unwrap();
        statement.sql().to_owned()
    };
    let tables = "TRUNCATE TABLE ONLY \"s\".\"t\", \"s\".\"root\" RESTART IDENTITY";
    assert_eq!(sql(false), format!("{tables} RESTRICT"));
    assert_eq!(sql(true), format!("{tables} CASCADE"));
}

#[test]
fn a_message_is_nothing_to_apply() {
    let change = Change::Message {
        prefix: "p".to_owned(),
        content: Bytes::new(),
        lsn: walbraid_schemas::lsn::Lsn(5),
        transactional: true,
    };
    assert!(Builder::new(false).build(&change, &[]).unwrap().is_none());
}

#[test]
fn mapping_errors_name_the_object() {
    let published = table(Identity::Default, &["!id:int4", "gone:text"]);
    let check = |error: MappingError, expected: &str| assert_eq!(error.to_string(), expected);
    check(
        Mapped::new(Arc::clone(&published), None).unwrap_err(),
        "relation \"s\".\"t\" does not exist on the subscriber",
    );
    let lacking = Some(Arc::new(relation(&["id:int4"], &[0])));
    check(
        Mapped::new(Arc::clone(&published), lacking).unwrap_err(),
        "relation \"s\".\"t\" of the subscriber is missing published columns: \"gone\"",
    );
    let mut view = relation(&["id:int4", "gone:text"], &[0]);
    view.kind = RelationKind::Other('v');
    check(
        Mapped::new(Arc::clone(&published), Some(Arc::new(view))).unwrap_err(),
        "relation \"s\".\"t\" of the subscriber is not a table (relkind \"v\")",
    );
}

#[test]
fn an_extra_not_null_column_stops_inserts_only() {
    let table = table(Identity::Default, &["!id:int4", "v:int4"]);
    let columns = [
        "id:int4",
        "v:int4",
        "must:int4 notnull",
        "may:int4 notnull default",
    ];
    let target = mapped(&table, relation(&columns, &[0]));
    let mut builder = Builder::new(false);
    let targets = [target];
    let error = builder
        .build(&insert(&table, &[Int(1), Int(2)]), &targets)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "relation \"s\".\"t\" of the subscriber has columns that are not published, NOT NULL and \
         without a default: \"must\""
    );
    assert!(
        builder
            .build(&update(&table, None, &[Int(1), Int(2)]), &targets)
            .is_ok()
    );
    let mut filled = relation(&columns, &[0]);
    filled.insert_trigger = true;
    let targets = [mapped(&table, filled)];
    assert!(
        builder
            .build(&insert(&table, &[Int(1), Int(2)]), &targets)
            .is_ok()
    );
}

#[test]
fn without_an_identity_there_is_nothing_to_find() {
    let table = table(Identity::Nothing, &["id:int4"]);
    let targets = [mapped(&table, relation(&["id:int4"], &[0]))];
    let error = Builder::new(false)
        .build(&update(&table, None, &[Int(1)]), &targets)
        .unwrap_err();
    assert!(matches!(error, BuildError::NoIdentity { .. }), "{error}");
}

#[test]
fn a_damaged_row_is_refused_by_name() {
    let table = table(Identity::Default, &["!id:int4", "v:text"]);
    let targets = [mapped(&table, relation(&["id:int4", "v:text"], &[0]))];
    let whole = tuple(&table, &[Int(1), Text("abc")]);
    let change = Change::Insert {
        table: 0,
        new: whole.slice(..whole.len() - 1),
    };
    let error = Builder::new(false).build(&change, &targets).unwrap_err();
    assert!(matches!(&error, BuildError::Row { .. }), "{error}");
    let change = Change::Insert {
        table: 3,
        new: whole,
    };
    let error = Builder::new(false).build(&change, &targets).unwrap_err();
    assert_eq!(error, BuildError::NoSuchTable(3));
}

#[test]
fn a_row_not_found_is_told_in_the_servers_words() {
    let table = table(Identity::Default, &["!id:int4", "v:int4"]);
    let target = mapped(&table, relation(&["id:int4", "v:int4"], &[0])).unwrap();
    let missing = Missing::new(Expect::UpdatedRow, &target).unwrap();
    assert_eq!(
        missing.message(170_000),
        "logical replication did not find row to be updated in replication target relation \"s.t\""
    );
    assert_eq!(
        missing.message(180_001),
        "conflict detected on relation \"s.t\": conflict=update_missing"
    );
    assert_eq!(
        missing.detail(),
        "Could not find the row to be updated by its replica identity (\"id\")."
    );
    assert_eq!(Missing::new(Expect::Anything, &target), None);
}
