//! Interleavings of writes, reads and commits, step by step.

use walbraid_apply::footprint::{NewRow, Old, OldValues, SpaceId};
use walbraid_apply::resolver::Overlay;
use walbraid_schemas::Lsn;

const SPACE: SpaceId = SpaceId(7);

/// What a row holds: nothing is known, it is gone, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    Gone,
    Is(u64),
}

use Value::{Gone, Is, Unknown};

/// Transactions are numbered by their place; one ends behind its place.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A transaction that waits wants the row; whether it is to be read.
    Want(u64, bool),
    Unwant(u64),
    /// A read of rows begins.
    Begin(u64, &'static [u64]),
    Answer(u64, u64, Value),
    /// What a transaction makes of a row.
    Write(u64, u64, Value),
    /// A transaction may have changed anything.
    Forget(u64),
    /// Everything up to that transaction has returned.
    Returned(u64),
    /// A transaction asks for a row.
    Old(u64, u64, Value),
    GiveUp,
    /// So many rows are kept.
    Kept(usize),
    Blind(bool),
}

use Step::{
    Answer, Begin, Blind, Forget, GiveUp, Kept, Old as Asks, Returned, Unwant, Want, Write,
};

fn take(overlay: &mut Overlay, step: Step) {
    match step {
        Want(row, expected) => assert_eq!(overlay.want(row), expected),
        Unwant(row) => overlay.unwant(row),
        Begin(read, rows) => {
            for row in rows {
                assert!(overlay.ask(read, *row), "row {row} need not be read");
            }
        }
        Answer(read, row, Unknown) => overlay.answer(read, row, Old::Unknown),
        Answer(read, row, Gone) => overlay.answer(read, row, Old::Gone),
        Answer(read, row, Is(value)) => overlay.answer(read, row, Old::Hashes(&[Some(value)])),
        Write(place, row, value) => {
            let hashes = [match value {
                Is(value) => Some(value),
                _ => None,
            }];
            let new = match value {
                Unknown => NewRow::Unknown,
                Gone => NewRow::Gone,
                Is(_) => NewRow::Hashes(&hashes),
            };
            overlay.at(Lsn(place)).write(SPACE, row, new);
        }
        Forget(place) => overlay.at(Lsn(place)).forget(),
        Returned(place) => overlay.applied(Lsn(place + 1)),
        Asks(place, row, expected) => {
            let old = match overlay.at(Lsn(place)).old(SPACE, row) {
                Old::Unknown => Unknown,
                Old::Gone => Gone,
                Old::Hashes(hashes) => Is(hashes[0].unwrap()),
            };
            assert_eq!(old, expected);
        }
        GiveUp => overlay.give_up_all(),
        Kept(rows) => assert_eq!(overlay.len(), rows),
        Blind(expected) => assert_eq!(overlay.is_blind(), expected),
    }
}

fn check(name: &str, steps: &[Step]) {
    let mut overlay = Overlay::new(Lsn(100), 100);
    for (number, step) in steps.iter().enumerate() {
        let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            take(&mut overlay, *step);
        }));
        assert!(stepped.is_ok(), "{name}: step {number}, {step:?}");
    }
}

#[test]
fn what_was_read_lies_below_what_was_written() {
    check(
        "a row is read for whoever wants it, and kept as long",
        &[
            Want(1, true),
            Want(1, false),
            Asks(200, 1, Unknown),
            Begin(1, &[1]),
            Asks(200, 1, Unknown),
            Answer(1, 1, Is(5)),
            Asks(200, 1, Is(5)),
            Unwant(1),
            Asks(210, 1, Is(5)),
            Unwant(1),
            Kept(0),
        ],
    );
    check(
        "a write of what is in flight is newer than any read",
        &[
            Want(1, true),
            Begin(1, &[1]),
            Write(200, 1, Is(6)),
            Answer(1, 1, Is(5)),
            Asks(210, 1, Is(6)),
            Unwant(1),
            Kept(1),
            Returned(200),
            Kept(0),
        ],
    );
    check(
        "what was written is kept for whoever wants it",
        &[
            Write(200, 1, Is(6)),
            Want(1, false),
            Returned(200),
            Asks(210, 1, Is(6)),
            Unwant(1),
            Kept(0),
        ],
    );
    check(
        "a row that is gone comes again",
        &[
            Write(200, 1, Gone),
            Asks(210, 1, Gone),
            Write(210, 1, Is(6)),
            Returned(200),
            Asks(220, 1, Is(6)),
            Returned(210),
            Kept(0),
        ],
    );
}

