//! The identity of one life of a stream.
//!
//! A stream gets a new incarnation whenever its slot is created anew: its log starts again and
//! nothing of the old one may be joined to it. Random bytes are the caller's to bring.

use std::fmt;
use std::str::FromStr;

/// One life of a stream; text form is that of a UUID.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub [u8; 16]);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no UUID in its usual form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid incarnation: \"{0}\"")]
pub struct ParseIncarnationError(String);

impl FromStr for Incarnation {
    type Err = ParseIncarnationError;

    fn from_str(text: &str) -> Result<Incarnation, ParseIncarnationError> {
        let refused = || ParseIncarnationError(text.to_owned());
        let mut bytes = [0_u8; 16];
        let mut written = 0;
        let mut high: Option<u32> = None;
        for (index, character) in text.chars().enumerate() {
            if matches!(index, 8 | 13 | 18 | 23) {
                if character != '-' {
                    return Err(refused());
                }
                continue;
            }
            let digit = character.to_digit(16).ok_or_else(refused)?;
            match high.take() {
                None => high = Some(digit),
                Some(first) => {
                    let slot = bytes.get_mut(written).ok_or_else(refused)?;
                    *slot = (first * 16 + digit) as u8;
                    written += 1;
                }
            }
        }
        if written == 16 && high.is_none() {
            Ok(Incarnation(bytes))
        } else {
            Err(refused())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let check = |text: &str, good: bool| {
            let parsed = text.parse::<Incarnation>();
            assert_eq!(parsed.is_ok(), good, "{text}");
            if let Ok(incarnation) = parsed {
                assert_eq!(incarnation.to_string(), text.to_lowercase());
            }
        };
        check("00112233-4455-6677-8899-aabbccddeeff", true);
        check("00112233-4455-6677-8899-AABBCCDDEEFF", true);
        check("00112233-4455-6677-8899-aabbccddeef", false);
        check("00112233-4455-6677-8899-aabbccddeeff0", false);
        check("0011223344556677-8899-aabbccddeeff", false);
        check("", false);
    }
}
