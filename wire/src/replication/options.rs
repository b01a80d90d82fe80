//! What is asked of a slot when it is created and when it is read, written as commands.
//!
//! Pure: options and a server's version in, the text of the command out. What a version does not
//! know is refused by name here, before anything is sent. Names are quoted for the replication
//! grammar, which knows double-quoted identifiers and single-quoted strings without escapes.

use walbraid_schemas::Lsn;

use crate::error::Error;
use crate::server_version::ServerVersion;

/// How transactions arrive that are still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// Not at all: the server keeps them until they commit.
    #[default]
    Off,
    /// In blocks, when they pass `logical_decoding_work_mem`.
    On,
    /// The same, with what an apply worker needs to start before the commit.
    Parallel,
}

/// Which changes the server leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginFilter {
    /// None: changes of any origin are sent.
    #[default]
    Any,
    /// Those that have an origin.
    None,
}

/// START_REPLICATION of a logical slot that pgoutput decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationOptions {
    /// The slot.
    pub slot: String,
    /// Where to start; `0/0` and everything before the confirmed position start there.
    pub start_lsn: Lsn,
    /// 1 to 4; see [`ReplicationOptions::newest_protocol`].
    pub protocol_version: u32,
    /// Publications by name.
    pub publications: Vec<String>,
    /// Open transactions.
    pub streaming: Streaming,
    /// Two-phase transactions at their PREPARE.
    pub two_phase: bool,
    /// Messages of `pg_logical_emit_message`.
    pub messages: bool,
    /// Values in binary.
    pub binary: bool,
    /// Filter by origin.
    pub origin: OriginFilter,
}

impl ReplicationOptions {
    /// All of these publications from the confirmed position, with the newest protocol the server
    /// has, and with messages.
    pub fn new(version: ServerVersion, slot: &str, publications: &[String]) -> ReplicationOptions {
        ReplicationOptions {
            slot: slot.to_owned(),
            start_lsn: Lsn::INVALID,
            protocol_version: ReplicationOptions::newest_protocol(version),
            publications: publications.to_vec(),
            streaming: Streaming::Off,
            two_phase: false,
            messages: true,
            binary: false,
            origin: OriginFilter::Any,
        }
    }

    /// The newest protocol of pgoutput that a server has.
    pub fn newest_protocol(version: ServerVersion) -> u32 {
        match version.major {
            ..14 => 1,
            14 => 2,
            15 => 3,
            16.. => 4,
        }
    }

    /// The command, or what the server is too old for.
    pub fn command(&self, version: ServerVersion) -> Result<String, Error> {
        self.check(version)?;
        let names: Vec<String> = self
            .publications
            .iter()
            .map(|name| identifier(name))
            .collect();
        let mut options = vec![
            ("proto_version", self.protocol_version.to_string()),
            ("publication_names", names.join(",")),
        ];
        match self.streaming {
            // Said nothing, it is off; servers before 16 know no other word than true and false.
            Streaming::Off => {}
            Streaming::On => options.push(("streaming", "on".to_owned())),
            Streaming::Parallel => options.push(("streaming", "parallel".to_owned())),
        }
        let mut flag = |name, on: bool| {
            if on {
                options.push((name, "true".to_owned()));
            }
        };
        flag("two_phase", self.two_phase);
        flag("messages", self.messages);
        flag("binary", self.binary);
        if self.origin == OriginFilter::None {
            options.push(("origin", "none".to_owned()));
        }
        let options: Vec<String> = options
            .iter()
            .map(|(name, value)| format!("{name} {}", literal(value)))
            .collect();
        Ok(format!(
            "START_REPLICATION SLOT {} LOGICAL {} ({})",
            identifier(&self.slot),
            self.start_lsn,
            options.join(", ")
        ))
    }

