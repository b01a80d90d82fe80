//! Tables of integers whose first column is the primary key.

use std::sync::Arc;

use walbraid_apply::keys::{KeyColumn, KeyIndex, KeySource, KeyType, Keys};
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};
use walbraid_schemas::table::{Carrier, Column as Published};
use walbraid_schemas::{Identity, Table};

pub(crate) fn table(name: &str, columns: &[&str]) -> Arc<Table> {
    let column = |(place, name): (usize, &&str)| Published {
        name: (*name).to_owned(),
        type_name: "pg_catalog.int4".to_owned(),
        type_modifier: -1,
        key: place == 0,
        carrier: Carrier::Int4,
    };
    Arc::new(Table {
        schema: "public".to_owned(),
        name: name.to_owned(),
        identity: Identity::Default,
        columns: columns.iter().enumerate().map(column).collect(),
    })
}

/// The table on the subscriber; its unique indexes, each of one column, have the oids from 2 on.
pub(crate) fn relation(name: &str, columns: &[&str], indexes: &[(&str, usize)]) -> Relation {
    let column = |name: &&str| Column {
        name: (*name).to_owned(),
        type_oid: 23,
        type_sql: "integer".to_owned(),
        not_null: true,
        has_default: false,
        generated: false,
        identity: IdentityColumn::No,
        bytea: false,
        operand_sql: None,
        equality: Some(Operator::builtin("=")),
    };
    let integer = || KeyType::builtin(23, "integer");
    let index = |(oid, (name, place)): (u32, &(&str, usize))| KeyIndex {
        oid,
        name: (*name).into(),
        columns: vec![KeyColumn {
            source: KeySource::Column(*place),
            key_type: integer(),
        }],
        nulls_distinct: true,
        partial: false,
        exclusion: false,
    };
    Relation {
        oid: 1,
        schema: "public".to_owned(),
        name: name.to_owned(),
        kind: RelationKind::Table,
        columns: columns.iter().map(column).collect(),
        primary_key: Some(UniqueIndex {
            columns: vec![IndexColumn {
                column: 0,
                equality: Operator::builtin("="),
            }],
        }),
        replica_identity: None,
        insert_trigger: false,
        rule: None,
        keys: Keys {
            columns: columns.iter().map(|_| integer()).collect(),
            indexes: (2..).zip(indexes).map(index).collect(),
            ..Keys::default()
        },
    }
}
