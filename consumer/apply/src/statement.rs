//! The SQL text of one kind of change on one mapped table, made once and kept.
//!
//! A [`Shape`] says all that the text depends on: the operation, which columns of the new row are
//! not sent (unchanged TOAST, column lists), and where the lookup's values come from. Texts are
//! kept by shape inside the [`Mapped`] they belong to, shared by all workers; each has a number
//! that is unique in the process, by which a worker knows what it has prepared on its connection.
//!
//! All names are qualified and quoted, operators too. Parameters are typed by the subscriber's
//! column, so that the server infers nothing. Their order is the contract with
//! [`crate::binding`]: the sent columns of the new row that the statement assigns or compares (a
//! generated column), in the publisher's order, then the lookup's columns in its own order where
//! they come from the old row.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::generated::Generated;
use crate::lookup::{Lookup, LookupColumn};
use crate::mapping::Mapped;
use crate::quote;
use crate::relation::{Column, Operator};

/// Most shapes kept for a table; above it all are forgotten and made anew (and prepared anew).
const SHAPES_MAX: usize = 512;

/// A set of places among a table's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mask {
    // No table of up to 64 columns costs an allocation or a call.
    low: u64,
    rest: Vec<u64>,
}

impl Mask {
    /// Empties the set, keeping its memory.
    pub fn clear(&mut self) {
        self.low = 0;
        self.rest.clear();
    }

    /// Adds a place.
    pub fn insert(&mut self, place: usize) {
        if place < 64 {
            self.low |= 1 << place;
            return;
        }
        let word = place / 64 - 1;
        if self.rest.len() <= word {
            self.rest.resize(word + 1, 0);
        }
        self.rest[word] |= 1 << (place % 64);
    }

    /// True if the place is in the set.
    pub fn contains(&self, place: usize) -> bool {
        if place < 64 {
            return self.low & (1 << place) != 0;
        }
        self.rest
            .get(place / 64 - 1)
            .is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    /// The first 64 places as bits, if there are no others.
    pub(crate) fn bits(&self) -> Option<u64> {
        self.rest.is_empty().then_some(self.low)
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.rest.is_empty()
    }
}

/// The operation of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// INSERT of the sent columns.
    Insert,
    /// UPDATE of a row whose key is in the new row: the identity did not change.
    UpdateByNew,
    /// UPDATE of a row found by its old values.
    UpdateByOld,
    /// DELETE and INSERT in one statement, found by the values of the new row.
    MoveByNew,
    /// DELETE and INSERT in one statement, found by the old values.
    MoveByOld,
    /// DELETE of a row found by its old values.
    Delete,
}

impl Operation {
    pub(crate) const ALL: [Self; 6] = [
        Self::Insert,
        Self::UpdateByNew,
        Self::UpdateByOld,
        Self::MoveByNew,
        Self::MoveByOld,
        Self::Delete,
    ];

    /// Its bit in a set of operations.
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// All that a statement's text depends on, besides the mapped table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The operation.
    pub operation: Operation,
    /// Columns of the new row, in the publisher's order, that are not sent.
    pub absent: Mask,
}

/// How many rows the statement must report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is expected of its count.
    Anything,
    /// One row; none means that the row to be updated was not found.
    UpdatedRow,
    /// One row; none means that the row to be deleted was not found.
    DeletedRow,
}

/// A statement's text, and how its parameters are given.
#[derive(Debug)]
pub struct Statement {
    id: u64,
    sql: String,
    parameter_types: Vec<u32>,
    binary: Vec<bool>,
    expect: Expect,
}

impl Statement {
    pub(crate) fn new(text: Text, expect: Expect) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let Text {
            sql,
            parameter_types,
            binary,
        } = text;
        Self {
            id,
            sql,
            parameter_types,
            binary,
            expect,
        }
    }

    /// A number that no other statement of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Type of each parameter, to be named in Parse.
    pub fn parameter_types(&self) -> &[u32] {
        &self.parameter_types
    }

    /// Whether each parameter is given in binary form.
    pub fn binary(&self) -> &[bool] {
        &self.binary
    }

    /// What its CommandComplete must say.
    pub fn expect(&self) -> Expect {
        self.expect
    }
}

