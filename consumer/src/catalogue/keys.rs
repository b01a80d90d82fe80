//! What the subscriber's catalogue says of conflict keys: SQL in, `apply::keys::Keys` out.
//!
//! Partitions are folded here. **Kin** of a relation are the tables above it, itself, and the
//! tables below it: a change that comes by one of them may meet the indexes, foreign keys and
//! triggers of all of them. Columns of kin meet by name, for their numbers differ.
//!
//! Read under `search_path = pg_catalog`, so that what `pg_get_indexdef` does not qualify is the
//! server's own.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Oid;
use walbraid_apply::keys::{
    Call, Firing, ForeignKey, KeyColumn, KeyIndex, KeySource, KeyType, Keys, Reference, Root,
    TypeForm,
};
use walbraid_apply::relation::Column;

use super::keys_sql as sql;
use super::session::Session;
use crate::policy::Failure;

/// Reads what conflict keys of the relation rest on; `columns` are its columns.
pub(super) async fn read(session: &Session, oid: Oid, columns: &[Column]) -> Result<Keys, Failure> {
    let place = |name: &str| columns.iter().position(|column| column.name == name);
    let root = session.query_one(sql::ROOT, &[&oid]).await?;
    let row_security = root.try_get("row_security")?;
    let root = root_of(&root)?;
    let mut types: HashMap<String, KeyType> = HashMap::with_capacity(columns.len());
    for row in session.query(sql::TYPES, &[&oid]).await? {
        types.insert(row.try_get("attname")?, key_type(&row)?);
    }
    let own: Option<Vec<KeyType>> = columns
        .iter()
        .map(|column| types.get(&column.name).cloned())
        .collect();
    let mut keys = Keys {
        root: Some(root).filter(|root| root.oid != oid),
        columns: own.unwrap_or_default(),
        row_security,
        ..Keys::default()
    };
    for row in session.query(sql::INDEXES, &[&oid]).await? {
        index_column(&row, &mut keys.indexes, place)?;
    }
    for row in session.query(sql::FOREIGN_KEYS, &[&oid]).await? {
        foreign_key_column(&row, &mut keys.foreign_keys, place)?;
    }
    for row in session.query(sql::REFERENCED, &[&oid]).await? {
        keys.referenced.push(Reference {
            name: text(&row, "conname")?,
            index: row.try_get("index")?,
            cascades: roots(&row)?,
        });
    }
    for row in session.query(sql::TRUNCATES, &[&oid]).await? {
        keys.truncates.push(root_of(&row)?);
    }
    for row in session.query(sql::FIRES, &[&oid]).await? {
        keys.fires.push(firing(&row)?);
    }
    for row in session.query(sql::CALLS, &[&oid]).await? {
        let default_of: Option<&str> = row.try_get("default_of")?;
        keys.calls.push(Call {
            function: text(&row, "function")?,
            default_of: default_of.and_then(place),
        });
    }
    Ok(keys)
}

fn text(row: &Row, name: &str) -> Result<Arc<str>, Failure> {
    Ok(row.try_get::<_, &str>(name)?.into())
}

fn root_of(row: &Row) -> Result<Root, Failure> {
    Ok(Root {
        oid: row.try_get("root")?,
        name: text(row, "root_name")?,
    })
}

fn roots(row: &Row) -> Result<Vec<Root>, Failure> {
    let oids: Vec<Oid> = row.try_get("cascades")?;
    let names: Vec<String> = row.try_get("cascade_names")?;
    let root = |(oid, name): (Oid, String)| Root {
        oid,
        name: name.into(),
    };
    Ok(oids.into_iter().zip(names).map(root).collect())
}

/// A type as the columns `type_oid`, `type_name`, … describe it.
fn key_type(row: &Row) -> Result<KeyType, Failure> {
    let modifier = row.try_get("modifier")?;
    let deterministic = row.try_get("deterministic")?;
    let stock_equality = row.try_get("stock_equality")?;
    let element: Option<Oid> = row.try_get("element_oid")?;
    let made = |oid, name, form| KeyType {
        oid,
        name,
        modifier,
        form,
        deterministic,
        stock_equality,
    };
    let form = match element {
        None => form(row, "type_form")?,
        Some(element) => {
            let name = text(row, "element_name")?;
            let element = made(element, name, form(row, "element_form")?);
            TypeForm::Array(Box::new(element))
        }
    };
    Ok(made(
        row.try_get("type_oid")?,
        text(row, "type_name")?,
        form,
    ))
}

fn form(row: &Row, name: &str) -> Result<TypeForm, Failure> {
    Ok(match row.try_get::<_, &str>(name)? {
        "enum" => TypeForm::Enum,
        "citext" => TypeForm::Citext,
        _ => TypeForm::Base,
    })
}

/// One key column of an index; rows of one index follow each other.
fn index_column(
    row: &Row,
    indexes: &mut Vec<KeyIndex>,
    place: impl Fn(&str) -> Option<usize>,
) -> Result<(), Failure> {
    let oid: Oid = row.try_get("index")?;
    if indexes.last().is_none_or(|index| index.oid != oid) {
        indexes.push(KeyIndex {
            oid,
            name: text(row, "index_name")?,
            columns: Vec::new(),
            nulls_distinct: row.try_get("nulls_distinct")?,
            partial: row.try_get("partial")?,
            exclusion: row.try_get("exclusion")?,
        });
    }
    let Some(index) = indexes.last_mut() else {
        return Ok(());
    };
    if row.try_get::<_, bool>("compared_otherwise")? {
        return Ok(());
    }
    let column: Option<&str> = row.try_get("attname")?;
    let lower: bool = row.try_get("lower")?;
    let source = match column.and_then(place) {
        Some(place) if lower => KeySource::Lower(place),
        Some(place) => KeySource::Column(place),
        None => KeySource::Expression,
    };
    let key_type = key_type(row)?;
    index.columns.push(KeyColumn { source, key_type });
    Ok(())
}

/// One column of a foreign key; rows of one key follow each other, in the order of the index.
fn foreign_key_column(
    row: &Row,
    keys: &mut Vec<ForeignKey>,
    place: impl Fn(&str) -> Option<usize>,
) -> Result<(), Failure> {
    let first: bool = row.try_get("first")?;
    if first || keys.is_empty() {
        keys.push(ForeignKey {
            name: text(row, "conname")?,
            parent: root_of(row)?,
            index: row.try_get("index")?,
            index_name: text(row, "index_name")?,
            columns: Vec::new(),
            key_types: Vec::new(),
        });
    }
    let column: &str = row.try_get("attname")?;
    let Some(key) = keys.last_mut() else {
        return Ok(());
    };
    key.columns.extend(place(column));
    // Of a period it is not equality that decides.
    if !row.try_get::<_, bool>("period")? {
        key.key_types.push(key_type(row)?);
    }
    Ok(())
}

/// Trigger bits: 4 = INSERT, 8 = DELETE, 16 = UPDATE, 32 = TRUNCATE.
fn firing(row: &Row) -> Result<Firing, Failure> {
    let bits: i32 = row.try_get("bits")?;
    Ok(Firing {
        name: text(row, "name")?,
        insert: bits & 4 != 0,
        delete: bits & 8 != 0,
        update: bits & 16 != 0,
        truncate: bits & 32 != 0,
    })
}
