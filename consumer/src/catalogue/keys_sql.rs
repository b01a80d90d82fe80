//! The queries of [`super::keys`]. Each takes the relation's oid.

/// Tables above the relation, itself, and those below it.
macro_rules! kin {
    () => {
        "above (oid) AS (
    SELECT $1::pg_catalog.oid
    UNION ALL
    SELECT i.inhparent FROM above
    JOIN pg_catalog.pg_class c ON c.oid = above.oid AND c.relispartition
    JOIN pg_catalog.pg_inherits i ON i.inhrelid = above.oid
), below (oid) AS (
    SELECT $1::pg_catalog.oid
    UNION ALL
    SELECT i.inhrelid FROM below
    JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
), kin AS (SELECT oid FROM above UNION SELECT oid FROM below)"
    };
}

/// Every table and its topmost one.
macro_rules! fold {
    () => {
        "fold (oid, root) AS (
    SELECT oid, oid FROM pg_catalog.pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition
    UNION ALL
    SELECT i.inhrelid, fold.root FROM fold
    JOIN pg_catalog.pg_inherits i ON i.inhparent = fold.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
)"
    };
}

/// Every index of a partition and its topmost one, for those that have one above.
macro_rules! topmost_index {
    () => {
        "topmost_index (oid, top) AS (
    SELECT oid, oid FROM pg_catalog.pg_class
    WHERE relkind IN ('i', 'I') AND NOT relispartition
    UNION ALL
    SELECT i.inhrelid, t.top FROM topmost_index t
    JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
)"
    };
}

/// Foreign keys by their topmost one, and those of which some trigger fires in replica mode.
macro_rules! fired {
    () => {
        "foreign_key (oid, top) AS (
    SELECT oid, oid FROM pg_catalog.pg_constraint WHERE contype = 'f' AND conparentid = 0
    UNION ALL
    SELECT c.oid, f.top FROM foreign_key f
    JOIN pg_catalog.pg_constraint c ON c.conparentid = f.oid AND c.contype = 'f'
), fired AS (
    SELECT DISTINCT f.top FROM foreign_key f
    JOIN pg_catalog.pg_trigger t ON t.tgconstraint = f.oid AND t.tgenabled IN ('R', 'A')
)"
    };
}

/// Columns of tables with the type below their domains. The tables are those in `wanted (oid)`.
macro_rules! base {
    () => {
        "base (relation, number, name, collated, type, modifier) AS (
    SELECT a.attrelid, a.attnum, a.attname, a.attcollation, a.atttypid, a.atttypmod
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid IN (SELECT oid FROM wanted) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.relation, b.number, b.name, b.collated, t.typbasetype, t.typtypmod
    FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.type AND t.typtype = 'd'
), citext AS (
    SELECT d.objid AS oid FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid AND x.extname = 'citext'
    JOIN pg_catalog.pg_type t ON t.oid = d.objid AND t.typname = 'citext'
    WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.deptype = 'e'
      AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
), kind AS (
    SELECT t.oid, t.typname::text AS name, t.typelem AS element,
           t.typcategory = 'A' AND t.typelem <> 0 AS is_array,
           CASE WHEN t.typtype = 'e' THEN 'enum'
                WHEN t.oid IN (SELECT oid FROM citext) THEN 'citext'
                ELSE 'base' END AS form
    FROM pg_catalog.pg_type t
)"
    };
}

/// What describes a type `k` with the element `e`.
macro_rules! described {
    () => {
        "k.oid AS type_oid, k.name AS type_name, k.form AS type_form,
       e.oid AS element_oid, e.name AS element_name, e.form AS element_form"
    };
}

