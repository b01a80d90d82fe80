//! What the subscriber's catalogue says of a table: SQL in, `apply::relation::Relation` out.
//!
//! Read once for each shape of a table, and read again when a statement failed in a way that a
//! changed table explains (`resolve` keeps what is read): an error is a fact only under the table
//! as it is.
//!
//! Equality operators are looked up as the server's own type cache does: the default btree operator
//! class of the type (of the type below a domain; of a type it is binary-coercible to), else hash;
//! none where a component of the type (element, attribute, subtype) has none, because the operator
//! would only fail later, row by row.

mod fingerprint;
mod keys;
mod keys_sql;
mod session;

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::Oid;
use walbraid_apply::keys::Keys;
use walbraid_apply::relation::{
    Column, IdentityColumn, IndexColumn, Operator, Relation, RelationKind, UniqueIndex,
};

use crate::policy::Failure;

pub use fingerprint::fingerprints;
pub use session::Session;

/// The oid of bytea.
const BYTEA_OID: Oid = 17;

/// Reads a table and what its conflict keys rest on; `None` when there is no relation of that name.
pub async fn read_with_keys(
    session: &Session,
    schema: &str,
    name: &str,
) -> Result<Option<Relation>, Failure> {
    let Some(mut relation) = read(session, schema, name).await? else {
        return Ok(None);
    };
    relation.keys = keys::read(session, relation.oid, &relation.columns).await?;
    Ok(Some(relation))
}

/// Reads a table without its conflict keys, which nobody needs where one worker applies; `None`
/// when there is no relation of that name.
pub async fn read(
    session: &Session,
    schema: &str,
    name: &str,
) -> Result<Option<Relation>, Failure> {
    let found = session.query(CLASS, &[&schema, &name]).await?;
    let Some(class) = found.first() else {
        return Ok(None);
    };
    let oid: Oid = class.try_get(0)?;
    let kind = match char_of(class, 1)? {
        'r' => RelationKind::Table,
        'p' => RelationKind::Partitioned,
        other => RelationKind::Other(other),
    };
    let rows = session.query(COLUMNS, &[&oid]).await?;
    let mut columns = Vec::with_capacity(rows.len());
    let mut numbers = HashMap::with_capacity(rows.len());
    for row in &rows {
        numbers.insert(row.try_get::<_, i16>("attnum")?, columns.len());
        columns.push(column(row)?);
    }
    let mut primary_key = None;
    let mut replica_identity = None;
    for row in session.query(INDEXES, &[&oid]).await? {
        let Some(index) = index(&row, &numbers)? else {
            continue;
        };
        if row.try_get("indisprimary")? {
            primary_key = Some(index.clone());
        }
        if row.try_get("indisreplident")? {
            replica_identity = Some(index);
        }
    }
    Ok(Some(Relation {
        oid,
        schema: schema.to_owned(),
        name: name.to_owned(),
        kind,
        columns,
        primary_key,
        replica_identity,
        insert_trigger: class.try_get(2)?,
        rule: class.try_get(3)?,
        keys: Keys::default(),
    }))
}

fn char_of(row: &Row, index: usize) -> Result<char, Failure> {
    Ok(row.try_get::<_, &str>(index)?.chars().next().unwrap_or('?'))
}

fn column(row: &Row) -> Result<Column, Failure> {
    let identity = match row.try_get::<_, &str>("identity")? {
        "a" => IdentityColumn::Always,
        "d" => IdentityColumn::ByDefault,
        _ => IdentityColumn::No,
    };
    let equality = match row.try_get::<_, Option<String>>("operator")? {
        Some(name) => Some(Operator {
            schema: row.try_get("operator_schema")?,
            name,
        }),
        None => None,
    };
    Ok(Column {
        name: row.try_get("attname")?,
        type_oid: row.try_get("atttypid")?,
        type_sql: row.try_get("type_sql")?,
        not_null: row.try_get("attnotnull")?,
        has_default: row.try_get("has_default")?,
        generated: row.try_get("generated")?,
        identity,
        bytea: row.try_get::<_, Oid>("base")? == BYTEA_OID,
        operand_sql: row.try_get("operand_sql")?,
        equality,
    })
}

/// An index whose columns all stand and all have an equality, or nothing.
fn index(row: &Row, numbers: &HashMap<i16, usize>) -> Result<Option<UniqueIndex>, Failure> {
    let keys: Vec<i16> = row.try_get("keys")?;
    let schemas: Vec<Option<String>> = row.try_get("operator_schemas")?;
    let names: Vec<Option<String>> = row.try_get("operators")?;
    let mut columns = Vec::with_capacity(keys.len());
    for ((key, schema), name) in keys.iter().zip(schemas).zip(names) {
        let (Some(&column), Some(schema), Some(name)) = (numbers.get(key), schema, name) else {
            return Ok(None);
        };
        columns.push(IndexColumn {
            column,
            equality: Operator { schema, name },
        });
    }
    Ok((!columns.is_empty()).then_some(UniqueIndex { columns }))
}

/// Trigger bits: 1 = FOR EACH ROW, 2 = BEFORE, 4 = INSERT; enabled R or A fires in replica mode.
const CLASS: &str = "
SELECT c.oid, c.relkind::text,
       EXISTS (SELECT FROM pg_catalog.pg_trigger t
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
                 AND t.tgenabled IN ('R', 'A') AND t.tgtype & 7 = 7),
       (SELECT r.rulename::text FROM pg_catalog.pg_rewrite r
        WHERE r.ev_class = c.oid AND r.ev_enabled IN ('R', 'A') AND r.ev_type <> '1'
        ORDER BY r.rulename LIMIT 1)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2";

