//! What the publisher is: its settings, its identity, its publications.
//!
//! Owns the questions asked of the publisher's catalogue before anything is read from its slot, and
//! the session settings pinned for the walsender. Does not own the slot (`slot`) nor the comparison
//! with the log (`tail`).
//!
//! The pinned settings make the text of a value depend on the value alone, never on what a role or
//! a database was configured with. The empty search path makes names inside values qualified.

use tokio_postgres::Client;
use walbraid_schemas::{Stop, StopKind};
use walbraid_wire::Error;

/// Session settings of the walsender.
pub const PINNED_SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("search_path", ""),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
];

/// The oldest major version that can be a publisher.
pub(crate) const VERSION_MIN: i32 = 14;

/// Settings and facts of the publisher that decide how its slot is read.
#[derive(Debug, Clone)]
pub struct Facts {
    /// `server_version_num`.
    pub version_number: i32,
    /// The database that was connected to.
    pub database: String,
    /// `wal_level`.
    pub wal_level: String,
    /// `server_encoding`.
    pub encoding: String,
    /// `wal_sender_timeout`; 0 is none.
    pub wal_sender_timeout_ms: u64,
    /// The role that connected.
    pub role: String,
    /// Whether the role may read slots.
    pub may_replicate: bool,
    /// Slots in use and allowed.
    pub slots: (i64, i64),
    /// Walsenders in use and allowed.
    pub walsenders: (i64, i64),
    /// `max_slot_wal_keep_size` in MB; -1 is no limit.
    pub slot_wal_keep_mb: i64,
    /// `idle_replication_slot_timeout`; 0 is none, or not known to the server.
    pub idle_slot_timeout: i64,
}

impl Facts {
    /// The major version.
    pub fn major(&self) -> i32 {
        self.version_number / 10_000
    }

    /// The newest version of pgoutput's protocol that the server speaks.
    pub fn protocol(&self) -> u32 {
        match self.major() {
            16.. => 4,
            15 => 3,
            _ => 2,
        }
    }
}

const FACTS: &str = "\
select pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
       pg_catalog.current_database()::pg_catalog.text,
       pg_catalog.current_setting('wal_level'),
       pg_catalog.current_setting('server_encoding'),
       (select s.setting::pg_catalog.int8 from pg_catalog.pg_settings s
         where s.name = 'wal_sender_timeout'),
       current_user::pg_catalog.text,
       (select r.rolsuper or r.rolreplication from pg_catalog.pg_roles r
         where r.rolname = current_user),
       (select pg_catalog.count(*) from pg_catalog.pg_replication_slots),
       pg_catalog.current_setting('max_replication_slots')::pg_catalog.int8,
       (select pg_catalog.count(*) from pg_catalog.pg_stat_replication),
       pg_catalog.current_setting('max_wal_senders')::pg_catalog.int8,
       (select s.setting::pg_catalog.int8 from pg_catalog.pg_settings s
         where s.name = 'max_slot_wal_keep_size'),
       coalesce((select s.setting::pg_catalog.int8 from pg_catalog.pg_settings s
                  where s.name = 'idle_replication_slot_timeout'), 0)";

/// Asks the publisher what it is.
pub async fn facts(client: &Client) -> Result<Facts, Error> {
    let row = client.query_one(FACTS, &[]).await?;
    Ok(Facts {
        version_number: row.try_get(0)?,
        database: row.try_get(1)?,
        wal_level: row.try_get(2)?,
        encoding: row.try_get(3)?,
        wal_sender_timeout_ms: row.try_get::<_, i64>(4)?.max(0) as u64,
        role: row.try_get(5)?,
        may_replicate: row.try_get::<_, Option<bool>>(6)?.unwrap_or(false),
        slots: (row.try_get(7)?, row.try_get(8)?),
        walsenders: (row.try_get(9)?, row.try_get(10)?),
        slot_wal_keep_mb: row.try_get(11)?,
        idle_slot_timeout: row.try_get(12)?,
    })
}

/// The first thing in `facts` that makes it impossible to read a slot here.
pub fn unfit(facts: &Facts) -> Option<Stop> {
    if facts.major() < VERSION_MIN {
        let message = format!(
            "publisher is PostgreSQL {}, which is too old",
            facts.major()
        );
        return Some(
            Stop::new(StopKind::Usage, message)
                .hint(format!("Versions from {VERSION_MIN} on are supported.")),
        );
    }
    if facts.wal_level != "logical" {
        let message = format!("publisher has wal_level \"{}\"", facts.wal_level);
        return Some(
            Stop::new(StopKind::WalLevel, message)
                .detail("Logical decoding needs wal_level \"logical\".")
                .hint("Set wal_level = logical on the publisher and restart it."),
        );
    }
    if !facts.may_replicate {
        let message = format!("role \"{}\" may not read the publisher's slot", facts.role);
        return Some(
            Stop::new(StopKind::MissingRight, message)
                .detail("The role has not the attribute REPLICATION.")
                .hint(format!(
                    "Run on the publisher: ALTER ROLE {} REPLICATION;",
                    quoted(&facts.role)
                )),
        );
    }
    None
}

