//! The few fields of an X.509 certificate that rustls does not give out.
//!
//! Two things need them: channel binding hashes the certificate by its signature's algorithm, and
//! libpq falls back on the common name where there is no alternative name. Nothing is verified
//! here. The reader is total: what is not DER as expected gives nothing.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// A certificate, as far as it is looked into.
pub(crate) struct Certificate<'a> {
    der: &'a [u8],
    /// Object identifier of the signature's algorithm, and its parameters.
    algorithm: &'a [u8],
    parameters: &'a [u8],
    subject: &'a [u8],
    extensions: &'a [u8],
    not_before: &'a [u8],
    not_after: &'a [u8],
}

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

impl<'a> Certificate<'a> {
    pub(crate) fn parse(der: &'a [u8]) -> Option<Certificate<'a>> {
        let (mut outer, _) = element(der, SEQUENCE)?;
        let mut to_be_signed = next(&mut outer, SEQUENCE)?;
        let mut algorithm = next(&mut outer, SEQUENCE)?;
        let fields = &mut to_be_signed;
        if fields.first() == Some(&VERSION) {
            next(fields, VERSION)?;
        }
        next(fields, INTEGER)?;
        next(fields, SEQUENCE)?;
        let _issuer = next(fields, SEQUENCE)?;
        let mut validity = next(fields, SEQUENCE)?;
        let subject = next(fields, SEQUENCE)?;
        let _key = next(fields, SEQUENCE)?;
        let mut extensions: &[u8] = &[];
        while let Some((tag, content)) = any(fields) {
            if tag == EXTENSIONS {
                extensions = element(content, SEQUENCE)?.0;
            }
        }
        let (_, not_before) = any(&mut validity)?;
        let (_, not_after) = any(&mut validity)?;
        Some(Certificate {
            der,
            algorithm: next(&mut algorithm, OBJECT_IDENTIFIER)?,
            parameters: algorithm,
            subject,
            extensions,
            not_before,
            not_after,
        })
    }

    /// The hash for `tls-server-end-point` (RFC 5929); nothing where it is not defined.
    pub(crate) fn end_point_hash(&self) -> Option<Vec<u8>> {
        match hash_of(self.algorithm, self.parameters)? {
            Hash::Sha256 => Some(Sha256::digest(self.der).to_vec()),
            Hash::Sha384 => Some(Sha384::digest(self.der).to_vec()),
            Hash::Sha512 => Some(Sha512::digest(self.der).to_vec()),
        }
    }

    /// The subject's common name, the last one if there are several.
    pub(crate) fn common_name(&self) -> Option<&'a str> {
        let mut names = self.subject;
        let mut found = None;
        while let Some((_, mut set)) = any(&mut names) {
            while let Some((_, mut pair)) = any(&mut set) {
                let kind = next(&mut pair, OBJECT_IDENTIFIER)?;
                let (_, value) = any(&mut pair)?;
                if kind == COMMON_NAME {
                    found = std::str::from_utf8(value).ok();
                }
            }
        }
        found
    }

    /// True when an alternative name of a host (name or address) is present.
    pub(crate) fn names_hosts(&self) -> bool {
        let mut extensions = self.extensions;
        while let Some((_, mut extension)) = any(&mut extensions) {
            if next(&mut extension, OBJECT_IDENTIFIER) != Some(ALTERNATIVE_NAME) {
                continue;
            }
            // The value stands last, behind an optional "critical".
            let mut value: &[u8] = &[];
            while let Some((_, content)) = any(&mut extension) {
                value = content;
            }
            let Some((mut names, _)) = element(value, SEQUENCE) else {
                return false;
            };
            while let Some((tag, _)) = any(&mut names) {
                if matches!(tag, DNS_NAME | IP_ADDRESS) {
                    return true;
                }
            }
        }
        false
    }

    /// True inside the certificate's time; seconds since 1970.
    pub(crate) fn is_valid_at(&self, unix_seconds: u64) -> bool {
        match (time(self.not_before), time(self.not_after)) {
            (Some(from), Some(to)) => (from..=to).contains(&(unix_seconds as i64)),
            _ => false,
        }
    }
}

enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of a signature algorithm; MD5 and SHA-1 are replaced by SHA-256, as the RFC says.
fn hash_of(algorithm: &[u8], parameters: &[u8]) -> Option<Hash> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    if algorithm == ECDSA_SHA1 {
        return Some(Hash::Sha256);
    }
    let (&last, family) = algorithm.split_last()?;
    match (family, last) {
        // md5, sha1 and sha256 WithRSAEncryption.
        (RSA, 4 | 5 | 11) | (ECDSA_SHA2, 2) => Some(Hash::Sha256),
        (RSA, 12) | (ECDSA_SHA2, 3) => Some(Hash::Sha384),
        (RSA, 13) | (ECDSA_SHA2, 4) => Some(Hash::Sha512),
        (RSA, 10) => pss_hash(parameters),
        _ => None,
    }
}

