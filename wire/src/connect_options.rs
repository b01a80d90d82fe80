//! Where to connect, as whom, and how: a connection string with all its values judged.
//!
//! The parameters are libpq's, in libpq's spelling and with libpq's defaults, but for two: a
//! connection that does not come about within 30 s fails (libpq waits for ever), and TCP
//! keepalives begin after 30 s instead of two hours, because both processes must notice a dead
//! peer by themselves. A parameter that is not known, or known and not supported, is an error that
//! names it. Neither Debug nor Display shows a secret.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::Environment;
use crate::error::Error;
use crate::given::Given;
use crate::passfile::{self, Wanted};
use crate::session_target::SessionTarget;
use crate::tls_options::TlsOptions;

const PORT: u16 = 5432;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A server as it was named, before any name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Name, address or socket directory; empty: the default socket, then localhost.
    pub name: String,
    /// `hostaddr`: where to go, whatever the name resolves to.
    pub address: Option<IpAddr>,
    /// Port, also part of the socket's file name.
    pub port: u16,
}

impl Host {
    /// The socket's directory, if the name is one.
    pub(crate) fn socket_directory(&self) -> Option<&Path> {
        let is_path = self.address.is_none() && self.name.starts_with('/');
        is_path.then(|| Path::new(&self.name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, self.name.as_str()) {
            (Some(address), "") => write!(f, "{address}:{}", self.port),
            (None, "") => write!(f, "localhost:{}", self.port),
            (_, name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            (_, name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Keepalives and time-outs of the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpOptions {
    pub keepalives: bool,
    pub keepalives_idle: Duration,
    pub keepalives_interval: Duration,
    pub keepalives_count: u32,
    pub user_timeout: Option<Duration>,
}

/// What is asked of channel binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// Ways to authenticate that the user allows (`require_auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedMethods {
    pub none: bool,
    pub password: bool,
    pub md5: bool,
    pub scram: bool,
}

/// A connection string, read and judged.
#[derive(Clone)]
pub struct ConnectOptions {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) database: String,
    password: Option<String>,
    passfile: Option<PathBuf>,
    pub(crate) application_name: Option<String>,
    pub(crate) options: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) target: SessionTarget,
    pub(crate) shuffle_hosts: bool,
    pub(crate) tcp: TcpOptions,
    pub(crate) tls: TlsOptions,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) allowed: AllowedMethods,
}

impl ConnectOptions {
    /// Reads a URL or `name=value` pairs; what is not given comes from the environment.
    pub fn parse(text: &str, environment: &Environment) -> Result<ConnectOptions, Error> {
        let mut given = Given::parse(text, environment)?;
        let user = match given
            .take("user")
            .or_else(|| environment.user().map(str::to_owned))
        {
            Some(user) => user,
            None => {
                return Err(Error::configuration(
                    "connection parameter \"user\" is missing",
                ));
            }
        };
        let passfile = given.take("passfile").map(PathBuf::from);
        let options = ConnectOptions {
            hosts: hosts(&mut given)?,
            database: given.take("dbname").unwrap_or_else(|| user.clone()),
            user,
            password: given.take("password"),
            passfile: passfile.or_else(|| environment.home_file(".pgpass")),
            application_name: given
                .take("application_name")
                .or_else(|| given.take("fallback_application_name")),
            options: given.take("options"),
            connect_timeout: connect_timeout(&mut given)?,
            target: given.one_of("target_session_attrs", SessionTarget::WORDS)?,
            shuffle_hosts: given.one_of(
                "load_balance_hosts",
                &[("disable", false), ("random", true)],
            )?,
            tcp: tcp(&mut given)?,
            tls: TlsOptions::of(&mut given)?,
            channel_binding: given.one_of(
                "channel_binding",
                &[
                    ("prefer", ChannelBinding::Prefer),
                    ("disable", ChannelBinding::Disable),
                    ("require", ChannelBinding::Require),
                ],
            )?,
            allowed: allowed_methods(given.take("require_auth"))?,
        };
        given.check_fixed()?;
        Ok(options)
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The role.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same server and role, another database.
    pub fn with_database(mut self, database: &str) -> ConnectOptions {
        database.clone_into(&mut self.database);
        self
    }

    /// With this application name, unless the connection string had one.
    pub fn with_default_application_name(mut self, name: &str) -> ConnectOptions {
        self.application_name.get_or_insert_with(|| name.to_owned());
        self
    }

    /// With this limit of sent bytes that nobody acknowledges, unless the connection string had
    /// one.
    pub fn with_default_tcp_user_timeout(mut self, limit: Duration) -> ConnectOptions {
        self.tcp.user_timeout.get_or_insert(limit);
        self
    }

    /// The password for a host: given, or found in the password file.
    pub(crate) fn password_for(&self, host: &Host) -> Option<String> {
        if self.password.is_some() {
            return self.password.clone();
        }
        let address = host.address.map(|address| address.to_string());
        let is_default_socket = host.socket_directory().is_some_and(|directory| {
            crate::socket::DEFAULT_DIRECTORIES
                .iter()
                .any(|default| directory == Path::new(default))
        });
        let name = match (host.name.as_str(), &address) {
            ("", Some(address)) => address.as_str(),
            ("", None) => "localhost",
            _ if is_default_socket => "localhost",
            (name, _) => name,
        };
        let wanted = Wanted {
            host: name,
            port: host.port,
            database: &self.database,
            user: &self.user,
        };
        passfile::look_up(self.passfile.as_deref()?, wanted)
    }
}

impl fmt::Display for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgresql://{}@", self.user)?;
        for (index, host) in self.hosts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{host}")?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectOptions({self}, {:?})", self.tls)
    }
}

