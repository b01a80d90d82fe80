//! A position in a publisher's WAL.
//!
//! Text form is PostgreSQL's (`16/B374D848`). In Avro an LSN is a `long`; positions at or above
//! 2^63 do not occur (a server would have to write 8 EiB) and are refused when read.
//! Positions of the subscriber's own WAL are never put into this type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A position in the publisher's WAL; orders as PostgreSQL orders `pg_lsn`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// `0/0`, PostgreSQL's "no position".
    pub const INVALID: Lsn = Lsn(0);

    /// Whether this is `0/0`.
    pub fn is_invalid(self) -> bool {
        self.0 == 0
    }

    /// How many bytes of WAL lie between `earlier` and this position; 0 when it is not earlier.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no `pg_lsn`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid LSN: \"{0}\"")]
pub struct ParseLsnError(String);

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Lsn, ParseLsnError> {
        let half = |digits: &str| {
            let shape = (1..=8).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            shape
                .then(|| u64::from_str_radix(digits, 16).ok())
                .flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Lsn(half(high)? << 32 | half(low)?)))
            .ok_or_else(|| ParseLsnError(text.to_owned()))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(
                text.parse::<Lsn>().ok().map(|lsn| lsn.0),
                expected,
                "{text}"
            );
        };
        check("0/0", Some(0));
        check("16/B374D848", Some(0x16_B374_D848));
        check("ffffffff/ffffffff", Some(u64::MAX));
        check("1/123456789", None);
        check("/1", None);
        check("1/", None);
        check("+1/1", None);
        check("1", None);
        check("1/1/1", None);
        assert_eq!(Lsn(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!(Lsn(0x1_0000_0000).to_string(), "1/0");
    }
}
