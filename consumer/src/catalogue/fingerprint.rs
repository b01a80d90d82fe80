//! A fingerprint for each relation of all that its conflict keys rest on, cheap enough to be asked
//! of all of them every second.

use std::collections::HashMap;

use tokio_postgres::Client;
use tokio_postgres::types::Oid;

use crate::policy::Failure;

/// The fingerprint of each of these relations, as far as its keys rest on the catalogue; none of
/// one that is not there any more. Another one means: read the relation anew. It may change where
/// nothing of interest did (statistics targets, a column's GRANT); that costs a reading. What does
/// not change it is whatever writes a table's files anew (TRUNCATE, which is applied here too,
/// REINDEX, CLUSTER, VACUUM FULL) or counts its rows (ANALYZE).
///
/// Between a change of the catalogue and its being seen, units run on keys of the catalogue as it
/// was. What is lost then is an opinion about speed: a unit may run beside one that it depends on.
/// It cannot commit before it (commits keep the log's order), and what goes wrong in it before its
/// turn is no fact: a duplicate key, a row not found or a lock of a later unit make it roll back
/// and run again as the head, alone and in order. So an index that was added shows itself by
/// reruns, never by a wrong row. What nobody may do meanwhile is to call a unit's failure a fact
/// without it having been the head.
///
/// A trigger or a foreign key that begins to fire in replica mode is the one change that this does
/// not cover as a whole: what it reads is decided by the snapshot of the statement that fired it.
/// Create it while the lane is stopped, or accept one interval.
pub async fn fingerprints(
    client: &Client,
    relations: &[Oid],
) -> Result<HashMap<Oid, String>, Failure> {
    let rows = client.query(FINGERPRINTS, &[&relations]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Each table has a number of its own; a relation's fingerprint is the sum over the partitions of
/// its topmost table, all that reference one of them at whatever distance, and their partitions.
///
/// A row version is named by its xmin, but not in pg_class and pg_index, where new files count.
const FINGERPRINTS: &str = "
WITH RECURSIVE above (relation, oid) AS (
    SELECT c.oid, c.oid FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1::pg_catalog.oid[])
    UNION ALL
    SELECT above.relation, i.inhparent FROM above
    JOIN pg_catalog.pg_class c ON c.oid = above.oid AND c.relispartition
    JOIN pg_catalog.pg_inherits i ON i.inhrelid = above.oid
), topmost (relation, root) AS (
    SELECT above.relation, above.oid FROM above
    JOIN pg_catalog.pg_class c ON c.oid = above.oid AND NOT c.relispartition
), edge (oid, next) AS MATERIALIZED (
    SELECT DISTINCT k.confrelid, k.conrelid FROM pg_catalog.pg_constraint k WHERE k.contype = 'f'
    UNION ALL
    SELECT e.oid, e.next FROM pg_catalog.pg_inherits i
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
        AND c.relkind IN ('r', 'p', 'f')
    CROSS JOIN LATERAL (VALUES (i.inhparent, i.inhrelid), (i.inhrelid, i.inhparent)) e (oid, next)
), reach (root, oid) AS (
    SELECT DISTINCT root, root FROM topmost
    UNION
    SELECT reach.root, edge.next FROM reach JOIN edge ON edge.oid = reach.oid
), wanted (oid) AS MATERIALIZED (
    SELECT DISTINCT oid FROM reach
), seen (oid, version) AS (
    SELECT c.oid, pg_catalog.concat_ws('.', 'c', c.oid, c.relname, n.nspname, c.relkind,
        c.relispartition, c.relrowsecurity, c.relforcerowsecurity, c.relreplident)
    FROM wanted JOIN pg_catalog.pg_class c ON c.oid = wanted.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    UNION ALL
    SELECT x.indrelid, pg_catalog.concat_ws('.', 'x', x.indexrelid, o.relname, i.inhparent,
        x.indisunique, x.indisprimary, x.indisexclusion, x.indimmediate, x.indisvalid,
        x.indislive, x.indisreplident, x.indkey, x.indclass, x.indcollation)
    FROM wanted JOIN pg_catalog.pg_index x ON x.indrelid = wanted.oid
    JOIN pg_catalog.pg_class o ON o.oid = x.indexrelid
    LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = x.indexrelid
    UNION ALL
    SELECT i.inhrelid, pg_catalog.concat_ws('.', 'i', i.inhrelid, i.inhparent, i.xmin)
    FROM wanted JOIN pg_catalog.pg_inherits i ON i.inhrelid = wanted.oid
    UNION ALL
    SELECT k.conrelid, pg_catalog.concat_ws('.', 'k', k.oid, k.xmin, i.inhparent)
    FROM wanted JOIN pg_catalog.pg_constraint k ON k.conrelid = wanted.oid
    LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = k.confrelid
    UNION ALL
    SELECT t.tgrelid, pg_catalog.concat_ws('.', 't', t.oid, t.xmin)
    FROM wanted JOIN pg_catalog.pg_trigger t ON t.tgrelid = wanted.oid
    UNION ALL
    SELECT k.conrelid, pg_catalog.concat_ws('.', 'f', t.oid, t.xmin)
    FROM wanted JOIN pg_catalog.pg_constraint k ON k.conrelid = wanted.oid AND k.contype = 'f'
    JOIN pg_catalog.pg_trigger t ON t.tgconstraint = k.oid AND t.tgrelid = k.confrelid
    UNION ALL
    SELECT r.ev_class, pg_catalog.concat_ws('.', 'r', r.oid, r.xmin)
    FROM wanted JOIN pg_catalog.pg_rewrite r ON r.ev_class = wanted.oid
    UNION ALL
    SELECT d.adrelid, pg_catalog.concat_ws('.', 'd', d.oid, d.xmin)
    FROM wanted JOIN pg_catalog.pg_attrdef d ON d.adrelid = wanted.oid
    UNION ALL
    SELECT a.attrelid, pg_catalog.concat_ws('.', 'a', a.attrelid, a.attnum, a.xmin, y.xmin, l.xmin)
    FROM wanted JOIN pg_catalog.pg_attribute a ON a.attrelid = wanted.oid AND a.attnum > 0
    LEFT JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
    UNION ALL
    SELECT a.attrelid, pg_catalog.concat_ws('.', 'p', a.attnum, k.oid, k.xmin)
    FROM wanted JOIN pg_catalog.pg_attribute a ON a.attrelid = wanted.oid AND a.attnum > 0
    JOIN pg_catalog.pg_constraint k ON k.contypid = a.atttypid AND k.contypid <> 0
), own (oid, rows, sum) AS MATERIALIZED (
    SELECT oid, pg_catalog.count(*),
           pg_catalog.sum(pg_catalog.hashtextextended(version COLLATE \"C\", 0))
    FROM seen GROUP BY oid
), whole (root, rows, sum) AS (
    SELECT reach.root, pg_catalog.sum(own.rows), pg_catalog.sum(own.sum)
    FROM reach JOIN own ON own.oid = reach.oid GROUP BY reach.root
)
SELECT t.relation, pg_catalog.concat_ws('.', t.root, w.rows, w.sum,
                                        pg_catalog.row_security_active(t.relation))
FROM topmost t JOIN whole w ON w.root = t.root";
