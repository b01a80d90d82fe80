//! A published table as the log knows it: what its Avro schema says.
//!
//! Owns the description ([`Table`]) and its Avro form ([`Table::to_avro`],
//! [`Table::from_avro`], in [`avro`]). A table's schema is registered under a subject of its own
//! ([`crate::names`]); a new shape is a new version of it.
//!
//! Invariants: `to_avro` is canonical (the same table gives the same text, byte by byte), and
//! `from_avro` gives back exactly the table. What the log promises of a column stands in the
//! schema, not in a consumer's catalogue: PostgreSQL's type by name, type modifier, key flag,
//! order.

mod avro;

pub use avro::SchemaError;

/// A published table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// The schema's name on the publisher.
    pub schema: String,
    /// The table's name on the publisher.
    pub name: String,
    /// Its replica identity.
    pub identity: Identity,
    /// Its published columns, in pgoutput's order.
    pub columns: Vec<Column>,
}

/// A replica identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The primary key.
    Default,
    /// None.
    Nothing,
    /// The whole row.
    Full,
    /// A unique index.
    Index,
}

/// A published column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its name on the publisher.
    pub name: String,
    /// Its type, qualified and unquoted: `pg_catalog.int4`, `public.mood`.
    pub type_name: String,
    /// Its type modifier; -1 when there is none.
    pub type_modifier: i32,
    /// Whether it belongs to the replica identity.
    pub key: bool,
    /// How its values travel.
    pub carrier: Carrier,
}

/// The Avro form of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// `boolean`.
    Bool,
    /// `int`, for int2.
    Int2,
    /// `int`, for int4.
    Int4,
    /// `long`, for int8.
    Int8,
    /// `float`, for float4.
    Float4,
    /// `double`, for float8.
    Float8,
    /// `string`, for text.
    Text,
    /// `bytes`, for bytea.
    Bytea,
    /// `string` with PostgreSQL's text form, for every other type.
    Other,
}

impl Carrier {
    /// The carrier of a type: exact types travel typed, everything else as PostgreSQL's text.
    pub fn of(type_name: &str) -> Carrier {
        match type_name {
            "pg_catalog.bool" => Carrier::Bool,
            "pg_catalog.int2" => Carrier::Int2,
            "pg_catalog.int4" => Carrier::Int4,
            "pg_catalog.int8" => Carrier::Int8,
            "pg_catalog.float4" => Carrier::Float4,
            "pg_catalog.float8" => Carrier::Float8,
            "pg_catalog.text" => Carrier::Text,
            "pg_catalog.bytea" => Carrier::Bytea,
            _ => Carrier::Other,
        }
    }
}
