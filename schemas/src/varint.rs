//! Avro's `int` and `long`: zig-zag, then seven bits a byte, lowest first.
//!
//! The reader is total: it refuses what does not end, what does not fit 64 bits, and forms with
//! more bytes than the number needs, so that a number has one form.

use bytes::BufMut;

/// Appends a number.
pub(crate) fn write(value: i64, out: &mut impl BufMut) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Takes a number from the front of `bytes`.
#[inline]
pub(crate) fn read(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    let mut shift = 0_u32;
    let mut rest = *bytes;
    loop {
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        let bits = u64::from(byte & 0x7F);
        let overflows = shift == 63 && bits > 1;
        let overlong = shift > 0 && byte == 0;
        if shift > 63 || overflows || overlong {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            *bytes = rest;
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        shift += 7;
    }
}

/// Takes a length and that many bytes from the front of `bytes`.
#[inline]
pub(crate) fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = *bytes;
    let length = usize::try_from(read(&mut rest)?).ok()?;
    let (taken, tail) = rest.split_at_checked(length)?;
    *bytes = tail;
    Some(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn round_trip() {
        for value in [
            0,
            -1,
            1,
            63,
            64,
            -64,
            -65,
            i64::from(i32::MAX),
            i64::MAX,
            i64::MIN,
        ] {
            let mut out = Vec::new();
            write(value, &mut out);
            let mut rest = out.as_slice();
            assert_eq!(read(&mut rest), Some(value));
            assert!(rest.is_empty());
            for cut in 0..out.len() {
                assert_eq!(
                    read(&mut out.get(..cut).unwrap()),
                    None,
                    "{value} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn one_form_a_number() {
        let check = |bytes: &[u8], expected: Option<i64>| {
            assert_eq!(read(&mut { bytes }), expected, "{bytes:?}");
        };
        check(&[0x80, 0x00], None);
        check(&[0xFF; 10], None);
        check(
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            Some(i64::MIN),
        );
        check(
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x03],
            None,
        );
        check(
            &[
                0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
            ],
            None,
        );
    }
}
