//! The published tables on the subscriber: whether they are there, take what comes, and may be
//! written.
//!
//! Owns the comparison of names and types. A value travels as text or as a plain number, so that
//! types need not be equal; where their names differ, the user is told. A table that fits needs no
//! line of its own.

use std::collections::BTreeMap;

use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;
use crate::finding::Finding;
use crate::session::{OrStop, Session};

/// A published table: its columns with their types.
type Published = BTreeMap<Name, Vec<(String, String)>>;
type Name = (String, String);

/// What is published at all.
#[derive(Debug, Clone, Copy, Default)]
struct Operations {
    insert: bool,
    update: bool,
    delete: bool,
    truncate: bool,
}

/// A table of the subscriber.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Table {
    kind: String,
    hidden_rows: bool,
    /// A rule that fires for changes that are applied.
    rule: Option<String>,
    /// The role may not look into the table's schema.
    closed_schema: bool,
    /// Privileges that the role has not.
    missing: Vec<&'static str>,
    columns: BTreeMap<String, Column>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    type_name: String,
    generated: bool,
    /// NOT NULL, and nothing fills it in.
    required: bool,
}

/// Compares every published table.
pub(super) async fn look(
    config: &Config,
    publisher: &Session,
    subscriber: &Session,
) -> Result<Vec<Finding>, Stop> {
    let operations = operations(config, publisher).await?;
    let published = published(config, publisher).await?;
    let tables = tables(subscriber, &published, operations).await?;
    let mut findings = Vec::new();
    let mut fitting = 0;
    for (name, columns) in &published {
        let before = findings.len();
        compare(name, columns, tables.get(name), &mut findings);
        fitting += usize::from(findings.len() == before);
    }
    if fitting > 0 {
        let message = format!("{fitting} of {} fit", published.len());
        findings.insert(0, Finding::good("subscriber: tables", message));
    }
    Ok(findings)
}

async fn operations(config: &Config, publisher: &Session) -> Result<Operations, Stop> {
    let sql = "SELECT coalesce(bool_or(pubinsert), false), coalesce(bool_or(pubupdate), false),
                      coalesce(bool_or(pubdelete), false), coalesce(bool_or(pubtruncate), false)
               FROM pg_catalog.pg_publication WHERE pubname = ANY ($1)";
    let names = &config.producer.publisher.publications;
    let row = publisher
        .query_one(sql, &[names])
        .await
        .or_stop("publisher")?;
    Ok(Operations {
        insert: row.get(0),
        update: row.get(1),
        delete: row.get(2),
        truncate: row.get(3),
    })
}

/// Column lists are known to 15 and newer, so the view is asked as JSON.
async fn published(config: &Config, publisher: &Session) -> Result<Published, Stop> {
    let sql = "SELECT DISTINCT t.schemaname::text, t.tablename::text, a.attname::text,
                      pg_catalog.format_type(a.atttypid, a.atttypmod)
               FROM pg_catalog.pg_publication_tables t
               JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
               JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                AND NOT a.attisdropped
               CROSS JOIN LATERAL (SELECT pg_catalog.to_jsonb(t) -> 'attnames' AS listed) l
               WHERE t.pubname = ANY ($1)
                 AND CASE WHEN l.listed IS NULL THEN a.attgenerated = ''
                          ELSE l.listed @> pg_catalog.to_jsonb(a.attname::text) END";
    let names = &config.producer.publisher.publications;
    let mut published = Published::new();
    for row in publisher.query(sql, &[names]).await.or_stop("publisher")? {
        let columns = published.entry((row.get(0), row.get(1))).or_default();
        columns.push((row.get(2), row.get(3)));
    }
    Ok(published)
}

