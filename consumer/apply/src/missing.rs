//! A row to be updated or deleted that the subscriber does not have, in PostgreSQL's words.
//!
//! The texts are those of the server's own apply worker: before 18 one line, from 18 on the form of
//! its apply conflicts. They name the relation and the columns of the lookup, never a value.

use crate::lookup::Lookup;
use crate::mapping::Mapped;
use crate::quote;
use crate::statement::Expect;

/// What was to be done to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKind {
    /// `update_missing`.
    Update,
    /// `delete_missing`.
    Delete,
}

/// A row not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What was to be done to it.
    pub kind: MissingKind,
    /// `schema.name`, as the server's own messages write it.
    pub relation: String,
    /// The columns it was looked up by.
    pub columns: Vec<String>,
    /// Looked up by a unique index, rather than by all that was sent.
    pub unique: bool,
}

impl Missing {
    /// The row that a statement with this expectation did not find; none if it expects nothing.
    pub fn new(expect: Expect, mapped: &Mapped) -> Option<Self> {
        let kind = match expect {
            Expect::Anything => return None,
            Expect::UpdatedRow => MissingKind::Update,
            Expect::DeletedRow => MissingKind::Delete,
        };
        let relation = mapped.relation();
        let lookup = mapped.lookup();
        let name = |place: usize| relation.columns[place].name.clone();
        Some(Self {
            kind,
            relation: format!("{}.{}", relation.schema, relation.name),
            columns: lookup
                .columns()
                .iter()
                .map(|column| name(column.column))
                .collect(),
            unique: matches!(lookup, Lookup::Unique(_)),
        })
    }

    /// PostgreSQL's name of the apply conflict.
    pub fn conflict(&self) -> &'static str {
        match self.kind {
            MissingKind::Update => "update_missing",
            MissingKind::Delete => "delete_missing",
        }
    }

    /// The message, as a subscriber of that `server_version_num` words it.
    pub fn message(&self, server_version: u32) -> String {
        let relation = &self.relation;
        if server_version >= 180_000 {
            let conflict = self.conflict();
            return format!("conflict detected on relation \"{relation}\": conflict={conflict}");
        }
        let done = self.done();
        format!(
            "logical replication did not find row to be {done} in replication target relation \
             \"{relation}\""
        )
    }

    /// The message where it is an error rather than a line in the log.
    pub fn error_message(&self) -> String {
        let relation = &self.relation;
        format!(
            "row to be {} in relation \"{relation}\" was not found",
            self.done()
        )
    }

    /// DETAIL of the message.
    pub fn detail(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| quote::identifier(column))
            .collect();
        let by = if self.unique {
            "replica identity"
        } else {
            "replica identity full"
        };
        format!(
            "Could not find the row to be {} by its {by} ({}).",
            self.done(),
            columns.join(", ")
        )
    }

    fn done(&self) -> &'static str {
        match self.kind {
            MissingKind::Update => "updated",
            MissingKind::Delete => "deleted",
        }
    }
}
