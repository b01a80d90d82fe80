//! The messages of pgoutput, proto_version 1 to 4, as they lie in the replication stream.
//!
//! Owns: what each message holds. Bytes become messages in [`Message::parse`] and messages bytes in
//! [`Message::write`]. Does not own their order or meaning ([`crate::decoder`],
//! [`crate::assembler`]).
//!
//! Messages borrow their bytes. Inside a stream block (between Stream Start and Stream Stop) most
//! messages carry the xid of the subtransaction they belong to, and nothing in the message says so:
//! the caller does ([`Framing`]).

use walbraid_schemas::Lsn;

use crate::cursor::Cursor;
use crate::parse::column;
use crate::tuple::{OldTuple, Tuple};

/// The seconds between the epochs of Unix and PostgreSQL, in microseconds.
pub(crate) const EPOCH_OFFSET_US: i64 = 946_684_800_000_000;

/// What a field of a message is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field.
    pub field: &'static str,
    /// What it is or has that it may not.
    pub problem: &'static str,
}

impl Malformed {
    pub(crate) const fn new(field: &'static str, problem: &'static str) -> Self {
        Self { field, problem }
    }
}

/// What the stream so far says about the form of the next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Inside a stream block: row, relation, type and logical messages carry an xid.
    pub in_stream: bool,
    /// `streaming 'parallel'` was asked for: Stream Abort carries an LSN and a time.
    pub parallel: bool,
}

/// One message of pgoutput. Times are microseconds since the Unix epoch; `xid` is that of the
/// subtransaction and present inside a stream block only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// `B`: a plain transaction begins.
    Begin {
        /// LSN of its commit record.
        commit_lsn: Lsn,
        /// Time of its commit.
        commit_time_us: i64,
        /// Its top-level xid.
        xid: u32,
    },
    /// `C`: it ends.
    Commit {
        /// LSN of its commit record, as in Begin.
        commit_lsn: Lsn,
        /// LSN behind its commit record.
        end_lsn: Lsn,
        /// Time of its commit, as in Begin.
        commit_time_us: i64,
    },
    /// `O`: the transaction was replicated to the publisher from elsewhere.
    Origin {
        /// LSN of its commit on the origin.
        commit_lsn: Lsn,
        /// Name of the origin on the publisher.
        name: &'a str,
    },
    /// `R`: the shape of a relation, before its first row and after each change of it.
    Relation(RelationBody<'a>),
    /// `Y`: the name of a type that is not built in, before the relation that uses it.
    Type {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The type's oid; that of a domain, whose base type the names give.
        oid: u32,
        /// Schema of the type; empty for pg_catalog.
        schema: &'a str,
        /// Name of the type.
        name: &'a str,
    },
    /// `I`: a row is inserted.
    Insert {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The new row.
        new: Tuple<'a>,
    },
    /// `U`: a row is updated.
    Update {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The old key or row, where the replica identity had it logged.
        old: Option<OldTuple<'a>>,
        /// The new row.
        new: Tuple<'a>,
    },
    /// `D`: a row is deleted.
    Delete {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// The relation's oid.
        relation: u32,
        /// The old key or row.
        old: OldTuple<'a>,
    },
    /// `T`: relations are truncated.
    Truncate {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
        /// The relations' oids.
        relations: Oids<'a>,
    },
    /// `M`: pg_logical_emit_message.
    Logical {
        /// Subtransaction, in a stream block.
        xid: Option<u32>,
        /// Part of the transaction, or sent on its own.
        transactional: bool,
        /// LSN of the message.
        lsn: Lsn,
        /// Its prefix.
        prefix: &'a str,
        /// Its content.
        content: &'a [u8],
    },
    /// `S`: a block of a streamed transaction opens.
    StreamStart {
        /// Its top-level xid.
        xid: u32,
        /// Whether it is the first block of that transaction.
        first_segment: bool,
    },
    /// `E`: the block closes.
    StreamStop,
    /// `c`: a streamed transaction commits.
    StreamCommit {
        /// Its top-level xid.
        xid: u32,
        /// LSN of its commit record.
        commit_lsn: Lsn,
        /// LSN behind its commit record.
        end_lsn: Lsn,
        /// Time of its commit.
        commit_time_us: i64,
    },
    /// `A`: a streamed transaction, or one subtransaction of it, aborts.
    StreamAbort {
        /// Its top-level xid.
        xid: u32,
        /// The subtransaction; equal to `xid` for the whole transaction.
        subxid: u32,
        /// Where and when, with `streaming 'parallel'`.
        abort: Option<Abort>,
    },
    /// `b`: a transaction that will be prepared begins.
    BeginPrepare(Prepare<'a>),
    /// `P`: it is prepared.
    Prepare(Prepare<'a>),
    /// `p`: a streamed transaction is prepared.
    StreamPrepare(Prepare<'a>),
    /// `K`: a prepared transaction commits.
    CommitPrepared {
        /// LSN of the commit record.
        commit_lsn: Lsn,
        /// LSN behind it.
        end_lsn: Lsn,
        /// Time of the commit.
        commit_time_us: i64,
        /// Xid of the prepared transaction.
        xid: u32,
        /// Its gid.
        gid: &'a str,
    },
    /// `r`: a prepared transaction rolls back.
    RollbackPrepared {
        /// LSN behind the record of the PREPARE.
        prepare_end_lsn: Lsn,
        /// LSN behind the record of the rollback.
        rollback_end_lsn: Lsn,
        /// Time of the PREPARE.
        prepare_time_us: i64,
        /// Time of the rollback.
        rollback_time_us: i64,
        /// Xid of the prepared transaction.
        xid: u32,
        /// Its gid.
        gid: &'a str,
    },
}

/// Where and when a streamed transaction aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// LSN of the abort.
    pub lsn: Lsn,
    /// Time of the abort, microseconds since the Unix epoch.
    pub time_us: i64,
}

/// What Begin Prepare, Prepare and Stream Prepare have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// LSN of the record of the PREPARE.
    pub prepare_lsn: Lsn,
    /// LSN behind it.
    pub end_lsn: Lsn,
    /// Time of the PREPARE, microseconds since the Unix epoch.
    pub prepare_time_us: i64,
    /// The transaction's xid.
    pub xid: u32,
    /// Its gid.
    pub gid: &'a str,
}

/// A Relation message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationBody<'a> {
    /// Subtransaction, in a stream block.
    pub xid: Option<u32>,
    /// The relation's oid.
    pub oid: u32,
    /// Its schema; empty for pg_catalog.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `relreplident`: `d`, `n`, `f` or `i`.
    pub identity: u8,
    pub(crate) columns: u16,
    pub(crate) column_bytes: &'a [u8],
}

