//! How the row of an UPDATE or a DELETE is found on the subscriber.
//!
//! The publisher sends the old values of its replica identity, and nothing else may be used to find
//! a row: a column outside the identity may have been changed by the very UPDATE that is applied.
//! Of what is sent, the subscriber's own replica identity index or primary key is used when it is
//! covered; that finds at most one row. Otherwise all sent columns are compared, NULLs alike, and
//! exactly one row is taken by its ctid, the one whose text is the same first: rows can be equal to
//! the database and yet differ (numeric 1.0 and 1.00, jsonb, citext).

use walbraid_schemas::table::Identity;

use crate::mapping::MappedColumn;
use crate::relation::{Operator, Relation, UniqueIndex};

/// A column that takes part in a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupColumn {
    /// Place in the publisher's columns.
    pub source: usize,
    /// Place in the subscriber's columns.
    pub column: usize,
    /// How it is compared; as text where the type has no equality.
    pub equality: Option<Operator>,
}

/// How a row is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// By a unique index of the subscriber: at most one row.
    Unique(Vec<LookupColumn>),
    /// By comparing all these columns, taking one row of those that are equal.
    Row(Vec<LookupColumn>),
    /// The publisher sends no identity; there is nothing to find a row by.
    Nothing,
}

impl Lookup {
    /// The best lookup for what the publisher sends.
    pub(crate) fn choose(
        identity: Identity,
        columns: &[MappedColumn],
        relation: &Relation,
    ) -> Self {
        let indexes = [&relation.replica_identity, &relation.primary_key];
        for index in indexes.into_iter().flatten() {
            if let Some(covered) = cover(index, columns) {
                return Self::Unique(covered);
            }
        }
        let sent: Vec<LookupColumn> = columns
            .iter()
            .enumerate()
            .filter(|(_, mapped)| mapped.key && mapped.writable)
            .map(|(source, mapped)| LookupColumn {
                source,
                column: mapped.column,
                equality: relation.columns[mapped.column].equality.clone(),
            })
            .collect();
        // Rows of a table without columns are all the same: any one will do.
        let alike = identity == Identity::Full && columns.is_empty();
        if sent.is_empty() && !alike {
            Self::Nothing
        } else {
            Self::Row(sent)
        }
    }

    /// The columns compared, in the publisher's order and that of the statement's parameters.
    pub fn columns(&self) -> &[LookupColumn] {
        match self {
            Self::Unique(columns) | Self::Row(columns) => columns,
            Self::Nothing => &[],
        }
    }
}

/// The index's columns among those that are sent, in the publisher's order; none if one lacks.
fn cover(index: &UniqueIndex, columns: &[MappedColumn]) -> Option<Vec<LookupColumn>> {
    let covered: Option<Vec<LookupColumn>> = index
        .columns
        .iter()
        .map(|indexed| {
            columns
                .iter()
                .position(|mapped| mapped.key && mapped.column == indexed.column)
                .map(|source| LookupColumn {
                    source,
                    column: indexed.column,
                    equality: Some(indexed.equality.clone()),
                })
        })
        .collect();
    covered.map(|mut covered| {
        covered.sort_by_key(|column| column.source);
        covered
    })
}
