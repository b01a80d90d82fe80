//! A cursor over one message, whose every read can fail.
//!
//! Owns: how integers, strings and lengths lie in a message. Does not own what they mean.
//! Invariants: no read looks past the end, no length is trusted, and nothing panics. A failed read
//! names the field it was for, so that the error of the whole message can.

use crate::message::Malformed;

/// The bytes of a message that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, field: &'static str, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or(Malformed::new(field, "is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::new(field, "is cut off"))?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    /// A length as PostgreSQL writes it: a signed 32-bit number that may not be negative.
    #[inline]
    pub(crate) fn length(&mut self, field: &'static str) -> Result<usize, Malformed> {
        usize::try_from(self.i32(field)?).map_err(|_| Malformed::new(field, "is negative"))
    }

    /// A string that ends with a zero byte, which is consumed and not part of it.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(Malformed::new(field, "has no end"))?;
        let text = self.bytes(field, end)?;
        self.u8(field)?;
        std::str::from_utf8(text).map_err(|_| Malformed::new(field, "is not UTF-8"))
    }

    /// Refuses bytes that no field has claimed.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new(
                "end of message",
                "is followed by more bytes",
            ))
        }
    }
}
