//! The second reader: looks at the shop's money on the subscriber the whole time.
//!
//! It knows nothing of walbraid. If it ever sees half a transaction, or one without those before
//! it, the sums do not fit, and the demo has failed.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, Error};
use tokio_util::sync::CancellationToken;

use super::shop::{INVARIANT, MONEY_CENTS};

const PAUSE_MS_MIN: u64 = 50;
/// A look is followed by a pause this much longer, so that looking stays a small part of the load.
const PAUSE_RATIO: u32 = 4;

/// What the second reader saw.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// How often it looked and money was there.
    pub(super) looks: u64,
    /// Every look at which the sums did not fit, up to a handful.
    pub(super) broken: Vec<String>,
}

const BROKEN_MAX: usize = 5;

/// Looks until told to end, and once more then.
pub(super) async fn watch(subscriber: &Client, end: CancellationToken) -> Result<Audit, Error> {
    let statement = subscriber.prepare(INVARIANT).await?;
    let mut audit = Audit::default();
    loop {
        let last = end.is_cancelled();
        let began = Instant::now();
        let row = subscriber.query_one(&statement, &[]).await?;
        audit.judge(row.get(0), row.get(1), row.get(2));
        if last {
            return Ok(audit);
        }
        let pause = Duration::from_millis(PAUSE_MS_MIN).max(began.elapsed() * PAUSE_RATIO);
        tokio::select! {
            () = end.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Audit {
    fn judge(&mut self, money: i64, unbooked: i64, unexplained: i64) {
        if (money, unbooked, unexplained) == (0, 0, 0) && self.looks == 0 {
            return;
        }
        self.looks += 1;
        let fits = (money, unbooked, unexplained) == (MONEY_CENTS, 0, 0);
        if !fits && self.broken.len() < BROKEN_MAX {
            self.broken.push(format!(
                "look {}: all money {money} instead of {MONEY_CENTS}, in tills without a payment \
                 {unbooked}, cost without a line {unexplained}",
                self.looks
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_shop_is_right_only_before_the_first_stock() {
        let mut audit = Audit::default();
        audit.judge(0, 0, 0);
        assert_eq!((audit.looks, audit.broken.len()), (0, 0));
        audit.judge(MONEY_CENTS, 0, 0);
        audit.judge(0, 0, 0);
        audit.judge(MONEY_CENTS, 1, 0);
        assert_eq!((audit.looks, audit.broken.len()), (3, 2));
    }
}