/// RSASSA-PSS names its hash in its parameters: `[0] { SEQUENCE { OID } }`, SHA-1 if left out.
fn pss_hash(mut parameters: &[u8]) -> Option<Hash> {
    const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
    let mut sequence = next(&mut parameters, SEQUENCE)?;
    let Some((0xa0, content)) = any(&mut sequence) else {
        return Some(Hash::Sha256);
    };
    let (mut algorithm, _) = element(content, SEQUENCE)?;
    let (&last, family) = next(&mut algorithm, OBJECT_IDENTIFIER)?.split_last()?;
    match (family, last) {
        (SHA2, 1) => Some(Hash::Sha256),
        (SHA2, 2) => Some(Hash::Sha384),
        (SHA2, 3) => Some(Hash::Sha512),
        _ => Some(Hash::Sha256),
    }
}

/// UTCTime `YYMMDDhhmmssZ` or GeneralizedTime `YYYYMMDDhhmmssZ`, in seconds since 1970.
fn time(text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        std::str::from_utf8(digits.get(range)?).ok()?.parse().ok()
    };
    let (year, rest) = match digits.len() {
        12 => match number(0..2)? {
            short @ 50.. => (1900 + short, 2),
            short => (2000 + short, 2),
        },
        14 => (number(0..4)?, 4),
        _ => return None,
    };
    let at = |index: usize| number(rest + index * 2..rest + index * 2 + 2);
    let (month, day) = (at(0)?, at(1)?);
    // Days since 1970 in the Gregorian calendar, with years that begin in March.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + at(2)?) * 60 + at(3)?) * 60 + at(4)?)
}

/// The content of the element of this tag that the text begins with, and what is behind it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let mut rest = der;
    let content = next(&mut rest, tag)?;
    Some((content, rest))
}

/// Takes an element of this tag.
fn next<'a>(der: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    match any(der)? {
        (found, content) if found == tag => Some(content),
        _ => None,
    }
}

/// Takes any element.
fn any<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (
                bytes
                    .iter()
                    .fold(0, |length, &byte| length << 8 | usize::from(byte)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *der = rest;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Certificates in `tests/certificates`, and what OpenSSL says of them.
    #[test]
    fn fields_of_certificates() {
        let check = |pem: &[u8], name: &str, names_hosts: bool, hash: Option<&str>| {
            let der = CertificateDer::from_pem_slice(pem).unwrap();
            let certificate = Certificate::parse(&der).unwrap();
            assert_eq!(certificate.common_name(), Some(name));
            assert_eq!(certificate.names_hosts(), names_hosts, "{name}");
            let found = certificate.end_point_hash().map(|hash| {
                hash.iter()
                    .take(8)
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
            });
            assert_eq!(found.as_deref(), hash, "{name}");
            assert!(certificate.is_valid_at(IN_2050));
            assert!(!certificate.is_valid_at(0));
        };
        macro_rules! pem {
            ($name:literal) => {
                include_bytes!(concat!("../tests/certificates/", $name, ".crt"))
            };
        }
        let host = "db.example.org";
        let san = pem!("san-sha256");
        check(san, "ignored.example.org", true, Some("4b2080b67c0fadad"));
        check(
            pem!("common-name-sha384"),
            host,
            false,
            Some("869e55843b815010"),
        );
        check(
            pem!("email-only-sha512"),
            host,
            false,
            Some("e5a2208c27dfd5c7"),
        );
        check(pem!("pss-sha512"), host, true, Some("5311b57923329906"));
        check(pem!("ed25519"), "ed", false, None);
        let version_1 = CertificateDer::from_pem_slice(pem!("version-1")).unwrap();
        assert_eq!(
            Certificate::parse(&version_1).unwrap().common_name(),
            Some(host)
        );
        // Cut anywhere, it gives nothing and does not panic.
        for end in 0..version_1.len() {
            assert!(Certificate::parse(&version_1[..end]).is_none());
        }
    }

    const IN_2050: u64 = 2_524_608_000;

    #[test]
    fn times() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        };
        check("700101000000Z", Some(0));
        check("20000301000000Z", Some(951_868_800));
        check("240229235959Z", Some(1_709_251_199));
        check("20500101000000Z", Some(2_524_608_000));
        check("500101000000Z", Some(-631_152_000));
        check("2024022923595Z", None);
        check("240229235959", None);
        check("24022923595xZ", None);
    }

    #[test]
    fn what_is_no_certificate_gives_nothing() {
        for der in [
            &[][..],
            &[0x30],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x03, 1, 2],
        ] {
            assert!(Certificate::parse(der).is_none());
        }
    }
}
