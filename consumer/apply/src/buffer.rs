//! The transaction buffer: records in, whole transactions out.
//!
//! The chain's reader ([`walbraid_schemas::chain`]) says what a record is; this module keeps the
//! parts of the link that is arriving. Below the memory limit a transaction is kept until it is
//! whole. Above it, it leaves as an **open** transaction, and its further pieces follow one by one.
//! An open transaction that stops growing is **parked**: what was applied of it is rolled back, and
//! should it grow after all, the log is read again.
//!
//! Fragments of one change larger than a record are put together here, since nothing can be done
//! with half a row.

use std::sync::Arc;

use bytes::Bytes;
use walbraid_schemas::chain::{Position, Reader, Start, Verdict};
use walbraid_schemas::envelope::{Body, Change, LinkKind, Part, decode_change};
use walbraid_schemas::lsn::Lsn;
use walbraid_schemas::notice::{Notice, Stop, StopKind};

use crate::event::Record;
use crate::mapping::Target;
use crate::unit::{Ending, Extension, Piece, Transaction};

/// What a change costs besides its bytes, about.
const CHANGE_BYTES: usize = 128;

/// What came out of a record.
#[derive(Debug)]
pub enum Buffered {
    /// The next transaction, whole or open.
    Transaction(Box<Transaction>),
    /// The next piece of the open transaction.
    Extension(Extension),
    /// The open transaction will never be whole.
    Void,
    /// A parked transaction grew.
    ReadAgain,
    /// The reader started too far on.
    SeekBack,
    /// The lane cannot be read on.
    Stop(Box<Stop>),
}

/// The link that is arriving.
#[derive(Debug)]
struct Run {
    stage: Stage,
    transaction: Transaction,
    pieces_bytes: usize,
    fragment: Vec<u8>,
    grew_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Collecting,
    Open,
    Parked,
}

/// The transaction buffer of a lane.
#[derive(Debug)]
pub struct Buffer {
    reader: Reader,
    run: Option<Run>,
    transaction_memory_bytes: usize,
    /// Claim of the last link, as the lane's row will hold it.
    claim: (i64, Option<i64>),
    commit_time_us: i64,
    notice: Option<Notice>,
}

impl Buffer {
    /// A buffer behind `position`.
    pub fn new(position: Position, transaction_memory_bytes: usize) -> Self {
        Self {
            reader: Reader::new(position, Start::Offset),
            run: None,
            transaction_memory_bytes,
            claim: (position.claim_offset, position.options_hash),
            commit_time_us: 0,
            notice: None,
        }
    }

    /// The records that follow are read from another place of the log. True if an open transaction
    /// is void by that.
    pub fn restart(&mut self, start: Start) -> bool {
        self.reader.restart(start);
        self.run.take().is_some_and(|run| run.stage == Stage::Open)
    }

    /// Takes in a record; appends what comes out.
    pub fn record(&mut self, now_ms: u64, record: Record, out: &mut Vec<Buffered>) {
        let step = self.reader.offer(record.offset, &record.envelope);
        if step.voided && self.run.take().is_some_and(|run| run.stage == Stage::Open) {
            out.push(Buffered::Void);
        }
        match step.verdict {
            Verdict::Part => self.keep(now_ms, record, None, out),
            Verdict::Link(position) => self.keep(now_ms, record, Some(position), out),
            Verdict::Claim => self.notice = None,
            Verdict::Notice => {
                if let Body::Notice(notice) = record.envelope.body {
                    self.notice = Some(notice);
                }
            }
            Verdict::Quiet(_) | Verdict::Nothing(_) => {}
            Verdict::SeekBack => out.push(Buffered::SeekBack),
            Verdict::Stop(stop) => out.push(Buffered::Stop(Box::new(stop))),
        }
    }

    fn keep(
        &mut self,
        now_ms: u64,
        record: Record,
        position: Option<Position>,
        out: &mut Vec<Buffered>,
    ) {
        let Record {
            offset,
            size_bytes,
            envelope,
            targets,
        } = record;
        let Body::Part(part) = envelope.body else {
            return;
        };
        if !matches!(part.kind, LinkKind::Transaction | LinkKind::Message) {
            out.push(Buffered::Stop(Box::new(unsupported(&part))));
            return;
        }
        if part.commit_time_us != 0 {
            self.commit_time_us = part.commit_time_us;
        }
        let ending = position.map(|position| {
            let claim = (position.claim_offset, position.options_hash);
            let claim_changed = std::mem::replace(&mut self.claim, claim) != claim;
            Ending {
                end_lsn: position.end_lsn,
                commit_time_us: self.commit_time_us,
                last_offset: offset,
                position,
                claim_changed,
            }
        });
        let run = self.run.get_or_insert_with(|| Run::new(offset, &part));
        run.grew_at_ms = now_ms;
        let piece = match run.piece(part, targets, size_bytes) {
            Ok(piece) => piece,
            Err(stop) => {
                out.push(Buffered::Stop(Box::new(stop)));
                return;
            }
        };
        self.advance(piece, ending, out);
    }

