//! Latency: from a commit that returned on the publisher to the moment a reader of the subscriber
//! sees it, by one clock.
//!
//! One row that the publisher updates again and again; the subscriber is asked for it until the new
//! value shows. One beat at a time, so that a slow one is measured whole, and a look at the
//! subscriber every millisecond only while one is under way.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, Error};

const LOOK_PAUSE_MS: u64 = 1;
const BEAT_PAUSE_MS: u64 = 40;

/// One beat: when it was committed, and how long until it was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    /// When the commit returned.
    pub(super) committed: Instant,
    /// How long until a reader saw it.
    pub(super) latency: Duration,
}

/// Beats until `end`; the last one is waited for.
pub(super) async fn beat(
    publisher: &Client,
    subscriber: &Client,
    end: Instant,
) -> Result<Vec<Beat>, Error> {
    let update = publisher
        .prepare("UPDATE walbraid_demo.probe SET beat = beat + 1 WHERE id = 1 RETURNING beat")
        .await?;
    let look = subscriber
        .prepare("SELECT beat FROM walbraid_demo.probe WHERE id = 1")
        .await?;
    let mut beats = Vec::new();
    while Instant::now() < end {
        let beat: i64 = publisher.query_one(&update, &[]).await?.get(0);
        let committed = Instant::now();
        loop {
            let seen = subscriber.query_opt(&look, &[]).await?;
            if seen.is_some_and(|row| row.get::<_, i64>(0) >= beat) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_PAUSE_MS)).await;
        }
        beats.push(Beat {
            committed,
            latency: committed.elapsed(),
        });
        tokio::time::sleep(Duration::from_millis(BEAT_PAUSE_MS)).await;
    }
    Ok(beats)
}

/// The latency that `share` of the beats stay below; zero of none.
pub(super) fn quantile(latencies: &mut [Duration], share: f64) -> Duration {
    latencies.sort_unstable();
    let last = latencies.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    latencies.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let ms = Duration::from_millis;
        let check = |values: &[u64], share, expected| {
            let mut latencies: Vec<_> = values.iter().map(|value| ms(*value)).collect();
            assert_eq!(
                quantile(&mut latencies, share),
                ms(expected),
                "{values:?} {share}"
            );
        };
        check(&[], 0.5, 0);
        check(&[7], 0.99, 7);
        check(&[3, 1, 2], 0.5, 2);
        check(&[3, 1, 2], 1.0, 3);
    }
}