/// Hosts, addresses and ports: lists that go together.
fn hosts(given: &mut Given<'_>) -> Result<Vec<Host>, Error> {
    let list = |text: Option<String>| -> Vec<String> {
        text.map_or_else(Vec::new, |text| {
            text.split(',').map(str::to_owned).collect()
        })
    };
    let (names, addresses) = (list(given.take("host")), list(given.take("hostaddr")));
    let ports = list(given.take("port"));
    let count = names.len().max(addresses.len()).max(1);
    if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
        return Err(Error::configuration(format!(
            "could not match {} host names to {} hostaddr values",
            names.len(),
            addresses.len()
        )));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(Error::configuration(format!(
            "could not match {} port numbers to {count} hosts",
            ports.len()
        )));
    }
    let item = |list: &[String], index: usize| list.get(index).cloned().unwrap_or_default();
    (0..count)
        .map(|index| {
            let address = item(&addresses, index);
            let port = if ports.len() == 1 {
                item(&ports, 0)
            } else {
                item(&ports, index)
            };
            Ok(Host {
                name: item(&names, index),
                address: match address.as_str() {
                    "" => None,
                    text => Some(text.parse().map_err(|_| {
                        Error::configuration("invalid address in connection parameter \"hostaddr\"")
                    })?),
                },
                port: match port.trim() {
                    "" => PORT,
                    text => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                        Error::configuration("invalid port number in connection parameter \"port\"")
                    })?,
                },
            })
        })
        .collect()
}

fn connect_timeout(given: &mut Given<'_>) -> Result<Option<Duration>, Error> {
    Ok(match given.number::<i64>("connect_timeout")? {
        None => Some(CONNECT_TIMEOUT),
        Some(seconds) => {
            // Zero and below wait for ever, as libpq has it.
            u64::try_from(seconds)
                .ok()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs)
        }
    })
}

fn tcp(given: &mut Given<'_>) -> Result<TcpOptions, Error> {
    let mut seconds = |name, default| -> Result<Duration, Error> {
        let given = given.number::<u32>(name)?.filter(|seconds| *seconds > 0);
        Ok(Duration::from_secs(u64::from(given.unwrap_or(default))))
    };
    let keepalives_idle = seconds("keepalives_idle", 30)?;
    let keepalives_interval = seconds("keepalives_interval", 10)?;
    Ok(TcpOptions {
        keepalives: given.number::<i32>("keepalives")? != Some(0),
        keepalives_idle,
        keepalives_interval,
        keepalives_count: given
            .number("keepalives_count")?
            .filter(|n| *n > 0)
            .unwrap_or(3),
        user_timeout: given
            .number("tcp_user_timeout")?
            .filter(|milliseconds| *milliseconds > 0)
            .map(Duration::from_millis),
    })
}

fn allowed_methods(given: Option<String>) -> Result<AllowedMethods, Error> {
    let all = |allow| AllowedMethods {
        none: allow,
        password: allow,
        md5: allow,
        scram: allow,
    };
    let Some(given) = given else {
        return Ok(all(true));
    };
    let words: Vec<&str> = given.split(',').map(str::trim).collect();
    let negated = words.iter().filter(|word| word.starts_with('!')).count();
    if negated != 0 && negated != words.len() {
        return Err(Error::configuration(
            "connection parameter \"require_auth\" mixes methods with and without \"!\"",
        ));
    }
    let mut allowed = all(negated > 0);
    for word in words {
        let slot = match word.trim_start_matches('!') {
            "none" => &mut allowed.none,
            "password" => &mut allowed.password,
            "md5" => &mut allowed.md5,
            "scram-sha-256" => &mut allowed.scram,
            // Never used here, so never to be switched on or off.
            "gss" | "sspi" | "oauth" => continue,
            _ => {
                return Err(Error::configuration(
                    "invalid method in connection parameter \"require_auth\"",
                ));
            }
        };
        *slot = negated == 0;
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests;
