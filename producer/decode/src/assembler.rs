//! Messages to events of whole transactions.
//!
//! Owns: which message may follow which, and when a transaction is nothing. Does not own the form
//! of the log ([`crate::encoder`]).
//!
//! Plain transactions arrive whole and in commit order, so nothing is gathered: each change is
//! handed on while its message is still the caller's, and memory does not grow with a transaction.
//! The begin is held back until the first change, as a transaction with nothing in it (version 14
//! sends them) is no link of the log; its end is still told ([`Event::Empty`]).
//!
//! Invariants: events come as `Begin (Relation* Change)+ Commit`, or as one `Message` or `Empty`
//! between transactions. A shape is announced ([`Event::Relation`]) once, before the first change
//! that uses it and behind the begin. A commit says the same LSN and time as its begin. Streamed
//! and two-phase messages are refused: they come only where they were asked for, and the log would
//! have a hole if they were dropped.

use std::sync::Arc;

use walbraid_schemas::{Lsn, Origin};

use crate::decoder::Decoder;
use crate::error::Undecodable;
use crate::message::{Message, Oids};
use crate::relation::Relation;
use crate::tuple::{OldTuple, Tuple};

/// One step of the stream, borrowing the message it came from.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// A transaction that has at least one change.
    Begin(Begin),
    /// A shape that the next change is the first to use.
    Relation(Arc<Relation>),
    /// A change of the open transaction.
    Change(Change<'a>),
    /// The open transaction is complete.
    Commit(Commit),
    /// A logical message outside of any transaction.
    Message(LogicalMessage<'a>),
    /// A transaction with nothing in it ended; no link of the log stems from it.
    Empty(Commit),
}

/// The head of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Top-level xid.
    pub xid: u32,
    /// LSN of the commit record.
    pub commit_lsn: Lsn,
    /// Time of the commit, microseconds since the Unix epoch.
    pub commit_time_us: i64,
    /// Where the transaction was replicated from, if it was.
    pub origin: Option<Origin>,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// LSN behind the commit record.
    pub end_lsn: Lsn,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'a> {
    /// WAL position the walsender gave for the message; not monotonic within a transaction.
    pub lsn: Lsn,
    /// What is changed.
    pub kind: ChangeKind<'a>,
}

/// What a change does.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind<'a> {
    /// A row is inserted.
    Insert {
        /// Shape of its relation.
        relation: Arc<Relation>,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row is updated.
    Update {
        /// Shape of its relation.
        relation: Arc<Relation>,
        /// Old key or row, where it was logged.
        old: Option<OldTuple<'a>>,
        /// The new row.
        new: Tuple<'a>,
    },
    /// A row is deleted.
    Delete {
        /// Shape of its relation.
        relation: Arc<Relation>,
        /// Old key or row.
        old: OldTuple<'a>,
    },
    /// Relations are truncated together.
    Truncate {
        /// Their shapes.
        relations: Vec<Arc<Relation>>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
    },
    /// A transactional logical message.
    Message(LogicalMessage<'a>),
}

/// What pg_logical_emit_message wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalMessage<'a> {
    /// LSN behind the record of the message.
    pub lsn: Lsn,
    /// Part of a transaction.
    pub transactional: bool,
    /// Prefix.
    pub prefix: &'a str,
    /// Content.
    pub content: &'a [u8],
}

/// Where the assembler is in the stream.
#[derive(Debug)]
enum State {
    /// Between transactions.
    Idle,
    /// Behind a Begin, before the first change.
    Begun(Begin),
    /// Behind the first change.
    Open(Begin),
}

/// Makes events of the messages of one replication stream.
#[derive(Debug)]
pub struct Assembler {
    decoder: Decoder,
    state: State,
    /// By number of shape: the first change that uses it came already.
    announced: Vec<bool>,
}

