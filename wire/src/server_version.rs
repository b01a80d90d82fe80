//! The version of a server, and what a version does not know.

use std::fmt;

use crate::error::Error;

/// Major and minor version; ordered as time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// 14 … 18 and later.
    pub major: u32,
    /// The release within it; 0 before the first.
    pub minor: u32,
}

impl ServerVersion {
    /// Reads `server_version`: "18.1", "14.20 (Debian 14.20-1)", "19devel", "18beta2".
    pub(crate) fn parse(text: &str) -> Result<ServerVersion, Error> {
        let digits = |text: &str| -> (Option<u32>, usize) {
            let end = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            (text[..end].parse().ok(), end)
        };
        let (major, end) = digits(text);
        let minor = text[end..]
            .strip_prefix('.')
            .and_then(|rest| digits(rest).0)
            .unwrap_or(0);
        match major {
            Some(major) => Ok(ServerVersion { major, minor }),
            None => Err(Error::Protocol(
                "the server does not tell its version".to_owned(),
            )),
        }
    }

    /// As `server_version_num` has it: 180001.
    pub fn number(self) -> u32 {
        self.major * 10_000 + self.minor
    }

    /// Refuses an option by name where the server is too old for it.
    pub fn require(self, option: &'static str, needs: u32) -> Result<(), Error> {
        if self.major >= needs {
            return Ok(());
        }
        Err(Error::Unsupported {
            option,
            needs,
            has: self.major,
        })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let check = |text: &str, expected: Option<u32>| {
            let number = ServerVersion::parse(text).ok().map(ServerVersion::number);
            assert_eq!(number, expected, "{text:?}");
        };
        check("18.1", Some(180_001));
        check("14.20 (Debian 14.20-1.pgdg120+1)", Some(140_020));
        check("19devel", Some(190_000));
        check("18beta2", Some(180_000));
        check("", None);
        check("x", None);
    }
}
