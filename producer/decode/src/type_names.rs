//! Names of types by oid.
//!
//! pgoutput names a type (message `Y`) only where its oid is 10000 or above; below that the oids
//! are fixed by PostgreSQL's own catalogue, and every server has the same. A domain is named by
//! its base type, which has the same text.

use std::collections::HashMap;

/// The types of one replication stream.
#[derive(Debug, Default)]
pub(crate) struct TypeNames {
    sent: HashMap<u32, String>,
}

impl TypeNames {
    /// Keeps what a Type message said.
    pub(crate) fn insert(&mut self, oid: u32, schema: &str, name: &str) {
        self.sent.insert(oid, type_name(schema, name));
    }

    /// The qualified name of a type; none for an oid that is neither built in nor was sent.
    pub(crate) fn name(&self, oid: u32) -> Option<String> {
        if let Some(name) = self.sent.get(&oid) {
            return Some(name.clone());
        }
        postgres_types::Type::from_oid(oid).map(|known| type_name(known.schema(), known.name()))
    }
}

/// A type as the log names it: qualified and unquoted.
fn type_name(schema: &str, name: &str) -> String {
    let schema = if schema.is_empty() {
        "pg_catalog"
    } else {
        schema
    };
    format!("{schema}.{name}")
}

/// A relation's `schema.name` for messages, each quoted where needed. pgoutput leaves the schema empty for pg_catalog.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    let schema = if schema.is_empty() {
        "pg_catalog"
    } else {
        schema
    };
    let mut out = String::with_capacity(schema.len() + name.len() + 1);
    push_identifier(&mut out, schema);
    out.push('.');
    push_identifier(&mut out, name);
    out
}

fn push_identifier(out: &mut String, name: &str) {
    let mut bytes = name.bytes();
    let plain = bytes
        .next()
        .is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'$');
    if plain {
        out.push_str(name);
    } else {
        out.push('"');
        for c in name.chars() {
            if c == '"' {
                out.push('"');
            }
            out.push(c);
        }
        out.push('"');
    }
}
