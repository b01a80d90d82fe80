//! What a benchmark says at its end: samples to a median and a range, a ratio to a verdict.
//!
//! A ratio is formed round by round, of two figures measured one after the other, so that a
//! machine that grows slower during the run does not favour either side.

use std::fmt;

/// Figures of one kind, one a round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Adds the figure of a round.
    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The `share` quantile (0.0 to 1.0) by nearest rank; 0 of nothing.
    #[must_use]
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let rank = (share * last as f64).round() as usize;
        sorted.get(rank.min(last)).copied().unwrap_or(0.0)
    }

    /// The median.
    #[must_use]
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// These, each divided by the other's figure of the same round.
    #[must_use]
    pub(crate) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// How many rounds there were.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.quantile(0.0), self.quantile(1.0));
        let digits = if high < 10.0 { 2 } else { 0 };
        write!(
            f,
            "{:.digits$} (range {low:.digits$}–{high:.digits$}, {} rounds)",
            self.median(),
            self.len()
        )
    }
}

/// The last line of a benchmark that compares, and whether its floor was reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict<'a> {
    /// The benchmark's name.
    pub(crate) name: &'a str,
    /// Median of ours over theirs.
    pub(crate) ratio: f64,
    /// Below this the benchmark fails.
    pub(crate) floor: f64,
    /// What is aimed at.
    pub(crate) target: f64,
}

impl Verdict<'_> {
    /// True when the floor was reached.
    #[must_use]
    pub(crate) fn passed(&self) -> bool {
        self.ratio >= self.floor
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            ratio,
            floor,
            target,
        } = self;
        write!(
            f,
            "{name} {ratio:.2}x (floor {floor:.2}x, target {target:.2}x)"
        )
    }
}
