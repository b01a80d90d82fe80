//! TLS on an open socket: asking for it, the handshake, and which certificates are trusted.
//!
//! The modes are libpq's: `prefer` and `require` encrypt without looking at the certificate
//! (`require` looks at it where a root certificate file exists), `verify-ca` checks its chain,
//! `verify-full` its chain and name. Files are read for each connection, so that a renewed one is
//! found; a key that others may read is refused, as libpq does.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificate::Certificate;
use crate::certificate_check::{Anyone, Chain};
use crate::connect::Endpoint;
use crate::error::Error;
use crate::tls_options::{Roots, SslMode, TlsOptions, TlsVersion};
use crate::transport::Transport;

/// SSLRequest: length 8, code 1234.5679.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A socket after the question for TLS.
pub(crate) struct Encrypted {
    pub transport: Transport,
    pub server_end_point: Option<Vec<u8>>,
}

/// Encrypts a socket as the options want it; `prefer` may leave it as it is.
pub(crate) async fn encrypt(
    mut stream: TcpStream,
    options: &TlsOptions,
    endpoint: &Endpoint,
) -> Result<Encrypted, Error> {
    let server = endpoint.name();
    let config = config(options).map_err(|problem| problem.at(&server))?;
    if !options.direct && !ask(&mut stream, &server).await? {
        if options.mode >= SslMode::Require {
            return Err(refused(&server, "server does not support SSL"));
        }
        return Ok(Encrypted {
            transport: Transport::Tcp(stream),
            server_end_point: None,
        });
    }
    let name = server_name(options, endpoint)?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| handshake(&server, error))?;
    let (_, session) = stream.get_ref();
    if options.direct && session.alpn_protocol() != Some(b"postgresql") {
        return Err(refused(
            &server,
            "server does not speak PostgreSQL over direct TLS",
        ));
    }
    let server_end_point = session
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|der| Certificate::parse(der)?.end_point_hash());
    Ok(Encrypted {
        transport: Transport::Tls(Box::new(stream)),
        server_end_point,
    })
}

/// SSLRequest, and the one byte that answers it.
async fn ask(stream: &mut TcpStream, server: &str) -> Result<bool, Error> {
    let unreachable = |source| Error::Unreachable {
        server: server.to_owned(),
        source,
    };
    stream.write_all(&SSL_REQUEST).await.map_err(unreachable)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(unreachable)?;
    match answer {
        [b'S'] => Ok(true),
        [b'N'] => Ok(false),
        // What follows an 'E' is not encrypted and could be anyone's: it is not shown.
        [b'E'] => Err(refused(
            server,
            "server sent an error response during SSL exchange",
        )),
        _ => Err(Error::Protocol(format!(
            "unexpected answer to SSLRequest from {server}"
        ))),
    }
}

fn refused(server: &str, message: &str) -> Error {
    Error::Tls {
        server: server.to_owned(),
        message: message.to_owned(),
        hint: None,
    }
}

/// A failed handshake: a certificate or alert is definite, a lost socket is not.
fn handshake(server: &str, error: std::io::Error) -> Error {
    let server = server.to_owned();
    let Some(problem) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return Error::Unreachable {
            server,
            source: error,
        };
    };
    let text = problem.to_string();
    let hint = if text.contains("UnsupportedCertVersion") {
        Some(
            "The certificate is of X.509 version 1; make one of version 3 with a subject \
             alternative name.",
        )
    } else if text.contains("UnknownIssuer") {
        Some("None of the root certificates of sslrootcert has issued it.")
    } else {
        None
    };
    let hint = hint.map(str::to_owned);
    Error::Tls {
        server,
        message: text,
        hint,
    }
}

/// The name to check the certificate against, and to ask for by SNI.
fn server_name(options: &TlsOptions, endpoint: &Endpoint) -> Result<ServerName<'static>, Error> {
    let host = &endpoint.host;
    let address = || match &endpoint.address {
        crate::socket::Address::Tcp(address) => Some(ServerName::from(address.ip())),
        crate::socket::Address::Unix(_) => None,
    };
    if let Ok(name) = ServerName::try_from(host.name.clone()) {
        return Ok(name);
    }
    if options.mode == SslMode::VerifyFull {
        return Err(Error::Configuration {
            message: format!("host name must be specified for a verified SSL connection to {host}"),
            hint: None,
        });
    }
    address().ok_or_else(|| refused(&endpoint.name(), "no name to ask for"))
}

/// What is wrong with the files that TLS needs.
struct Problem {
    message: String,
    hint: Option<String>,
}

