//! Numbers of 64 bits made of bytes.
//!
//! Multiply and fold, eight bytes a step. Written out here because it is twenty lines, needs no
//! random state, and gives the same number in every run, so that a recorded window can be compared
//! with another. It does not have to resist anyone: two values that are made to collide only wait
//! for each other.

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd6e8_feb8_6659_fd93;
const LAST: u64 = 0xa076_1d64_78bd_642f;

/// A number in the making. What is put in is not told apart by length: fields of various length
/// carry theirs ([`Digest::bytes`] does).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Starts with a number that tells what it is a digest of.
    #[inline]
    pub(crate) fn new(seed: u64) -> Self {
        Self(fold(seed ^ FIRST, STEP))
    }

    /// Adds a number.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, STEP).wrapping_add(FIRST);
    }

    /// Adds bytes, and how many they are.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    /// The number.
    #[inline]
    pub(crate) fn finish(self) -> u64 {
        fold(self.0 ^ LAST, FIRST)
    }
}

/// The halves of the product, folded.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        let mut digest = Digest::new(1);
        digest.bytes(bytes);
        digest.finish()
    }

    #[test]
    fn lengths_and_places_tell_apart() {
        let mut seen = HashSet::new();
        for length in 0..64 {
            assert!(seen.insert(of(&vec![0; length])), "{length} zeros");
            for place in 0..length {
                let mut bytes = vec![0; length];
                bytes[place] = 1;
                assert!(seen.insert(of(&bytes)), "{place} of {length}");
            }
        }
    }

    /// Neighbouring numbers must differ in their low bits too: a hash table uses those.
    #[test]
    fn low_bits_are_spread() {
        let mut count = [0_u32; 256];
        for number in 0..25_600_u64 {
            let mut digest = Digest::new(7);
            digest.word(number);
            count[(digest.finish() & 255) as usize] += 1;
        }
        assert!(
            count.iter().all(|&count| (50..160).contains(&count)),
            "{count:?}"
        );
    }
}
