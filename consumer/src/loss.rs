//! Why a session of the lane was lost: told by whoever had the session, read by whoever ends the
//! tenure.
//!
//! The engine needs to know only *that* one was lost; a person and `status` need to know why, and
//! what cannot be (a message out of step, a statement that cannot be encoded) must end the process
//! instead of being tried for ever. Told before the event that says the session is gone, so that it
//! is there when that is read. The first reason counts: the others follow from it.

use std::sync::{Arc, Mutex, PoisonError};

use walbraid_schemas::notice::{Stop, StopKind};

use crate::policy::Failure;

/// The place for the reason, shared by a tenure's tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loss(Arc<Mutex<Option<Stop>>>);

/// What a loss comes to.
#[derive(Debug, PartialEq)]
pub(crate) enum Lost {
    /// A new tenure may mend it.
    Session(String),
    /// An invariant is broken: the process ends.
    Broken(Stop),
}

impl Loss {
    /// Keeps why a session was lost.
    pub(crate) fn tell(&self, failure: Failure) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(failure.into_stop());
    }

    /// What the loss comes to; `otherwise` is said of one that nobody told of.
    pub(crate) fn judge(&self, otherwise: &str) -> Lost {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match place.take() {
            Some(stop) if stop.kind == StopKind::Internal => Lost::Broken(stop),
            Some(stop) => Lost::Session(stop.message),
            None => Lost::Session(otherwise.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cause;

    #[test]
    fn the_first_reason_counts_and_what_cannot_be_is_no_loss() {
        let gone = || {
            let (kind, text) = (StopKind::ServerUnreachable, "gone".to_owned());
            Failure::transient(Cause::Connection, kind, text)
        };
        let broken = || Failure::definite(StopKind::Internal, "out of step".to_owned());
        let loss = Loss::default();
        assert_eq!(loss.judge("nothing"), Lost::Session("nothing".to_owned()));
        loss.tell(gone());
        loss.tell(broken());
        assert_eq!(loss.judge("nothing"), Lost::Session("gone".to_owned()));
        loss.tell(broken());
        let stop = Stop::new(StopKind::Internal, "out of step");
        assert_eq!(loss.judge("nothing"), Lost::Broken(stop));
    }
}