/// The key columns of the indexes in `wanted_index (oid, exclusion operators)`, compared as their
/// operator classes do: the column's own type where the class takes it or anything like it.
macro_rules! key {
    () => {
        "key AS (
    SELECT x.indexrelid, x.indrelid, place, x.indkey[place] AS number,
           x.indcollation[place] AS collated, x.indclass[place] AS class,
           w.operators[place + 1] AS operator,
           CASE WHEN x.indkey[place] = 0
                THEN pg_catalog.pg_get_indexdef(x.indexrelid, place + 1, true) END AS expression
    FROM wanted_index w JOIN pg_catalog.pg_index x ON x.indexrelid = w.oid
    CROSS JOIN LATERAL pg_catalog.generate_series(0, x.indnkeyatts - 1) place
), compared AS (
    SELECT key.*, b.name, b.modifier, b.collated AS column_collation,
           key.number = 0 AS lower, o.opcfamily, o.opcdefault, own.keeps,
           CASE WHEN own.keeps THEN b.type ELSE o.opcintype END AS type
    FROM key
    JOIN pg_catalog.pg_opclass o ON o.oid = key.class
    JOIN pg_catalog.pg_type i ON i.oid = o.opcintype
    LEFT JOIN base b ON b.relation = key.indrelid
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_type d
                        WHERE d.oid = b.type AND d.typtype = 'd')
        AND (b.number = key.number
             OR (o.opcintype = 'pg_catalog.text'::pg_catalog.regtype
                 AND key.expression IN (
                     'lower(' || pg_catalog.quote_ident(b.name) || ')',
                     'lower(' || pg_catalog.quote_ident(b.name) || '::text)')))
    CROSS JOIN LATERAL (
        SELECT coalesce(i.typtype = 'p' OR o.opcintype = b.type OR key.number = 0
                        OR (b.type = 'pg_catalog.varchar'::pg_catalog.regtype
                            AND o.opcintype = 'pg_catalog.text'::pg_catalog.regtype), false)
               AS keeps
    ) own
), equal AS (
    SELECT m.amopopr AS operator, c.opcfamily < 16384 AS builtin
    FROM pg_catalog.pg_opclass c
    JOIN pg_catalog.pg_am a ON a.oid = c.opcmethod AND a.amname = 'btree'
    JOIN pg_catalog.pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
        AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    WHERE c.opcdefault
), typed AS (
    SELECT c.*, coalesce(c.type, 0) AS key_type,
           CASE WHEN c.keeps THEN coalesce(c.modifier, -1) ELSE -1 END AS key_modifier,
           coalesce(l.collisdeterministic, true) AND coalesce(r.collisdeterministic, true)
               AS deterministic,
           CASE WHEN c.operator IS NULL
                THEN c.opcfamily < 16384
                     OR (c.opcdefault AND c.type IN (SELECT oid FROM citext))
                ELSE EXISTS (SELECT FROM equal q WHERE q.operator = c.operator
                             AND (q.builtin OR c.type IN (SELECT oid FROM citext)))
           END AS stock_equality,
           c.operator IS NOT NULL
               AND NOT EXISTS (SELECT FROM equal q WHERE q.operator = c.operator)
               AS compared_otherwise
    FROM compared c
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = c.collated
    LEFT JOIN pg_catalog.pg_collation r ON r.oid = c.column_collation
)"
    };
}

/// The topmost table, and whether row level security applies.
pub(super) const ROOT: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    "
SELECT c.oid AS root, n.nspname || '.' || c.relname AS root_name,
       pg_catalog.row_security_active($1::pg_catalog.oid) AS row_security
FROM above
JOIN pg_catalog.pg_class c ON c.oid = above.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.relispartition LIMIT 1"
);

/// The types of the relation's columns.
pub(super) const TYPES: &str = concat!(
    "WITH RECURSIVE wanted (oid) AS (SELECT $1::pg_catalog.oid), ",
    base!(),
    "
SELECT b.name::text AS attname, b.modifier, true AS stock_equality,
       coalesce(l.collisdeterministic, true) AS deterministic, ",
    described!(),
    "
FROM base b
JOIN pg_catalog.pg_type t ON t.oid = b.type AND t.typtype <> 'd'
JOIN kind k ON k.oid = b.type
LEFT JOIN kind e ON e.oid = k.element AND k.is_array
LEFT JOIN pg_catalog.pg_collation l ON l.oid = b.collated"
);

/// Key columns of unique indexes and exclusion constraints of the kin, by topmost index.
pub(super) const INDEXES: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    ", ",
    topmost_index!(),
    ", wanted_index AS (
    SELECT t.top AS oid,
           (SELECT c.conexclop FROM pg_catalog.pg_constraint c
            WHERE c.conindid = t.top AND c.conexclop IS NOT NULL LIMIT 1) AS operators
    FROM (SELECT DISTINCT t.top FROM topmost_index t
          JOIN pg_catalog.pg_index x ON x.indexrelid = t.oid
          WHERE x.indrelid IN (SELECT oid FROM kin) AND x.indislive
            AND (x.indisunique OR x.indisexclusion)) t
), wanted AS (
    SELECT x.indrelid AS oid FROM wanted_index w
    JOIN pg_catalog.pg_index x ON x.indexrelid = w.oid
), ",
    base!(),
    ", ",
    key!(),
    "
SELECT t.indexrelid AS index, c.relname::text AS index_name, t.name::text AS attname,
       coalesce(t.lower AND t.name IS NOT NULL, false) AS lower, t.key_modifier AS modifier,
       t.deterministic, t.stock_equality, t.compared_otherwise,
       x.indpred IS NOT NULL AS partial,
       x.indisexclusion OR t.operator IS NOT NULL AS exclusion,
       NOT coalesce((pg_catalog.to_jsonb(x) ->> 'indnullsnotdistinct')::bool, false)
           AS nulls_distinct, ",
    described!(),
    "
