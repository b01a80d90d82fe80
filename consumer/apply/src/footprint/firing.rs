//! Where nothing can be said: what the subscriber runs by itself when a change is applied.
//!
//! A trigger or rule that fires in replica mode, and a function called by an expression of the
//! table, may read and write any row. Nothing can be said of a change that runs one, unless the
//! user declares the table safe.

use std::sync::Arc;

use super::reason::SerialReason;
use crate::keys::{Call, Firing, Keys};
use crate::mapping::MappedColumn;

/// Places in [`super::plan::Plan::lane`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Insert,
    Update,
    Delete,
    Truncate,
}

const ALL: [Operation; 4] = [
    Operation::Insert,
    Operation::Update,
    Operation::Delete,
    Operation::Truncate,
];

/// Why nothing can be said of an INSERT, UPDATE, DELETE, TRUNCATE.
pub(super) fn lane(
    keys: &Keys,
    columns: &[MappedColumn],
    nothing_finds: bool,
) -> [Option<SerialReason>; 4] {
    ALL.map(|operation| {
        let finds = matches!(operation, Operation::Update | Operation::Delete);
        if nothing_finds && finds {
            return Some(SerialReason::NoIdentity);
        }
        if keys.declared_safe {
            return None;
        }
        if keys.row_security {
            return Some(SerialReason::RowSecurity);
        }
        let fires = keys.fires.iter().find(|firing| runs(firing, operation));
        if let Some(firing) = fires {
            let name = Arc::clone(&firing.name);
            return Some(SerialReason::Trigger { name });
        }
        let called = |call: &&Call| calls(call, operation, columns);
        let function = Arc::clone(&keys.calls.iter().find(called)?.function);
        Some(SerialReason::ForeignTableExpression { function })
    })
}

fn runs(firing: &Firing, operation: Operation) -> bool {
    match operation {
        Operation::Insert => firing.insert,
        Operation::Update => firing.update,
        Operation::Delete => firing.delete,
        Operation::Truncate => firing.truncate,
    }
}

/// A default runs only where the row brings no value.
fn calls(call: &Call, operation: Operation, columns: &[MappedColumn]) -> bool {
    match (operation, call.default_of) {
        (Operation::Insert, Some(place)) => !columns.iter().any(|mapped| mapped.column == place),
        (Operation::Insert | Operation::Update, None) => true,
        _ => false,
    }
}
