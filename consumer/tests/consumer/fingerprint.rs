//! What changes the fingerprint of a relation, and what does not.

use std::collections::{BTreeSet, HashMap};

use walbraid_consumer::catalogue;

use crate::bed::{Bed, connect};

const TABLES: &str = "
    CREATE DOMAIN short AS text;
    CREATE TABLE parent (id int PRIMARY KEY, code text, note short);
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
    CREATE TABLE other (id int PRIMARY KEY, v int DEFAULT 1, w text);
    CREATE INDEX other_w ON other (w);
    CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
    CREATE TABLE leaf PARTITION OF parted FOR VALUES FROM (0) TO (10);
    CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER fires AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION nothing();
    CREATE RULE rule AS ON DELETE TO other DO ALSO NOTHING;
    INSERT INTO parent VALUES (1, 'a', 'b'); INSERT INTO other VALUES (1, 1, 'c');
    INSERT INTO parted VALUES (1, 'd')";

const WATCHED: &[&str] = &["parent", "child", "other", "parted", "leaf"];

/// Statements, each with the tables whose fingerprints it changes.
const CASES: &[(&str, &[&str])] = &[
    ("TRUNCATE other, parted", &[]),
    ("TRUNCATE parent CASCADE", &[]),
    ("ANALYZE", &[]),
    ("VACUUM", &[]),
    ("VACUUM FULL other, parent, leaf", &[]),
    ("REINDEX TABLE other", &[]),
    ("CLUSTER other USING other_pkey", &[]),
    ("GRANT SELECT ON other, leaf TO PUBLIC", &[]),
    ("REVOKE SELECT ON other, leaf FROM PUBLIC", &[]),
    (
        "INSERT INTO other SELECT n, n FROM generate_series(10, 100) n",
        &[],
    ),
    ("CREATE TABLE one_more (id int PRIMARY KEY)", &[]),
    ("CREATE UNIQUE INDEX other_v ON other (v)", &["other"]),
    ("DROP INDEX other_v", &["other"]),
    (
        "CREATE UNIQUE INDEX parent_code ON parent (code)",
        &["parent"],
    ),
    ("ALTER TABLE other REPLICA IDENTITY FULL", &["other"]),
    ("ALTER TABLE other ENABLE ALWAYS TRIGGER fires", &["other"]),
    ("ALTER TABLE other DISABLE TRIGGER fires", &["other"]),
    ("ALTER TABLE other ENABLE REPLICA RULE rule", &["other"]),
    ("ALTER TABLE other ALTER v TYPE int8", &["other"]),
    ("ALTER TABLE other ALTER v SET DEFAULT 2", &["other"]),
    ("ALTER TABLE other ADD CHECK (v < 1000)", &["other"]),
    ("ALTER TABLE other RENAME w TO x", &["other"]),
    ("ALTER TABLE other ENABLE ROW LEVEL SECURITY", &["other"]),
    ("ALTER DOMAIN short ADD CHECK (value <> '')", &["parent"]),
    ("ALTER TABLE leaf ADD UNIQUE (v)", &["parted", "leaf"]),
    (
        "CREATE TABLE late PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        &["parted", "leaf"],
    ),
    // Of the table that references as well as of the one that is referenced.
    (
        "ALTER TABLE child ADD COLUMN again int REFERENCES parent",
        &["parent", "child"],
    ),
    (
        "DO $$ DECLARE name text; BEGIN
             SELECT tgname INTO STRICT name FROM pg_trigger
             WHERE tgrelid = 'parent'::regclass AND tgfoid::regproc::text LIKE '%noaction_del%'
             ORDER BY oid LIMIT 1;
             EXECUTE format('ALTER TABLE parent ENABLE ALWAYS TRIGGER %I', name);
         END $$",
        &["parent", "child"],
    ),
    (
        "ALTER TABLE parted ADD COLUMN other int REFERENCES other",
        &["other", "parted", "leaf"],
    ),
    ("ALTER TABLE other RENAME TO another", &["other"]),
    ("DROP TABLE child", &["parent", "child"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_changes_with_what_conflict_keys_rest_on() {
    let bed = Bed::new("fingerprint", TABLES).await;
    let reader = connect(&bed.url).await;
    let mut names = HashMap::new();
    for name in WATCHED {
        let query = format!("SELECT '{name}'::regclass::oid");
        let row = bed.sql.query_one(&query, &[]).await.unwrap();
        names.insert(row.get::<_, u32>(0), *name);
    }
    let oids: Vec<u32> = names.keys().copied().collect();
    let fingerprints = async || catalogue::fingerprints(&reader, &oids).await.unwrap();
    let mut before = fingerprints().await;
    assert_eq!(before.len(), WATCHED.len());
    let mut findings = Vec::new();
    for (statement, expected) in CASES {
        for one in statement_list(statement) {
            bed.sql.batch_execute(one).await.unwrap();
        }
        let after = fingerprints().await;
        let changed = names
            .iter()
            .filter(|(oid, _)| before.get(oid) != after.get(oid));
        let changed: BTreeSet<&str> = changed.map(|(_, name)| *name).collect();
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        if changed != expected {
            findings.push(format!("{statement}: {changed:?}, not {expected:?}"));
        }
        before = after;
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    bed.done().await;
}

/// VACUUM cannot run with others in one message.
fn statement_list(statement: &str) -> Vec<&str> {
    match statement.contains("$$") {
        true => vec![statement],
        false => statement.split("; ").collect(),
    }
}
