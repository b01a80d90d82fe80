//! The mapping of one shape of a publisher's table to one shape of the subscriber's relation.
//!
//! Columns meet by name; the subscriber's order, its extra columns and its defaults are its own.
//! A [`Mapped`] never changes: another shape on either side makes another one, so whatever is
//! derived from it (lookup, statement texts) may be kept as long as it lives.
//!
//! A mapping that cannot be made is a [`MappingError`], a value like any other. It travels with the
//! transaction that needs it and becomes a stop only when that transaction is the oldest one that
//! is not committed: what stands before it must still arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use walbraid_schemas::notice::{Stop, StopKind};
use walbraid_schemas::table::{Carrier, Table};

use crate::footprint::Plan;
use crate::lookup::Lookup;
use crate::quote;
use crate::relation::{IdentityColumn, Relation, RelationKind};
use crate::statement::{Cache, Operation};

/// What a change's table is on the subscriber.
pub type Target = Result<Arc<Mapped>, Arc<MappingError>>;

/// Where one published column goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedColumn {
    /// Place in the subscriber's [`Relation::columns`].
    pub column: usize,
    /// How its values travel in the log.
    pub carrier: Carrier,
    /// May be named in an INSERT: not a generated column, whose value is compared instead.
    pub writable: bool,
    /// `GENERATED ALWAYS AS IDENTITY`: an UPDATE may not name it.
    pub always: bool,
    /// Its values are given in binary form: bytea on both sides.
    pub binary: bool,
    /// Part of the publisher's replica identity.
    pub key: bool,
    /// Part of the lookup.
    pub compared: bool,
    /// Operations that take a sent value of it from the new row, a bit for each.
    pub(crate) taken_by: u8,
}

/// A table of the publisher on its relation of the subscriber.
#[derive(Debug)]
pub struct Mapped {
    id: u64,
    table: Arc<Table>,
    relation: Arc<Relation>,
    columns: Vec<MappedColumn>,
    lookup: Lookup,
    insert_error: Option<Arc<MappingError>>,
    overrides_identity: bool,
    moves: Moves,
    conflict: Plan,
    cache: Cache,
}

/// Whether an UPDATE may have to change a `GENERATED ALWAYS AS IDENTITY` column, which PostgreSQL
/// refuses in an UPDATE; such a row is deleted and inserted again in one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The relation has no such column among the published ones.
    Never,
    /// When old and new value differ; the old one is always known.
    WhenChanged,
    /// The old value is not on the wire, so it must be assumed to differ.
    Always,
}

/// Why a table of the publisher cannot be applied to the subscriber.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The subscriber has no relation of that name.
    #[error("relation {} does not exist on the subscriber", quote::qualified(.schema, .name))]
    RelationMissing {
        /// Schema of the table.
        schema: String,
        /// Its name.
        name: String,
    },
    /// The relation is a view, a foreign table, a sequence…
    #[error("relation {relation} of the subscriber is not a table (relkind \"{kind}\")")]
    NotATable {
        /// The relation, quoted.
        relation: String,
        /// Its `relkind`.
        kind: char,
    },
    /// The subscriber's relation lacks published columns.
    #[error(
        "relation {relation} of the subscriber is missing published columns: {}",
        list(.columns)
    )]
    ColumnsMissing {
        /// The relation, quoted.
        relation: String,
        /// The columns, in the publisher's order.
        columns: Vec<String>,
    },
    /// The subscriber has columns that an INSERT would have to fill and nobody can.
    #[error(
        "relation {relation} of the subscriber has columns that are not published, NOT NULL and \
         without a default: {}",
        list(.columns)
    )]
    NotNullWithoutDefault {
        /// The relation, quoted.
        relation: String,
        /// The columns, in the subscriber's order.
        columns: Vec<String>,
    },
    /// A rule fires for changes that are applied, and may put anything in their place.
    #[error(
        "relation {relation} of the subscriber has a rule that fires: {}",
        quote::identifier(.rule)
    )]
    RuleFires {
        /// The relation, quoted.
        relation: String,
        /// The rule.
        rule: String,
    },
    /// The publisher's shape itself cannot be had: the registry gives another schema than the one
    /// that the change was written with, or none.
    #[error("{}", .0.message)]
    SchemaUnavailable(Box<Stop>),
}

impl MappingError {
    /// The stop that this error is once the transaction that needs the mapping is the head.
    pub fn stop(&self) -> Stop {
        let hint = match self {
            Self::SchemaUnavailable(stop) => return Stop::clone(stop),
            Self::RelationMissing { .. } => "Create the table on the subscriber.",
            Self::NotATable { .. } => "Changes are applied to tables and partitioned tables only.",
            Self::ColumnsMissing { .. } => {
                "Add the columns to the subscriber's table: what the log holds already carries \
                 them, whatever is published from now on."
            }
            Self::RuleFires { relation, rule } => {
                let rule = quote::identifier(rule);
                let hint = format!(
                    "Native replication runs no rules either: ALTER TABLE {relation} ENABLE RULE \
                     {rule} lets it fire for other sessions only."
                );
                return Stop::new(StopKind::SubscriberShape, self.to_string()).hint(hint);
            }
            Self::NotNullWithoutDefault { .. } => {
                "Give the columns a default on the subscriber, or drop their NOT NULL constraint: \
                 what the log holds already has no value for them."
            }
        };
        Stop::new(StopKind::SubscriberShape, self.to_string()).hint(hint)
    }
}

