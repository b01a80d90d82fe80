//! Tables, changes and who waits for whom, in few words.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use walbraid_apply::footprint::{
    self, Access, Footprint, NewRow, NoOldValues, Old, OldValues, Scope, SpaceId, Touch,
};
use walbraid_apply::keys::{
    ForeignKey, KeyColumn, KeyIndex, KeySource, KeyType, Keys, Reference, Root, TypeForm,
};
use walbraid_apply::mapping::{Mapped, Target};
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};
use walbraid_apply::unit::{Piece, Transaction};
use walbraid_schemas::row::{self, Value};
use walbraid_schemas::{
    Carrier, Change, Column as Published, Identity, LinkKind, Lsn, OldKind, OldTuple, Table,
};

pub(crate) fn key_type(name: &str) -> KeyType {
    let oid = match name {
        "int4" => 23,
        "int8" => 20,
        "text" => 25,
        "float8" => 701,
        "numeric" => 1700,
        "json" => 114,
        "citext" => 99_999,
        other => panic!("no type {other}"),
    };
    let form = match name {
        "citext" => TypeForm::Citext,
        _ => TypeForm::Base,
    };
    KeyType {
        form,
        ..KeyType::builtin(oid, name)
    }
}

/// A table in the making. Columns are `name:type`, the publisher's key with `!` in front, what only
/// the subscriber has with `+`.
pub(crate) struct Sketch {
    pub(crate) table: Table,
    pub(crate) relation: Relation,
}

pub(crate) fn table(oid: u32, name: &str, columns: &[&str]) -> Sketch {
    let spec = |spec: &&str| {
        let (flag, rest) = match spec.split_at(1) {
            (flag @ ("!" | "+"), rest) => (flag.to_owned(), rest),
            _ => (String::new(), *spec),
        };
        let (name, kind) = rest.split_once(':').unwrap();
        (flag, name.to_owned(), kind.to_owned())
    };
    let columns: Vec<(String, String, String)> = columns.iter().map(spec).collect();
    let published = columns.iter().filter(|column| column.0 != "+");
    let published = published.map(|(flag, name, kind)| {
        let type_name = format!("pg_catalog.{kind}");
        Published {
            name: name.clone(),
            carrier: Carrier::of(&type_name),
            type_name,
            type_modifier: -1,
            key: flag == "!",
        }
    });
    let own = columns.iter().map(|(_, name, kind)| Column {
        name: name.clone(),
        type_oid: key_type(kind).oid,
        type_sql: kind.clone(),
        not_null: false,
        has_default: false,
        generated: false,
        identity: IdentityColumn::No,
        bytea: false,
        operand_sql: None,
        equality: (kind != "json").then(|| Operator::builtin("=")),
    });
    Sketch {
        table: Table {
            schema: "public".to_owned(),
            name: name.to_owned(),
            identity: Identity::Default,
            columns: published.collect(),
        },
        relation: Relation {
            oid,
            schema: "public".to_owned(),
            name: name.to_owned(),
            kind: RelationKind::Table,
            primary_key: None,
            replica_identity: None,
            insert_trigger: false,
            rule: None,
            keys: Keys {
                columns: columns.iter().map(|(_, _, kind)| key_type(kind)).collect(),
                ..Keys::default()
            },
            columns: own.collect(),
        },
    }
}

impl Sketch {
    /// A unique index over these columns.
    pub(crate) fn unique(self, oid: u32, columns: &[&str]) -> Self {
        self.index(oid, columns, |_| {})
    }

    /// The primary key.
    pub(crate) fn primary(mut self, oid: u32, columns: &[&str]) -> Self {
        let column = |name: &&str| IndexColumn {
            column: self.relation.column(name).unwrap(),
            equality: Operator::builtin("="),
        };
        self.relation.primary_key = Some(UniqueIndex {
            columns: columns.iter().map(column).collect(),
        });
        self.unique(oid, columns)
    }

