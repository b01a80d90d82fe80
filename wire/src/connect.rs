//! From connection options to an authenticated session: which addresses are tried, in which
//! order, encrypted or not, and which failure ends the attempt.
//!
//! The next address is tried after one that does not answer, is starting up, or is not the kind
//! of server that is wanted. Whatever needs a person (a refused password, a bad certificate, a
//! database that does not exist) ends the whole attempt at once.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::time::Duration;

use crate::connect_options::{ConnectOptions, Host};
use crate::connection::Connection;
use crate::error::Error;
use crate::session_target::SessionTarget;
use crate::socket::{self, Address, Open};
use crate::sqlstate::SqlState;
use crate::startup::Startup;
use crate::tls;
use crate::tls_options::SslMode;
use crate::transport::Transport;

/// An open socket, encrypted if it is to be, on which nothing was said yet.
pub(crate) struct Link {
    pub transport: Transport,
    pub endpoint: Endpoint,
    /// Hash of the server's certificate, for channel binding; nothing without TLS.
    pub server_end_point: Option<Vec<u8>>,
    pub password: Option<String>,
}

/// Where a link leads, enough to open another one to the same server.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub host: Host,
    pub address: Address,
    pub encrypted: bool,
}

impl Endpoint {
    pub(crate) fn name(&self) -> String {
        match &self.address {
            Address::Unix(_) => self.address.to_string(),
            Address::Tcp(_) => self.host.to_string(),
        }
    }

    pub(crate) fn unreachable(&self, source: io::Error) -> Error {
        Error::Unreachable {
            server: self.name(),
            source,
        }
    }
}

/// Tries all that the options name until one session stands.
pub(crate) async fn connect(
    options: &ConnectOptions,
    startup: &Startup<'_>,
) -> Result<Connection, Error> {
    let mut last = None;
    for target in options.target.rounds() {
        for host in ordered(options) {
            let addresses = match resolve(options, host).await {
                Ok(addresses) => addresses,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            for address in addresses {
                let endpoint = Endpoint {
                    host: host.clone(),
                    address,
                    encrypted: false,
                };
                let attempt = Attempt {
                    options,
                    startup,
                    endpoint,
                };
                match attempt.run(*target).await {
                    Ok(session) => return Ok(session),
                    Err(error) if tries_next(&error) => last = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::configuration("connection parameter \"host\" is empty")))
}

async fn resolve(options: &ConnectOptions, host: &Host) -> Result<Vec<Address>, Error> {
    within(options.connect_timeout, socket::addresses(host))
        .await
        .map_err(|source| Error::Unreachable {
            server: host.to_string(),
            source,
        })
}

fn tries_next(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Closed { .. } => true,
        _ => error.sqlstate() == Some(SqlState::CANNOT_CONNECT_NOW),
    }
}

/// The hosts in the order given, or in any order.
fn ordered(options: &ConnectOptions) -> Vec<&Host> {
    let mut hosts: Vec<&Host> = options.hosts.iter().collect();
    if options.shuffle_hosts {
        let random = std::collections::hash_map::RandomState::new();
        let mut keyed: Vec<(u64, &Host)> = hosts
            .into_iter()
            .enumerate()
            .map(|(index, host)| {
                let mut hasher = random.build_hasher();
                hasher.write_usize(index);
                (hasher.finish(), host)
            })
            .collect();
        keyed.sort_by_key(|(key, _)| *key);
        hosts = keyed.into_iter().map(|(_, host)| host).collect();
    }
    hosts
}

/// Waits for an operation on the network, not longer than given.
async fn within<T>(
    limit: Option<Duration>,
    operation: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match limit {
        None => operation.await,
        Some(limit) => match tokio::time::timeout(limit, operation).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "timeout expired")),
        },
    }
}

/// One address.
struct Attempt<'a> {
    options: &'a ConnectOptions,
    startup: &'a Startup<'a>,
    endpoint: Endpoint,
}

impl Attempt<'_> {
    async fn run(self, target: SessionTarget) -> Result<Connection, Error> {
        let (first, second) = match (&self.endpoint.address, self.options.tls.mode) {
            (Address::Unix(_), _) | (_, SslMode::Disable) => (false, None),
            (_, SslMode::Allow) => (false, Some(true)),
            (_, SslMode::Prefer) => (true, Some(false)),
            (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => (true, None),
        };
        match (self.session(first, target).await, second) {
            (Err(error), Some(second)) if tries_other_encryption(&error) => {
                // The first error says more when the second attempt only fails too.
                self.session(second, target).await.map_err(|_| error)
            }
            (result, _) => result,
        }
    }

    async fn session(&self, encrypt: bool, target: SessionTarget) -> Result<Connection, Error> {
        let limit = self.options.connect_timeout.unwrap_or(Duration::MAX);
        let steps = async {
            let receive_buffer_bytes = self.startup.receive_buffer_bytes;
            let link = open(self.options, &self.endpoint, encrypt, receive_buffer_bytes).await?;
            let mut connection = Connection::start(link, self.options, self.startup).await?;
            let state = connection.state(target).await?;
            Ok::<_, Error>((connection, state))
        };
        let (connection, state) = match tokio::time::timeout(limit, steps).await {
            Ok(result) => result?,
            Err(_) => {
                let source = io::Error::new(io::ErrorKind::TimedOut, "timeout expired");
                return Err(self.endpoint.unreachable(source));
            }
        };
        match target.refusal(state) {
            None => Ok(connection),
            Some(reason) => {
                let source = io::Error::other(reason);
                Err(self.endpoint.unreachable(source))
            }
        }
    }
}

/// The modes `allow` and `prefer` go on with the other kind after these.
fn tries_other_encryption(error: &Error) -> bool {
    matches!(error, Error::Tls { .. })
        || error.sqlstate() == Some(SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Opens a socket to an endpoint and encrypts it.
pub(crate) async fn open(
    options: &ConnectOptions,
    endpoint: &Endpoint,
    encrypt: bool,
    receive_buffer_bytes: Option<usize>,
) -> Result<Link, Error> {
    let mut endpoint = endpoint.clone();
    let open = socket::open(&endpoint.address, &options.tcp, receive_buffer_bytes)
        .await
        .map_err(|source| endpoint.unreachable(source))?;
    let password = options.password_for(&endpoint.host);
    let (transport, server_end_point) = match open {
        Open::Unix(stream) => (Transport::Unix(stream), None),
        Open::Tcp(stream) if encrypt => {
            let encrypted = tls::encrypt(stream, &options.tls, &endpoint).await?;
            endpoint.encrypted = matches!(encrypted.transport, Transport::Tls(_));
            (encrypted.transport, encrypted.server_end_point)
        }
        Open::Tcp(stream) => (Transport::Tcp(stream), None),
    };
    Ok(Link {
        transport,
        endpoint,
        server_end_point,
        password,
    })
}
