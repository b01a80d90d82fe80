//! What the consumer reads of conflict keys from a subscriber's catalogue: indexes of partitions,
//! foreign keys that are checked, what fires and what is called; and how it sees that it changed.

use walbraid_apply::keys::{KeyIndex, KeySource, Keys};
use walbraid_apply::relation::Relation;
use walbraid_consumer::catalogue::{self, Session};
use walbraid_wire::Sql;

use crate::bed::{connect, variable, with_database};

/// A database of its own on the subscriber, and the session that reads the catalogue.
struct Place {
    sql: Sql,
    reader: Session,
    database: String,
}

impl Place {
    async fn new(test: &str, objects: &str) -> Self {
        let database = format!("f{}_{test}", std::process::id());
        let url = variable("WALBRAID_SUBSCRIBER_URL");
        let admin = connect(&url).await;
        let made = format!("CREATE DATABASE {database}");
        admin.batch_execute(&made).await.unwrap();
        let url = with_database(&url, &database);
        let (sql, reader) = (connect(&url).await, connect(&url).await);
        reader
            .batch_execute("SET search_path = pg_catalog")
            .await
            .unwrap();
        sql.batch_execute(objects).await.unwrap();
        Self {
            sql,
            reader: Session::new(reader).await.unwrap(),
            database,
        }
    }

    async fn relation(&self, name: &str) -> Relation {
        let relation = catalogue::read_with_keys(&self.reader, "public", name).await;
        relation.unwrap().unwrap()
    }

    async fn keys(&self, name: &str) -> Keys {
        self.relation(name).await.keys
    }

    async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    async fn done(self) {
        let admin = connect(&variable("WALBRAID_SUBSCRIBER_URL")).await;
        let dropped = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        admin.batch_execute(&dropped).await.unwrap();
    }
}

/// The triggers of the child's foreign key fire in replica mode too; before 15 a partitioned table
/// has none itself.
const ENFORCED: &str = "
DO $$
DECLARE t record;
BEGIN
    FOR t IN SELECT tgname, tgrelid::regclass AS of FROM pg_trigger
             WHERE tgconstraint <> 0 AND (tgrelid = 'child'::regclass OR tgrelid IN (
                 SELECT inhrelid FROM pg_inherits WHERE inhparent = 'child'::regclass)) LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', t.of, t.tgname);
    END LOOP;
END $$";

/// `name(columns) flags`; `lower(column)`, `()` for an expression.
fn index(relation: &Relation, index: &KeyIndex) -> String {
    let name = |place: usize| relation.columns[place].name.as_str();
    let column = |source: &KeySource| match source {
        KeySource::Column(place) => name(*place).to_owned(),
        KeySource::Lower(place) => format!("lower({})", name(*place)),
        KeySource::Expression => "()".to_owned(),
    };
    let columns: Vec<String> = index
        .columns
        .iter()
        .map(|key| column(&key.source))
        .collect();
    let flags = [
        (index.partial, " partial"),
        (index.exclusion, " exclusion"),
        (!index.nulls_distinct, " nulls_alike"),
    ];
    let flags: String = flags
        .iter()
        .filter(|flag| flag.0)
        .map(|flag| flag.1)
        .collect();
    format!("{}({}){flags}", index.name, columns.join(", "))
}

