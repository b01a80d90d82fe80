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
        let known = postgres_types::Type::from_oid(oid);
        let name = match &known {
            Some(known) => known.name(),
            None => catalogue_row(oid)?,
        };
        Some(type_name("", name))
    }
}

/// The row types of PostgreSQL's catalogues that have fixed oids. postgres-types knows all other
/// types below 10000 of versions 14 to 18.
fn catalogue_row(oid: u32) -> Option<&'static str> {
    Some(match oid {
        71 => "pg_type",
        75 => "pg_attribute",
        81 => "pg_proc",
        83 => "pg_class",
        210 => "_pg_type",
        270 => "_pg_attribute",
        272 => "_pg_proc",
        273 => "_pg_class",
        1248 => "pg_database",
        2842 => "pg_authid",
        2843 => "pg_auth_members",
        4066 => "pg_shseclabel",
        6101 => "pg_subscription",
        _ => return None,
    })
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

/// A relation's `schema.name` for messages, each quoted where needed. pgoutput leaves the schema
/// empty for pg_catalog.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_by_what_was_sent_then_by_what_is_built_in() {
        let mut names = TypeNames::default();
        names.insert(16385, "public", "mood");
        names.insert(16386, "", "int4");
        names.insert(16387, "My Schema", "My \"Type");
        let check = |oid, expected: Option<&str>| {
            assert_eq!(names.name(oid).as_deref(), expected, "{oid}");
        };
        check(16385, Some("public.mood"));
        check(16386, Some("pg_catalog.int4"));
        check(16387, Some("My Schema.My \"Type"));
        check(16, Some("pg_catalog.bool"));
        check(18, Some("pg_catalog.char"));
        check(1007, Some("pg_catalog._int4"));
        check(4451, Some("pg_catalog.int4multirange"));
        check(83, Some("pg_catalog.pg_class"));
        check(16388, None);
        check(0, None);
    }

    #[test]
    fn names_of_relations_are_quoted_as_postgresql_quotes() {
        let check = |schema, name, expected| assert_eq!(qualified(schema, name), expected);
        check("public", "orders", "public.orders");
        check("", "pg_class", "pg_catalog.pg_class");
        check("My Schema", "a\"b", "\"My Schema\".\"a\"\"b\"");
        check("_x", "a1$", "_x.a1$");
        check("public", "1a", "public.\"1a\"");
        check("public", "é", "public.\"é\"");
    }
}
