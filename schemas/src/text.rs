//! PostgreSQL's text form of the types that travel typed.
//!
//! Both directions, under the session settings that walbraid pins (`extra_float_digits = 3`,
//! `bytea_output = hex`): what comes out of [`write`] is read by PostgreSQL as the same value,
//! floats to the bit (a NaN's payload excepted; PostgreSQL's text has none).
//!
//! Parsing is strict: a form that PostgreSQL does not write is refused, it is never guessed at.

use std::fmt::Write as _;

use bytes::BufMut;

use crate::Value;

/// The text is not what PostgreSQL writes for this type. Holds no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid text form of type {carrier}")]
pub struct TextError {
    /// What it should have been.
    pub carrier: &'static str,
}

/// `t` or `f`.
pub fn parse_bool(text: &[u8]) -> Result<bool, TextError> {
    match text {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(TextError { carrier: "boolean" }),
    }
}

/// Decimal, with a minus sign where there is one.
pub fn parse_int(text: &[u8]) -> Result<i64, TextError> {
    let refused = TextError { carrier: "integer" };
    if text.first() == Some(&b'+') {
        return Err(refused);
    }
    parse_utf8(text)?.parse().map_err(|_| refused)
}

/// A float4, correctly rounded.
pub fn parse_float4(text: &[u8]) -> Result<f32, TextError> {
    match float_form(text, "real")? {
        Float::NaN => Ok(f32::NAN),
        Float::Infinity => Ok(f32::INFINITY),
        Float::NegativeInfinity => Ok(f32::NEG_INFINITY),
        Float::Finite(text) => finite(text.parse().ok().filter(|value: &f32| value.is_finite())),
    }
}

/// A float8, correctly rounded.
pub fn parse_float8(text: &[u8]) -> Result<f64, TextError> {
    match float_form(text, "double precision")? {
        Float::NaN => Ok(f64::NAN),
        Float::Infinity => Ok(f64::INFINITY),
        Float::NegativeInfinity => Ok(f64::NEG_INFINITY),
        Float::Finite(text) => finite(text.parse().ok().filter(|value: &f64| value.is_finite())),
    }
}

fn finite<T>(value: Option<T>) -> Result<T, TextError> {
    value.ok_or(TextError {
        carrier: "floating point",
    })
}

enum Float<'a> {
    NaN,
    Infinity,
    NegativeInfinity,
    Finite(&'a str),
}

fn float_form<'a>(text: &'a [u8], carrier: &'static str) -> Result<Float<'a>, TextError> {
    match text {
        b"NaN" => Ok(Float::NaN),
        b"Infinity" => Ok(Float::Infinity),
        b"-Infinity" => Ok(Float::NegativeInfinity),
        _ => {
            let plain =
                |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e');
            if !text.iter().all(plain) {
                return Err(TextError { carrier });
            }
            Ok(Float::Finite(parse_utf8(text)?))
        }
    }
}

/// Any text.
pub fn parse_utf8(text: &[u8]) -> Result<&str, TextError> {
    std::str::from_utf8(text).map_err(|_| TextError {
        carrier: "text in UTF-8",
    })
}

/// The hexadecimal digits of a bytea's text form; an even number of bytes.
pub(crate) fn bytea_digits(text: &[u8]) -> Result<&[u8], TextError> {
    text.strip_prefix(b"\\x")
        .filter(|digits| digits.len() % 2 == 0)
        .ok_or(TextError { carrier: "bytea" })
}

/// Appends the bytes that the digits stand for.
pub(crate) fn put_bytea(digits: &[u8], out: &mut impl BufMut) -> Result<(), TextError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let (pairs, _) = digits.as_chunks::<2>();
    for &[high, low] in pairs {
        match (digit(high), digit(low)) {
            (Some(high), Some(low)) => out.put_u8(high << 4 | low),
            _ => return Err(TextError { carrier: "bytea" }),
        }
    }
    Ok(())
}

/// Appends the text form of a value. Returns false, and appends nothing, for what has none: NULL,
/// unchanged, not sent.
pub fn write(value: Value<'_>, out: &mut String) -> bool {
    match value {
        Value::Null | Value::Unchanged | Value::NotSent => return false,
        Value::Bool(value) => out.push(if value { 't' } else { 'f' }),
        Value::Int(value) => push(out, format_args!("{value}")),
        Value::Float4(value) if value.is_finite() => push(out, format_args!("{value:e}")),
        Value::Float4(value) => out.push_str(not_finite(value.into())),
        Value::Float8(value) if value.is_finite() => push(out, format_args!("{value:e}")),
        Value::Float8(value) => out.push_str(not_finite(value)),
        Value::Text(value) => out.push_str(value),
        Value::Bytes(value) => {
            const DIGITS: [char; 16] = [
                '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
            ];
            out.reserve(2 + value.len() * 2);
            out.push_str("\\x");
            for byte in value {
                out.push(DIGITS[usize::from(byte >> 4)]);
                out.push(DIGITS[usize::from(byte & 15)]);
            }
        }
    }
    true
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    let _ = out.write_fmt(text);
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}
