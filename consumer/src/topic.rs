//! The topic, as far as a consumer looks at it: one partition a lane.

use walbraid_schemas::notice::{Stop, StopKind};

use crate::policy::Failure;

/// Fails unless the topic has a partition for each lane, and no other.
pub(crate) fn check_partitions(
    topic: &str,
    partitions: usize,
    lanes: usize,
) -> Result<(), Failure> {
    if partitions == lanes {
        return Ok(());
    }
    let message = if partitions == 0 {
        format!("topic \"{topic}\" does not exist")
    } else {
        format!("topic \"{topic}\" has {partitions} partitions, the stream was set up with {lanes}")
    };
    let stop = if partitions == 0 {
        Stop::new(StopKind::TopicMissing, message).hint("Run walbraid setup.")
    } else {
        Stop::new(StopKind::TopicMismatch, message)
            .detail("A lane is one partition; order is kept inside it only.")
            .hint("Give the stream a topic of its own, and tear it down and set it up anew.")
    };
    Err(Failure::Definite(stop))
}

/// Nothing was ever written to the lane of a stream that is set up, though setup's own record was.
pub(crate) fn emptied(topic: &str) -> Stop {
    let message = format!("topic \"{topic}\" is empty");
    Stop::new(StopKind::LogTruncated, message)
        .detail(
            "The first record is written by setup: the topic was made anew since, and what was not \
             applied is lost.",
        )
        .hint(
            "Run \"walbraid teardown\", bring the subscriber's tables up to date, and run \
             \"walbraid setup\" again.",
        )
}
