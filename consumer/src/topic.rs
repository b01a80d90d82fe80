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