FROM typed t
JOIN pg_catalog.pg_index x ON x.indexrelid = t.indexrelid
JOIN pg_catalog.pg_class c ON c.oid = t.indexrelid
JOIN kind k ON k.oid = CASE t.key_type WHEN 0 THEN 'pg_catalog.record'::pg_catalog.regtype
                       ELSE t.key_type END
LEFT JOIN kind e ON e.oid = k.element AND k.is_array
ORDER BY t.indexrelid, t.place"
);

/// Columns of the foreign keys of the kin that are checked, in the order of the index referenced.
pub(super) const FOREIGN_KEYS: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    ", ",
    fold!(),
    ", ",
    topmost_index!(),
    ", ",
    fired!(),
    ", own AS (
    SELECT c.* FROM pg_catalog.pg_constraint c
    WHERE c.oid IN (SELECT top FROM fired) AND c.oid IN (
        SELECT f.top FROM foreign_key f JOIN pg_catalog.pg_constraint k ON k.oid = f.oid
        WHERE k.conrelid IN (SELECT oid FROM kin))
), wanted_index AS (
    SELECT DISTINCT conindid AS oid, NULL::pg_catalog.oid[] AS operators FROM own
), wanted AS (
    SELECT DISTINCT confrelid AS oid FROM own
), ",
    base!(),
    ", ",
    key!(),
    "
SELECT c.oid AS constraint_oid, c.conname::text AS conname, a.attname::text AS attname,
       pg_catalog.row_number() OVER (PARTITION BY c.oid ORDER BY t.place) = 1 AS first,
       coalesce((pg_catalog.to_jsonb(c) ->> 'conperiod')::bool, false) AS period,
       fold.root, n.nspname || '.' || r.relname AS root_name,
       i.top AS index, ir.relname::text AS index_name,
       t.key_modifier AS modifier, t.deterministic, t.stock_equality, ",
    described!(),
    "
FROM own c
JOIN fold ON fold.oid = c.confrelid
JOIN pg_catalog.pg_class r ON r.oid = fold.root
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
JOIN topmost_index i ON i.oid = c.conindid
JOIN pg_catalog.pg_class ir ON ir.oid = i.top
JOIN typed t ON t.indexrelid = c.conindid
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid
    AND a.attnum = c.conkey[pg_catalog.array_position(c.confkey, t.number)]
JOIN kind k ON k.oid = t.key_type
LEFT JOIN kind e ON e.oid = k.element AND k.is_array
ORDER BY c.oid, t.place"
);

/// Foreign keys to the kin that are checked, and whose rows change with a key.
pub(super) const REFERENCED: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    ", ",
    fold!(),
    ", ",
    topmost_index!(),
    ", ",
    fired!(),
    ", own AS (
    SELECT c.* FROM pg_catalog.pg_constraint c
    WHERE c.oid IN (SELECT top FROM fired) AND c.oid IN (
        SELECT f.top FROM foreign_key f JOIN pg_catalog.pg_constraint k ON k.oid = f.oid
        WHERE k.confrelid IN (SELECT oid FROM kin))
), acts AS (
    SELECT c.oid, c.confrelid, fold.root FROM pg_catalog.pg_constraint c
    JOIN fold ON fold.oid = c.conrelid
    WHERE c.contype = 'f' AND (c.confdeltype IN ('c', 'n', 'd') OR c.confupdtype IN ('c', 'n', 'd'))
), changed (key, root) AS (
    SELECT own.oid, acts.root FROM own JOIN acts ON acts.oid = own.oid
    UNION
    SELECT changed.key, acts.root FROM changed
    JOIN fold ON fold.root = changed.root
    JOIN acts ON acts.confrelid = fold.oid
)
SELECT c.conname::text AS conname, i.top AS index,
       ARRAY (SELECT root FROM changed WHERE key = c.oid ORDER BY root) AS cascades,
       ARRAY (SELECT n.nspname || '.' || r.relname FROM changed
              JOIN pg_catalog.pg_class r ON r.oid = changed.root
              JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
              WHERE key = c.oid ORDER BY root) AS cascade_names
FROM own c JOIN topmost_index i ON i.oid = c.conindid
ORDER BY c.oid"
);

