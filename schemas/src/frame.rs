//! Confluent framing: a zero byte, the schema's id in big-endian, then the Avro datum.

/// Bytes before the datum.
pub const HEADER_BYTES: usize = 5;

const MAGIC: u8 = 0;

/// A record's value has no such frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than a frame has.
    #[error("record value of {0} bytes is too short for a schema id")]
    Short(usize),
    /// The first byte is not zero.
    #[error("record value starts with byte {0}, not with Confluent's 0")]
    Magic(u8),
}

/// Appends the frame of a schema id.
pub fn write(schema_id: i32, out: &mut Vec<u8>) {
    out.push(MAGIC);
    out.extend_from_slice(&schema_id.to_be_bytes());
}

/// Splits a record's value into schema id and datum.
pub fn split(value: &[u8]) -> Result<(i32, &[u8]), FrameError> {
    match value.split_first_chunk::<HEADER_BYTES>() {
        Some((&[MAGIC, a, b, c, d], datum)) => Ok((i32::from_be_bytes([a, b, c, d]), datum)),
        Some((&[magic, ..], _)) => Err(FrameError::Magic(magic)),
        None => Err(FrameError::Short(value.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_is_total() {
        let check = |value: &[u8], expected| assert_eq!(split(value), expected, "{value:?}");
        check(&[], Err(FrameError::Short(0)));
        check(&[0, 0, 0, 1], Err(FrameError::Short(4)));
        check(&[1, 0, 0, 0, 7, 9], Err(FrameError::Magic(1)));
        check(&[0, 0, 0, 1, 7, 9], Ok((263, &[9])));
        check(&[0, 255, 255, 255, 255], Ok((-1, &[])));
        let mut out = Vec::new();
        write(263, &mut out);
        assert_eq!(split(&out), Ok((263, [].as_slice())));
    }
}