async fn tables(
    subscriber: &Session,
    published: &Published,
    operations: Operations,
) -> Result<BTreeMap<Name, Table>, Stop> {
    let sql = "SELECT n.nspname::text, c.relname::text, c.relkind::text,
                      c.relrowsecurity AND NOT (SELECT r.rolsuper OR r.rolbypassrls
                          FROM pg_catalog.pg_roles r WHERE r.rolname = current_user),
                      pg_catalog.has_table_privilege(c.oid, 'SELECT'),
                      pg_catalog.has_table_privilege(c.oid, 'INSERT'),
                      pg_catalog.has_table_privilege(c.oid, 'UPDATE'),
                      pg_catalog.has_table_privilege(c.oid, 'DELETE'),
                      pg_catalog.has_table_privilege(c.oid, 'TRUNCATE'),
                      a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod),
                      a.attgenerated <> '',
                      a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
                      (SELECT pg_catalog.min(r.rulename::text) FROM pg_catalog.pg_rewrite r
                       WHERE r.ev_class = c.oid AND r.ev_enabled IN ('R', 'A')
                         AND r.ev_type <> '1'),
                      NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
               FROM unnest($1::text[], $2::text[]) AS w (schema, name)
               JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
               JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                AND NOT a.attisdropped";
    let schemas: Vec<&str> = published
        .keys()
        .map(|(schema, _)| schema.as_str())
        .collect();
    let names: Vec<&str> = published.keys().map(|(_, name)| name.as_str()).collect();
    let mut tables = BTreeMap::new();
    for row in subscriber
        .query(sql, &[&schemas, &names])
        .await
        .or_stop("subscriber")?
    {
        let table: &mut Table = tables.entry((row.get(0), row.get(1))).or_default();
        table.kind = row.get(2);
        table.hidden_rows = row.get(3);
        table.rule = row.get(13);
        table.closed_schema = row.get(14);
        table.missing = [
            ("SELECT", operations.update || operations.delete, 4),
            ("INSERT", operations.insert, 5),
            ("UPDATE", operations.update, 6),
            ("DELETE", operations.delete, 7),
            ("TRUNCATE", operations.truncate, 8),
        ]
        .into_iter()
        .filter(|(_, needed, at)| *needed && !row.get::<_, bool>(*at))
        .map(|(privilege, _, _)| privilege)
        .collect();
        let column = Column {
            type_name: row.get(10),
            generated: row.get(11),
            required: row.get(12),
        };
        table.columns.insert(row.get(9), column);
    }
    Ok(tables)
}

/// Adds a finding for each thing that does not fit.
fn compare(
    name: &Name,
    published: &[(String, String)],
    table: Option<&Table>,
    findings: &mut Vec<Finding>,
) {
    let name = format!("{}.{}", name.0, name.1);
    let subject = format!("subscriber: table {name}");
    let mut error = |kind, message: String, hint: String| {
        findings.push(Finding::error(
            &subject,
            Stop::new(kind, message).hint(hint),
        ));
    };
    let shape = StopKind::SubscriberShape;
    let Some(table) = table.filter(|table| ["r", "p"].contains(&table.kind.as_str())) else {
        let message = match table {
            None => format!("table \"{name}\" does not exist on the subscriber"),
            Some(_) => format!("relation \"{name}\" of the subscriber is no table"),
        };
        return error(
            shape,
            message,
            "Create the table on the subscriber.".to_owned(),
        );
    };
    if let Some(rule) = &table.rule {
        error(
            shape,
            format!("rule \"{rule}\" of the subscriber's table \"{name}\" fires in replica mode"),
            "ALTER TABLE … ENABLE RULE … lets it fire for other sessions only.".to_owned(),
        );
    }
    for (column, type_name) in published {
        if !table.columns.contains_key(column) {
            error(
                shape,
                format!("table \"{name}\" of the subscriber has no column \"{column}\""),
                format!("Add it on the subscriber, of type {type_name}."),
            );
        }
    }
    if table.closed_schema {
        let schema = name.split('.').next().unwrap_or_default();
        error(
            StopKind::MissingRight,
            format!("the consuming role lacks USAGE on the schema of table \"{name}\""),
            format!("GRANT USAGE ON SCHEMA {schema} TO the role of subscriber.url."),
        );
    }
    if !table.missing.is_empty() {
        let rights = table.missing.join(", ");
        error(
            StopKind::MissingRight,
            format!("the consuming role lacks {rights} on table \"{name}\""),
            format!("GRANT {rights} ON {name} TO the role of subscriber.url."),
        );
    }
    warnings(&subject, &name, published, table, findings);
}

