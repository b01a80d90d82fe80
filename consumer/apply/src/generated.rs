//! Published columns that the subscriber generates itself: they are not written, and what comes out
//! must be what was published.
//!
//! Owns the expression that compares, which a statement returns.

use crate::quote;
use crate::relation::Column;
use crate::statement::TEXT;

/// Published columns that the subscriber generates itself: what comes out must be what was
/// published. Where it is not, the statement fails with [`GUARD_SQLSTATE`], which nothing else in
/// it can but a function that it calls, and then the error has a context.
#[derive(Debug, Default)]
pub(crate) struct Generated(Vec<String>);

const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
const BIT: u32 = 1560;
const VARBIT: u32 = 1562;

/// `cardinality_violation`: a subquery that is evaluated only where a value differs has two rows.
pub const GUARD_SQLSTATE: &str = "21000";

impl Generated {
    /// What the column holds must be the parameter's value.
    pub(crate) fn must_equal(&mut self, column: &Column, parameter: &str) {
        let name = quote::identifier(&column.name);
        // A cast that is written out cuts these silently to the column's length.
        let cast = match column.type_oid {
            BPCHAR | VARCHAR | BIT | VARBIT => String::new(),
            _ => format!("::{}", column.type_sql),
        };
        self.0.push(format!(
            "{name}{TEXT} IS DISTINCT FROM {parameter}{cast}{TEXT}"
        ));
    }

    /// The expression that fails where one differs; none where nothing is generated.
    pub(crate) fn guard(&self) -> Option<String> {
        let differs = self.0.join(" OR ");
        (!self.0.is_empty()).then(|| {
            format!("CASE WHEN {differs} THEN (SELECT 1 FROM pg_catalog.generate_series(1, 2)) END")
        })
    }
}
