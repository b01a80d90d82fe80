//! The making of a [`super::plan::Plan`]: which columns the keys of a mapped table are made of.

use std::sync::Arc;

use walbraid_schemas::table::Table;

use super::SpaceId;
use super::kind::{Kind, Published};
use super::plan::{Index, Parent, Referenced, Slot, Sort, TableKey, seed, whole};
use super::reason::SerialReason;
use crate::keys::{KeyIndex, KeySource, KeyType, Root};
use crate::lookup::Lookup;
use crate::mapping::MappedColumn;
use crate::relation::Relation;

/// A plan in the making.
pub(super) struct Draft<'a> {
    table: &'a Table,
    relation: &'a Relation,
    columns: &'a [MappedColumn],
    pub(super) root: Root,
    pub(super) slots: Vec<Slot>,
    pub(super) names: Vec<(SpaceId, Arc<str>)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        table: &'a Table,
        relation: &'a Relation,
        columns: &'a [MappedColumn],
        root: Root,
    ) -> Self {
        Self {
            table,
            relation,
            columns,
            root,
            slots: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The place of a published column of the subscriber, unless the subscriber makes its values.
    fn source(&self, column: usize) -> Option<usize> {
        let fits = |mapped: &MappedColumn| mapped.column == column && mapped.writable;
        self.columns.iter().position(fits)
    }

    fn slot(&mut self, source: usize, kind: Option<Kind>) -> usize {
        let known = |slot: &Slot| slot.source == source && slot.kind == kind;
        if let Some(slot) = self.slots.iter().position(known) {
            return slot;
        }
        self.slots.push(Slot {
            source,
            column: self.columns[source].column,
            kind,
            key: self.columns[source].key,
        });
        self.slots.len() - 1
    }

    fn kind(&self, source: usize, key_type: &KeyType) -> Option<Kind> {
        let column = &self.table.columns[source];
        let published = Published {
            type_name: &column.type_name,
            modifier: column.type_modifier,
        };
        Kind::of(key_type, published)
    }

    fn column_name(&self, column: usize) -> Arc<str> {
        self.relation.columns[column].name.as_str().into()
    }

    pub(super) fn indexes(&mut self, lookup: &Lookup) -> Vec<Index> {
        let keys = &self.relation.keys;
        let found = match lookup {
            Lookup::Unique(_) => keys.indexes.iter().position(|index| finds(index, lookup)),
            Lookup::Row(_) | Lookup::Nothing => None,
        };
        let unique = found.is_some();
        let mut indexes = Vec::with_capacity(keys.indexes.len() + 1);
        match (found, lookup) {
            (Some(found), _) => {
                let row = self.index(&keys.indexes[found]);
                indexes.push(Index { row: true, ..row });
            }
            (None, Lookup::Nothing) => {}
            (None, _) => indexes.push(self.whole_row(lookup)),
        }
        // Rows that are not equal and share a hash must not be taken for one row.
        let told_apart = unique && indexes.first().is_some_and(|row| row.exact);
        for (place, index) in keys.indexes.iter().enumerate() {
            if Some(place) != found {
                let mut index = self.index(index);
                let known = index.slots.iter().all(|&slot| self.slots[slot].key);
                index.wanted = told_apart && index.hashed && !known;
                indexes.push(index);
            }
        }
        indexes
    }

    fn index(&mut self, index: &KeyIndex) -> Index {
        let mut reasons = Vec::new();
        let (mut slots, mut exact, mut plain) = (Vec::new(), true, true);
        for column in &index.columns {
            let (place, lower) = match column.source {
                KeySource::Column(place) => (place, false),
                KeySource::Lower(place) => (place, true),
                KeySource::Expression => {
                    let index = Arc::clone(&index.name);
                    reasons.push(SerialReason::Expression { index });
                    (exact, plain) = (false, false);
                    continue;
                }
            };
            let Some(source) = self.source(place) else {
                let column = self.column_name(place);
                reasons.push(SerialReason::NotPublished { column });
                exact = false;
                plain &= !self.relation.columns[place].generated;
                continue;
            };
            let kind = match (self.kind(source, &column.key_type), lower) {
                (Some(Kind::Text | Kind::Padded | Kind::Trimmed | Kind::Folded), true) => {
                    Some(Kind::Folded)
                }
                (_, true) => None,
                (kind, false) => kind,
            };
            exact &= kind.as_ref().is_some_and(Kind::exact);
            if kind.is_none() {
                reasons.push(SerialReason::IncomparableKey {
                    column: self.column_name(place),
                    type_name: Arc::clone(&column.key_type.name),
                });
            }
            slots.push(self.slot(source, kind));
        }
        if index.exclusion {
            let constraint = Arc::clone(&index.name);
            reasons.push(SerialReason::Exclusion { constraint });
        }
        let sure = !index.partial && !index.exclusion;
        let hashed = slots.iter().any(|&slot| self.slots[slot].kind.is_some());
        let name = format!("{} ({})", self.root.name, index.name);
        self.names.push((SpaceId(index.oid), name.into()));
        Index {
            space: SpaceId(index.oid),
            seed: seed(Sort::Value, index.oid),
            freed: whole(Sort::Freed, index.oid),
            hashed,
            exact: exact && sure,
            plain: plain && sure,
            nulls_distinct: index.nulls_distinct,
            row: false,
            wanted: false,
            serial: reasons.into_iter().next().filter(|_| !hashed),
            referenced: self.referenced(index),
            slots,
        }
    }

    /// What finds a row where no unique index does: all that is compared, NULLs alike, in the order
    /// of names, which is the same in all partitions.
    fn whole_row(&mut self, lookup: &Lookup) -> Index {
        let keys = &self.relation.keys;
        let mut compared: Vec<_> = lookup.columns().iter().collect();
        compared.sort_by_key(|column| &self.relation.columns[column.column].name);
        let mut slots = Vec::with_capacity(compared.len());
        for column in compared {
            let key_type = keys.columns.get(column.column);
            let kind = key_type.and_then(|key_type| self.kind(column.source, key_type));
            if kind.is_some() {
                slots.push(self.slot(column.source, kind));
            }
        }
        let hashed = !slots.is_empty();
        Index {
            space: SpaceId(self.root.oid),
            seed: seed(Sort::Row, self.root.oid),
            freed: whole(Sort::Freed, self.root.oid),
            slots,
            hashed,
            exact: false,
            plain: false,
            nulls_distinct: false,
            row: true,
            wanted: false,
            serial: (!hashed).then_some(SerialReason::NoKey),
            referenced: None,
        }
    }

    fn referenced(&mut self, index: &KeyIndex) -> Option<Referenced> {
        let references = &self.relation.keys.referenced;
        let all = || {
            references
                .iter()
                .filter(|reference| reference.index == index.oid)
        };
        let first = all().next()?;
        let cascading = all().find(|reference| !reference.cascades.is_empty());
        let mut slots = Vec::with_capacity(index.columns.len());
        for column in &index.columns {
            if let (KeySource::Column(place), Some(kind)) =
                (&column.source, simple(&column.key_type))
                && let Some(source) = self.source(*place)
            {
                slots.push(self.slot(source, Some(kind)));
            }
        }
        Some(Referenced {
            space: SpaceId(index.oid),
            seed: seed(Sort::Referenced, index.oid),
            released: whole(Sort::Released, index.oid),
            comparable: slots.len() == index.columns.len(),
            value: Box::new(bare(index.oid, slots)),
            reason: SerialReason::ForeignKey {
                constraint: Arc::clone(&first.name),
            },
            cascades: all()
                .flat_map(|reference| &reference.cascades)
                .map(|root| TableKey::of(root.oid))
                .collect(),
            cascade_reason: SerialReason::ForeignKeyAction {
                constraint: Arc::clone(&cascading.unwrap_or(first).name),
            },
        })
    }

    pub(super) fn parents(&mut self) -> Vec<Parent> {
        let keys = &self.relation.keys;
        let mut parents = Vec::with_capacity(keys.foreign_keys.len());
        for key in &keys.foreign_keys {
            let mut slots = Vec::with_capacity(key.columns.len());
            let mut comparable = key.columns.len() == key.key_types.len();
            for (&column, wanted) in key.columns.iter().zip(&key.key_types) {
                let own = keys.columns.get(column);
                let alike = own.is_some_and(|own| comparable_types(own, wanted));
                let kind = simple(wanted).filter(|_| alike);
                comparable &= kind.is_some();
                match self.source(column) {
                    Some(source) => slots.push(self.slot(source, kind)),
                    None => comparable = false,
                }
            }
            let name = format!("{} ({})", key.parent.name, key.index_name);
            self.names.push((SpaceId(key.index), name.into()));
            parents.push(Parent {
                space: SpaceId(key.index),
                table: TableKey::of(key.parent.oid),
                value: bare(key.index, slots),
                seed: seed(Sort::Referenced, key.index),
                released: whole(Sort::Released, key.index),
                comparable,
                reason: SerialReason::ForeignKey {
                    constraint: Arc::clone(&key.name),
                },
            });
        }
        parents
    }
}

/// True if the index has just the columns of the lookup, and says what finds the row.
fn finds(index: &KeyIndex, lookup: &Lookup) -> bool {
    let columns = lookup.columns();
    let covers = |column: &crate::keys::KeyColumn| match column.source {
        KeySource::Column(place) => columns.iter().any(|wanted| wanted.column == place),
        KeySource::Lower(_) | KeySource::Expression => false,
    };
    let whole = !index.partial && !index.exclusion;
    whole && index.columns.len() == columns.len() && index.columns.iter().all(covers)
}

/// A value of an index as foreign keys look at it.
fn bare(oid: u32, slots: Vec<usize>) -> Index {
    Index {
        space: SpaceId(oid),
        seed: seed(Sort::Value, oid),
        freed: whole(Sort::Freed, oid),
        slots,
        hashed: true,
        exact: true,
        plain: true,
        nulls_distinct: true,
        row: false,
        wanted: false,
        serial: None,
        referenced: None,
    }
}

/// How both sides of a foreign key hash a value of the referenced column, whatever the publisher's
/// types are; none if that would depend on them.
fn simple(key_type: &KeyType) -> Option<Kind> {
    let kind = Kind::of(key_type, Published::ANY)?;
    (!matches!(kind, Kind::Array(_))).then_some(kind)
}

/// True if the server compares the two as values of the second type.
fn comparable_types(own: &KeyType, referenced: &KeyType) -> bool {
    const FAMILIES: [&[u32]; 2] = [&[20, 21, 23], &[25, 1043]];
    let both = |family: &&[u32]| family.contains(&own.oid) && family.contains(&referenced.oid);
    own.deterministic
        && own.form == referenced.form
        && (own.oid == referenced.oid || FAMILIES.iter().any(both))
}