    fn check(&self, version: ServerVersion) -> Result<(), Error> {
        let protocol = self.protocol_version;
        match protocol {
            1 => {}
            2 => version.require("proto_version 2", 14)?,
            3 => version.require("proto_version 3", 15)?,
            4 => version.require("proto_version 4", 16)?,
            _ => {
                return Err(Error::configuration(format!(
                    "proto_version {protocol} is unknown"
                )));
            }
        }
        let needs = |option: &str, needs: u32| {
            if protocol >= needs {
                return Ok(());
            }
            Err(Error::configuration(format!(
                "{option} needs proto_version {needs} or newer, {protocol} is asked for"
            )))
        };
        if self.publications.is_empty() {
            return Err(Error::configuration("no publication is named"));
        }
        match self.streaming {
            Streaming::Off => {}
            Streaming::On => {
                version.require("streaming", 14)?;
                needs("streaming", 2)?;
            }
            Streaming::Parallel => {
                version.require("streaming parallel", 16)?;
                needs("streaming parallel", 4)?;
            }
        }
        if self.two_phase {
            version.require("two_phase", 15)?;
            needs("two_phase", 3)?;
        }
        if self.messages {
            version.require("messages", 14)?;
        }
        if self.binary {
            version.require("binary", 14)?;
        }
        if self.origin == OriginFilter::None {
            version.require("origin", 16)?;
        }
        Ok(())
    }
}

/// What becomes of the snapshot that goes with a new slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    /// It is exported; the name is valid until the next command of the session.
    Export,
    /// The session's open transaction uses it.
    Use,
    /// It is dropped.
    #[default]
    Nothing,
}

/// CREATE_REPLICATION_SLOT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotOptions {
    /// Dropped at the end of the session.
    pub temporary: bool,
    /// Decodes PREPARE at its time.
    pub two_phase: bool,
    /// Kept in step on stand-bys.
    pub failover: bool,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Gives up after so long when it has to wait for open transactions; nothing waits for ever.
    pub lock_timeout_ms: Option<u32>,
}

impl SlotOptions {
    /// The command, or what the server is too old for.
    pub fn command(&self, version: ServerVersion, slot: &str) -> Result<String, Error> {
        if self.two_phase {
            version.require("two_phase", 15)?;
        }
        if self.failover {
            version.require("failover", 17)?;
        }
        let temporary = if self.temporary { " TEMPORARY" } else { "" };
        let head = format!(
            "CREATE_REPLICATION_SLOT {}{temporary} LOGICAL pgoutput",
            identifier(slot)
        );
        if version.major < 15 {
            let word = match self.snapshot {
                Snapshot::Export => "EXPORT_SNAPSHOT",
                Snapshot::Use => "USE_SNAPSHOT",
                Snapshot::Nothing => "NOEXPORT_SNAPSHOT",
            };
            return Ok(format!("{head} {word}"));
        }
        let word = match self.snapshot {
            Snapshot::Export => "export",
            Snapshot::Use => "use",
            Snapshot::Nothing => "nothing",
        };
        let mut options = format!("SNAPSHOT '{word}'");
        if self.two_phase {
            options.push_str(", TWO_PHASE true");
        }
        if self.failover {
            options.push_str(", FAILOVER true");
        }
        Ok(format!("{head} ({options})"))
    }
}