/// The statements of one mapped table, by shape. The whole-row forms cost no lock.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    whole: [OnceLock<Arc<Statement>>; 6],
    partial: Mutex<HashMap<Shape, Arc<Statement>>>,
}

impl Mapped {
    /// The statement of that shape.
    pub fn statement(&self, shape: &Shape) -> Arc<Statement> {
        if shape.absent.is_empty() {
            let made = self.cache().whole[shape.operation as usize]
                .get_or_init(|| Arc::new(write(self, shape)));
            return Arc::clone(made);
        }
        let mut partial = self
            .cache()
            .partial
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = partial.get(shape) {
            return Arc::clone(made);
        }
        if partial.len() >= SHAPES_MAX {
            partial.clear();
        }
        let made = Arc::new(write(self, shape));
        partial.insert(shape.clone(), Arc::clone(&made));
        made
    }
}

/// TRUNCATE of several relations in one statement. What else references them is the subscriber's
/// own, and is truncated only where `cascade` says so.
pub fn truncate(relations: &[&Mapped], restart_identity: bool, cascade: bool) -> Statement {
    let mut targets: Vec<String> = Vec::with_capacity(relations.len());
    for mapped in relations {
        let target = mapped.relation().target_sql();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let identity = if restart_identity {
        "RESTART IDENTITY"
    } else {
        "CONTINUE IDENTITY"
    };
    let others = if cascade { "CASCADE" } else { "RESTRICT" };
    let text = Text {
        sql: format!("TRUNCATE TABLE {} {identity} {others}", targets.join(", ")),
        ..Text::default()
    };
    Statement::new(text, Expect::Anything)
}

/// A text in the making: SQL and its parameters.
#[derive(Debug, Default)]
pub(crate) struct Text {
    sql: String,
    parameter_types: Vec<u32>,
    binary: Vec<bool>,
}

impl Text {
    /// A new parameter of that column's type; answers `$n`.
    fn parameter(&mut self, column: &Column, binary: bool) -> String {
        self.parameter_types.push(column.type_oid);
        self.binary.push(binary);
        format!("${}", self.parameter_types.len())
    }

    /// Has the statement fail where a value that the subscriber made differs.
    fn returning(&mut self, generated: Generated) {
        if let Some(guard) = generated.guard() {
            self.sql += " RETURNING ";
            self.sql += &guard;
        }
    }
}

fn write(mapped: &Mapped, shape: &Shape) -> Statement {
    let mut text = Text::default();
    let expect = match shape.operation {
        Operation::Insert => {
            insert(mapped, &shape.absent, &mut text);
            Expect::Anything
        }
        Operation::UpdateByNew | Operation::UpdateByOld => {
            update(mapped, shape, &mut text);
            Expect::UpdatedRow
        }
        Operation::MoveByNew | Operation::MoveByOld => {
            move_row(mapped, shape, &mut text);
            Expect::UpdatedRow
        }
        Operation::Delete => {
            let parameters = old_parameters(mapped, &mut text);
            let condition = condition(mapped, &parameters);
            let target = mapped.relation().target_sql();
            text.sql = format!("DELETE FROM {target} AS t WHERE {condition}");
            Expect::DeletedRow
        }
    };
    Statement::new(text, expect)
}

fn insert(mapped: &Mapped, absent: &Mask, text: &mut Text) {
    let relation = mapped.relation();
    let mut names = Vec::new();
    let mut values = Vec::new();
    let mut generated = Generated::default();
    for (place, target) in mapped.columns().iter().enumerate() {
        if absent.contains(place) {
            continue;
        }
        let column = &relation.columns[target.column];
        let parameter = text.parameter(column, target.binary);
        if target.writable {
            names.push(quote::identifier(&column.name));
            values.push(parameter);
        } else {
            generated.must_equal(column, &parameter);
        }
    }
    let target = relation.sql();
    text.sql = if names.is_empty() {
        format!("INSERT INTO {target} DEFAULT VALUES")
    } else {
        let overriding = if mapped.overrides_identity() {
            " OVERRIDING SYSTEM VALUE"
        } else {
            ""
        };
        let (names, values) = (names.join(", "), values.join(", "));
        format!("INSERT INTO {target} ({names}){overriding} VALUES ({values})")
    };
    text.returning(generated);
}

fn update(mapped: &Mapped, shape: &Shape, text: &mut Text) {
    let relation = mapped.relation();
    let mut assignments = Vec::new();
    let mut generated = Generated::default();
    let mut parameters = vec![String::new(); mapped.columns().len()];
    for (place, target) in mapped.columns().iter().enumerate() {
        if shape.absent.contains(place) || !shape.operation.takes(target) {
            continue;
        }
        let column = &relation.columns[target.column];
        let parameter = text.parameter(column, target.binary);
        if shape.operation.assigns(target) {
            assignments.push(format!("{} = {parameter}", quote::identifier(&column.name)));
        } else if !target.writable {
            generated.must_equal(column, &parameter);
        }
        parameters[place] = parameter;
    }
    let parameters = match shape.operation {
        Operation::UpdateByNew => by_lookup(mapped, &parameters),
        _ => old_parameters(mapped, text),
    };
    if assignments.is_empty() {
        assignments.extend(touch(mapped));
    }
    let condition = condition(mapped, &parameters);
    let target = relation.target_sql();
    text.sql = if assignments.is_empty() {
        // Nothing of it can be assigned: the row must be there, and that is all.
        format!(
            "SELECT{} FROM {target} AS t WHERE {condition} FOR NO KEY UPDATE",
            generated
                .guard()
                .map_or_else(String::new, |guard| format!(" {guard}"))
        )
    } else {
        format!(
            "UPDATE {target} AS t SET {} WHERE {condition}",
            assignments.join(", ")
        )
    };
    if !assignments.is_empty() {
        text.returning(generated);
    }
}

/// An assignment that changes nothing, for an UPDATE none of whose columns is sent or assignable.
fn touch(mapped: &Mapped) -> Option<String> {
    let target = mapped
        .columns()
        .iter()
        .find(|target| target.writable && !target.always)?;
    let name = quote::identifier(&mapped.relation().columns[target.column].name);
    Some(format!("{name} = t.{name}"))
}

/// DELETE and INSERT in one statement. What is not sent, and what only the subscriber has, is taken
/// over from the row that goes.
fn move_row(mapped: &Mapped, shape: &Shape, text: &mut Text) {
    let relation = mapped.relation();
    let mut generated = Generated::default();
    let mut parameters = vec![String::new(); mapped.columns().len()];
    for (place, target) in mapped.columns().iter().enumerate() {
        if !shape.absent.contains(place) {
            let column = &relation.columns[target.column];
            parameters[place] = text.parameter(column, target.binary);
            if !target.writable {
                generated.must_equal(column, &parameters[place]);
            }
        }
    }
    let found_by = match shape.operation {
        Operation::MoveByNew => by_lookup(mapped, &parameters),
        _ => old_parameters(mapped, text),
    };
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (place, column) in relation.columns.iter().enumerate() {
        if column.generated {
            continue;
        }
        let name = quote::identifier(&column.name);
        let source = mapped
            .columns()
            .iter()
            .position(|target| target.column == place);
        let sent = source
            .map(|source| parameters[source].as_str())
            .filter(|sent| !sent.is_empty());
        values.push(sent.map_or_else(|| format!("gone.{name}"), str::to_owned));
        names.push(name);
    }
    let condition = condition(mapped, &found_by);
    text.sql = format!(
        "WITH gone AS (DELETE FROM {} AS t WHERE {condition} RETURNING t.*) \
         INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM gone",
        relation.target_sql(),
        relation.sql(),
        names.join(", "),
        values.join(", "),
    );
    text.returning(generated);
}

fn by_lookup(mapped: &Mapped, parameters: &[String]) -> Vec<String> {
    mapped
        .lookup()
        .columns()
        .iter()
        .map(|column| parameters[column.source].clone())
        .collect()
}

fn old_parameters(mapped: &Mapped, text: &mut Text) -> Vec<String> {
    let relation = mapped.relation();
    let columns = mapped.lookup().columns();
    columns
        .iter()
        .map(|column| {
            let binary = mapped.columns()[column.source].binary;
            text.parameter(&relation.columns[column.column], binary)
        })
        .collect()
}

fn condition(mapped: &Mapped, parameters: &[String]) -> String {
    let relation = mapped.relation();
    match mapped.lookup() {
        Lookup::Nothing => "false".to_owned(),
        Lookup::Unique(columns) => conjunction(columns, parameters, |column, parameter| {
            let equality = column.equality.as_ref();
            let column = &relation.columns[column.column];
            let operand = format!("t.{}", quote::identifier(&column.name));
            equal(column, &operand, parameter, equality)
        }),
        Lookup::Row(columns) => one_row(mapped, columns, parameters),
    }
}

fn conjunction(
    columns: &[LookupColumn],
    parameters: &[String],
    term: impl Fn(&LookupColumn, &str) -> String,
) -> String {
    let terms: Vec<String> = columns
        .iter()
        .zip(parameters)
        .map(|(column, parameter)| term(column, parameter))
        .collect();
    terms.join(" AND ")
}

/// IS NULL would also be true of a composite value all of whose fields are NULL.
const NULL: &str = "IS NOT DISTINCT FROM NULL";

pub(crate) const TEXT: &str = "::pg_catalog.text COLLATE pg_catalog.\"C\"";

pub(crate) fn equal(
    column: &Column,
    operand: &str,
    parameter: &str,
    equality: Option<&Operator>,
) -> String {
    match (equality, &column.operand_sql) {
        (Some(operator), None) => format!("{operand} {} {parameter}", operator.sql()),
        (Some(operator), Some(kind)) => {
            format!("{operand}::{kind} {} {parameter}::{kind}", operator.sql())
        }
        (None, _) => format!("{operand}{TEXT} OPERATOR(pg_catalog.=) {parameter}{TEXT}"),
    }
}

/// Exactly one of the rows that are equal in all compared columns, NULLs alike; the one whose text
/// is the same too comes first.
///
/// What the row must equal is said again beside its `ctid`: a statement that had to wait for
/// whoever changed the row goes on with the row as it is then, and looks at the other conditions
/// again, but in older releases not at the `ctid` (`TidRecheck`, nodeTidscan.c; 18.1 does).
fn one_row(mapped: &Mapped, columns: &[LookupColumn], parameters: &[String]) -> String {
    let relation = mapped.relation();
    let same = |row: &str| match columns {
        [] => "true".to_owned(),
        _ => conjunction(columns, parameters, |column, parameter| {
            let equality = column.equality.as_ref();
            let column = &relation.columns[column.column];
            let operand = format!("{row}.{}", quote::identifier(&column.name));
            let equal = equal(column, &operand, parameter, equality);
            format!("({equal} OR ({operand} {NULL} AND {parameter} {NULL}))")
        }),
    };
    let texts = conjunction(columns, parameters, |column, parameter| {
        let column = &relation.columns[column.column];
        let operand = format!("s.{}", quote::identifier(&column.name));
        format!(
            "({operand}{TEXT} OPERATOR(pg_catalog.=) {parameter}::{}{TEXT} \
             OR {operand} {NULL})",
            column.type_sql
        )
    });
    let target = relation.target_sql();
    let order = match columns {
        [] => String::new(),
        _ => format!("({texts}) DESC, "),
    };
    let (found, still) = (same("s"), same("t"));
    let row = |what: &str| {
        format!(
            "(SELECT s.{what} FROM {target} AS s WHERE {found} \
             ORDER BY {order}s.tableoid, s.ctid LIMIT 1)"
        )
    };
    let partition = match relation.kind {
        crate::relation::RelationKind::Partitioned => {
            format!(" AND t.tableoid = {}", row("tableoid"))
        }
        _ => String::new(),
    };
    format!("t.ctid = {}{partition} AND {still}", row("ctid"))
}