    fn advance(&mut self, piece: Option<Piece>, ending: Option<Ending>, out: &mut Vec<Buffered>) {
        let Some(run) = self.run.as_mut() else { return };
        let whole = ending.is_some();
        match run.stage {
            Stage::Parked => out.push(Buffered::ReadAgain),
            Stage::Open => {
                if piece.is_some() || whole {
                    let piece = Arc::new(piece.unwrap_or_default());
                    out.push(Buffered::Extension(Extension { piece, ending }));
                }
            }
            Stage::Collecting => {
                if let Some(piece) = piece {
                    run.pieces_bytes += piece.size_bytes();
                    run.transaction.pieces.push(Arc::new(piece));
                }
                run.transaction.ending = ending;
                if !whole && run.pieces_bytes > self.transaction_memory_bytes {
                    run.stage = Stage::Open;
                    run.pieces_bytes = 0;
                    let pieces = std::mem::take(&mut run.transaction.pieces);
                    let open = Transaction {
                        pieces,
                        ..run.transaction.clone()
                    };
                    out.push(Buffered::Transaction(Box::new(open)));
                }
            }
        }
        if whole
            && let Some(run) = self.run.take()
            && run.stage == Stage::Collecting
        {
            out.push(Buffered::Transaction(Box::new(run.transaction)));
        }
    }

    /// Parks the open transaction if it has not grown until now. True if it was open.
    pub fn park(&mut self, now_ms: u64, run_idle_timeout_ms: u64) -> bool {
        let deadline = self.idle_at_ms(run_idle_timeout_ms);
        let idle = deadline.is_some_and(|deadline| now_ms >= deadline);
        if idle && let Some(run) = &mut self.run {
            run.stage = Stage::Parked;
        }
        idle
    }

    /// No record could come: what is open is not idle for that.
    pub fn not_idle(&mut self, now_ms: u64) {
        if let Some(run) = &mut self.run {
            run.grew_at_ms = now_ms;
        }
    }

    /// When the open transaction is to be parked.
    pub fn idle_at_ms(&self, run_idle_timeout_ms: u64) -> Option<u64> {
        let run = self.run.as_ref().filter(|run| run.stage == Stage::Open)?;
        Some(run.grew_at_ms.saturating_add(run_idle_timeout_ms))
    }

    /// First record of the link that is arriving.
    pub fn first_offset(&self) -> Option<i64> {
        self.run.as_ref().map(|run| run.transaction.first_offset)
    }

    /// Memory held.
    pub fn size_bytes(&self) -> usize {
        self.run
            .as_ref()
            .map_or(0, |run| run.pieces_bytes + run.fragment.len())
    }

    /// No link ends between the last one that was read and this LSN.
    pub fn quiet_until(&self) -> Lsn {
        self.reader.quiet_until()
    }

    /// Position behind the last link that was read.
    pub fn position(&self) -> Position {
        self.reader.position()
    }

    /// Why the producer stopped, as far as the log says so.
    pub fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }
}

impl Run {
    fn new(offset: i64, part: &Part) -> Self {
        Self {
            stage: Stage::Collecting,
            transaction: Transaction {
                kind: part.kind,
                xid: part.xid,
                commit_lsn: part.commit_lsn,
                commit_time_us: part.commit_time_us,
                origin: part.origin.clone(),
                pieces: Vec::new(),
                first_offset: offset,
                ending: None,
            },
            pieces_bytes: 0,
            fragment: Vec::new(),
            grew_at_ms: 0,
        }
    }

    /// The part's changes, if it makes any whole.
    fn piece(
        &mut self,
        part: Part,
        targets: Vec<Target>,
        size_bytes: usize,
    ) -> Result<Option<Piece>, Stop> {
        let Some(fragment) = part.fragment else {
            if !self.fragment.is_empty() {
                return Err(self.torn("a change that was cut into fragments has no end"));
            }
            return Ok(piece(part.changes, targets, size_bytes));
        };
        self.fragment.extend_from_slice(&fragment.bytes);
        if !fragment.last {
            return Ok(None);
        }
        let datum = Bytes::from(std::mem::take(&mut self.fragment));
        let size_bytes = datum.len();
        let change = decode_change(&datum).map_err(|error| self.torn(&error.to_string()))?;
        Ok(piece(vec![change], targets, size_bytes))
    }

    fn torn(&self, why: &str) -> Stop {
        let Transaction {
            xid, commit_lsn, ..
        } = self.transaction;
        let message = format!("transaction {xid}, committed at {commit_lsn}, cannot be decoded");
        Stop::new(StopKind::Undecodable, message).detail(format!("The log says: {why}."))
    }
}

fn piece(changes: Vec<Change>, targets: Vec<Target>, size_bytes: usize) -> Option<Piece> {
    if changes.is_empty() {
        return None;
    }
    let size_bytes = size_bytes + changes.len() * CHANGE_BYTES;
    Some(Piece::new(changes, targets, size_bytes))
}

fn unsupported(part: &Part) -> Stop {
    let what = match part.kind {
        LinkKind::Transaction => "a transaction",
        LinkKind::Prepare => "a PREPARE TRANSACTION",
        LinkKind::CommitPrepared => "a COMMIT PREPARED",
        LinkKind::RollbackPrepared => "a ROLLBACK PREPARED",
        LinkKind::Message => "a logical message",
        LinkKind::Ddl => "a schema change",
    };
    let message = format!(
        "the log holds {what} at {}, which this version cannot apply",
        part.commit_lsn
    );
    Stop::new(StopKind::Undecodable, message).hint("Use the version that the producer has.")
}
