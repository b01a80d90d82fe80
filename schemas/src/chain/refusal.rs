//! Why a reader does not go on, and how it says so.

use super::Position;
use crate::{Envelope, Incarnation, Lsn, Part, Stop, StopKind};

/// A reader does not go on.
pub(super) enum Refusal {
    /// It started too far on.
    SeekBack,
    /// The lane cannot be read.
    Stop(Stop),
}

fn refuse(kind: StopKind, message: String) -> Refusal {
    Refusal::Stop(Stop::new(kind, message))
}

pub(super) fn out_of_order(offset: i64, last_offset: i64) -> Refusal {
    let message = format!("record at offset {offset} was offered behind offset {last_offset}");
    refuse(StopKind::Internal, message)
}

pub(super) fn impossible_claim(offset: i64, claim_offset: i64) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!("record at offset {offset} names a claim at offset {claim_offset}"),
        )
        .detail("There is no such claim before it in the log."),
    )
}

pub(super) fn other_options(offset: i64, claim_offset: i64) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!("record at offset {offset} has other options than its claim"),
        )
        .detail(format!("Its claim stands at offset {claim_offset}.")),
    )
}

pub(super) fn inconsistent(offset: i64, record: &Envelope) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::Undecodable,
            format!("record at offset {offset} contradicts itself"),
        )
        .detail(format!(
            "Its previous end LSN is {}, its end LSN is {}.",
            record.previous_end_lsn, record.end_lsn
        )),
    )
}

pub(super) fn own_claim_missing(position: &Position) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::LogTruncated,
            format!(
                "offset {} does not hold the claim under which {} was reached",
                position.claim_offset, position.end_lsn
            ),
        )
        .detail("The topic was created anew, or it is another one.")
        .hint("Copy the tables anew, or give the lane back the topic it had."),
    )
}

pub(super) fn other_incarnation(offset: i64, found: Incarnation, position: &Position) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::Incarnation,
            format!("the lane continues with incarnation {found} of the stream at offset {offset}"),
        )
        .detail(format!(
            "The subscriber stands at {} of incarnation {}.",
            position.end_lsn, position.incarnation
        ))
        .hint("The slot was created anew: changes in between may be lost. Copy the tables anew."),
    )
}

pub(super) fn other_start(found: Lsn, start: Lsn) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!("the lane's log starts at {found}, not at {start}"),
        )
        .detail("The log and the subscriber were set up for different slots.")
        .hint("Run teardown and setup."),
    )
}

pub(super) fn truncated(offset: i64, record: &Envelope, position: &Position) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::LogTruncated,
            format!(
                "the log starts at offset {offset}, behind the subscriber's position {}",
                position.end_lsn
            ),
        )
        .detail(format!(
            "Its first record goes on from {}; what lies between may be lost.",
            record.previous_end_lsn
        ))
        .hint("Copy the tables anew, and keep the topic's retention above the lag."),
    )
}

pub(super) fn claim_above(offset: i64, confirmed: Lsn, covered: Lsn) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!("the chain breaks at offset {offset}: from {covered} to {confirmed}"),
        )
        .detail(format!(
            "A producer claims the lane with a slot confirmed up to {confirmed}, but the log \
             holds nothing between {covered} and that LSN."
        ))
        .hint("Kafka lost acknowledged records, or the slot was advanced by someone else."),
    )
}

pub(super) fn gap(offset: i64, record: &Envelope, covered: Lsn) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!(
                "the chain breaks at offset {offset}: from {covered} to {}",
                record.previous_end_lsn
            ),
        )
        .detail(format!(
            "The record follows a link that ends at {}, but the log was read up to {covered}.",
            record.previous_end_lsn
        ))
        .hint("Kafka lost acknowledged records."),
    )
}

pub(super) fn part_missing(offset: i64, part: &Part, expected: Option<u32>) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!(
                "part {} of the link at {} is missing before offset {offset}",
                expected.unwrap_or(0),
                part.commit_lsn
            ),
        )
        .detail(format!("The record is part {} of it.", part.number))
        .hint("Kafka lost acknowledged records."),
    )
}

pub(super) fn diverged(offset: i64, record: &Envelope, position: &Position) -> Refusal {
    Refusal::Stop(
        Stop::new(
            StopKind::ChainBreak,
            format!(
                "record at offset {offset} contradicts the link that ends at {}",
                position.end_lsn
            ),
        )
        .detail(format!(
            "It speaks of {} to {}, with the same options, and does not know that link.",
            record.previous_end_lsn, record.end_lsn
        ))
        .hint("The publisher's WAL is not the one that was read: was it restored from a backup?"),
    )
}
