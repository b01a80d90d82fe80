//! When the subscriber is asked whether the head waits for a later unit.
//!
//! A later unit keeps its locks until its turn comes, and its turn comes after the head's: a head
//! that waits for such a lock waits for ever, and the server sees no deadlock in it, because what
//! the later unit waits for is a decision of ours. So a head that takes longer than a moment while
//! others are in flight makes the engine ask, then again with growing pauses: asking costs the
//! server little, but it takes every partition of its lock table to answer. Where no answer comes,
//! every later unit that holds anything makes way, once for each head.

use super::Engine;
use super::pending::Entry;
use crate::action::Action;
use crate::rule::Cause;
use crate::state::State;
use crate::unit::UnitId;

/// A head may take so long before anybody asks.
const FIRST_MS: u64 = 10;

/// Pauses between questions double up to this.
const MOST_MS: u64 = 200;

/// When nobody has answered for so long, all later units are called back.
const UNANSWERED_MS: u64 = 3_000;

/// How long the head has been waited for.
#[derive(Debug, Default)]
pub(super) struct Patience {
    watched: Option<Watched>,
}

#[derive(Debug)]
struct Watched {
    unit: UnitId,
    until_ms: u64,
    pause_ms: u64,
    /// Since when a question has no answer.
    unanswered_since_ms: Option<u64>,
    /// Later units have made way for it.
    way_made: bool,
}

impl Patience {
    /// When it ends, if anything is watched.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.watched.as_ref().map(|watched| watched.until_ms)
    }

    /// True if it is over for this unit.
    fn is_over(&mut self, unit: UnitId, now_ms: u64) -> bool {
        let watched = self.watched.take_if(|watched| watched.unit == unit);
        let watched = self.watched.insert(watched.unwrap_or(Watched {
            unit,
            until_ms: now_ms + FIRST_MS,
            pause_ms: FIRST_MS,
            unanswered_since_ms: None,
            way_made: false,
        }));
        if now_ms < watched.until_ms {
            return false;
        }
        watched.pause_ms = (watched.pause_ms * 2).min(MOST_MS);
        watched.until_ms = now_ms + watched.pause_ms;
        watched.unanswered_since_ms.get_or_insert(now_ms);
        true
    }

    /// A question was answered.
    pub(super) fn answered(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.unanswered_since_ms = None;
        }
    }

    /// True once for a head about which nobody answers.
    fn has_no_answer(&mut self, now_ms: u64) -> bool {
        let Some(watched) = &mut self.watched else {
            return false;
        };
        let silent = watched
            .unanswered_since_ms
            .is_some_and(|since_ms| now_ms >= since_ms + UNANSWERED_MS);
        silent && !std::mem::replace(&mut watched.way_made, true)
    }
}

impl Engine {
    /// Asks who waits for whom, if the head has taken long and a later unit may be why.
    pub(super) fn ask_blocked(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let mut units = self.pending.units.iter();
        let head = units.next().filter(|head| may_wait(head));
        let held = units.any(|entry| entry.attempt.is_some_and(|attempt| !attempt.commit_sent));
        match head.filter(|_| held) {
            Some(head) => {
                let unit = head.unit.id;
                if self.patience.is_over(unit, now_ms) {
                    actions.push(Action::AskBlocked);
                    if self.patience.has_no_answer(now_ms) {
                        self.clear_the_way(actions);
                    }
                }
            }
            None => self.patience.watched = None,
        }
    }

    /// Calls back every later unit that holds locks until its turn.
    pub(super) fn clear_the_way(&mut self, actions: &mut Vec<Action>) {
        let called_back = self.pending.call_back_held(actions);
        self.count_retries(Cause::MadeWay, called_back);
    }
}

/// A statement of it may wait in the server, or its COMMIT: constraints are checked there too.
fn may_wait(head: &Entry) -> bool {
    head.attempt
        .is_some_and(|attempt| head.state == State::Running || attempt.commit_sent)
}