impl Problem {
    fn new(message: String) -> Problem {
        Problem {
            message,
            hint: None,
        }
    }

    fn at(self, _server: &str) -> Error {
        Error::Configuration {
            message: self.message,
            hint: self.hint,
        }
    }
}

fn config(options: &TlsOptions) -> Result<ClientConfig, Problem> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions: Vec<&'static rustls::SupportedProtocolVersion> = [
        (TlsVersion::V1_2, &rustls::version::TLS12),
        (TlsVersion::V1_3, &rustls::version::TLS13),
    ]
    .into_iter()
    .filter(|(version, _)| (options.version_min..=options.version_max).contains(version))
    .map(|(_, version)| version)
    .collect();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| Problem::new(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(options, &provider)?);
    let mut config = match client_certificate(options)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            Problem::new(format!(
                "certificate and private key do not go together: {error}"
            ))
        })?,
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    config.enable_sni = options.send_name;
    Ok(config)
}

fn verifier(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Problem> {
    let anyone = || Ok(Arc::new(Anyone::new(provider)) as Arc<dyn ServerCertVerifier>);
    let roots = match &options.roots {
        Roots::System => system_roots()?,
        Roots::File(path) => certificates(path)?,
        Roots::DefaultFile(path) if path.exists() => certificates(path)?,
        Roots::DefaultFile(_) | Roots::Nowhere if options.mode < SslMode::VerifyCa => {
            return anyone();
        }
        Roots::DefaultFile(path) => return Err(no_roots(&format!(" \"{}\"", path.display()))),
        Roots::Nowhere => return Err(no_roots("")),
    };
    if options.mode < SslMode::Require {
        return anyone();
    }
    let mut store = RootCertStore::empty();
    let (added, ignored) = store.add_parsable_certificates(roots.iter().cloned());
    if added == 0 {
        return Err(Problem::new(format!(
            "none of {ignored} root certificates can be used"
        )));
    }
    let revoked = match &options.revoked {
        Some(path) => revocation_lists(path)?,
        None => Vec::new(),
    };
    let with_name = options.mode == SslMode::VerifyFull;
    let chain = Chain::new(roots, store, revoked, with_name, provider).map_err(Problem::new)?;
    Ok(Arc::new(chain))
}

fn no_roots(place: &str) -> Problem {
    Problem {
        message: format!("root certificate file{place} does not exist"),
        hint: Some(
            "Provide the file, use the system's trusted roots with sslrootcert=system, or change \
             sslmode to disable server certificate verification."
                .to_owned(),
        ),
    }
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, Problem> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(Problem::new(
            "the system has no trusted root certificates".to_owned(),
        ));
    }
    Ok(found.certs)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(Problem::new(format!(
            "file \"{}\" holds no certificate",
            path.display()
        ))),
        Ok(all) => Ok(all),
        Err(error) => Err(unreadable("certificate", path, &error)),
    }
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Problem> {
    CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable("certificate revocation list", path, &error))
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(options: &TlsOptions) -> Result<Option<ClientCertificate>, Problem> {
    let Some(path) = options.certificate.as_deref() else {
        return Ok(None);
    };
    if !options.certificate_named && !path.exists() {
        return Ok(None);
    }
    let chain = certificates(path)?;
    let Some(key) = options.key.as_deref() else {
        return Err(Problem::new(format!(
            "certificate \"{}\" present, but no private key file",
            path.display()
        )));
    };
    Ok(Some((chain, private_key(key)?)))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let metadata = std::fs::metadata(path).map_err(|error| {
        Problem::new(format!(
            "could not open private key file \"{}\": {error}",
            path.display()
        ))
    })?;
    // The group may read it only where root owns it, as libpq has it.
    let allowed = if std::os::unix::fs::MetadataExt::uid(&metadata) == 0 {
        0o640
    } else {
        0o600
    };
    if metadata.permissions().mode() & 0o777 & !allowed != 0 {
        return Err(Problem {
            message: format!(
                "private key file \"{}\" has group or world access",
                path.display()
            ),
            hint: Some(
                "Permissions should be u=rw (0600) or less if owned by the current user, or \
                 u=rw,g=r (0640) or less if owned by root."
                    .to_owned(),
            ),
        });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let mut problem = unreadable("private key", path, &error);
        problem.hint = Some("A key that is protected by a password is not supported.".to_owned());
        problem
    })
}

fn unreadable(what: &str, path: &Path, error: &PemError) -> Problem {
    Problem::new(format!(
        "could not read {what} file \"{}\": {error}",
        path.display()
    ))
}
