//! What the consumer needs of the subscriber: to be let in, to write, its rights, its origins.
//!
//! Each right is tried where trying changes nothing, and asked for where it would. What `setup`
//! does is asked for only as long as it has not been done.

use tokio_postgres::error::SqlState;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::stream::{self, Stream};
use walbraid_consumer::{holder, schema};
use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;
use crate::finding::Finding;
use crate::session::{self, OrStop, Session};

/// The oldest major version that can be a subscriber.
const VERSION_MIN: u32 = 14;
/// Whether the stream is set up on this subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetUp {
    /// It is.
    Yes,
    /// It is, by another configuration: of other names, or of another publisher.
    Otherwise,
    /// A setup did not come to its end; what it left is known for its own.
    Begun,
    /// Nothing of it.
    No,
    /// The subscriber does not say.
    Unknown,
}

/// Looks at everything but the tables.
pub(super) async fn look(
    config: &Config,
    session: &Session,
    findings: &mut Vec<Finding>,
) -> Result<SetUp, Stop> {
    let version = session.server_version();
    if version.major < VERSION_MIN {
        let message = format!(
            "subscriber is PostgreSQL {}, which is too old",
            version.major
        );
        let hint = format!("Versions from {VERSION_MIN} on are supported.");
        let stop = Stop::new(StopKind::Usage, message).hint(hint);
        findings.push(Finding::error("subscriber: server", stop));
    }
    findings.push(writable(session).await?);
    findings.push(replica_role(session).await?);
    findings.push(functions(session, schema::FUNCTIONS).await?);
    let set_up = installed(config, session, findings).await?;
    if matches!(set_up, SetUp::Yes | SetUp::Otherwise) {
        findings.extend(other_owner(config, session).await?);
    } else {
        findings.push(origins(config, session).await?);
    }
    Ok(set_up)
}

async fn writable(session: &Session) -> Result<Finding, Stop> {
    const SUBJECT: &str = "subscriber: writable";
    let sql = "SELECT pg_catalog.pg_is_in_recovery(),
                      pg_catalog.current_setting('default_transaction_read_only')::bool";
    let row = session.query_one(sql, &[]).await.or_stop("subscriber")?;
    if row.get(0) {
        let stop = Stop::new(StopKind::SubscriberReadOnly, "subscriber is a stand-by")
            .hint("Name the primary, or every host with target_session_attrs=read-write.");
        return Ok(Finding::error(SUBJECT, stop));
    }
    if row.get(1) {
        // An apply session sets it off for itself; a person who set it may not want that.
        return Ok(Finding::warning(
            SUBJECT,
            "default_transaction_read_only is on for this role or database",
            "Setup and consumer turn it off for their own sessions.",
        ));
    }
    Ok(Finding::good(SUBJECT, ""))
}

/// The triggers and foreign keys of the publisher have done their work already.
async fn replica_role(session: &Session) -> Result<Finding, Stop> {
    const SUBJECT: &str = "subscriber: session_replication_role";
    let tried = session
        .batch_execute("BEGIN; SET LOCAL session_replication_role = replica; ROLLBACK")
        .await;
    let Err(error) = tried else {
        return Ok(Finding::good(SUBJECT, ""));
    };
    let refused = error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
    // The error aborted the transaction; the next look must not be in it.
    session
        .batch_execute("ROLLBACK")
        .await
        .or_stop("subscriber")?;
    if !refused {
        return Err(session::stop("subscriber", &error.into()));
    }
    let role = role(session).await?;
    let hint = match session.server_version().major {
        ..15 => "On PostgreSQL 14 only a superuser may set it.".to_owned(),
        _ => format!("GRANT SET ON PARAMETER session_replication_role TO {role};"),
    };
    let message = format!("role {role} may not set session_replication_role");
    Ok(Finding::error(
        SUBJECT,
        Stop::new(StopKind::MissingRight, message).hint(hint),
    ))
}

/// Fails if setup could not make on the subscriber what it makes there, whoever consumes.
pub(crate) async fn refuse_before_setup(session: &Session) -> Result<(), Stop> {
    for finding in [
        writable(session).await?,
        functions(session, schema::SETUP_FUNCTIONS).await?,
    ] {
        if let Some(stop) = finding.stop() {
            return Err(stop.clone());
        }
    }
    Ok(())
}

