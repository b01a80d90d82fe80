//! Whether both sides agree: every published table, as a multiset of rows.
//!
//! Values are compared as text under pinned settings; floats by the bytes their send function
//! gives, so that -0 and the last bit count. The columns are the publisher's published ones, by
//! name: the subscriber may have more, in another order. Row filters of a publication apply to the
//! publisher's rows. The tables of a witness, which are written meanwhile, are left to it.

use std::cmp::Ordering;

use crate::session::Session;
use crate::witness::SCHEMA;

const PINNED: &str = "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; \
    SET extra_float_digits = 3; SET bytea_output = 'hex'; SET lc_monetary = 'C'; \
    SET search_path = pg_catalog";

/// A row's values in the order of the columns' names.
type Row = Vec<Option<String>>;

struct Table {
    name: String,
    columns: Vec<Column>,
    filter: Option<String>,
}

struct Column {
    name: String,
    kind: String,
}

/// Compares every table of `publication`; what differs is said, table by table.
pub async fn differences(
    publisher: &Session,
    subscriber: &Session,
    publication: &str,
) -> Vec<String> {
    for side in [publisher, subscriber] {
        side.run(PINNED).await;
    }
    let tables = published(publisher, publication).await;
    assert!(
        !tables.is_empty(),
        "publication {publication} holds no table"
    );
    let mut found = Vec::new();
    for table in &tables {
        let ours = publisher.rows(&query(table, table.filter.as_deref())).await;
        match subscriber.try_rows(&query(table, None)).await {
            Ok(theirs) => found.extend(compare(&table.name, ours, theirs)),
            Err(error) => found.push(format!("{}: {error}", table.name)),
        }
    }
    found
}

async fn published(publisher: &Session, publication: &str) -> Vec<Table> {
    let version: i64 = publisher
        .value("SHOW server_version_num")
        .await
        .parse()
        .unwrap();
    // Column lists and row filters exist from 15 on.
    let (columns, filter) = if version >= 150_000 {
        ("t.attnames", "t.rowfilter")
    } else {
        (
            "(SELECT array_agg(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)",
            "NULL",
        )
    };
    let tables = publisher
        .rows(&format!(
            "SELECT format('%I.%I', t.schemaname, t.tablename), {filter}, c.oid,
                    coalesce({columns}::text, '{{}}')
             FROM pg_publication_tables t
             JOIN pg_namespace n ON n.nspname = t.schemaname
             JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
             WHERE t.pubname = '{publication}' AND t.schemaname <> '{SCHEMA}' ORDER BY 1"
        ))
        .await;
    let mut published = Vec::new();
    for table in tables {
        let [Some(name), filter, Some(oid), Some(names)] = <[_; 4]>::try_from(table).unwrap()
        else {
            panic!("an incomplete row of pg_publication_tables")
        };
        let columns = publisher
            .rows(&format!(
                "SELECT quote_ident(attname), format_type(atttypid, NULL) FROM pg_attribute
                 WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped
                   AND attname = ANY ($walbraid${names}$walbraid$::name[])
                 ORDER BY attname COLLATE \"C\""
            ))
            .await
            .into_iter()
            .map(|mut row| {
                let kind = row.pop().flatten().unwrap();
                Column {
                    name: row.pop().flatten().unwrap(),
                    kind,
                }
            })
            .collect();
        published.push(Table {
            name,
            columns,
            filter,
        });
    }
    published
}

fn query(table: &Table, filter: Option<&str>) -> String {
    let values: Vec<String> = table
        .columns
        .iter()
        .map(|Column { name, kind }| match kind.as_str() {
            "real" => format!("encode(float4send({name}), 'hex')"),
            "double precision" => format!("encode(float8send({name}), 'hex')"),
            _ => format!("{name}::text"),
        })
        .collect();
    let filter = filter
        .map(|filter| format!(" WHERE {filter}"))
        .unwrap_or_default();
    format!("SELECT {} FROM {}{filter}", values.join(", "), table.name)
}

/// The first rows that only one side has.
fn compare(table: &str, mut ours: Vec<Row>, mut theirs: Vec<Row>) -> Option<String> {
    const SHOWN: usize = 5;
    ours.sort();
    theirs.sort();
    let (mut missing, mut extra) = (Vec::new(), Vec::new());
    let (mut left, mut right) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.cmp(right),
        };
        match order {
            Ordering::Less => missing.extend(left.next()),
            Ordering::Greater => extra.extend(right.next()),
            Ordering::Equal => drop((left.next(), right.next())),
        }
    }
    if missing.is_empty() && extra.is_empty() {
        return None;
    }
    Some(format!(
        "{table}: {} rows on the publisher, {} on the subscriber; {} missing, e.g. {:?}; \
         {} too many, e.g. {:?}",
        ours.len(),
        theirs.len(),
        missing.len(),
        &missing[..missing.len().min(SHOWN)],
        extra.len(),
        &extra[..extra.len().min(SHOWN)],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_as_a_multiset() {
        let rows = |values: &[&str]| -> Vec<Row> {
            values
                .iter()
                .map(|value| vec![Some((*value).to_owned()), None])
                .collect()
        };
        let check = |ours: &[&str], theirs: &[&str], same| {
            assert_eq!(
                compare("t", rows(ours), rows(theirs)).is_none(),
                same,
                "{ours:?} {theirs:?}"
            );
        };
        check(&[], &[], true);
        check(&["a", "b", "a"], &["a", "a", "b"], true);
        check(&["a", "a", "b"], &["a", "b"], false);
        check(&["a", "b"], &["a", "a", "b"], false);
        check(&["a"], &["b"], false);
    }
}
