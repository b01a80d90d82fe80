//! The tables of a run: what the publisher logs, what the subscriber enforces, and what the engine
//! is told of it.
//!
//! All tables have three integer columns, so that a row is a small array. What a table is found by,
//! which indexes it has and what it references is said once, in [`Schema::new`]; the model
//! subscriber and the catalogue that conflict keys are made of are two readings of it.
//!
//! A wrong `NO_CONFLICT` is injected where a real one would come from: the catalogue **lies**
//! ([`Lie`]). The engine itself knows of no injection.

use std::sync::Arc;

use walbraid_apply::keys::{
    Firing, ForeignKey, KeyColumn, KeyIndex, KeySource, KeyType, Keys, Reference, Root,
};
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};
use walbraid_schemas::table::{self, Carrier, Identity, Table};

use crate::random::Random;

/// A row: id, something unique or referencing, a value. A table without a key has no id.
pub type Row = [Option<i32>; 3];

pub const HOT: usize = 0;
pub const MAIL: usize = 1;
pub const MAIL_FULL: usize = 2;
pub const ONE_NULL: usize = 3;
pub const PARENT: usize = 4;
pub const CHILD: usize = 5;
pub const ORPHAN: usize = 6;
pub const HEAP: usize = 7;
pub const STAMPED: usize = 8;
pub const TABLES: usize = 9;

const NAMES: [&str; TABLES] = [
    "hot",
    "mail",
    "mail_full",
    "one_null",
    "parent",
    "child",
    "orphan",
    "heap",
    "stamped",
];

/// A unique index on one column.
#[derive(Clone, Copy, Debug)]
pub struct Unique {
    pub column: usize,
    pub nulls_distinct: bool,
    pub deferred: bool,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Rows are found by column 0; else by all they hold.
    pub keyed: bool,
    /// REPLICA IDENTITY FULL.
    pub full: bool,
    pub uniques: Vec<Unique>,
    /// Column 1 references column 0 of this table, on the publisher.
    pub parent: Option<usize>,
    /// The subscriber checks it too.
    pub enforced: bool,
}

/// The tables of a run.
#[derive(Clone, Debug)]
pub struct Schema {
    pub tables: Vec<Spec>,
    /// Rows of `stamped` get the value of the first row of `hot` from a trigger of the subscriber.
    pub stamps: bool,
    /// The server looks at a row again that it found by ctid and had to wait for.
    pub rechecks_ctid: bool,
}

/// How the catalogue is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Some records name another table than the others: their keys never meet.
    OtherTable,
    /// The second unique index is not known.
    NoUnique,
    /// Foreign keys are not known to be checked.
    NoForeignKey,
    /// A trigger that reads another table is declared safe.
    SafeTrigger,
}

impl Lie {
    pub const ALL: [Self; 4] = [
        Self::OtherTable,
        Self::NoUnique,
        Self::NoForeignKey,
        Self::SafeTrigger,
    ];
}

impl Schema {
    pub fn new(random: &mut Random, stamps: bool) -> Self {
        let key = Unique {
            column: 0,
            nulls_distinct: true,
            deferred: false,
        };
        let keyed = Spec {
            keyed: true,
            uniques: vec![key],
            ..Spec::default()
        };
        let mut tables = vec![keyed; TABLES];
        let deferred = random.once_in(3);
        for table in [MAIL, MAIL_FULL, ONE_NULL] {
            tables[table].uniques.push(Unique {
                column: 1,
                nulls_distinct: table != ONE_NULL,
                deferred: deferred && table != ONE_NULL,
            });
        }
        tables[MAIL_FULL].full = true;
        tables[ONE_NULL].full = random.once_in(2);
        for table in [CHILD, ORPHAN] {
            tables[table].parent = Some(PARENT);
        }
        tables[CHILD].enforced = true;
        tables[HEAP] = Spec {
            full: true,
            ..Spec::default()
        };
        Self {
            tables,
            stamps,
            rechecks_ctid: true,
        }
    }

    /// Tables whose references to this one are checked on the subscriber.
    pub fn children(&self, table: usize) -> impl Iterator<Item = usize> {
        let enforced = move |spec: &Spec| spec.enforced && spec.parent == Some(table);
        let tables = self.tables.iter().enumerate();
        tables
            .filter(move |(_, spec)| enforced(spec))
            .map(|(child, _)| child)
    }