async fn functions(session: &Session, needed: &[&str]) -> Result<Finding, Stop> {
    const SUBJECT: &str = "subscriber: replication origin functions";
    let sql = "SELECT name FROM pg_catalog.unnest($1::text[]) AS f (name)
               WHERE NOT pg_catalog.has_function_privilege(name, 'EXECUTE')";
    let rows = session.query(sql, &[&needed]).await.or_stop("subscriber")?;
    let missing: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    if missing.is_empty() {
        return Ok(Finding::good(SUBJECT, ""));
    }
    let role = role(session).await?;
    let message = format!("role {role} may not call {}", missing.join(", "));
    let hint = format!(
        "GRANT EXECUTE ON FUNCTION {} TO {role};",
        missing.join(", ")
    );
    Ok(Finding::error(
        SUBJECT,
        Stop::new(StopKind::MissingRight, message).hint(hint),
    ))
}

/// The schema and the stream in it: their rights when they are there, the right to make them if
/// not.
async fn installed(
    config: &Config,
    session: &Session,
    findings: &mut Vec<Finding>,
) -> Result<SetUp, Stop> {
    const SUBJECT: &str = "subscriber: schema walbraid";
    let role = role(session).await?;
    let missing = |message: String, hint: String| {
        Finding::error(
            SUBJECT,
            Stop::new(StopKind::MissingRight, message).hint(hint),
        )
    };
    let there = "SELECT pg_catalog.to_regnamespace('walbraid') IS NOT NULL";
    if !session
        .query_one(there, &[])
        .await
        .or_stop("subscriber")?
        .get::<_, bool>(0)
    {
        let may =
            "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')";
        findings.push(match session.query_one(may, &[]).await.or_stop("subscriber")?.get(0) {
            true => Finding::good(SUBJECT, "not there; walbraid setup makes it"),
            false => missing(
                format!("role {role} may not make the schema walbraid"),
                format!(
                    "GRANT CREATE ON DATABASE … TO {role}; or run setup with a role that may, by \
                     --set subscriber.url=…"
                ),
            ),
        });
        return Ok(SetUp::No);
    }
    let rights = "SELECT pg_catalog.has_schema_privilege('walbraid', 'USAGE')
                     AND pg_catalog.has_table_privilege('walbraid.streams', 'SELECT')
                     AND pg_catalog.has_table_privilege('walbraid.lanes', 'SELECT')
                     AND pg_catalog.has_table_privilege('walbraid.lanes', 'UPDATE')
                     AND pg_catalog.has_table_privilege('walbraid.progress', 'SELECT')
                     AND pg_catalog.has_table_privilege('walbraid.progress', 'INSERT')
                     AND pg_catalog.has_table_privilege('walbraid.progress', 'DELETE')
                     AND (SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege(t, r))
                          FROM pg_catalog.unnest(ARRAY[
                                   pg_catalog.to_regclass('walbraid.explained'),
                                   pg_catalog.to_regclass('walbraid.recordings')]) t,
                               pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r
                         ) IS NOT FALSE";
    let may = match session.query_one(rights, &[]).await {
        Ok(row) => row.get(0),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => false,
        Err(error) => return Err(error).or_stop("subscriber"),
    };
    if !may {
        findings.push(missing(
            format!("role {role} may not use the schema walbraid"),
            format!(
                "GRANT USAGE ON SCHEMA walbraid TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA \
                 walbraid TO {role}; GRANT UPDATE ON walbraid.lanes TO {role}; GRANT INSERT, \
                 DELETE ON walbraid.progress TO {role}; GRANT INSERT, UPDATE, DELETE ON \
                 walbraid.explained, walbraid.recordings TO {role};"
            ),
        ));
        return Ok(SetUp::Unknown);
    }
    schema::require(session).await.map_err(Failure::into_stop)?;
    findings.push(Finding::good(SUBJECT, ""));
    let found = stream::find_any(session, &config.stream).await;
    let Some((stream, ready)) = found.map_err(Failure::into_stop)? else {
        return Ok(SetUp::No);
    };
    if let Some(stop) = stream.other_than(&configured(config, &stream).await) {
        findings.push(Finding::error("configuration: stream", stop));
        return Ok(SetUp::Otherwise);
    }
    Ok(if ready { SetUp::Yes } else { SetUp::Begun })
}