#[test]
fn no_read_outlives_an_entry_that_it_may_not_have_seen() {
    check(
        "an entry that came and went while a read was under way",
        &[
            Want(1, true),
            Want(1, false),
            Begin(1, &[1]),
            Write(200, 1, Is(6)),
            Unwant(1),
            Returned(200),
            Answer(1, 1, Is(5)),
            Asks(210, 1, Is(6)),
            Unwant(1),
            Kept(0),
            Answer(1, 1, Is(5)),
            Asks(210, 1, Unknown),
        ],
    );
    check(
        "the answer of a read that was begun before says nothing of a row that is read again",
        &[
            Want(1, true),
            Begin(1, &[1]),
            Unwant(1),
            Kept(0),
            Write(200, 1, Unknown),
            Returned(200),
            Want(1, true),
            Begin(2, &[1]),
            Answer(1, 1, Is(5)),
            Asks(210, 1, Unknown),
            Answer(2, 1, Is(6)),
            Asks(210, 1, Is(6)),
        ],
    );
    check(
        "a row that was written before it is read, is not",
        &[
            Want(1, true),
            Write(200, 1, Is(6)),
            Returned(200),
            Asks(210, 1, Is(6)),
        ],
    );
}

#[test]
fn what_cannot_be_said_is_unknown() {
    check(
        "a row that was made unknown is read once that has returned",
        &[
            Write(200, 1, Unknown),
            Want(1, false),
            Asks(210, 1, Unknown),
            Returned(200),
            Want(1, false),
            Write(210, 1, Unknown),
            Unwant(1),
            Unwant(1),
            Returned(210),
            Kept(0),
            Want(1, true),
        ],
    );
    check(
        "a read that is given up is void",
        &[
            Want(1, true),
            Want(2, true),
            Begin(1, &[1]),
            GiveUp,
            Answer(1, 1, Is(5)),
            Asks(200, 1, Unknown),
            Want(1, false),
            Write(200, 1, Is(6)),
            Returned(200),
            Asks(210, 1, Is(6)),
        ],
    );
}

#[test]
fn what_may_change_any_row_empties_everything_until_it_has_returned() {
    check(
        "reads under way are void, and none begins",
        &[
            Want(1, true),
            Want(2, true),
            Begin(1, &[1]),
            Answer(1, 1, Is(5)),
            Forget(200),
            Blind(true),
            Kept(0),
            Asks(200, 1, Unknown),
            Want(1, true),
            Answer(1, 1, Is(5)),
            Asks(210, 1, Unknown),
            Returned(190),
            Blind(true),
            Returned(200),
            Blind(false),
            Begin(2, &[1]),
            Answer(2, 1, Is(7)),
            Asks(210, 1, Is(7)),
        ],
    );
    check(
        "what its own transaction tells is not believed, what is told behind it is",
        &[
            Write(200, 1, Is(5)),
            Forget(200),
            Write(200, 1, Is(6)),
            Asks(200, 1, Unknown),
            Asks(210, 1, Unknown),
            Write(210, 1, Is(7)),
            Asks(220, 1, Is(7)),
        ],
    );
}

#[test]
fn rows_are_bounded() {
    let mut overlay = Overlay::new(Lsn(100), 10);
    for place in 0..1_000 {
        take(&mut overlay, Write(200 + place, place, Is(place)));
        assert!(overlay.len() <= 10);
    }
    take(&mut overlay, Returned(2_000));
    take(&mut overlay, Kept(0));
    take(&mut overlay, Blind(false));
}