fn warnings(
    subject: &str,
    name: &str,
    published: &[(String, String)],
    table: &Table,
    findings: &mut Vec<Finding>,
) {
    for (column, type_name) in published {
        let Some(found) = table.columns.get(column) else {
            continue;
        };
        if found.type_name != *type_name {
            findings.push(Finding::warning(
                subject,
                format!(
                    "column \"{column}\" is {type_name} on the publisher and {} on the subscriber",
                    found.type_name
                ),
                "A value that the subscriber's type does not take stops the stream.",
            ));
        }
        if found.generated {
            findings.push(Finding::warning(
                subject,
                format!("column \"{column}\" of the subscriber's table \"{name}\" is generated"),
                "The stream stops at a row for which it makes another value than was published.",
            ));
        }
    }
    let unfilled = |column: &&String| published.iter().all(|(known, _)| known != *column);
    let required = table.columns.iter().filter(|(_, column)| column.required);
    for column in required.map(|(column, _)| column).filter(unfilled) {
        findings.push(Finding::warning(
            subject,
            format!("column \"{column}\" of the subscriber is NOT NULL and has no default"),
            "Every INSERT will be refused: give it a default.",
        ));
    }
    if table.hidden_rows {
        findings.push(Finding::warning(
            subject,
            format!("table \"{name}\" has row-level security"),
            "Give the role BYPASSRLS: with a policy the stream stops at the first row.",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |type_name: &str| Column {
            type_name: type_name.to_owned(),
            generated: false,
            required: false,
        };
        Table {
            kind: "r".to_owned(),
            columns: [("id", "integer"), ("name", "text")]
                .map(|(name, type_name)| (name.to_owned(), column(type_name)))
                .into(),
            ..Table::default()
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let published = [("id", "integer"), ("name", "text")]
            .map(|(name, type_name)| (name.to_owned(), type_name.to_owned()));
        let check = |table: Option<Table>, expected: &[&str]| {
            let mut findings = Vec::new();
            let name = ("shop".to_owned(), "t".to_owned());
            compare(&name, &published, table.as_ref(), &mut findings);
            let texts: Vec<String> = findings.iter().map(Finding::text).collect();
            assert_eq!(texts.len(), expected.len(), "{texts:?}");
            for (text, part) in texts.iter().zip(expected) {
                assert!(text.contains(part), "{part}: {text}");
            }
        };
        let with = |change: fn(&mut Table)| {
            let mut table = table();
            change(&mut table);
            Some(table)
        };
        check(Some(table()), &[]);
        check(None, &["table \"shop.t\" does not exist"]);
        check(with(|t| t.kind = "v".to_owned()), &["is no table"]);
        check(
            with(|t| drop(t.columns.remove("name"))),
            &["has no column \"name\""],
        );
        check(
            with(|t| t.missing = vec!["UPDATE"]),
            &["lacks UPDATE on table \"shop.t\""],
        );
        check(with(|t| t.hidden_rows = true), &["row-level security"]);
        check(
            with(|t| {
                if let Some(column) = t.columns.get_mut("name") {
                    column.type_name = "integer".to_owned();
                }
                let more = Column {
                    type_name: "date".to_owned(),
                    generated: false,
                    required: true,
                };
                t.columns.insert("more".to_owned(), more);
            }),
            &[
                "\"name\" is text on the publisher and integer",
                "\"more\" of the subscriber is NOT NULL",
            ],
        );
        check(
            with(|t| {
                if let Some(column) = t.columns.get_mut("id") {
                    column.generated = true;
                }
            }),
            &["is generated"],
        );
        check(
            with(|t| t.closed_schema = true),
            &["lacks USAGE on the schema of table \"shop.t\""],
        );
        check(
            with(|t| t.rule = Some("r".to_owned())),
            &["rule \"r\" of the subscriber's table \"shop.t\" fires"],
        );
    }
}