fn indexes(relation: &Relation) -> Vec<String> {
    let indexes = relation.keys.indexes.iter();
    let mut indexes: Vec<String> = indexes.map(|one| index(relation, one)).collect();
    indexes.sort();
    indexes
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_that_refuse_a_row() {
    let place = Place::new(
        "indexes",
        "CREATE EXTENSION btree_gist;
         CREATE TABLE t (
             id int PRIMARY KEY, a text, b varchar(10), n int, room int, during tstzrange,
             CONSTRAINT bookings EXCLUDE USING gist (room WITH =, during WITH &&));
         CREATE UNIQUE INDEX lower_a ON t (lower(a));
         CREATE UNIQUE INDEX lower_b ON t (n, lower(b));
         CREATE UNIQUE INDEX upper_a ON t (upper(a));
         CREATE UNIQUE INDEX live ON t (a) INCLUDE (b) WHERE n > 0;
         CREATE INDEX plain ON t (n);
         ALTER TABLE t ADD CONSTRAINT later UNIQUE (n, b) DEFERRABLE INITIALLY DEFERRED",
    )
    .await;
    let expected = [
        "bookings(room) exclusion",
        "later(n, b)",
        "live(a) partial",
        "lower_a(lower(a))",
        "lower_b(n, lower(b))",
        "t_pkey(id)",
        "upper_a(())",
    ];
    assert_eq!(indexes(&place.relation("t").await), expected);
    let row = place
        .sql
        .query_one("SHOW server_version_num", &[])
        .await
        .unwrap();
    let version: u32 = row.get::<_, &str>(0).parse().unwrap();
    if version >= 150_000 {
        place
            .run("CREATE TABLE n (a int UNIQUE NULLS NOT DISTINCT)")
            .await;
        let n = indexes(&place.relation("n").await);
        assert_eq!(n, ["n_a_key(a) nulls_alike"]);
    }
    if version >= 180_000 {
        place
            .run("CREATE TABLE p (a int, at daterange, PRIMARY KEY (a, at WITHOUT OVERLAPS))")
            .await;
        assert_eq!(indexes(&place.relation("p").await), ["p_pkey(a) exclusion"]);
    }
    place.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_named_by_their_root() {
    let place = Place::new(
        "partitions",
        "CREATE TABLE t (id int, part int, u text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
         CREATE TABLE half PARTITION OF t FOR VALUES IN (1, 2) PARTITION BY LIST (part);
         CREATE TABLE leaf (u text, gone int, part int NOT NULL, id int NOT NULL);
         ALTER TABLE leaf DROP COLUMN gone;
         ALTER TABLE half ATTACH PARTITION leaf FOR VALUES IN (1);
         CREATE TABLE other PARTITION OF t FOR VALUES IN (3);
         CREATE UNIQUE INDEX leaf_u ON leaf (u);
         CREATE UNIQUE INDEX other_u ON other (u)",
    )
    .await;
    let (root, leaf, other) = (
        place.relation("t").await,
        place.relation("leaf").await,
        place.relation("other").await,
    );
    assert_eq!(
        indexes(&root),
        ["leaf_u(u)", "other_u(u)", "t_pkey(id, part)"]
    );
    assert_eq!(indexes(&leaf), ["leaf_u(u)", "t_pkey(id, part)"]);
    assert_eq!(indexes(&other), ["other_u(u)", "t_pkey(id, part)"]);
    assert_eq!(root.keys.root, None);
    for part in [&leaf, &other] {
        let named = part.keys.root.as_ref().unwrap();
        assert_eq!((named.oid, &*named.name), (root.oid, "public.t"));
        let key = |relation: &Relation| {
            let mut indexes = relation.keys.indexes.iter();
            indexes.find(|index| &*index.name == "t_pkey").unwrap().oid
        };
        assert_eq!(key(part), key(&root));
    }
    place.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_matter_where_their_triggers_fire() {
    let place = Place::new(
        "foreign",
        "CREATE TABLE parent (id int8 PRIMARY KEY, code text UNIQUE);
         CREATE TABLE child (id int PRIMARY KEY, p int8 REFERENCES parent ON DELETE CASCADE);
         CREATE TABLE grandchild (c int REFERENCES child ON DELETE SET NULL);
         CREATE TABLE unrelated (id int PRIMARY KEY)",
    )
    .await;
    let child = place.keys("child").await;
    assert!(
        child.foreign_keys.is_empty(),
        "they fire in origin mode only"
    );
    let parent = place.keys("parent").await;
    assert!(parent.referenced.is_empty());
    let truncated: Vec<&str> = parent.truncates.iter().map(|root| &*root.name).collect();
    assert_eq!(truncated, ["public.child", "public.grandchild"]);
    place.run(ENFORCED).await;
    let child = place.keys("child").await;
    let [key] = &child.foreign_keys[..] else {
        panic!("{:?}", child.foreign_keys);
    };
    assert_eq!(
        (&*key.parent.name, &*key.index_name),
        ("public.parent", "parent_pkey")
    );
    assert_eq!(key.columns, [1]);
    assert_eq!(key.key_types[0].oid, 20);
    let parent = place.keys("parent").await;
    let [reference] = &parent.referenced[..] else {
        panic!("{:?}", parent.referenced);
    };
    assert_eq!(reference.index, key.index);
    let changed: Vec<&str> = reference.cascades.iter().map(|root| &*root.name).collect();
    assert_eq!(changed, ["public.child", "public.grandchild"]);
    assert!(place.keys("unrelated").await.truncates.is_empty());
    place.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_partitions_and_of_several_columns() {
    let place = Place::new(
        "several",
        "CREATE TABLE parent (a int, b int8, PRIMARY KEY (a, b)) PARTITION BY LIST (a);
         CREATE TABLE parent_1 PARTITION OF parent FOR VALUES IN (1);
         CREATE TABLE child (x int8, y int, part int) PARTITION BY LIST (part);
         CREATE TABLE child_1 PARTITION OF child FOR VALUES IN (1);
         ALTER TABLE child ADD FOREIGN KEY (x, y) REFERENCES parent (b, a)",
    )
    .await;
    place.run(ENFORCED).await;
    let (root, leaf) = (place.keys("child").await, place.keys("child_1").await);
    assert_eq!(root.foreign_keys.len(), 1);
    assert_eq!(root.foreign_keys, leaf.foreign_keys);
    let key = &root.foreign_keys[0];
    assert_eq!(
        (&*key.parent.name, &*key.index_name),
        ("public.parent", "parent_pkey")
    );
    assert_eq!(key.columns, [1, 0], "y, x: in the order of the index");
    let types: Vec<u32> = key.key_types.iter().map(|key_type| key_type.oid).collect();
    assert_eq!(types, [23, 20]);
    for parent in ["parent", "parent_1"] {
        let parent = place.keys(parent).await;
        assert_eq!(parent.referenced.len(), 1);
        assert_eq!(parent.referenced[0].index, key.index);
    }
    place.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fires_and_what_is_called() {
    let place = Place::new(
        "fires",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE FUNCTION looks(int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true';
         CREATE DOMAIN looked AS int CHECK (looks(VALUE));
         CREATE TABLE t (id int PRIMARY KEY, x int DEFAULT (looks(1)::int), y int);
         CREATE TRIGGER origin AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
         CREATE TRIGGER always BEFORE UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
         ALTER TABLE t ENABLE ALWAYS TRIGGER always;
         CREATE RULE elsewhere AS ON INSERT TO t DO ALSO NOTHING;
         CREATE TABLE d (id looked[], at timestamptz DEFAULT now() CHECK (at > '2000-01-01'));
         CREATE TABLE i (id int);
         CREATE INDEX ON i (looks(id))",
    )
    .await;
    let keys = place.keys("t").await;
    let [firing] = &keys.fires[..] else {
        panic!("{:?}", keys.fires);
    };
    let by = (firing.insert, firing.update, firing.delete, firing.truncate);
    assert_eq!((&*firing.name, by), ("always", (false, true, true, false)));
    let calls: Vec<_> = keys
        .calls
        .iter()
        .map(|call| (&*call.function, call.default_of))
        .collect();
    assert_eq!(calls, [("public.looks", Some(1))]);
    place
        .run("ALTER TABLE t ENABLE REPLICA RULE elsewhere")
        .await;
    let keys = place.keys("t").await;
    assert!(
        keys.fires
            .iter()
            .any(|firing| &*firing.name == "elsewhere" && firing.insert)
    );
    for table in ["d", "i"] {
        let calls = place.keys(table).await.calls;
        assert_eq!(calls.len(), 1, "{table}: {calls:?}");
        assert_eq!(
            (&*calls[0].function, calls[0].default_of),
            ("public.looks", None)
        );
    }
    place.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_catalogue_is_seen() {
    let place = Place::new(
        "seen",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TABLE t (id int PRIMARY KEY, a text) PARTITION BY LIST (id);
         CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
         CREATE TABLE child (id int REFERENCES t);
         CREATE TABLE unrelated (id int)",
    )
    .await;
    let oid = place.relation("t").await.oid;
    let seen = async || {
        catalogue::fingerprints(&place.reader, &[oid])
            .await
            .unwrap()
    };
    for change in [
        "CREATE UNIQUE INDEX own ON t1 (a)",
        "DROP INDEX own",
        "ALTER TABLE t ALTER a TYPE varchar(5)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)",
        "CREATE TRIGGER note AFTER INSERT ON t1 FOR EACH ROW EXECUTE FUNCTION note()",
        "ALTER TABLE t1 ENABLE ALWAYS TRIGGER note",
        ENFORCED,
        "ALTER TABLE t ADD CHECK (a <> 'x')",
        "ALTER TABLE t ADD c int DEFAULT 5",
        "ALTER TABLE child DROP CONSTRAINT child_id_fkey",
        "DROP TABLE t CASCADE",
    ] {
        let before = seen().await;
        place
            .run(
                "INSERT INTO unrelated VALUES (1); ANALYZE;
                 ALTER TABLE unrelated ADD x int; ALTER TABLE unrelated DROP x",
            )
            .await;
        assert_eq!(seen().await, before, "something else changed");
        place.run(change).await;
        assert_ne!(seen().await, before, "{change}");
    }
    place.done().await;
}