    /// An index, changed as the function says; a column `()` is an expression.
    pub(crate) fn index(
        mut self,
        oid: u32,
        columns: &[&str],
        change: impl FnOnce(&mut KeyIndex),
    ) -> Self {
        let column = |name: &&str| match self.relation.column(name) {
            Some(place) => KeyColumn {
                source: KeySource::Column(place),
                key_type: self.relation.keys.columns[place].clone(),
            },
            None => KeyColumn {
                source: KeySource::Expression,
                key_type: key_type("text"),
            },
        };
        let mut index = KeyIndex {
            oid,
            name: format!("index_{oid}").into(),
            columns: columns.iter().map(column).collect(),
            nulls_distinct: true,
            partial: false,
            exclusion: false,
        };
        change(&mut index);
        self.relation.keys.indexes.push(index);
        self
    }

    pub(crate) fn full(mut self) -> Self {
        self.table.identity = Identity::Full;
        for column in &mut self.table.columns {
            column.key = true;
        }
        self
    }

    /// Changes the catalogue.
    pub(crate) fn keys(mut self, change: impl FnOnce(&mut Keys)) -> Self {
        change(&mut self.relation.keys);
        self
    }

    pub(crate) fn generated(mut self, column: &str) -> Self {
        let place = self.relation.column(column).unwrap();
        self.relation.columns[place].generated = true;
        self
    }

    /// A foreign key that is checked, to that index of that table.
    pub(crate) fn references(mut self, column: &str, parent: u32, index: u32) -> Self {
        let place = self.relation.column(column).unwrap();
        self.relation.keys.foreign_keys.push(ForeignKey {
            name: "fk".into(),
            parent: root(parent),
            index,
            index_name: format!("index_{index}").into(),
            columns: vec![place],
            key_types: vec![key_type("int4")],
        });
        self
    }

    /// A foreign key that is checked looks at that index.
    pub(crate) fn referenced(mut self, index: u32, cascades: &[u32]) -> Self {
        self.relation.keys.referenced.push(Reference {
            name: "fk".into(),
            index,
            cascades: cascades.iter().map(|&oid| root(oid)).collect(),
        });
        self
    }

    pub(crate) fn map(self) -> Target {
        let mapped = Mapped::new(Arc::new(self.table), Some(Arc::new(self.relation)));
        mapped.map(Arc::new).map_err(Arc::new)
    }
}

pub(crate) fn root(oid: u32) -> Root {
    Root {
        oid,
        name: format!("public.t{oid}").into(),
    }
}

/// A change and the table it is of.
#[derive(Clone, Debug)]
pub(crate) struct Of(pub(crate) Change, pub(crate) Target);

