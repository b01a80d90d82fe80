//! Numbers as PostgreSQL spells them.
//!
//! Floats are written with the fewest digits that read back to the same bits, laid out the way
//! `float8out` and `float4out` do it, so that a value that travelled as a float and lands in a
//! column of text or numeric reads as it did on the publisher.

use std::fmt::Write;

/// Appends an integer.
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends a `double precision`.
pub fn write_float8(value: f64, out: &mut Vec<u8>) {
    if special(value, out) {
        return;
    }
    let mut scientific = Scientific::default();
    // Writing to the buffer cannot fail: 17 digits, a sign and an exponent fit.
    let _ = write!(scientific, "{value:e}");
    scientific.lay_out(15, out);
}

/// Appends a `real`.
pub fn write_float4(value: f32, out: &mut Vec<u8>) {
    if special(f64::from(value), out) {
        return;
    }
    let mut scientific = Scientific::default();
    let _ = write!(scientific, "{value:e}");
    scientific.lay_out(6, out);
}

fn special(value: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value.is_infinite() {
        if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        }
    } else if value == 0.0 {
        if value.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        }
    } else {
        return false;
    };
    out.extend_from_slice(text);
    true
}

/// `-d.ddde-x` as the standard library writes it.
#[derive(Default)]
struct Scientific {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Scientific {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let room = self
            .bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Scientific {
    /// Fixed notation for exponents from -4 up to below `fixed_digits`, scientific outside.
    fn lay_out(&self, fixed_digits: i32, out: &mut Vec<u8>) {
        let mut digits = [0_u8; 20];
        let mut count = 0;
        let mut exponent = 0_i32;
        let mut exponent_sign = 1;
        let mut in_exponent = false;
        for &byte in &self.bytes[..self.length] {
            match byte {
                b'e' => in_exponent = true,
                b'-' if in_exponent => exponent_sign = -1,
                b'-' => out.push(b'-'),
                b'0'..=b'9' if in_exponent => exponent = exponent * 10 + i32::from(byte - b'0'),
                b'0'..=b'9' => {
                    digits[count] = byte;
                    count += 1;
                }
                _ => {}
            }
        }
        let (digits, exponent) = (&digits[..count], exponent * exponent_sign);
        if (-4..fixed_digits).contains(&exponent) {
            fixed(digits, exponent, out);
        } else {
            exponential(digits, exponent, out);
        }
    }
}

fn fixed(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn exponential(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&digits[..1]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    let exponent = i64::from(exponent.unsigned_abs());
    if exponent < 10 {
        out.push(b'0');
    }
    write_integer(exponent, out);
}

/// Appends a bytea in hex, `\x…`.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers() {
        for value in [0, 1, -1, 10, -90, i64::MAX, i64::MIN, 1_234_567] {
            assert_eq!(text(|out| write_integer(value, out)), value.to_string());
        }
    }

    #[test]
    fn doubles_are_spelt_as_postgresql_does() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e300, "1e+300"),
            (5e-324, "5e-324"),
            (-216_237.000_000_359_7, "-216237.0000003597"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (0.1 + 0.2, "0.30000000000000004"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(|out| write_float8(*value, out)), *expected);
        }
    }

    #[test]
    fn reals_are_spelt_as_postgresql_does() {
        let cases: &[(f32, &str)] = &[
            (0.1, "0.1"),
            (-0.0, "-0"),
            (123_456.0, "123456"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f32::MAX, "3.4028235e+38"),
            (1e-45, "1e-45"),
            (f32::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(|out| write_float4(*value, out)), *expected);
        }
    }

    #[test]
    fn bytes_in_hex() {
        assert_eq!(text(|out| write_hex(&[], out)), "\\x");
        assert_eq!(text(|out| write_hex(&[0, 0xff, 0x5c], out)), "\\x00ff5c");
    }
}
