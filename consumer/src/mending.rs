//! Mending a session after a unit did not go through.
//!
//! Sync, ReadyForQuery, ROLLBACK if the block stands, and the origin's setup is reset, because the
//! session would carry the LSN into its next commit. Statements whose Parse or Close was not
//! answered are closed: nobody knows whether the server has them.

use walbraid_apply::event::Event;
use walbraid_apply::failure::{Failure as UnitFailure, Place, ServerFailure};
use walbraid_apply::generated::GUARD_SQLSTATE;
use walbraid_apply::mapping::Mapped;
use walbraid_wire::{ServerError, TransactionStatus};

use crate::flight::{Flight, Step};
use crate::policy::Failure;
use crate::prepared::name_of;
use crate::worker::{Worker, Writing};

/// Why the session has to be mended.
pub(crate) enum Mend {
    /// The server refused something: what is behind it is skipped up to a Sync.
    Error(Box<ServerError>),
    /// No statement could be made, or the counts are wrong: once all that is due was answered.
    Unit(Box<UnitFailure>),
    /// A unit is called back: likewise.
    Abandon {
        /// What it was doing was cancelled.
        cancelled: bool,
    },
}

impl Worker {
    /// Mends the session if it has to be and can be now; true if it did.
    pub(crate) async fn mend(&mut self) -> Result<bool, Failure> {
        let ready = match self.mending {
            None => false,
            Some(Mend::Error(_)) => true,
            // The units before it are answered first.
            Some(Mend::Unit(_) | Mend::Abandon { .. }) => self.due.is_empty(),
        };
        let Some(mend) = self.mending.take_if(|_| ready) else {
            return Ok(false);
        };
        let failed = match mend {
            Mend::Error(_) => self.due.failed(),
            Mend::Unit(_) | Mend::Abandon { .. } => None,
        };
        let unknown = self.due.give_up();
        self.session.sender.sync();
        self.send().await?;
        let status = self.session.until_ready().await?;
        self.clean(status, &unknown).await?;
        self.report(mend, failed);
        Ok(true)
    }

    /// Ends the block, takes the LSN out of the session, and closes what may or may not be
    /// prepared.
    async fn clean(&mut self, status: TransactionStatus, unknown: &[u64]) -> Result<(), Failure> {
        let reset = "SELECT pg_catalog.pg_replication_origin_xact_reset()";
        match status {
            TransactionStatus::Idle => self.session.sender.query(reset),
            _ => self.session.sender.query(&format!("ROLLBACK; {reset}")),
        }
        self.send().await?;
        self.session.until_ready().await?;
        for id in unknown {
            self.session.sender.close_statement(&name_of(*id));
            self.prepared.forget(*id);
        }
        self.sync().await
    }

    /// Tells what became of the unit, and forgets all that was sent behind it.
    fn report(&mut self, mend: Mend, failed: Option<Step>) {
        let flight = self.flights.pop_front();
        self.flights.clear();
        self.writing = Writing::Nothing;
        let worker = self.config.id;
        let Some(Flight { unit, run, .. }) = flight else {
            return;
        };
        if self
            .called_back
            .take_if(|called| *called == (unit, run))
            .is_some()
        {
            self.tell(Event::Abandoned { worker, run, unit });
            return;
        }
        let failure = match mend {
            Mend::Unit(failure) => failure,
            Mend::Error(error) => Box::new(server_failure(&error, failed)),
            Mend::Abandon { .. } => return,
        };
        self.called_back = None;
        self.swept = Some(run);
        self.waiting.retain(|order| order.run() > run);
        self.tell(Event::Failed {
            worker,
            run,
            unit,
            failure,
        });
    }
}

fn server_failure(error: &ServerError, failed: Option<Step>) -> UnitFailure {
    let (place, relation) = match failed {
        Some(Step::Change {
            place,
            mapped: Some(mapped),
            ..
        }) if error.sqlstate.code() == GUARD_SQLSTATE
            && error.context.is_none()
            && mapped.generates() =>
        {
            return generated_otherwise(place, &mapped);
        }
        Some(Step::Change { place, mapped, .. }) => {
            (Some(place), mapped.map(|mapped| mapped.relation().sql()))
        }
        _ => (None, None),
    };
    // A plan that outlived its table is mended by new sessions, not by a person.
    let stale = error.sqlstate.code() == "0A000" && error.message.starts_with("cached plan");
    let sqlstate = if stale {
        "26000"
    } else {
        error.sqlstate.code()
    };
    let error = ServerFailure {
        sqlstate: sqlstate.to_owned(),
        message: error.message.clone(),
        detail: error.detail.clone(),
        hint: error.hint.clone(),
        schema: error.schema.clone(),
        table: error.table.clone(),
        column: error.column.clone(),
        constraint: error.constraint.clone(),
    };
    UnitFailure::Server {
        error,
        place,
        relation,
    }
}

/// A column that the subscriber generates came out otherwise than it was published.
fn generated_otherwise(place: Place, mapped: &Mapped) -> UnitFailure {
    let relation = mapped.relation().sql();
    let message = format!(
        "relation {relation} of the subscriber generates another value than was published: {}",
        mapped.generated()
    );
    let hint = "Make it an ordinary column on the subscriber, or give it the publisher's \
                expression.";
    UnitFailure::Server {
        error: ServerFailure {
            // generated_always, as the server itself says of a value that it does not take.
            sqlstate: "428C9".to_owned(),
            message,
            hint: Some(hint.to_owned()),
            ..ServerFailure::default()
        },
        place: Some(place),
        relation: Some(relation),
    }
}