fn tuple(target: &Target, values: &[Value<'_>]) -> Bytes {
    let table = target.as_ref().unwrap().table();
    assert_eq!(values.len(), table.columns.len());
    let mut out = Vec::new();
    for (column, value) in table.columns.iter().zip(values) {
        row::write(column.carrier, *value, &mut out).unwrap();
    }
    out.into()
}

pub(crate) fn insert(target: &Target, new: &[Value<'_>]) -> Of {
    let new = tuple(target, new);
    Of(Change::Insert { table: 0, new }, target.clone())
}

fn old_tuple(target: &Target, old: &[Value<'_>]) -> OldTuple {
    let full = target.as_ref().unwrap().table().identity == Identity::Full;
    OldTuple {
        kind: if full { OldKind::Full } else { OldKind::Key },
        row: tuple(target, old),
    }
}

pub(crate) fn update(target: &Target, old: &[Value<'_>], new: &[Value<'_>]) -> Of {
    let old = (!old.is_empty()).then(|| old_tuple(target, old));
    let new = tuple(target, new);
    Of(Change::Update { table: 0, old, new }, target.clone())
}

pub(crate) fn delete(target: &Target, old: &[Value<'_>]) -> Of {
    let old = old_tuple(target, old);
    Of(Change::Delete { table: 0, old }, target.clone())
}

pub(crate) fn truncate(target: &Target) -> Of {
    let change = Change::Truncate {
        tables: vec![0],
        cascade: false,
        restart_identity: false,
    };
    Of(change, target.clone())
}

pub(crate) fn transaction(changes: &[Of]) -> Transaction {
    let piece = |Of(change, target): &Of| {
        let targets = vec![target.clone()];
        Arc::new(Piece::new(vec![change.clone()], targets, 1))
    };
    Transaction {
        kind: LinkKind::Transaction,
        xid: 1,
        commit_lsn: Lsn(1),
        commit_time_us: 0,
        origin: None,
        pieces: changes.iter().map(piece).collect(),
        first_offset: 0,
        ending: None,
    }
}

/// What a transaction touched.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) touches: Vec<Touch>,
    pub(crate) scope: Scope,
    pub(crate) reasons: Vec<&'static str>,
}

impl Touched {
    /// The keys cut to so many bits.
    pub(crate) fn narrow(&self, bits: u32) -> Self {
        let mut narrow = self.clone();
        for touch in &mut narrow.touches {
            touch.key &= (1 << bits) - 1;
        }
        narrow
    }

    /// True if this transaction, the later one, waits for the other through some key.
    pub(crate) fn waits_for(&self, earlier: &Self) -> bool {
        let alone = |touched: &Self| touched.scope != Scope::Keys;
        let pair = |later: &Touch, earlier: &Touch| {
            later.key == earlier.key
                && match (later.access, earlier.access) {
                    (Access::Free, _) | (_, Access::Take) => false,
                    (Access::Write, _) | (_, Access::Write) => true,
                    (Access::Take, Access::Free) => true,
                    (Access::Read | Access::Take, Access::Read | Access::Free) => false,
                }
        };
        let any = |touch: &Touch| earlier.touches.iter().any(|other| pair(touch, other));
        alone(self) || alone(earlier) || self.touches.iter().any(any)
    }
}

/// Knows of a row what it was told of it, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Memory(HashMap<(SpaceId, u64), Option<Vec<Option<u64>>>>);

impl OldValues for Memory {
    fn old(&mut self, space: SpaceId, row_key: u64) -> Old<'_> {
        match self.0.get(&(space, row_key)) {
            None => Old::Unknown,
            Some(None) => Old::Gone,
            Some(Some(hashes)) => Old::Hashes(hashes),
        }
    }

    fn write(&mut self, space: SpaceId, row_key: u64, new: NewRow<'_>) {
        match new {
            NewRow::Unknown => self.0.remove(&(space, row_key)),
            NewRow::Gone => self.0.insert((space, row_key), None),
            NewRow::Hashes(hashes) => self.0.insert((space, row_key), Some(hashes.to_vec())),
        };
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

/// What each of the transactions touches, in their order.
pub(crate) fn traced(transactions: &[Transaction], old: &mut dyn OldValues) -> Vec<Touched> {
    let mut footprint = Footprint::default();
    let mut trace = |transaction: &Transaction| {
        footprint.clear();
        footprint::add(transaction, old, &mut footprint);
        let serial = footprint.serial.iter().map(|(_, reason)| reason.name());
        let mut reasons: Vec<&'static str> = serial.collect();
        if let Scope::Lane(reason) = &footprint.scope {
            reasons.push(reason.name());
        }
        Touched {
            touches: footprint.touches.clone(),
            scope: footprint.scope.clone(),
            reasons,
        }
    };
    transactions.iter().map(&mut trace).collect()
}

/// Checks whether the last of the changes, each a transaction, waits for the first.
#[track_caller]
pub(crate) fn check(what: &str, old: &mut dyn OldValues, changes: &[Of], waits: bool) {
    let transactions: Vec<Transaction> = changes
        .iter()
        .map(|change| transaction(std::slice::from_ref(change)))
        .collect();
    let touched = traced(&transactions, old);
    let (first, last) = (&touched[0], touched.last().unwrap());
    assert_eq!(last.waits_for(first), waits, "{what}: {first:?} {last:?}");
}

/// The same where old values are not known.
#[track_caller]
pub(crate) fn blind(what: &str, changes: &[Of], waits: bool) {
    check(what, &mut NoOldValues, changes, waits);
}

/// Why the change is serial.
pub(crate) fn reasons(change: &Of) -> Vec<&'static str> {
    let transaction = transaction(std::slice::from_ref(change));
    traced(&[transaction], &mut NoOldValues).remove(0).reasons
}