impl Assembler {
    /// An assembler that reads with this decoder.
    pub fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            state: State::Idle,
            announced: Vec::new(),
        }
    }

    /// Whether the next message stands between transactions.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Takes the next message, which the walsender sent with WAL position `lsn`.
    pub fn push<'a>(&mut self, lsn: Lsn, bytes: &'a [u8]) -> Result<Events<'a>, Undecodable> {
        let message = self.decoder.decode(lsn, bytes)?;
        let kind = message.kind();
        match message {
            Message::Insert { relation, new, .. } => {
                let relation = self.relation(lsn, kind, relation)?;
                self.row(lsn, kind, ChangeKind::Insert { relation, new })
            }
            Message::Update {
                relation, old, new, ..
            } => {
                let relation = self.relation(lsn, kind, relation)?;
                self.row(lsn, kind, ChangeKind::Update { relation, old, new })
            }
            Message::Delete { relation, old, .. } => {
                let relation = self.relation(lsn, kind, relation)?;
                self.row(lsn, kind, ChangeKind::Delete { relation, old })
            }
            Message::Begin {
                commit_lsn,
                commit_time_us,
                xid,
            } => self.begin(
                lsn,
                Begin {
                    xid,
                    commit_lsn,
                    commit_time_us,
                    origin: None,
                },
            ),
            Message::Commit {
                commit_lsn,
                end_lsn,
                commit_time_us,
            } => self.commit(lsn, commit_lsn, end_lsn, commit_time_us),
            Message::Origin { commit_lsn, name } => self.origin(lsn, commit_lsn, name),
            Message::Relation(_) | Message::Type { .. } => Ok(Events::default()),
            Message::Truncate {
                relations,
                cascade,
                restart_identity,
                ..
            } => {
                let relations = self.relations(lsn, kind, relations)?;
                self.row(
                    lsn,
                    kind,
                    ChangeKind::Truncate {
                        relations,
                        cascade,
                        restart_identity,
                    },
                )
            }
            Message::Logical {
                transactional,
                lsn: at,
                prefix,
                content,
                ..
            } => {
                let message = LogicalMessage {
                    lsn: at,
                    transactional,
                    prefix,
                    content,
                };
                if transactional {
                    self.row(lsn, kind, ChangeKind::Message(message))
                } else {
                    self.idle(lsn, kind)?;
                    if at.is_invalid() {
                        let state = "its own LSN is 0/0";
                        return Err(Undecodable::OutOfOrder { lsn, kind, state });
                    }
                    Ok(Events::one(Event::Message(message)))
                }
            }
            Message::StreamStart { .. }
            | Message::StreamStop
            | Message::StreamCommit { .. }
            | Message::StreamAbort { .. } => Err(Undecodable::NotAssembled {
                lsn,
                kind,
                what: "streamed",
            }),
            Message::BeginPrepare(_)
            | Message::Prepare(_)
            | Message::StreamPrepare(_)
            | Message::CommitPrepared { .. }
            | Message::RollbackPrepared { .. } => Err(Undecodable::NotAssembled {
                lsn,
                kind,
                what: "two-phase",
            }),
        }
    }

    fn idle(&self, lsn: Lsn, kind: &'static str) -> Result<(), Undecodable> {
        match self.state {
            State::Idle => Ok(()),
            State::Begun(_) | State::Open(_) => Err(Undecodable::OutOfOrder {
                lsn,
                kind,
                state: "a transaction is open",
            }),
        }
    }

    fn begin<'a>(&mut self, lsn: Lsn, begin: Begin) -> Result<Events<'a>, Undecodable> {
        self.idle(lsn, "Begin")?;
        self.state = State::Begun(begin);
        Ok(Events::default())
    }

    fn origin<'a>(
        &mut self,
        lsn: Lsn,
        commit_lsn: Lsn,
        name: &str,
    ) -> Result<Events<'a>, Undecodable> {
        match &mut self.state {
            State::Begun(begin) if begin.origin.is_none() => {
                begin.origin = Some(Origin {
                    name: name.to_owned(),
                    lsn: commit_lsn,
                });
                Ok(Events::default())
            }
            _ => Err(Undecodable::OutOfOrder {
                lsn,
                kind: "Origin",
                state: "it does not follow the begin of a transaction",
            }),
        }
    }

    fn row<'a>(
        &mut self,
        lsn: Lsn,
        kind: &'static str,
        change: ChangeKind<'a>,
    ) -> Result<Events<'a>, Undecodable> {
        let mut events = Events::default();
        match &self.state {
            State::Idle => {
                return Err(Undecodable::OutOfOrder {
                    lsn,
                    kind,
                    state: "no transaction is open",
                });
            }
            State::Begun(begin) => {
                let begin = begin.clone();
                events.begin = Some(Event::Begin(begin.clone()));
                self.state = State::Open(begin);
            }
            State::Open(_) => {}
        }
        for relation in change.relations() {
            if self.announce(relation) {
                events.relations.push(Arc::clone(relation));
            }
        }
        // They are taken from the end.
        events.relations.reverse();
        events.last = Some(Event::Change(Change { lsn, kind: change }));
        Ok(events)
    }

    fn commit<'a>(
        &mut self,
        lsn: Lsn,
        commit_lsn: Lsn,
        end_lsn: Lsn,
        commit_time_us: i64,
    ) -> Result<Events<'a>, Undecodable> {
        let commit = Commit { end_lsn };
        let (begin, event) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {
                let state = "no transaction is open";
                return Err(Undecodable::OutOfOrder {
                    lsn,
                    kind: "Commit",
                    state,
                });
            }
            State::Begun(begin) => (begin, Event::Empty(commit)),
            State::Open(begin) => (begin, Event::Commit(commit)),
        };
        let mismatch = |field| {
            Err(Undecodable::CommitMismatch {
                lsn,
                xid: begin.xid,
                field,
            })
        };
        if begin.commit_lsn != commit_lsn {
            return mismatch("the commit LSN");
        }
        if begin.commit_time_us != commit_time_us {
            return mismatch("the commit time");
        }
        if end_lsn <= commit_lsn {
            return mismatch("the order of commit LSN and end LSN");
        }
        Ok(Events::one(event))
    }

    fn relation(
        &self,
        lsn: Lsn,
        kind: &'static str,
        oid: u32,
    ) -> Result<Arc<Relation>, Undecodable> {
        let known = self.decoder.relation(oid).map(Arc::clone);
        known.ok_or(Undecodable::UnknownRelation { lsn, kind, oid })
    }

    fn relations(
        &self,
        lsn: Lsn,
        kind: &'static str,
        oids: Oids<'_>,
    ) -> Result<Vec<Arc<Relation>>, Undecodable> {
        oids.iter()
            .map(|oid| self.relation(lsn, kind, oid))
            .collect()
    }

    /// Whether this is the first use of the shape.
    fn announce(&mut self, relation: &Relation) -> bool {
        let index = relation.shape as usize;
        if self.announced.len() <= index {
            self.announced.resize(index + 1, false);
        }
        match self.announced.get_mut(index) {
            Some(announced) => !std::mem::replace(announced, true),
            None => true,
        }
    }
}

impl ChangeKind<'_> {
    fn relations(&self) -> &[Arc<Relation>] {
        match self {
            Self::Insert { relation, .. }
            | Self::Update { relation, .. }
            | Self::Delete { relation, .. } => std::slice::from_ref(relation),
            Self::Truncate { relations, .. } => relations,
            Self::Message(_) => &[],
        }
    }
}

/// The events of one message, in order.
#[derive(Debug, Default)]
pub struct Events<'a> {
    begin: Option<Event<'a>>,
    relations: Vec<Arc<Relation>>,
    last: Option<Event<'a>>,
}

impl<'a> Events<'a> {
    fn one(event: Event<'a>) -> Self {
        Self {
            begin: None,
            relations: Vec::new(),
            last: Some(event),
        }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        if let Some(begin) = self.begin.take() {
            return Some(begin);
        }
        if let Some(relation) = self.relations.pop() {
            return Some(Event::Relation(relation));
        }
        self.last.take()
    }
}
