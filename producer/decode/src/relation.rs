//! The shape of a relation, as the last Relation message described it.
//!
//! A shape is immutable and shared; a Relation message that changes anything makes a new one, so a
//! change always carries the shape that was valid at its place in the WAL. Names of types are
//! resolved here, because a later Type message could give an oid another name.

use walbraid_schemas::{Carrier, Column, Identity, Lsn, Table};

use crate::error::Undecodable;
use crate::message::RelationBody;
use crate::type_names::{TypeNames, qualified};

/// One shape of one relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// Number of the shape within its decoder, from 0 and without gaps.
    pub shape: u32,
    /// The relation's oid on the publisher.
    pub oid: u32,
    /// The shape in the log's terms.
    pub table: Table,
}

impl Relation {
    /// The relation's qualified name, quoted where PostgreSQL would.
    pub fn qualified_name(&self) -> String {
        qualified(&self.table.schema, &self.table.name)
    }

    pub(crate) fn new(
        shape: u32,
        lsn: Lsn,
        body: &RelationBody<'_>,
        types: &TypeNames,
    ) -> Result<Self, Undecodable> {
        let mut columns = Vec::with_capacity(usize::from(body.columns));
        for column in body.columns() {
            let type_name =
                types
                    .name(column.type_oid)
                    .ok_or_else(|| Undecodable::UnknownType {
                        lsn,
                        relation: qualified(body.schema, body.name),
                        column: column.name.to_owned(),
                        oid: column.type_oid,
                    })?;
            columns.push(Column {
                name: column.name.to_owned(),
                carrier: Carrier::of(&type_name),
                type_name,
                type_modifier: column.type_modifier,
                key: column.key,
            });
        }
        let schema = if body.schema.is_empty() {
            "pg_catalog"
        } else {
            body.schema
        };
        let table = Table {
            schema: schema.to_owned(),
            name: body.name.to_owned(),
            identity: identity(body.identity),
            columns,
        };
        Ok(Self {
            shape,
            oid: body.oid,
            table,
        })
    }
}

fn identity(code: u8) -> Identity {
    match code {
        b'n' => Identity::Nothing,
        b'f' => Identity::Full,
        b'i' => Identity::Index,
        // The parser let only d, n, f and i pass.
        _ => Identity::Default,
    }
}
