//! Numbers as PostgreSQL spells them.
//!
//! Floats are written with the fewest digits that read back to the same bits, chosen and laid out
//! the way `float8out` and `float4out` do it, so that a value that travelled as a float and lands
//! in a column of text or numeric reads as it did on the publisher. The standard library chooses
//! otherwise in two cases: of two shortest decimals that are as near it takes the odd one, where
//! its own rounding to a number of digits takes the even one, as PostgreSQL does; and it writes the
//! midpoint between two floats.

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
    // A decimal of at most 15 digits that reads back to the value is the only one, and division
    // reads as parsing does.
    for (digits, scale) in [(0, 1.0), (2, 1e2), (4, 1e4)] {
        let scaled = (value * scale).round();
        if scaled.abs() < 1e15 && scaled / scale == value {
            return write_scaled(scaled as i64, digits, out);
        }
    }
    let rounded = |digits: usize| Decimal::read(format_args!("{value:.digits$e}"));
    let mut decimal = Decimal::read(format_args!("{value:e}"));
    let size = value.abs();
    let same = |text: &str| text.parse() == Ok(size);
    if decimal.count >= 16 {
        decimal.prefer_even(same, rounded);
    }
    if (MIDPOINTS_FLOAT8.0..MIDPOINTS_FLOAT8.1).contains(&size) {
        decimal.leave_midpoint(same, rounded);
    }
    decimal.lay_out(15, out);
}

/// Appends a `real`.
pub fn write_float4(value: f32, out: &mut Vec<u8>) {
    if special(f64::from(value), out) {
        return;
    }
    for (digits, scale) in [(0, 1.0), (2, 1e2)] {
        let scaled = (value * scale).round();
        if scaled.abs() < 1e6 && scaled / scale == value {
            return write_scaled(scaled as i64, digits, out);
        }
    }
    let rounded = |digits: usize| Decimal::read(format_args!("{value:.digits$e}"));
    let mut decimal = Decimal::read(format_args!("{value:e}"));
    let size = value.abs();
    let same = |text: &str| text.parse() == Ok(size);
    if decimal.count >= 7 {
        decimal.prefer_even(same, rounded);
    }
    if (MIDPOINTS_FLOAT4.0..MIDPOINTS_FLOAT4.1).contains(&size) {
        decimal.leave_midpoint(same, rounded);
    }
    decimal.lay_out(6, out);
}

/// Appends a number of which the last `digits` stand behind the point, without zeros at the end.
fn write_scaled(scaled: i64, digits: usize, out: &mut Vec<u8>) {
    let scale = 10_i64.pow(digits as u32);
    if scaled < 0 {
        out.push(b'-');
    }
    let scaled = scaled.abs();
    write_integer(scaled / scale, out);
    let mut rest = scaled % scale;
    if rest == 0 {
        return;
    }
    out.push(b'.');
    let mut place = scale / 10;
    while rest > 0 {
        out.push(b'0' + (rest / place) as u8);
        rest %= place;
        place /= 10;
    }
}

/// Outside of these a shortest decimal is never the midpoint between two floats: that is an odd
/// multiple of half a unit in the last place, and would have too many digits.
const MIDPOINTS_FLOAT8: (f64, f64) = (281_474_976_710_656.0, 1e41);
const MIDPOINTS_FLOAT4: (f32, f32) = (524_288.0, 1e21);

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

/// A decimal: `d.ddd` times ten to the exponent.
#[derive(Clone, Copy, Default)]
struct Decimal {
    negative: bool,
    digits: [u8; 20],
    count: usize,
    exponent: i32,
}

/// Takes in `-d.ddde-x`, as the standard library writes it.
#[derive(Default)]
struct Scientific {
    decimal: Decimal,
    in_exponent: bool,
    exponent_is_negative: bool,
}