/// A publication as it stands on the publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its name.
    pub name: String,
    /// Whether it holds tables by rule (all tables, or all of a schema), so that none now is fine.
    pub by_rule: bool,
    /// The tables it publishes now.
    pub tables: i64,
}

const PUBLICATIONS: &str = "\
select p.pubname::pg_catalog.text,
       p.puballtables or %s,
       (select pg_catalog.count(*) from pg_catalog.pg_publication_tables t
         where t.pubname = p.pubname)
  from pg_catalog.pg_publication p
 where p.pubname = any ($1)";

const SCHEMA_RULE: &str = "\
exists (select 1 from pg_catalog.pg_publication_namespace n where n.pnpubid = p.oid)";

/// Those of `names` that exist.
pub async fn publications(
    client: &Client,
    facts: &Facts,
    names: &[String],
) -> Result<Vec<Publication>, Error> {
    let rule = match facts.major() {
        15.. => SCHEMA_RULE,
        _ => "false",
    };
    let rows = client
        .query(&PUBLICATIONS.replace("%s", rule), &[&names])
        .await?;
    let publication = |row: tokio_postgres::Row| {
        Ok(Publication {
            name: row.try_get(0)?,
            by_rule: row.try_get(1)?,
            tables: row.try_get(2)?,
        })
    };
    rows.into_iter().map(publication).collect()
}

/// The first of `names` that is missing, or a stop if all of them together publish nothing.
pub fn unpublished(names: &[String], found: &[Publication]) -> Option<Stop> {
    if let Some(name) = names
        .iter()
        .find(|name| found.iter().all(|p| p.name != **name))
    {
        return Some(
            Stop::new(
                StopKind::Publication,
                format!("publication \"{name}\" does not exist"),
            )
            .hint("Create it on the publisher with CREATE PUBLICATION."),
        );
    }
    let empty = found.iter().find(|p| p.tables == 0 && !p.by_rule)?;
    let message = format!("publication \"{}\" has no tables", empty.name);
    Some(
        Stop::new(StopKind::Publication, message)
            .hint("Add tables on the publisher with ALTER PUBLICATION … ADD TABLE."),
    )
}

const UNIDENTIFIED: &str = "\
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
  from pg_catalog.pg_publication p
  join pg_catalog.pg_publication_tables t on t.pubname = p.pubname
  join pg_catalog.pg_namespace n on n.nspname = t.schemaname
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
 where p.pubname = any ($1) and (p.pubupdate or p.pubdelete)
   and (c.relreplident = 'n'
        or c.relreplident = 'd' and not exists (
           select 1 from pg_catalog.pg_index i
            where i.indrelid = c.oid and i.indisprimary and i.indimmediate)
        or c.relreplident = 'i' and not exists (
           select 1 from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisreplident))
 order by 1";

/// Published tables whose updates and deletes the publisher refuses, for want of an identity.
pub async fn unidentified(client: &Client, names: &[String]) -> Result<Vec<String>, Error> {
    let rows = client.query(UNIDENTIFIED, &[&names]).await?;
    Ok(rows
        .into_iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}

/// The filter is read through the row as JSON: 14 has none.
const FILTERED: &str = "\
select distinct pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
  from pg_catalog.pg_publication p
  join pg_catalog.pg_publication_rel r on r.prpubid = p.oid
  join pg_catalog.pg_class c on c.oid = r.prrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where p.pubname = any ($1) and p.pubupdate and c.relreplident <> 'f'
   and pg_catalog.to_jsonb(r) ->> 'prqual' is not null
   and exists (
       select 1 from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          and a.attlen = -1 and a.attstorage <> 'p')
 order by 1";

/// Tables published with a row filter, of which an update may bring a row into the filter without
/// all of its values: those that are stored apart and did not change are not in the WAL.
pub async fn filtered(client: &Client, names: &[String]) -> Result<Vec<String>, Error> {
    let rows = client.query(FILTERED, &[&names]).await?;
    Ok(rows
        .into_iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}

/// An identifier as SQL wants it, always quoted.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