    /// The table as its records describe it.
    pub fn logged(&self, table: usize) -> Table {
        let spec = &self.tables[table];
        let column = |place: usize, name: &str| table::Column {
            name: name.to_owned(),
            type_name: "pg_catalog.int4".to_owned(),
            type_modifier: -1,
            key: spec.full || place == 0,
            carrier: Carrier::Int4,
        };
        Table {
            schema: "s".to_owned(),
            name: NAMES[table].to_owned(),
            identity: if spec.full {
                Identity::Full
            } else {
                Identity::Default
            },
            columns: vec![column(0, "a"), column(1, "b"), column(2, "c")],
        }
    }

    /// What the engine is told of the table.
    pub fn target(&self, table: usize, lie: Option<Lie>) -> Target {
        let spec = &self.tables[table];
        let column = |name: &str| Column {
            name: name.to_owned(),
            type_oid: INT4,
            type_sql: "integer".to_owned(),
            not_null: false,
            has_default: false,
            generated: false,
            identity: IdentityColumn::No,
            bytea: false,
            operand_sql: None,
            equality: Some(Operator::builtin("=")),
        };
        let relation = Relation {
            oid: table_oid(table, lie),
            schema: "s".to_owned(),
            name: NAMES[table].to_owned(),
            kind: RelationKind::Table,
            columns: vec![column("a"), column("b"), column("c")],
            primary_key: spec.keyed.then(|| UniqueIndex {
                columns: vec![IndexColumn {
                    column: 0,
                    equality: Operator::builtin("="),
                }],
            }),
            replica_identity: None,
            insert_trigger: false,
            rule: None,
            keys: self.keys(table, lie),
        };
        let mapped = Mapped::new(Arc::new(self.logged(table)), Some(Arc::new(relation)));
        mapped.map(Arc::new).map_err(Arc::new)
    }

    fn keys(&self, table: usize, lie: Option<Lie>) -> Keys {
        let spec = &self.tables[table];
        let known = |place: usize| place == 0 || lie != Some(Lie::NoUnique);
        let uniques = spec.uniques.iter().enumerate();
        let indexes = uniques
            .filter(|(place, _)| known(*place))
            .map(|(place, unique)| KeyIndex {
                oid: index_oid(table, place, lie),
                name: format!("{}_{place}", NAMES[table]).into(),
                columns: vec![KeyColumn {
                    source: KeySource::Column(unique.column),
                    key_type: int4(),
                }],
                nulls_distinct: unique.nulls_distinct,
                partial: false,
                exclusion: false,
            });
        let mut keys = Keys {
            columns: vec![int4(), int4(), int4()],
            indexes: indexes.collect(),
            truncates: self.children(table).map(|child| root(child, lie)).collect(),
            ..Keys::default()
        };
        if let Some(parent) = spec.parent.filter(|_| spec.enforced)
            && lie != Some(Lie::NoForeignKey)
        {
            keys.foreign_keys.push(ForeignKey {
                name: "child_parent".into(),
                parent: root(parent, lie),
                index: index_oid(parent, 0, lie),
                index_name: format!("{}_0", NAMES[parent]).into(),
                columns: vec![1],
                key_types: vec![int4()],
            });
        }
        if self.children(table).next().is_some() && lie != Some(Lie::NoForeignKey) {
            keys.referenced.push(Reference {
                name: "child_parent".into(),
                index: index_oid(table, 0, lie),
                cascades: Vec::new(),
            });
        }
        if table == STAMPED && self.stamps {
            keys.declared_safe = lie == Some(Lie::SafeTrigger);
            keys.fires.push(Firing {
                name: "stamp".into(),
                insert: true,
                update: false,
                delete: false,
                truncate: false,
            });
        }
        keys
    }
}

const INT4: u32 = 23;

fn int4() -> KeyType {
    KeyType::builtin(INT4, "int4")
}

fn table_oid(table: usize, lie: Option<Lie>) -> u32 {
    let other = if lie == Some(Lie::OtherTable) { 500 } else { 0 };
    1_000 + other + 10 * table as u32
}

/// The table of an oid that the catalogue gave, true or not.
pub fn table_of(oid: u32) -> usize {
    ((oid - 1_000) % 500 / 10) as usize
}

fn index_oid(table: usize, place: usize, lie: Option<Lie>) -> u32 {
    table_oid(table, lie) + 1 + place as u32
}

fn root(table: usize, lie: Option<Lie>) -> Root {
    Root {
        oid: table_oid(table, lie),
        name: format!("s.{}", NAMES[table]).into(),
    }
}
