//! Whether a server's certificate is trusted: rustls's verifier with libpq's rules around it.
//!
//! Where libpq and rustls differ, libpq's rule holds, because certificates were made for it: a
//! server certificate that stands in the root file itself is trusted; where there is no
//! alternative name of a host, the common name counts; `verify-ca` looks at no name.
//! A certificate of version 1 is refused by rustls and therefore here.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::certificate::Certificate;

/// Trusts anyone: encryption without knowing with whom.
#[derive(Debug)]
pub(crate) struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl Anyone {
    pub(crate) fn new(provider: &Arc<CryptoProvider>) -> Anyone {
        Anyone {
            provider: Arc::clone(provider),
        }
    }
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    // Who trusts any certificate learns nothing from its signature, and rustls cannot read the
    // version 1 certificates that are often found here.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Trusts what leads to a root, and has the right name where names count.
#[derive(Debug)]
pub(crate) struct Chain {
    roots: Vec<CertificateDer<'static>>,
    inner: Arc<WebPkiServerVerifier>,
    with_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Chain {
    pub(crate) fn new(
        roots: Vec<CertificateDer<'static>>,
        store: RootCertStore,
        revoked: Vec<CertificateRevocationListDer<'static>>,
        with_name: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Chain, String> {
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .with_crls(revoked)
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| error.to_string())?;
        Ok(Chain {
            roots,
            inner,
            with_name,
            provider: Arc::clone(provider),
        })
    }

    /// What rustls says of the chain, without the name.
    fn check_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<NameFound, Error> {
        if self.roots.iter().any(|root| root == end_entity) {
            let valid = Certificate::parse(end_entity)
                .is_some_and(|certificate| certificate.is_valid_at(now.as_secs()));
            if !valid {
                return Err(Error::InvalidCertificate(CertificateError::Expired));
            }
            let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
            return Ok(match rustls::client::verify_server_name(&parsed, name) {
                Ok(()) => NameFound::Yes,
                Err(error) => NameFound::No(error),
            });
        }
        match self
            .inner
            .verify_server_cert(end_entity, intermediates, name, &[], now)
        {
            Ok(_) => Ok(NameFound::Yes),
            Err(
                error @ Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                ),
            ) => Ok(NameFound::No(error)),
            Err(error) => Err(error),
        }
    }
}

/// Whether an alternative name of the certificate is the one asked for.
enum NameFound {
    Yes,
    No(Error),
}

impl ServerCertVerifier for Chain {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.check_chain(end_entity, intermediates, server_name, now)? {
            NameFound::No(error)
                if self.with_name && !common_name_matches(end_entity, server_name) =>
            {
                Err(error)
            }
            NameFound::Yes | NameFound::No(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// libpq's fallback: only where no alternative name names a host.
fn common_name_matches(der: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let Some(certificate) = Certificate::parse(der) else {
        return false;
    };
    match certificate.common_name() {
        Some(common_name) if !certificate.names_hosts() => {
            matches_pattern(common_name, &name.to_str())
        }
        _ => false,
    }
}

/// Equal, or `*.` in place of exactly one first label.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    if pattern.eq_ignore_ascii_case(name) {
        return true;
    }
    match (pattern.strip_prefix("*."), name.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            !label.is_empty() && domain.contains('.') && domain.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn read(name: &str) -> CertificateDer<'static> {
        let path = format!(
            "{}/tests/certificates/{name}.crt",
            env!("CARGO_MANIFEST_DIR")
        );
        CertificateDer::from_pem_file(path).unwrap()
    }

    #[test]
    fn who_is_trusted() {
        const IN_2050: u64 = 2_524_608_000;
        const IN_2200: u64 = 7_258_118_400;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let check_at = |root: &str, leaf: &str, name: &str, at: u64, with_name: bool| {
            let roots = vec![read(root)];
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(roots.clone());
            let chain = Chain::new(roots, store, Vec::new(), with_name, &provider).unwrap();
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
            match chain.verify_server_cert(&read(leaf), &[], &name, &[], at) {
                Ok(_) => "trusted",
                Err(Error::InvalidCertificate(error)) => match error {
                    CertificateError::UnknownIssuer => "unknown issuer",
                    CertificateError::NotValidForNameContext { .. } => "another name",
                    CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                        "expired"
                    }
                    _ => "not trusted",
                },
                Err(_) => "not readable",
            }
        };
        let check = |root: &str, leaf: &str, name: &str, by_name: &str, without_name: &str| {
            let verdicts = [true, false].map(|with| check_at(root, leaf, name, IN_2050, with));
            assert_eq!(verdicts, [by_name, without_name], "{leaf} {name}");
        };
        let host = "db.example.org";
        check("ca", "san-sha256", host, "trusted", "trusted");
        check(
            "ca",
            "san-sha256",
            "a.wild.example.org",
            "trusted",
            "trusted",
        );
        check("ca", "san-sha256", "10.0.0.1", "trusted", "trusted");
        check("ca", "san-sha256", "10.0.0.2", "another name", "trusted");
        // Its common name does not count, because it has alternative names.
        check(
            "ca",
            "san-sha256",
            "ignored.example.org",
            "another name",
            "trusted",
        );
        check("ca", "common-name-sha384", host, "trusted", "trusted");
        check(
            "ca",
            "common-name-sha384",
            "other.example.org",
            "another name",
            "trusted",
        );
        check("ca", "email-only-sha512", host, "trusted", "trusted");
        check("ca", "pss-sha512", host, "trusted", "trusted");
        check(
            "stranger-ca",
            "san-sha256",
            host,
            "unknown issuer",
            "unknown issuer",
        );
        // The server's own certificate as root.
        check("self-signed", "self-signed", host, "trusted", "trusted");
        check(
            "self-signed",
            "self-signed",
            "other.example.org",
            "another name",
            "trusted",
        );
        check("ca", "self-signed", host, "not trusted", "not trusted");
        check("ca", "version-1", host, "not trusted", "not trusted");
        assert_eq!(check_at("ca", "san-sha256", host, IN_2200, true), "expired");
        assert_eq!(
            check_at("self-signed", "self-signed", host, IN_2200, true),
            "expired"
        );
    }

    #[test]
    fn names_and_patterns() {
        let check = |pattern, name, expected| {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        };
        check("db.example.org", "DB.example.org", true);
        check("db.example.org", "db2.example.org", false);
        check("*.example.org", "db.example.org", true);
        check("*.example.org", "a.db.example.org", false);
        check("*.example.org", "example.org", false);
        check("*.org", "example.org", false);
        check("*", "localhost", false);
        check("127.0.0.1", "127.0.0.1", true);
    }
}