fn list(columns: &[String]) -> String {
    columns
        .iter()
        .map(|column| quote::identifier(column))
        .collect::<Vec<_>>()
        .join(", ")
}

impl Mapped {
    /// Maps `table` to `relation`; `None` when the subscriber has no relation of its name.
    pub fn new(table: Arc<Table>, relation: Option<Arc<Relation>>) -> Result<Self, MappingError> {
        let Some(relation) = relation else {
            return Err(MappingError::RelationMissing {
                schema: table.schema.clone(),
                name: table.name.clone(),
            });
        };
        if let RelationKind::Other(kind) = relation.kind {
            return Err(MappingError::NotATable {
                relation: relation.sql(),
                kind,
            });
        }
        if let Some(rule) = &relation.rule {
            return Err(MappingError::RuleFires {
                relation: relation.sql(),
                rule: rule.clone(),
            });
        }
        let mut columns = map_columns(&table, &relation)?;
        let lookup = Lookup::choose(table.identity, &columns, &relation);
        for compared in lookup.columns() {
            columns[compared.source].compared = true;
        }
        for column in &mut columns {
            column.taken_by = Operation::ALL
                .into_iter()
                .filter(|operation| operation.takes(column))
                .fold(0, |bits, operation| bits | operation.bit());
        }
        let published = |place: usize| columns.iter().any(|mapped| mapped.column == place);
        let overrides_identity = columns
            .iter()
            .any(|mapped| relation.columns[mapped.column].identity == IdentityColumn::Always);
        let insert_error = unfilled(&relation, published).map(Arc::new);
        let moves = if !columns.iter().any(|mapped| mapped.always) {
            Moves::Never
        } else if columns.iter().all(|mapped| !mapped.always || mapped.key) {
            Moves::WhenChanged
        } else {
            Moves::Always
        };
        let conflict = Plan::new(&table, &relation, &columns, &lookup);
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            table,
            relation,
            columns,
            lookup,
            insert_error,
            overrides_identity,
            moves,
            conflict,
            cache: Cache::default(),
        })
    }

    /// A number that no other mapping of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The publisher's shape.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The subscriber's shape.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.relation
    }

    /// The subscriber generates some published column itself.
    pub fn generates(&self) -> bool {
        self.columns.iter().any(|mapped| !mapped.writable)
    }

    /// Published columns that the subscriber generates itself, quoted, for a message.
    pub fn generated(&self) -> String {
        let generated = self.columns.iter().filter(|mapped| !mapped.writable);
        let name = |mapped: &MappedColumn| self.relation.columns[mapped.column].name.clone();
        list(&generated.map(name).collect::<Vec<_>>())
    }

    /// Where each published column goes, in the publisher's order.
    pub fn columns(&self) -> &[MappedColumn] {
        &self.columns
    }

    /// How the row of an UPDATE or a DELETE is found.
    pub fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    /// Why an INSERT cannot work, if it cannot.
    pub fn insert_error(&self) -> Option<&Arc<MappingError>> {
        self.insert_error.as_ref()
    }

    /// INSERTs need `OVERRIDING SYSTEM VALUE`.
    pub fn overrides_identity(&self) -> bool {
        self.overrides_identity
    }

    /// Whether an UPDATE may have to change an identity column.
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// What changes of the table touch.
    pub fn conflict(&self) -> &Plan {
        &self.conflict
    }

    /// The statement texts made so far.
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }
}

fn map_columns(table: &Table, relation: &Relation) -> Result<Vec<MappedColumn>, MappingError> {
    let mut columns = Vec::with_capacity(table.columns.len());
    let mut missing = Vec::new();
    for published in &table.columns {
        let Some(place) = relation.column(&published.name) else {
            missing.push(published.name.clone());
            continue;
        };
        let column = &relation.columns[place];
        columns.push(MappedColumn {
            column: place,
            carrier: published.carrier,
            writable: !column.generated,
            always: column.identity == IdentityColumn::Always,
            binary: published.carrier == Carrier::Bytea && column.bytea,
            key: published.key,
            compared: false,
            taken_by: 0,
        });
    }
    if missing.is_empty() {
        Ok(columns)
    } else {
        Err(MappingError::ColumnsMissing {
            relation: relation.sql(),
            columns: missing,
        })
    }
}

fn unfilled(relation: &Relation, published: impl Fn(usize) -> bool) -> Option<MappingError> {
    if relation.insert_trigger {
        return None;
    }
    let columns: Vec<String> = relation
        .columns
        .iter()
        .enumerate()
        .filter(|(place, column)| {
            let filled = column.has_default
                || column.generated
                || column.identity != IdentityColumn::No
                || published(*place);
            column.not_null && !filled
        })
        .map(|(_, column)| column.name.clone())
        .collect();
    (!columns.is_empty()).then(|| MappingError::NotNullWithoutDefault {
        relation: relation.sql(),
        columns,
    })
}
