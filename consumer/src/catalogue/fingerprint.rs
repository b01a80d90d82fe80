//! One number for all that conflict keys rest on, cheap enough to be asked every second.

use tokio_postgres::Client;
use tokio_postgres::types::Oid;

use crate::policy::Failure;

/// The fingerprint of the catalogue as far as the keys of these relations rest on it. Another one
/// means: read the relations anew. It may change where nothing of interest did (a GRANT); that
/// costs a reading.
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
pub async fn fingerprint(client: &Client, relations: &[Oid]) -> Result<String, Failure> {
    let row = client.query_one(FINGERPRINT, &[&relations]).await?;
    Ok(row.try_get(0)?)
}

/// A row version is named by its xmin; relations by their whole kin, and by what references them.
const FINGERPRINT: &str = "
WITH RECURSIVE above (oid) AS (
    SELECT pg_catalog.unnest($1::pg_catalog.oid[])
    UNION
    SELECT i.inhparent FROM above JOIN pg_catalog.pg_inherits i ON i.inhrelid = above.oid
), below (oid) AS (
    SELECT oid FROM above
    UNION
    SELECT i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid
), reached (oid) AS (
    SELECT oid FROM below
    UNION
    SELECT c.conrelid FROM reached
    JOIN pg_catalog.pg_constraint c ON c.confrelid = reached.oid AND c.contype = 'f'
), seen (version) AS (
    SELECT pg_catalog.concat('c', c.oid, '.', c.xmin) FROM pg_catalog.pg_class c
    WHERE c.oid IN (SELECT oid FROM reached)
    UNION ALL
    SELECT pg_catalog.concat('x', x.indexrelid, '.', x.xmin, '.', o.xmin)
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class o ON o.oid = x.indexrelid
    WHERE x.indrelid IN (SELECT oid FROM below)
    UNION ALL
    SELECT pg_catalog.concat('i', i.inhrelid, '.', i.inhparent, '.', i.xmin)
    FROM pg_catalog.pg_inherits i
    WHERE i.inhparent IN (SELECT oid FROM below) OR i.inhparent IN (
        SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid IN (SELECT oid FROM below))
    UNION ALL
    SELECT pg_catalog.concat('k', k.oid, '.', k.xmin) FROM pg_catalog.pg_constraint k
    WHERE k.conrelid IN (SELECT oid FROM reached) OR k.confrelid IN (SELECT oid FROM below)
    UNION ALL
    SELECT pg_catalog.concat('t', t.oid, '.', t.xmin) FROM pg_catalog.pg_trigger t
    WHERE t.tgrelid IN (SELECT oid FROM reached)
       OR t.tgconstraint IN (SELECT k.oid FROM pg_catalog.pg_constraint k
                             WHERE k.conrelid IN (SELECT oid FROM below))
    UNION ALL
    SELECT pg_catalog.concat('r', r.oid, '.', r.xmin) FROM pg_catalog.pg_rewrite r
    WHERE r.ev_class IN (SELECT oid FROM below)
    UNION ALL
    SELECT pg_catalog.concat('d', d.oid, '.', d.xmin) FROM pg_catalog.pg_attrdef d
    WHERE d.adrelid IN (SELECT oid FROM below)
    UNION ALL
    SELECT pg_catalog.concat('a', a.attrelid, '.', a.attnum, '.', a.xmin, '.', y.xmin, '.', l.xmin)
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
    WHERE a.attrelid IN (SELECT oid FROM below) AND a.attnum > 0
    UNION ALL
    SELECT pg_catalog.concat('p', k.oid, '.', k.xmin) FROM pg_catalog.pg_constraint k
    WHERE k.contypid IN (SELECT a.atttypid FROM pg_catalog.pg_attribute a
                         WHERE a.attrelid IN (SELECT oid FROM below))
    UNION ALL
    SELECT pg_catalog.concat('s', pg_catalog.row_security_active(oid)) FROM above
    WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = above.oid)
)
SELECT pg_catalog.concat(
    count(*), '.', sum(pg_catalog.hashtextextended(version COLLATE \"C\", 0)))
FROM seen";
