//! The claim: what a producer that holds the slot writes before anything else.
//!
//! Owns what a claim says and the hash of the options that decide which links a WAL gives. Does not
//! own its meaning, which is the chain's: after a claim, records of older claims are void.
//!
//! The hash covers the *names* of the publications, not their tables: what a publication holds
//! changes with the WAL itself, the same for every reader of it. The order of names says nothing.

use walbraid_schemas::{Claim, Lsn, fingerprint};

use crate::config::Publisher;

/// What is asked of pgoutput, as far as it decides which links come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub protocol: u32,
    pub publications: Vec<String>,
    pub local_origin_only: bool,
}

impl Options {
    /// The options of a publisher that speaks `protocol`.
    pub(crate) fn new(publisher: &Publisher, protocol: u32) -> Options {
        let mut publications = publisher.publications.clone();
        publications.sort();
        publications.dedup();
        Options {
            protocol,
            publications,
            local_origin_only: publisher.local_origin_only,
        }
    }

    /// A number that differs when the links may differ.
    pub(crate) fn hash(&self) -> i64 {
        let mut text = format!(
            "protocol={};streaming=off;two_phase=off;messages=on;origin={}",
            self.protocol,
            if self.local_origin_only {
                "none"
            } else {
                "any"
            },
        );
        for name in &self.publications {
            text.push_str(&format!(";{}:{name}", name.len()));
        }
        fingerprint::of(&text)
    }
}

/// Who claims what.
#[derive(Debug, Clone)]
pub(crate) struct Claimant<'a> {
    pub options: &'a Options,
    pub system_identifier: &'a str,
    pub database: &'a str,
    pub slot: &'a str,
    pub confirmed_lsn: Lsn,
    /// Generation of the claim that was the newest before.
    pub last_generation: i64,
}

impl Claimant<'_> {
    /// The claim, told from all others by random bytes.
    pub(crate) fn claim(&self, id: [u8; 16]) -> Claim {
        Claim {
            generation: self.last_generation + 1,
            id,
            confirmed_lsn: self.confirmed_lsn,
            system_identifier: self.system_identifier.to_owned(),
            database: self.database.to_owned(),
            slot: self.slot.to_owned(),
            publications: self.options.publications.clone(),
            protocol: self.options.protocol as i32,
            writer: writer(),
        }
    }
}

/// Host and process, for people.
fn writer() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!(
        "{}:{}",
        if host.is_empty() { "unknown" } else { host },
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(publications: &[&str], protocol: u32, local_origin_only: bool) -> i64 {
        let publications = publications.iter().map(|name| (*name).to_owned()).collect();
        Options {
            protocol,
            publications,
            local_origin_only,
        }
        .hash()
    }

    #[test]
    fn the_hash_tells_options_apart() {
        let one = hash(&["a", "b"], 4, false);
        assert_eq!(one, hash(&["a", "b"], 4, false));
        for other in [
            hash(&["a"], 4, false),
            hash(&["a;1:b"], 4, false),
            hash(&["a", "b"], 3, false),
            hash(&["a", "b"], 4, true),
        ] {
            assert_ne!(one, other);
        }
    }
}
