//! Canonical forms of single values in PostgreSQL's text.
//!
//! Each function takes what the type's own output function writes and nothing else; what is
//! equal to the database comes out alike. Where the text of equal values is the same text, the
//! function only checks the form and gives the text back.

use std::net::IpAddr;
use std::str::from_utf8;

use super::digest::Digest;

/// A decimal without a plus sign and without zeros in front.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = text {
        return Some(i64::from(digit - b'0'));
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    from_utf8(text).ok()?.parse().ok()
}

/// The same, and not negative.
pub(super) fn unsigned(text: &[u8]) -> Option<u64> {
    match text {
        b"0" => Some(0),
        [b'1'..=b'9', ..] => from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The text without spaces at its end.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b' ');
    &text[..end.map_or(0, |last| last + 1)]
}

/// Text without regard to case, in whatever way some locale takes case. `lower()` changes a
/// character outside of ASCII to one inside only for i (İ, and I in Turkish is ı) and k (the Kelvin
/// sign), so these and all outside of ASCII are left out.
pub(super) fn folded(text: &[u8], digest: &mut Digest) {
    let (mut word, mut length) = (0_u64, 0_u64);
    for byte in trimmed(text) {
        let byte = byte.to_ascii_lowercase();
        if byte.is_ascii() && !matches!(byte, b'i' | b'k') {
            word = word << 8 | u64::from(byte);
            length += 1;
            if length.is_multiple_of(8) {
                digest.word(word);
                word = 0;
            }
        }
    }
    digest.word(word);
    digest.word(length);
}

/// One byte, or a byte beyond ASCII in octal.
pub(super) fn char(text: &[u8]) -> Option<&[u8]> {
    match text {
        [] | [0..=127] | [b'\\', b'2' | b'3', b'0'..=b'7', b'0'..=b'7'] => Some(text),
        _ => None,
    }
}

/// `\x` and pairs of digits.
pub(super) fn bytea(text: &[u8], digest: &mut Digest) -> Option<()> {
    let digits = text.strip_prefix(b"\\x")?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let mut bytes = Vec::with_capacity(pairs.len());
    for &[high, low] in pairs {
        let digit = |byte| char::from(byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
    }
    digest.bytes(&bytes);
    rest.is_empty().then_some(())
}

/// A numeric, `scale` digits behind the point at most: sign, place of the first digit, digits
/// without zeros at either end.
pub(super) fn numeric(text: &[u8], scale: Option<i32>, digest: &mut Digest) -> Option<()> {
    match text {
        b"NaN" => return one(1 << 32, digest),
        b"Infinity" => return one(2 << 32, digest),
        b"-Infinity" => return one(3 << 32, digest),
        _ => {}
    }
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.iter().position(|&byte| byte == b'e') {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|&byte| byte == b'.');
    let whole = point.unwrap_or(mantissa.len());
    let significant = |byte: &u8| matches!(byte, b'1'..=b'9');
    let form = |(at, byte): (usize, &u8)| byte.is_ascii_digit() || Some(at) == point;
    let ends = whole > 0 && mantissa.last() != Some(&b'.');
    if !ends || !mantissa.iter().enumerate().all(form) {
        return None;
    }
    let (Some(first), Some(last)) = (
        mantissa.iter().position(significant),
        mantissa.iter().rposition(significant),
    ) else {
        return one(0, digest);
    };
    // The power of ten of the digit at a place.
    let power = |at: usize| whole as i32 - at as i32 - i32::from(at < whole) + exponent;
    if scale.is_some_and(|scale| power(last) < -scale) {
        return None;
    }
    digest.word(u64::from(power(first) as u32) | u64::from(negative) << 33 | 1 << 34);
    let (mut word, mut count) = (1_u64, 0_u64);
    for digit in mantissa[first..=last].iter().filter(|&&byte| byte != b'.') {
        word = word * 10 + u64::from(digit - b'0');
        count += 1;
        if count.is_multiple_of(18) {
            digest.word(word);
            word = 1;
        }
    }
    digest.word(word);
    digest.word(count);
    Some(())
}

/// A value that is one number.
fn one(word: u64, digest: &mut Digest) -> Option<()> {
    digest.word(word);
    Some(())
}

fn exponent(text: &[u8]) -> Option<i32> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let exponent: i32 = from_utf8(digits).ok()?.parse().ok()?;
    (-200_000..200_000).contains(&exponent).then_some(exponent)
}

/// Digits in lower case, in groups of 8, 4, 4, 4 and 12.
pub(super) fn uuid(text: &[u8]) -> Option<&[u8]> {
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => hexadecimal(*byte),
    };
    (text.len() == 36 && text.iter().enumerate().all(fits)).then_some(text)
}

fn hexadecimal(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// An address and the bits of its network.
pub(super) fn inet(text: &[u8], digest: &mut Digest) -> Option<()> {
    let text = from_utf8(text).ok()?;
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(unsigned(bits.as_bytes())?)),
        None => (text, None),
    };
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            digest.word(u64::from(u32::from(address)) | bits.unwrap_or(32) << 32 | 4 << 48);
        }
        IpAddr::V6(address) => {
            let number = u128::from(address);
            digest.word(bits.unwrap_or(128) | 6 << 48);
            digest.word(number as u64);
            digest.word((number >> 64) as u64);
        }
    }
    Some(())
}

/// Pairs of digits in lower case, with colons between.
pub(super) fn mac(text: &[u8], bytes: usize) -> Option<&[u8]> {
    let fits = |(at, byte): (usize, &u8)| match at % 3 {
        2 => *byte == b':',
        _ => hexadecimal(*byte),
    };
    (text.len() == bytes * 3 - 1 && text.iter().enumerate().all(fits)).then_some(text)
}

/// Zeros and ones.
pub(super) fn bit(text: &[u8]) -> Option<&[u8]> {
    let fits = |byte: &u8| matches!(byte, b'0' | b'1');
    text.iter().all(fits).then_some(text)
}

/// `-$1,234.56`.
pub(super) fn money(text: &[u8], digest: &mut Digest) -> Option<()> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, cents) = text.strip_prefix(b"$")?.split_last_chunk::<3>()?;
    if cents[0] != b'.' || whole.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    for byte in whole
        .iter()
        .filter(|&&byte| byte != b',')
        .chain(&cents[1..])
    {
        let digit = u64::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
        sum = sum.checked_mul(10)?.checked_add(digit)?;
    }
    digest.word(sum);
    digest.word(u64::from(negative && sum > 0));
    Some(())
}

/// Two halves in hexadecimal.
pub(super) fn lsn(text: &[u8]) -> Option<u64> {
    let (high, low) = from_utf8(text).ok()?.split_once('/')?;
    let half = |text: &str| {
        let fits = (1..=8).contains(&text.len()) && !text.starts_with('+');
        u32::from_str_radix(text, 16).ok().filter(|_| fits)
    };
    Some(u64::from(half(high)?) << 32 | u64::from(half(low)?))
}