impl Write for Scientific {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let decimal = &mut self.decimal;
        for byte in text.bytes() {
            match byte {
                b'e' => self.in_exponent = true,
                b'-' if self.in_exponent => self.exponent_is_negative = true,
                b'-' => decimal.negative = true,
                b'0'..=b'9' if self.in_exponent => {
                    decimal.exponent = decimal.exponent * 10 + i32::from(byte - b'0');
                }
                b'0'..=b'9' => {
                    let room = decimal
                        .digits
                        .get_mut(decimal.count)
                        .ok_or(std::fmt::Error)?;
                    *room = byte;
                    decimal.count += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Decimal {
    fn read(text: std::fmt::Arguments<'_>) -> Self {
        let mut scientific = Scientific::default();
        // At most 17 digits are ever asked for: there is room.
        let _ = scientific.write_fmt(text);
        let Scientific {
            mut decimal,
            exponent_is_negative,
            ..
        } = scientific;
        if exponent_is_negative {
            decimal.exponent = -decimal.exponent;
        }
        decimal
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    /// Of two shortest decimals that are as near to the value, PostgreSQL takes the even one.
    fn prefer_even(&mut self, same: impl Fn(&str) -> bool, rounded: impl Fn(usize) -> Self) {
        let even = rounded(self.count - 1);
        if even.digits() != self.digits() && same(&even.text()) {
            *self = even;
        }
    }

    /// The midpoint between two floats reads back to the even one, but PostgreSQL never writes it:
    /// it takes more digits. `same` says whether a text reads back to the value, `rounded` gives it
    /// with that many digits behind the point.
    fn leave_midpoint(&mut self, same: impl Fn(&str) -> bool, rounded: impl Fn(usize) -> Self) {
        while !self.is_inside(&same) && self.count < 17 {
            *self = rounded(self.count);
        }
    }

    /// The digits as one number.
    fn whole(&self) -> u64 {
        self.digits()
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }

    /// The size of it, in a form that can be parsed.
    fn text(&self) -> String {
        format!("{}e{}", self.whole(), self.exponent + 1 - self.count as i32)
    }

    /// True if what lies closely above and below reads back to the value as well.
    fn is_inside(&self, same: impl Fn(&str) -> bool) -> bool {
        let whole = self.whole();
        // Closer than any decimal of 17 digits comes to a midpoint without being it.
        const MORE: usize = 60;
        let exponent = self.exponent + 1 - self.count as i32 - MORE as i32;
        same(&format!("{whole}{:0>MORE$}e{exponent}", 1))
            && same(&format!("{}{:9>MORE$}e{exponent}", whole - 1, 9))
    }

    /// Fixed notation for exponents from -4 up to below `fixed_digits`, scientific outside.
    fn lay_out(&self, fixed_digits: i32, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        if (-4..fixed_digits).contains(&self.exponent) {
            fixed(self.digits(), self.exponent, out);
        } else {
            exponential(self.digits(), self.exponent, out);
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
    #[expect(
        clippy::excessive_precision,
        reason = "exact values show why they are near ties"
    )]
    fn doubles_are_spelt_as_postgresql_does() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (-0.05, "-0.05"),
            (19.99, "19.99"),
            (1234.0005, "1234.0005"),
            (0.000_12, "0.00012"),
            (100.0, "100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e300, "1e+300"),
            // As near to …2 as to …3.
            (
                0.000_000_029_802_322_387_695_312_5,
                "2.9802322387695312e-08",
            ),
            (213_392_103_373_113.625, "213392103373113.62"),
            (1_489_831_329_499_789.25, "1.4898313294997892e+15"),
            // The midpoint of two floats: the shortest that reads back, and not written.
            (1e23, "9.999999999999999e+22"),
            (8.41e21, "8.409999999999999e+21"),
            (1e22, "1e+22"),
            // A power of two: the float below is nearer than the one above.
            (
                618_970_019_642_690_137_449_562_112.0,
                "6.189700196426902e+26",
            ),
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
            (-19.99, "-19.99"),
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