/// The stream as it is configured. Which server the publisher is, only it can say; one that is away
/// is reported already.
async fn configured(config: &Config, stream: &Stream) -> Stream {
    let producer = &config.producer;
    let mut configured = Stream {
        slot: producer.publisher.slot.clone(),
        topic: producer.kafka.topic.clone(),
        publisher_database: producer.publisher.connect.database().to_owned(),
        ..stream.clone()
    };
    if let Ok(identity) = session::identify(config).await {
        configured.publisher_system_identifier = identity.system_identifier;
    }
    configured
}

/// Each session that applies takes one of the origins that can be in use; the anchors of streams
/// are rows only. Those of this database are not counted: they may be the stream's own.
async fn origins(config: &Config, session: &Session) -> Result<Finding, Stop> {
    let setting = match session.server_version().major {
        ..18 => "max_replication_slots",
        _ => "max_active_replication_origins",
    };
    let sql = "SELECT pg_catalog.current_setting($1)::int8,
                      (SELECT pg_catalog.count(*)
                       FROM pg_catalog.pg_replication_origin
                       WHERE roname NOT LIKE 'walbraid\\_%\\_anchor'
                         AND NOT pg_catalog.starts_with(roname, (
                             SELECT 'walbraid_' || oid || '_' FROM pg_catalog.pg_database
                             WHERE datname = pg_catalog.current_database())))";
    let row = session
        .query_one(sql, &[&setting])
        .await
        .or_stop("subscriber")?;
    let needed = i64::try_from(config.consumer.apply.workers.most()).unwrap_or(i64::MAX);
    Ok(room(setting, row.get(0), row.get(1), needed))
}

fn room(setting: &str, allowed: i64, there: i64, needed: i64) -> Finding {
    const SUBJECT: &str = "subscriber: replication origins";
    if allowed - there >= needed {
        return Finding::good(SUBJECT, format!("{there} of {allowed} are there"));
    }
    let message = format!("{there} replication origins are there and {allowed} can be in use");
    if allowed > there {
        return Finding::warning(
            SUBJECT,
            message,
            format!(
                "Of {needed} sessions that may apply only {} can: raise {setting}, or lower \
                 \"consumer.workers\".",
                allowed - there
            ),
        );
    }
    Finding::error(
        SUBJECT,
        Stop::new(StopKind::OriginLimit, message)
            .detail(format!(
                "The stream takes {needed}: one for each session that applies."
            ))
            .hint(format!(
                "Raise {setting} on the subscriber and restart it, or lower \"consumer.workers\"."
            )),
    )
}

/// Who takes a lane over ends the former owner's sessions, which takes its role or a right.
async fn other_owner(config: &Config, session: &Session) -> Result<Option<Finding>, Stop> {
    const SUBJECT: &str = "subscriber: sessions of the lane's owner";
    let holders = holder::holders(session, &config.stream).await;
    let holders = holders.map_err(Failure::into_stop)?;
    let foreign = holders.into_iter().find(|holder| !holder.may_be_ended);
    let Some(owner) = foreign.and_then(|holder| holder.role) else {
        return Ok(None);
    };
    let role = role(session).await?;
    let message = format!("role {role} may not end the sessions of role \"{owner}\"");
    Ok(Some(Finding::warning(
        SUBJECT,
        format!("{message}, which consumes the stream now"),
        format!("Use the same role for every consumer, or GRANT pg_signal_backend TO {role};"),
    )))
}

async fn role(session: &Session) -> Result<String, Stop> {
    let sql = "SELECT pg_catalog.quote_ident(current_user)";
    Ok(session
        .query_one(sql, &[])
        .await
        .or_stop("subscriber")?
        .get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_that_applies_takes_an_origin() {
        let check = |allowed, there, needed, one: bool, text: &str| {
            let finding = room("max_replication_slots", allowed, there, needed);
            assert_eq!(finding.stop().is_none(), one, "{finding:?}");
            assert!(finding.text().contains(text), "{finding:?}");
        };
        check(10, 9, 1, true, "9 of 10 are there");
        check(10, 10, 1, false, "The stream takes 1");
        check(10, 2, 8, true, "2 of 10 are there");
        check(10, 3, 8, true, "Of 8 sessions that may apply only 7 can");
    }
}
