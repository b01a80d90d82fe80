//! Writing a burst: units as messages of the extended protocol, and the answers they make due.
//!
//! Each unit is `BEGIN`, its statements, `progress` (the row that says where it ends, and the
//! origin's setup), `COMMIT`. Progress comes last also because only the last record of a large
//! transaction tells where it ends. Nothing here waits for an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use walbraid_apply::coordinator::Commit;
use walbraid_apply::event::Event;
use walbraid_apply::failure::{Failure as UnitFailure, Place};
use walbraid_apply::statement::Statement;
use walbraid_apply::unit::{Ending, Extension, Piece, Unit, UnitId};
use walbraid_schemas::envelope::Change;
use walbraid_schemas::notice::StopKind;
use walbraid_wire::Format;

use crate::flight::{Counts, Flight, Operation, Step};
use crate::mending::Mend;
use crate::policy::Failure;
use crate::prepared::name_of;
use crate::session::{BEGIN, COMMIT, PROGRESS, commit_time};
use crate::worker::{Worker, Writing};

/// Bytes collected before they are sent although the burst goes on.
const BURST_BYTES: usize = 64 * 1024;

impl Worker {
    pub(crate) async fn write_unit(
        &mut self,
        run: u64,
        unit: &Unit,
        commit: Commit,
    ) -> Result<(), Failure> {
        self.flights.push_back(Flight {
            unit: unit.id,
            run,
            counts: Counts::default(),
            missing: Vec::new(),
            transactions: unit
                .transactions
                .iter()
                .map(|one| (one.xid, one.commit_lsn))
                .collect(),
            begun_at: Instant::now(),
            rests_since: None,
            rested: Duration::ZERO,
            busy_us: None,
        });
        self.tell_busy();
        self.unsynced();
        self.frame(BEGIN, Step::Begin);
        let mut changes = 0;
        for (transaction, one) in unit.transactions.iter().enumerate() {
            changes = 0;
            for piece in &one.pieces {
                self.write_piece(piece, transaction, &mut changes).await?;
                if self.mending.is_some() {
                    return Ok(());
                }
            }
        }
        match unit.ending() {
            Some(ending) => self.write_end(unit.id, run, commit, ending),
            None => self.writing = Writing::Open { commit, changes },
        }
        Ok(())
    }

    pub(crate) async fn write_extension(
        &mut self,
        run: u64,
        unit: UnitId,
        extension: Extension,
    ) -> Result<(), Failure> {
        let Writing::Open {
            commit,
            mut changes,
        } = self.writing
        else {
            let message = format!("a piece of unit {} that is not open", unit.0);
            return Err(Failure::definite(StopKind::Internal, message));
        };
        if let Some(flight) = self.flights.back_mut() {
            flight.goes_on(Instant::now());
        }
        let size_bytes = extension.piece.size_bytes();
        self.write_piece(&extension.piece, 0, &mut changes).await?;
        self.tell(Event::Consumed { unit, size_bytes });
        if self.mending.is_some() {
            return Ok(());
        }
        match &extension.ending {
            Some(ending) => self.write_end(unit, run, commit, ending),
            None => self.writing = Writing::Open { commit, changes },
        }
        Ok(())
    }

    fn write_end(&mut self, unit: UnitId, run: u64, commit: Commit, ending: &Ending) {
        match commit {
            Commit::InBurst => {
                self.writing = Writing::Nothing;
                self.write_commit(ending);
            }
            Commit::WhenCounted => {
                let ending = ending.clone();
                self.writing = Writing::Held { unit, run, ending };
                // A long burst may have been answered already.
                self.count_held();
            }
        }
    }

    /// Where the unit ends, and COMMIT. Both go out together: a unit that waits for its turn, and
    /// may yet be rolled back, has not touched its origin.
    pub(crate) fn write_commit(&mut self, ending: &Ending) {
        let position = &ending.position;
        let mut bind = self.session.sender.bind_with(PROGRESS, &[Format::Binary]);
        bind.value(&ending.end_lsn.0.to_be_bytes());
        bind.value(&commit_time(ending.commit_time_us));
        bind.value(&position.claim_offset.to_be_bytes());
        match position.options_hash {
            Some(hash) => bind.value(&hash.to_be_bytes()),
            None => bind.null(),
        }
        bind.finish();
        self.session.sender.execute(0);
        self.due.push(Step::Progress);
        self.frame(COMMIT, Step::Commit);
        if self.others_are_busy() {
            // They wait for it to return: its answer must not wait for what is sent behind it.
            self.session.sender.flush_request();
        }
    }

    /// Writes a piece's statements; stops where the session has to be mended.
    async fn write_piece(
        &mut self,
        piece: &Piece,
        transaction: usize,
        changes: &mut usize,
    ) -> Result<(), Failure> {
        for change in piece.changes() {
            let place = Place {
                transaction,
                change: *changes,
            };
            *changes += 1;
            match self.builder.build(change, piece.targets()) {
                Ok(Some(statement)) => self.write_change(change, piece, place, &statement),
                Ok(None) => {}
                Err(error) => {
                    self.mending = Some(Mend::Unit(Box::new(UnitFailure::Build { error, place })));
                    return Ok(());
                }
            }
            if self.session.sender.pending_bytes() >= BURST_BYTES {
                self.send().await?;
                self.read_answers()?;
                if self.mending.is_some() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write_change(
        &mut self,
        change: &Change,
        piece: &Piece,
        place: Place,
        statement: &Statement,
    ) {
        let sender = &mut self.session.sender;
        let (operation, table) = match change {
            Change::Insert { table, .. } => (Operation::Insert, Some(*table)),
            Change::Update { table, .. } => (Operation::Update, Some(*table)),
            Change::Delete { table, .. } => (Operation::Delete, Some(*table)),
            Change::Truncate { .. } | Change::Message { .. } => (Operation::Truncate, None),
        };
        let parameters = self.builder.parameters();
        if table.is_none() {
            // Its text is made for this one use: it is not kept.
            sender.parse("", statement.sql(), statement.parameter_types());
            self.due.push(Step::ParsedUnnamed);
            sender.bind("", &[], parameters.values());
        } else {
            if self.prepared.get(statement.id()).is_none() {
                for id in self.prepared.make_room() {
                    sender.close_statement(&name_of(id));
                    self.due.push(Step::Closed(id));
                }
                let name = &self.prepared.insert(statement).name;
                sender.parse(name, statement.sql(), statement.parameter_types());
                self.due.push(Step::Parsed(statement.id()));
            }
            if let Some(prepared) = self.prepared.get(statement.id()) {
                sender.bind(&prepared.name, &prepared.formats, parameters.values());
            }
        }
        sender.execute(0);
        let target = table.and_then(|table| piece.targets().get(table as usize));
        let mapped = target
            .and_then(|target| target.as_ref().ok())
            .map(Arc::clone);
        self.due.push(Step::Change {
            place,
            operation,
            expect: statement.expect(),
            mapped,
        });
    }

    fn frame(&mut self, name: &str, step: Step) {
        self.session
            .sender
            .bind(name, &[], std::iter::empty::<Option<&[u8]>>());
        self.session.sender.execute(0);
        self.due.push(step);
    }
}