/// `"name"`.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `'text'`.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u32) -> ServerVersion {
        ServerVersion { major, minor: 0 }
    }

    fn options(major: u32) -> ReplicationOptions {
        ReplicationOptions::new(version(major), "s", &["p".to_owned()])
    }

    #[test]
    fn start_commands() {
        let check = |options: ReplicationOptions, major: u32, expected: &str| {
            let command = options
                .command(version(major))
                .unwrap_or_else(|e| e.to_string());
            assert_eq!(command, expected);
        };
        let head = "START_REPLICATION SLOT \"s\" LOGICAL 0/0 ";
        let publication = "publication_names '\"p\"'";
        check(
            options(14),
            14,
            &format!("{head}(proto_version '2', {publication}, messages 'true')"),
        );
        check(
            ReplicationOptions {
                start_lsn: Lsn(0x1_0000_00AB),
                streaming: Streaming::Parallel,
                two_phase: true,
                binary: true,
                origin: OriginFilter::None,
                ..options(18)
            },
            18,
            "START_REPLICATION SLOT \"s\" LOGICAL 1/AB (proto_version '4', publication_names \
             '\"p\"', streaming 'parallel', two_phase 'true', messages 'true', binary 'true', \
             origin 'none')",
        );
        check(
            ReplicationOptions {
                publications: vec!["a\"b".to_owned(), "c'd, e".to_owned()],
                messages: false,
                slot: "x\"y".to_owned(),
                ..options(16)
            },
            16,
            "START_REPLICATION SLOT \"x\"\"y\" LOGICAL 0/0 (proto_version '4', publication_names \
             '\"a\"\"b\",\"c''d, e\"')",
        );
    }

    #[test]
    fn what_a_server_does_not_know_is_refused() {
        let check = |change: fn(&mut ReplicationOptions), major: u32, expected: &str| {
            let mut options = options(major);
            change(&mut options);
            let refused = options
                .command(version(major))
                .err()
                .map(|error| error.to_string());
            assert_eq!(
                refused.as_deref(),
                Some(expected).filter(|text| !text.is_empty())
            );
        };
        let two_phase = |options: &mut ReplicationOptions| options.two_phase = true;
        let origin = |options: &mut ReplicationOptions| options.origin = OriginFilter::None;
        let parallel = |options: &mut ReplicationOptions| options.streaming = Streaming::Parallel;
        let on = |options: &mut ReplicationOptions| options.streaming = Streaming::On;
        check(
            two_phase,
            14,
            "two_phase needs PostgreSQL 15 or newer, the server is 14",
        );
        check(two_phase, 15, "");
        check(
            origin,
            15,
            "origin needs PostgreSQL 16 or newer, the server is 15",
        );
        check(origin, 16, "");
        check(
            parallel,
            15,
            "streaming parallel needs PostgreSQL 16 or newer, the server is 15",
        );
        check(parallel, 16, "");
        check(on, 14, "");
        check(
            on,
            13,
            "streaming needs PostgreSQL 14 or newer, the server is 13",
        );
        check(
            |options| options.protocol_version = 4,
            15,
            "proto_version 4 needs PostgreSQL 16 or newer, the server is 15",
        );
        check(
            |options| options.protocol_version = 5,
            18,
            "proto_version 5 is unknown",
        );
        check(
            |options| options.publications.clear(),
            18,
            "no publication is named",
        );
        check(
            |options| (options.protocol_version, options.streaming) = (1, Streaming::On),
            18,
            "streaming needs proto_version 2 or newer, 1 is asked for",
        );
    }

    #[test]
    fn slot_commands() {
        let check = |options: SlotOptions, major: u32, expected: &str| {
            let command = options
                .command(version(major), "s")
                .unwrap_or_else(|e| e.to_string());
            assert_eq!(command, expected);
        };
        let head = "CREATE_REPLICATION_SLOT \"s\"";
        check(
            SlotOptions::default(),
            14,
            &format!("{head} LOGICAL pgoutput NOEXPORT_SNAPSHOT"),
        );
        check(
            SlotOptions {
                temporary: true,
                snapshot: Snapshot::Export,
                ..Default::default()
            },
            14,
            &format!("{head} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"),
        );
        check(
            SlotOptions {
                snapshot: Snapshot::Use,
                two_phase: true,
                ..Default::default()
            },
            15,
            &format!("{head} LOGICAL pgoutput (SNAPSHOT 'use', TWO_PHASE true)"),
        );
        check(
            SlotOptions {
                failover: true,
                ..Default::default()
            },
            17,
            &format!("{head} LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)"),
        );
        check(
            SlotOptions {
                failover: true,
                ..Default::default()
            },
            16,
            "failover needs PostgreSQL 17 or newer, the server is 16",
        );
        check(
            SlotOptions {
                two_phase: true,
                ..Default::default()
            },
            14,
            "two_phase needs PostgreSQL 15 or newer, the server is 14",
        );
    }
}