const COLUMNS: &str = "
WITH RECURSIVE attribute AS (
    SELECT a.* FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
), part (root, type, domains_only) AS (
    SELECT DISTINCT atttypid, atttypid, true FROM attribute
    UNION
    SELECT p.root, below.type, p.domains_only AND t.typtype = 'd'
    FROM part p
    JOIN pg_catalog.pg_type t ON t.oid = p.type
    CROSS JOIN LATERAL (
        SELECT t.typbasetype AS type WHERE t.typtype = 'd'
        UNION ALL
        SELECT t.typelem WHERE t.typcategory = 'A' AND t.typelem <> 0
        UNION ALL
        SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT r.rngsubtype FROM pg_catalog.pg_range r
        WHERE r.rngtypid = t.oid OR r.rngmultitypid = t.oid
    ) below
), class AS MATERIALIZED (
    SELECT c.oid, m.amname, c.opcintype, i.typispreferred, o.oprname, n.nspname
    FROM pg_catalog.pg_opclass c
    JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname IN ('btree', 'hash')
    JOIN pg_catalog.pg_type i ON i.oid = c.opcintype
    JOIN pg_catalog.pg_amop x ON x.amopfamily = c.opcfamily
        AND x.amoplefttype = c.opcintype AND x.amoprighttype = c.opcintype
        AND x.amopstrategy = CASE m.amname WHEN 'btree' THEN 3 ELSE 1 END
    JOIN pg_catalog.pg_operator o ON o.oid = x.amopopr
    JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
    WHERE c.opcdefault
), leaf AS (
    SELECT p.root, p.type, p.domains_only, op.oprname, op.nspname
    FROM part p
    JOIN pg_catalog.pg_type t ON t.oid = p.type AND t.typtype <> 'd'
    LEFT JOIN LATERAL (
        SELECT c.oprname, c.nspname
        FROM class c
        WHERE c.opcintype = t.oid
            OR (c.opcintype = 'pg_catalog.anyenum'::regtype AND t.typtype = 'e')
            OR (c.opcintype = 'pg_catalog.anyrange'::regtype AND t.typtype = 'r')
            OR (c.opcintype = 'pg_catalog.anymultirange'::regtype AND t.typtype = 'm')
            OR (c.opcintype = 'pg_catalog.record'::regtype AND t.typtype = 'c')
            OR (c.opcintype = 'pg_catalog.anyarray'::regtype
                AND t.typcategory = 'A' AND t.typelem <> 0)
            OR EXISTS (SELECT FROM pg_catalog.pg_cast k
                       WHERE k.castsource = t.oid AND k.casttarget = c.opcintype
                         AND k.castmethod = 'b' AND k.castcontext = 'i')
        ORDER BY c.amname, c.opcintype <> t.oid, NOT c.typispreferred, c.oid
        LIMIT 1
    ) op ON true
), equality AS (
    SELECT root, bool_and(oprname IS NOT NULL) AS whole,
           max(type) FILTER (WHERE domains_only) AS base,
           max(oprname::text) FILTER (WHERE domains_only) AS operator,
           max(nspname::text) FILTER (WHERE domains_only) AS operator_schema
    FROM leaf GROUP BY root
)
SELECT a.attnum, a.attname, a.atttypid, a.attnotnull,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_sql,
       a.attidentity::text AS identity,
       a.attgenerated <> '' AS generated,
       (a.atthasdef AND a.attgenerated = '') OR a.attidentity <> ''
           OR EXISTS (SELECT FROM pg_catalog.pg_type d
                      WHERE d.oid = a.atttypid AND d.typdefault IS NOT NULL) AS has_default,
       coalesce(e.base, a.atttypid) AS base,
       (SELECT pg_catalog.format_type(b.oid, NULL) FROM pg_catalog.pg_type b
        WHERE b.oid = e.base AND b.oid <> a.atttypid AND b.typtype = 'e') AS operand_sql,
       CASE WHEN e.whole THEN e.operator END AS operator,
       CASE WHEN e.whole THEN e.operator_schema END AS operator_schema
FROM attribute a LEFT JOIN equality e ON e.root = a.atttypid
ORDER BY a.attnum";

const INDEXES: &str = "
SELECT x.indisprimary, x.indisreplident,
       array_agg(k.attnum ORDER BY k.place) AS keys,
       array_agg(n.nspname::text ORDER BY k.place) AS operator_schemas,
       array_agg(o.oprname::text ORDER BY k.place) AS operators
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
CROSS JOIN LATERAL (
    SELECT x.indkey[place] AS attnum, x.indclass[place] AS class, place
    FROM generate_series(0, x.indnkeyatts - 1) place
) k
LEFT JOIN pg_catalog.pg_opclass p ON p.oid = k.class
LEFT JOIN pg_catalog.pg_amop s ON s.amopfamily = p.opcfamily
    AND s.amoplefttype = p.opcintype AND s.amoprighttype = p.opcintype AND s.amopstrategy = 3
LEFT JOIN pg_catalog.pg_operator o ON o.oid = s.amopopr
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
WHERE x.indrelid = $1 AND x.indisunique AND x.indisvalid AND x.indimmediate
  AND (x.indisprimary OR x.indisreplident)
  AND x.indexprs IS NULL AND x.indpred IS NULL
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = x.indrelid AND NOT a.attnotnull
                    AND a.attnum = ANY (x.indkey[0:x.indnkeyatts - 1]))
GROUP BY x.indexrelid, x.indisprimary, x.indisreplident";
