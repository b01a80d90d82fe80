//! What conflict keys rest on, as the subscriber's catalogue has it.
//!
//! Owned here: the shape only, as in [`crate::relation`]. The shell fills it; the plan of a mapped
//! table ([`crate::footprint`]) is made of it. A catalogue that was not read ([`Keys::default`])
//! makes the table serial.
//!
//! Partitions are folded: what stands here of a partition is named by the topmost table and the
//! topmost index it belongs to, so that a change that comes by the root and one that comes by the
//! partition touch the same keys.

use std::sync::Arc;

/// What conflict keys of a relation rest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The topmost partitioned table, where the relation is a partition.
    pub root: Option<Root>,
    /// The type of each of the relation's columns; none where it was not read.
    pub columns: Vec<KeyType>,
    /// Unique indexes and exclusion constraints of the relation, of the partitions below it and of
    /// the tables above it.
    pub indexes: Vec<KeyIndex>,
    /// Foreign keys of the relation that are checked in replica mode.
    pub foreign_keys: Vec<ForeignKey>,
    /// Foreign keys of other relations to this one that are checked in replica mode.
    pub referenced: Vec<Reference>,
    /// Topmost tables that a TRUNCATE of this relation could reach: all that reference it, whether
    /// or not that is checked.
    pub truncates: Vec<Root>,
    /// User triggers and rules that fire in replica mode.
    pub fires: Vec<Firing>,
    /// Functions that are called by checks, index expressions, generated columns and defaults, and
    /// that may read more than their arguments.
    pub calls: Vec<Call>,
    /// Row level security applies to the role that applies.
    pub row_security: bool,
    /// The user declares that what fires and what is called touches nothing that matters here.
    pub declared_safe: bool,
}

/// A topmost table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Root {
    /// `pg_class.oid`.
    pub oid: u32,
    /// `schema.table`.
    pub name: Arc<str>,
}

/// A type, as far as equality needs it: below its domains; for a column of an index the type that
/// the operator class compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyType {
    /// `pg_type.oid`.
    pub oid: u32,
    /// Its name, for people.
    pub name: Arc<str>,
    /// Its modifier, -1 if there is none.
    pub modifier: i32,
    /// What kind of type it is.
    pub form: TypeForm,
    /// Its collation is deterministic, or it has none.
    pub deterministic: bool,
    /// The equality is the one that PostgreSQL ships for the type.
    pub stock_equality: bool,
}

/// What kind of type it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeForm {
    /// Known by its oid, or not at all.
    Base,
    /// An enum.
    Enum,
    /// The extension's citext.
    Citext,
    /// An array of the type.
    Array(Box<KeyType>),
}

impl KeyType {
    /// A type of `pg_catalog` with its default equality.
    pub fn builtin(oid: u32, name: &str) -> Self {
        Self {
            oid,
            name: name.into(),
            modifier: -1,
            form: TypeForm::Base,
            deterministic: true,
            stock_equality: true,
        }
    }
}

/// A unique index, or an exclusion constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyIndex {
    /// `pg_class.oid` of the topmost index it belongs to.
    pub oid: u32,
    /// `relname` of that index.
    pub name: Arc<str>,
    /// Its key columns, in index order. Of an exclusion constraint those compared by equality.
    pub columns: Vec<KeyColumn>,
    /// A NULL in any column collides with nothing.
    pub nulls_distinct: bool,
    /// It has a predicate.
    pub partial: bool,
    /// It is an exclusion constraint: more than the columns decides.
    pub exclusion: bool,
}

/// A key column of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// What is indexed.
    pub source: KeySource,
    /// How it is compared.
    pub key_type: KeyType,
}

/// What a key column of an index is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The column at this place of the relation.
    Column(usize),
    /// `lower()` of the column at this place.
    Lower(usize),
    /// An expression.
    Expression,
}

/// A foreign key of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// `conname`.
    pub name: Arc<str>,
    /// The topmost table it references.
    pub parent: Root,
    /// The topmost unique index it references.
    pub index: u32,
    /// Name of that index.
    pub index_name: Arc<str>,
    /// Places of its columns in the relation, in the order of that index.
    pub columns: Vec<usize>,
    /// The types of that index's columns.
    pub key_types: Vec<KeyType>,
}

/// A foreign key of another relation to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `conname`.
    pub name: Arc<str>,
    /// The topmost unique index that is referenced.
    pub index: u32,
    /// The topmost tables whose rows a change of the key changes: CASCADE, SET NULL, SET DEFAULT,
    /// and what cascades on from there.
    pub cascades: Vec<Root>,
}

/// A trigger or a rule that fires in replica mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Its name.
    pub name: Arc<str>,
    /// It fires for INSERT.
    pub insert: bool,
    /// It fires for UPDATE.
    pub update: bool,
    /// It fires for DELETE.
    pub delete: bool,
    /// It fires for TRUNCATE.
    pub truncate: bool,
}

/// A function that an expression of the table calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `schema.function`.
    pub function: Arc<str>,
    /// It is called by the default of the column at this place, so only where the column is not
    /// published.
    pub default_of: Option<usize>,
}
