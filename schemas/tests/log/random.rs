//! Randomness from a seed. A failing test prints its seed; `WALBRAID_SEED` runs that one alone.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in `percent` of the calls.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Runs `case` for many seeds, or for the one in `WALBRAID_SEED`.
pub(crate) fn for_seeds(cases: u64, mut case: impl FnMut(&mut Random, u64)) {
    if let Some(seed) = std::env::var("WALBRAID_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return case(&mut Random::new(seed), seed);
    }
    for seed in 0..cases {
        // The bomb prints the seed when the case panics.
        let bomb = PrintsSeed(seed);
        case(&mut Random::new(seed), seed);
        std::mem::forget(bomb);
    }
}

struct PrintsSeed(u64);

impl Drop for PrintsSeed {
    fn drop(&mut self) {
        eprintln!("failed with WALBRAID_SEED={}", self.0);
    }
}
