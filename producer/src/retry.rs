//! How long to wait before the next try, and how often to speak of it.
//!
//! Owns back-off and the rule of one warning when a trouble starts and one word when it is over.
//! What is tried again and what not is `policy`'s.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::policy::Failure;

const FIRST_PAUSE_MS: u64 = 100;

/// Pauses that double up to a limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    next_ms: u64,
    max_ms: u64,
}

impl Backoff {
    pub(crate) fn new(max_ms: u64) -> Backoff {
        Backoff {
            next_ms: FIRST_PAUSE_MS.min(max_ms.max(1)),
            max_ms: max_ms.max(1),
        }
    }

    /// The next pause, up to half of it taken off by `random` between 0 and 1, so that those who
    /// failed together do not come back together.
    pub(crate) fn pause(&mut self, random: f64) -> Duration {
        let pause = self.next_ms;
        self.next_ms = (self.next_ms * 2).min(self.max_ms);
        Duration::from_micros((pause as f64 * (1.0 - random / 2.0) * 1_000.0) as u64)
    }
}

/// Tries until it works, until it never will, or until the shutdown.
pub(crate) async fn until_done<T, F: Future<Output = Result<T, Failure>>>(
    shutdown: &CancellationToken,
    metrics: &Metrics,
    backoff_max_ms: u64,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Failure> {
    let mut backoff = Backoff::new(backoff_max_ms);
    let mut trouble: Option<String> = None;
    loop {
        let result = tokio::select! {
            () = shutdown.cancelled() => return Err(Failure::Shutdown),
            result = attempt() => result,
        };
        let (cause, stop) = match result {
            Err(Failure::Transient { cause, stop }) => (cause, stop),
            Ok(done) => {
                if let Some(trouble) = trouble {
                    tracing::info!("went on after trouble: {trouble}");
                }
                return Ok(done);
            }
            Err(failure) => return Err(failure),
        };
        metrics.retry(cause);
        if trouble.is_none() {
            tracing::warn!("{}; trying again until it works", stop.message);
            trouble = Some(stop.message);
        }
        pause(shutdown, backoff.pause(rand::random())).await?;
    }
}

/// Waits, unless the shutdown comes first.
pub(crate) async fn pause(shutdown: &CancellationToken, time: Duration) -> Result<(), Failure> {
    tokio::select! {
        () = shutdown.cancelled() => Err(Failure::Shutdown),
        () = tokio::time::sleep(time) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit() {
        let mut backoff = Backoff::new(500);
        let pauses: Vec<u128> = (0..5).map(|_| backoff.pause(0.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 500, 500]);
        assert_eq!(backoff.pause(1.0).as_millis(), 250);
    }
}
