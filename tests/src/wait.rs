//! Waiting for conditions, with deadlines: the only place of the harness where time passes.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, interval, timeout};

const POLL_MS: u64 = 20;

/// How long a test waits for something that takes moments when nothing is wrong: long enough for
/// a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks `condition` again and again until it gives a value; panics naming `what` at the deadline.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    let mut ticks = interval(Duration::from_millis(POLL_MS));
    loop {
        ticks.tick().await;
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
    }
}

/// Lets a moment of that length pass, for faults at moments that nobody chose.
pub async fn moment(length: Duration) {
    drop(timeout(length, pending::<()>()).await);
}
