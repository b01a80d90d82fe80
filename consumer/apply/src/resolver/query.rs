//! How old values are read: one statement for many rows of a table.
//!
//! Keys come as arrays of text, one for each column of the lookup, and are cast as if they were
//! given to the column; they are compared with the lookup's own operators, so that what is found
//! is what the change will find. Each row found is answered by the place of its key, from 1 on, and
//! the asked columns as the type's own output function writes them (a cast to text would write some
//! types otherwise: booleans, networks).

use std::fmt::Write;

use crate::lookup::Lookup;
use crate::mapping::Mapped;
use crate::quote;
use crate::statement;

/// The statement that reads old values of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The text; its parameters are of type text[].
    pub sql: String,
    /// How many parameters it has.
    pub keys: usize,
    /// How many columns of text follow the key's place in a row of the answer.
    pub columns: usize,
}

/// The statement for a mapped table.
pub fn query(mapped: &Mapped) -> Query {
    let relation = mapped.relation();
    let columns = mapped.conflict().old_columns();
    let Lookup::Unique(keys) = mapped.lookup() else {
        debug_assert!(false, "old values of rows that nothing tells apart");
        return Query {
            sql: "SELECT".to_owned(),
            keys: 0,
            columns: 0,
        };
    };
    let mut sql = "SELECT k.n".to_owned();
    for &column in &columns {
        let name = quote::identifier(&relation.columns[column].name);
        let text = format!("pg_catalog.format('%s', t.{name})");
        let _ = write!(sql, ", CASE WHEN t.{name} IS NOT NULL THEN {text} END");
    }
    let (mut arrays, mut names, mut terms) = (Vec::new(), Vec::new(), Vec::new());
    for (place, key) in keys.iter().enumerate() {
        let number = place + 1;
        let column = &relation.columns[key.column];
        let operand = format!("t.{}", quote::identifier(&column.name));
        let value = format!("k.k{number}::{}", column.type_sql);
        let equality = key.equality.as_ref();
        arrays.push(format!("pg_catalog.unnest(${number}::pg_catalog.text[])"));
        names.push(format!("k{number}, "));
        terms.push(statement::equal(column, &operand, &value, equality));
    }
    let _ = write!(
        sql,
        " FROM ROWS FROM ({}) WITH ORDINALITY AS k ({}n) JOIN {} AS t ON {}",
        arrays.join(", "),
        names.concat(),
        relation.target_sql(),
        terms.join(" AND "),
    );
    Query {
        sql,
        keys: keys.len(),
        columns: columns.len(),
    }
}