/// A column of a Relation message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnBody<'a> {
    /// Part of the replica identity.
    pub key: bool,
    /// Its name.
    pub name: &'a str,
    /// Oid of its type.
    pub type_oid: u32,
    /// Its type modifier, -1 for none.
    pub type_modifier: i32,
}

impl<'a> RelationBody<'a> {
    /// A relation with the columns that [`RelationBody::build_columns`] wrote; refused like a
    /// message whose columns are not what it says.
    pub fn with_columns(self, count: u16, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        for _ in 0..count {
            column(&mut cursor)?;
        }
        cursor.end()?;
        Ok(Self {
            columns: count,
            column_bytes: bytes,
            ..self
        })
    }

    /// A relation without columns.
    pub fn new(xid: Option<u32>, oid: u32, schema: &'a str, name: &'a str, identity: u8) -> Self {
        Self {
            xid,
            oid,
            schema,
            name,
            identity,
            columns: 0,
            column_bytes: &[],
        }
    }

    /// The columns from left to right. Dropped columns, generated ones that are not published, and
    /// columns outside the publication's column list are not among them.
    pub fn columns(&self) -> impl Iterator<Item = ColumnBody<'a>> + use<'a> {
        let mut cursor = Cursor::new(self.column_bytes);
        // The columns were walked when the message was parsed: a failure cannot come.
        (0..self.columns).map_while(move |_| column(&mut cursor).ok())
    }
}

/// The relations of a Truncate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a> {
    bytes: &'a [u8],
}

impl<'a> Oids<'a> {
    /// Oids as they lie in a message: four bytes each; a remainder is no oid and not part of it.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.as_chunks::<4>().0.as_flattened(),
        }
    }

    /// The oids, in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|oid| u32::from_be_bytes(*oid))
    }
}

impl Message<'_> {
    /// The name of the message in PostgreSQL's documentation.
    pub fn kind(&self) -> &'static str {
        kind_name(self.tag())
    }

    /// The first byte of the message.
    pub fn tag(&self) -> u8 {
        match self {
            Self::Begin { .. } => b'B',
            Self::Commit { .. } => b'C',
            Self::Origin { .. } => b'O',
            Self::Relation(_) => b'R',
            Self::Type { .. } => b'Y',
            Self::Insert { .. } => b'I',
            Self::Update { .. } => b'U',
            Self::Delete { .. } => b'D',
            Self::Truncate { .. } => b'T',
            Self::Logical { .. } => b'M',
            Self::StreamStart { .. } => b'S',
            Self::StreamStop => b'E',
            Self::StreamCommit { .. } => b'c',
            Self::StreamAbort { .. } => b'A',
            Self::BeginPrepare(_) => b'b',
            Self::Prepare(_) => b'P',
            Self::StreamPrepare(_) => b'p',
            Self::CommitPrepared { .. } => b'K',
            Self::RollbackPrepared { .. } => b'r',
        }
    }
}

/// The name in PostgreSQL's documentation of the message that starts with `tag`.
pub fn kind_name(tag: u8) -> &'static str {
    match tag {
        b'B' => "Begin",
        b'C' => "Commit",
        b'O' => "Origin",
        b'R' => "Relation",
        b'Y' => "Type",
        b'I' => "Insert",
        b'U' => "Update",
        b'D' => "Delete",
        b'T' => "Truncate",
        b'M' => "Message",
        b'S' => "Stream Start",
        b'E' => "Stream Stop",
        b'c' => "Stream Commit",
        b'A' => "Stream Abort",
        b'b' => "Begin Prepare",
        b'P' => "Prepare",
        b'p' => "Stream Prepare",
        b'K' => "Commit Prepared",
        b'r' => "Rollback Prepared",
        _ => "unknown",
    }
}
