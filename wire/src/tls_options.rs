//! What is asked of TLS: libpq's `ssl…` parameters, read and checked against each other.
//!
//! No file is opened here; that is done when a connection is made, so that a certificate that was
//! renewed is found by the next connection.

use std::path::PathBuf;

use crate::error::Error;
use crate::given::Given;

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Where trusted certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// `sslrootcert` named this file: it must be there.
    File(PathBuf),
    /// The default file: used when it is there.
    DefaultFile(PathBuf),
    /// The system's.
    System,
    /// There is no home directory to look in.
    Nowhere,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsVersion {
    V1_2,
    V1_3,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    pub mode: SslMode,
    pub direct: bool,
    pub roots: Roots,
    pub certificate: Option<PathBuf>,
    /// True when the certificate was named, so that it must be there.
    pub certificate_named: bool,
    pub key: Option<PathBuf>,
    pub revoked: Option<PathBuf>,
    pub send_name: bool,
    pub version_min: TlsVersion,
    pub version_max: TlsVersion,
}

impl TlsOptions {
    pub(crate) fn of(given: &mut Given<'_>) -> Result<TlsOptions, Error> {
        let roots = match given.take("sslrootcert") {
            Some(word) if word == "system" => Roots::System,
            Some(path) => Roots::File(PathBuf::from(path)),
            None => given
                .home_file(".postgresql/root.crt")
                .map_or(Roots::Nowhere, Roots::DefaultFile),
        };
        let named = given.take("sslcert").map(PathBuf::from);
        let certificate_named = named.is_some();
        given.one_of("sslcompression", &[("0", ()), ("1", ())])?;
        let options = TlsOptions {
            mode: mode(given, &roots)?,
            direct: given.one_of("sslnegotiation", &[("postgres", false), ("direct", true)])?,
            roots,
            certificate: named.or_else(|| given.home_file(".postgresql/postgresql.crt")),
            certificate_named,
            key: given
                .take("sslkey")
                .map(PathBuf::from)
                .or_else(|| given.home_file(".postgresql/postgresql.key")),
            revoked: given.take("sslcrl").map(PathBuf::from),
            send_name: given.one_of("sslsni", &[("1", true), ("0", false)])?,
            version_min: given.one_of(
                "ssl_min_protocol_version",
                &[
                    ("TLSv1.2", TlsVersion::V1_2),
                    ("TLSv1.3", TlsVersion::V1_3),
                    // Older ones may be asked for and are not spoken.
                    ("TLSv1", TlsVersion::V1_2),
                    ("TLSv1.1", TlsVersion::V1_2),
                ],
            )?,
            version_max: given.one_of(
                "ssl_max_protocol_version",
                &[("TLSv1.3", TlsVersion::V1_3), ("TLSv1.2", TlsVersion::V1_2)],
            )?,
        };
        options.checked()
    }

    fn checked(self) -> Result<TlsOptions, Error> {
        if self.direct && self.mode < SslMode::Require {
            return Err(Error::Configuration {
                message: "weak sslmode may not be used with sslnegotiation=direct".to_owned(),
                hint: Some("Use sslmode require, verify-ca or verify-full.".to_owned()),
            });
        }
        if self.roots == Roots::System && self.mode != SslMode::VerifyFull {
            return Err(Error::Configuration {
                message: "weak sslmode may not be used with sslrootcert=system".to_owned(),
                hint: Some("Use sslmode verify-full.".to_owned()),
            });
        }
        if self.version_min > self.version_max {
            return Err(Error::configuration("invalid SSL protocol version range"));
        }
        Ok(self)
    }
}

fn mode(given: &mut Given<'_>, roots: &Roots) -> Result<SslMode, Error> {
    const PREFER: (&str, SslMode) = ("prefer", SslMode::Prefer);
    const FULL: (&str, SslMode) = ("verify-full", SslMode::VerifyFull);
    let default = if *roots == Roots::System {
        FULL
    } else {
        PREFER
    };
    given.one_of(
        "sslmode",
        &[
            default,
            ("disable", SslMode::Disable),
            ("allow", SslMode::Allow),
            PREFER,
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            FULL,
        ],
    )
}