/// Topmost tables that reference the relation's, at whatever distance.
pub(super) const TRUNCATES: &str = concat!(
    "WITH RECURSIVE ",
    fold!(),
    ", edge (parent, child) AS MATERIALIZED (
    SELECT DISTINCT parent.root, child.root FROM pg_catalog.pg_constraint c
    JOIN fold parent ON parent.oid = c.confrelid
    JOIN fold child ON child.oid = c.conrelid
    WHERE c.contype = 'f'
), reach (root) AS (
    SELECT root FROM fold WHERE oid = $1
    UNION
    SELECT edge.child FROM reach JOIN edge ON edge.parent = reach.root
)
SELECT r.oid AS root, n.nspname || '.' || r.relname AS root_name
FROM reach
JOIN pg_catalog.pg_class r ON r.oid = reach.root
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid <> (SELECT root FROM fold WHERE oid = $1)
ORDER BY r.oid"
);

/// User triggers and rules of the kin that fire in replica mode, and triggers of tables whose rows
/// change with a key.
pub(super) const FIRES: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    ", ",
    fold!(),
    ", ",
    fired!(),
    ", acts AS (
    SELECT c.confrelid, c.conrelid FROM pg_catalog.pg_constraint c
    JOIN foreign_key f ON f.oid = c.oid
    WHERE f.top IN (SELECT top FROM fired)
      AND (c.confdeltype IN ('c', 'n', 'd') OR c.confupdtype IN ('c', 'n', 'd'))
), changed (oid) AS (
    SELECT acts.conrelid FROM acts WHERE acts.confrelid IN (SELECT oid FROM kin)
    UNION
    SELECT acts.conrelid FROM changed
    JOIN fold one ON one.oid = changed.oid
    JOIN fold other ON other.root = one.root
    JOIN acts ON acts.confrelid = other.oid
)
SELECT t.tgname::text AS name, t.tgtype::int AS bits
FROM pg_catalog.pg_trigger t
WHERE NOT t.tgisinternal AND t.tgenabled IN ('R', 'A') AND t.tgrelid IN (SELECT oid FROM kin)
UNION
SELECT r.rulename::text, CASE r.ev_type WHEN '2' THEN 16 WHEN '3' THEN 4 WHEN '4' THEN 8 ELSE 0 END
FROM pg_catalog.pg_rewrite r
WHERE r.ev_class = $1 AND r.ev_enabled IN ('R', 'A') AND r.ev_type <> '1'
UNION
SELECT t.tgname::text, 24
FROM changed
JOIN fold one ON one.oid = changed.oid
JOIN fold other ON other.root = one.root
JOIN pg_catalog.pg_trigger t ON t.tgrelid = other.oid
WHERE NOT t.tgisinternal AND t.tgenabled IN ('R', 'A')
ORDER BY name"
);

/// Functions that expressions of the kin call. The server's own are not listed: nothing depends on
/// what cannot be dropped. One in C that is immutable is taken to look at its arguments alone.
pub(super) const CALLS: &str = concat!(
    "WITH RECURSIVE ",
    kin!(),
    ", domain (oid) AS (
    SELECT a.atttypid FROM pg_catalog.pg_attribute a
    WHERE a.attrelid IN (SELECT oid FROM kin) AND a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END
    FROM domain JOIN pg_catalog.pg_type t ON t.oid = domain.oid
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
), expression (class, oid, default_of) AS (
    SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, c.oid, NULL::name
    FROM pg_catalog.pg_constraint c
    WHERE c.contype = 'c' AND (c.conrelid IN (SELECT oid FROM kin)
                               OR c.contypid IN (SELECT oid FROM domain))
    UNION ALL
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, x.indexrelid, NULL
    FROM pg_catalog.pg_index x WHERE x.indrelid IN (SELECT oid FROM kin)
    UNION ALL
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, kin.oid, NULL FROM kin
    UNION ALL
    SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, d.oid,
           CASE WHEN a.attgenerated = '' THEN a.attname END
    FROM pg_catalog.pg_attrdef d
    JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE d.adrelid IN (SELECT oid FROM kin)
), called AS (
    SELECT e.default_of, coalesce(o.oprcode::pg_catalog.oid, d.refobjid) AS oid
    FROM expression e
    JOIN pg_catalog.pg_depend d ON d.classid = e.class AND d.objid = e.oid
    LEFT JOIN pg_catalog.pg_operator o ON o.oid = d.refobjid
        AND d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass
    WHERE d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass,
                           'pg_catalog.pg_operator'::pg_catalog.regclass)
)
SELECT DISTINCT called.default_of::text AS default_of, n.nspname || '.' || p.proname AS function
FROM called
JOIN pg_catalog.pg_proc p ON p.oid = called.oid
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE l.lanname NOT IN ('internal', 'c') OR p.provolatile <> 'i'
ORDER BY function"
);
