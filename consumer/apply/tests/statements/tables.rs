//! Tables, relations and changes in few words.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::binding::Builder;
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};
use walbraid_schemas::envelope::{Change, OldKind, OldTuple};
use walbraid_schemas::row::{self, Value};
use walbraid_schemas::table::{Carrier, Column as Published, Identity, Table};

/// A published table from `name:carrier`, a key column with `!` in front.
pub(crate) fn table(identity: Identity, columns: &[&str]) -> Arc<Table> {
    let columns = columns.iter().map(|spec| {
        let (spec, key) = match spec.strip_prefix('!') {
            Some(spec) => (spec, true),
            None => (*spec, identity == Identity::Full),
        };
        let (name, carrier) = spec.split_once(':').unwrap();
        let carrier = match carrier {
            "bool" => Carrier::Bool,
            "int4" => Carrier::Int4,
            "float8" => Carrier::Float8,
            "text" => Carrier::Text,
            "bytea" => Carrier::Bytea,
            _ => Carrier::Other,
        };
        let type_name = "pg_catalog.x".to_owned();
        Published {
            name: name.to_owned(),
            type_name,
            type_modifier: -1,
            key,
            carrier,
        }
    });
    let columns = columns.collect();
    Arc::new(Table {
        schema: "s".to_owned(),
        name: "t".to_owned(),
        identity,
        columns,
    })
}

/// A column from `name:type`, then words: `notnull`, `default`, `generated`, `always`, `bydefault`.
pub(crate) fn column(spec: &str) -> Column {
    let mut words = spec.split_whitespace();
    let (name, kind) = words.next().unwrap().split_once(':').unwrap();
    let words: Vec<&str> = words.collect();
    let (type_oid, equality) = match kind {
        "int4" => (23, Some(Operator::builtin("="))),
        "text" => (25, Some(Operator::builtin("="))),
        "float8" => (701, Some(Operator::builtin("="))),
        "bytea" => (17, Some(Operator::builtin("="))),
        "citext" => (
            9999,
            Some(Operator {
                schema: "Ext".to_owned(),
                name: "=".to_owned(),
            }),
        ),
        "json" => (114, None),
        other => panic!("no type {other}"),
    };
    let has = |word: &str| words.contains(&word);
    let identity = match (has("always"), has("bydefault")) {
        (true, _) => IdentityColumn::Always,
        (_, true) => IdentityColumn::ByDefault,
        _ => IdentityColumn::No,
    };
    Column {
        name: name.to_owned(),
        type_oid,
        type_sql: kind.to_owned(),
        not_null: has("notnull"),
        has_default: has("default"),
        generated: has("generated"),
        identity,
        bytea: kind == "bytea",
        operand_sql: None,
        equality,
    }
}

pub(crate) fn relation(columns: &[&str], primary_key: &[usize]) -> Relation {
    let columns: Vec<Column> = columns.iter().map(|spec| column(spec)).collect();
    let index = UniqueIndex {
        columns: primary_key
            .iter()
            .map(|&place| IndexColumn {
                column: place,
                equality: columns[place].equality.clone().unwrap(),
            })
            .collect(),
    };
    Relation {
        oid: 1,
        schema: "s".to_owned(),
        name: "t".to_owned(),
        kind: RelationKind::Table,
        columns,
        primary_key: (!primary_key.is_empty()).then_some(index),
        replica_identity: None,
        insert_trigger: false,
        rule: None,
        keys: Default::default(),
    }
}

pub(crate) fn mapped(table: &Arc<Table>, relation: Relation) -> Target {
    Mapped::new(Arc::clone(table), Some(Arc::new(relation)))
        .map(Arc::new)
        .map_err(Arc::new)
}

pub(crate) fn tuple(table: &Table, values: &[Value<'_>]) -> Bytes {
    let mut out = Vec::new();
    assert_eq!(values.len(), table.columns.len());
    for (column, value) in table.columns.iter().zip(values) {
        row::write(column.carrier, *value, &mut out).unwrap();
    }
    Bytes::from(out)
}

pub(crate) fn insert(table: &Table, new: &[Value<'_>]) -> Change {
    Change::Insert {
        table: 0,
        new: tuple(table, new),
    }
}

pub(crate) fn update(table: &Table, old: Option<&[Value<'_>]>, new: &[Value<'_>]) -> Change {
    let old = old.map(|old| OldTuple {
        kind: OldKind::Key,
        row: tuple(table, old),
    });
    Change::Update {
        table: 0,
        old,
        new: tuple(table, new),
    }
}

pub(crate) fn delete(table: &Table, old: &[Value<'_>]) -> Change {
    Change::Delete {
        table: 0,
        old: OldTuple {
            kind: OldKind::Key,
            row: tuple(table, old),
        },
    }
}

/// `sql | parameter, parameter`; NULL is `null`, binary ones are written `b:…`.
pub(crate) fn built(target: &Target, change: &Change) -> String {
    let mut builder = Builder::new(false);
    let targets = [target.clone()];
    let statement = builder.build(change, &targets).unwrap().unwrap();
    let parameters: Vec<String> = builder
        .parameters()
        .values()
        .zip(statement.binary())
        .map(|(value, binary)| match value {
            None => "null".to_owned(),
            Some(value) if *binary => format!("b:{value:?}"),
            Some(value) => String::from_utf8(value.to_vec()).unwrap(),
        })
        .collect();
    assert_eq!(parameters.len(), builder.parameters().len());
    assert_eq!(statement.parameter_types().len(), parameters.len());
    let sql = statement
        .sql()
        .replace(" OPERATOR(\"pg_catalog\".=) ", " = ");
    format!("{sql} | {}", parameters.join(", "))
}

pub(crate) fn check(target: &Target, change: &Change, expected: &str) {
    assert_eq!(built(target, change), expected);
}
