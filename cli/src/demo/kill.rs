//! The consumer is killed once, in the middle of the load, and started again a little later.

use std::time::Duration;

use tokio::time::Instant;
use walbraid_schemas::Stop;

use super::process::Process;
use crate::output::line;

const OUTAGE_MS: u64 = 1_000;

/// The kill and what has become of it.
pub(super) enum Kill {
    /// It will be done.
    Waiting {
        /// When.
        due: Instant,
    },
    /// It has been done, and the consumer is not back.
    Down {
        /// When it was killed.
        killed: Instant,
    },
    /// The consumer is back.
    Over {
        /// When it was killed.
        killed: Instant,
    },
}

impl Kill {
    /// A kill at a moment to come.
    pub(super) fn at(due: Instant) -> Self {
        Self::Waiting { due }
    }

    /// When it was done, if it was.
    pub(super) fn killed(&self) -> Option<Instant> {
        match self {
            Self::Waiting { .. } => None,
            Self::Down { killed } | Self::Over { killed } => Some(*killed),
        }
    }

    /// Does what is due.
    pub(super) async fn step(&mut self, consumer: &mut Process) -> Result<(), Stop> {
        match *self {
            Self::Waiting { due } if Instant::now() >= due => {
                line(format_args!(
                    "        kill -9 {}  (the consumer)",
                    consumer.name()
                ));
                consumer.kill().await?;
                *self = Self::Down {
                    killed: Instant::now(),
                };
                Ok(())
            }
            Self::Down { killed } if killed.elapsed() >= Duration::from_millis(OUTAGE_MS) => {
                self.finish(consumer).await
            }
            Self::Waiting { .. } | Self::Down { .. } | Self::Over { .. } => Ok(()),
        }
    }

    /// Leaves no consumer that is killed and not started.
    pub(super) async fn finish(&mut self, consumer: &mut Process) -> Result<(), Stop> {
        let Self::Down { killed } = *self else {
            return Ok(());
        };
        tokio::time::sleep_until(killed + Duration::from_millis(OUTAGE_MS)).await;
        consumer.start()?;
        line(format_args!("        started again: {}", consumer.name()));
        *self = Self::Over { killed };
        Ok(())
    }
}
