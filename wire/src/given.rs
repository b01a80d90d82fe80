//! Parameters as they were given: in the connection string, else in the environment.
//!
//! Owns the list of names that are known, and how a value becomes a word or a number. What the
//! parameters mean together is judged where they are used.

use std::path::PathBuf;
use std::str::FromStr;

use crate::conninfo::{self, Settings};
use crate::environment::{Environment, VARIABLES};
use crate::error::Error;

/// Parameters that libpq knows and that are read here.
const SUPPORTED: &[&str] = &[
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "max_protocol_version",
    "min_protocol_version",
    "options",
    "passfile",
    "password",
    "port",
    "require_auth",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcompression",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Parameters that libpq knows and that are refused here.
const UNSUPPORTED: &[&str] = &[
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_issuer",
    "oauth_scope",
    "replication",
    "requirepeer",
    "requiressl",
    "scram_client_key",
    "scram_server_key",
    "service",
    "servicefile",
    "sslcertmode",
    "sslcrldir",
    "sslkeylogfile",
    "sslpassword",
];

/// What was given, in the string or by the environment.
pub(crate) struct Given<'a> {
    settings: Settings,
    environment: &'a Environment,
}

impl<'a> Given<'a> {
    /// Reads a connection string; a parameter that cannot be served is refused by name.
    pub(crate) fn parse(text: &str, environment: &'a Environment) -> Result<Given<'a>, Error> {
        let given = Given {
            settings: conninfo::parse(text)?,
            environment,
        };
        given.check_names()?;
        Ok(given)
    }

    /// The last value given for a parameter; empty counts as not given.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let in_string = self.settings.iter().rev().find(|(given, _)| given == name);
        if let Some((_, value)) = in_string {
            return Some(value.clone()).filter(|value| !value.is_empty());
        }
        let (variable, _) = VARIABLES.iter().find(|(_, parameter)| *parameter == name)?;
        self.environment.variable(variable).map(str::to_owned)
    }

    /// A value out of a list; the first is the default.
    pub(crate) fn one_of<T: Clone>(&mut self, name: &str, words: &[(&str, T)]) -> Result<T, Error> {
        let Some(value) = self.take(name) else {
            return words
                .first()
                .map(|(_, default)| default.clone())
                .ok_or_else(|| Error::configuration(format!("no value for \"{name}\"")));
        };
        match words.iter().find(|(word, _)| *word == value) {
            Some((_, meaning)) => Ok(meaning.clone()),
            None => Err(Error::Configuration {
                message: format!("invalid value for connection parameter \"{name}\""),
                hint: Some(format!(
                    "It can be {}.",
                    list(words.iter().map(|(word, _)| *word))
                )),
            }),
        }
    }

    pub(crate) fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        value.trim().parse().map(Some).map_err(|_| {
            Error::configuration(format!(
                "invalid integer value for connection parameter \"{name}\""
            ))
        })
    }

    /// A file of the user's home, for parameters that default to one.
    pub(crate) fn home_file(&self, relative: &str) -> Option<PathBuf> {
        self.environment.home_file(relative)
    }

    fn check_names(&self) -> Result<(), Error> {
        for variable in ["PGSERVICE", "PGREQUIREPEER", "PGSSLCERTMODE", "PGSSLCRLDIR"] {
            if self.environment.variable(variable).is_some() {
                return Err(Error::configuration(format!(
                    "environment variable \"{variable}\" is not supported"
                )));
            }
        }
        for (name, _) in &self.settings {
            if UNSUPPORTED.contains(&name.as_str()) {
                return Err(Error::configuration(format!(
                    "connection parameter \"{name}\" is not supported"
                )));
            }
            if !SUPPORTED.contains(&name.as_str()) {
                return Err(Error::configuration(format!(
                    "invalid connection parameter \"{name}\""
                )));
            }
        }
        Ok(())
    }

    /// Parameters that are accepted because they ask for what is done anyway.
    pub(crate) fn check_fixed(&mut self) -> Result<(), Error> {
        self.one_of("gssencmode", &[("prefer", ()), ("disable", ())])?;
        self.one_of(
            "max_protocol_version",
            &[("3.0", ()), ("3.2", ()), ("latest", ())],
        )?;
        self.one_of("min_protocol_version", &[("3.0", ())])
    }
}

/// Words with commas between, each once.
fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut once: Vec<&str> = Vec::new();
    for word in words {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    once.join(", ")
}
