//! The load of the benchmarks: small transactions of four row changes, two updates by key on a
//! large table and two inserts.
//!
//! Transactions are numbered by the rows they insert, so that a look at the highest number on the
//! subscriber tells how far it is: one index probe, cheap enough to repeat every few milliseconds.

use std::time::Duration;

use walbraid_tests::bed::Bed;
use walbraid_tests::session::Session;
use walbraid_tests::wait::until;

/// Rows of the table that is updated: more than one transaction in a hundred meets another's row
/// in a window, and all of it stays in memory.
pub(crate) const STOCK_ROWS: u64 = 500_000;

/// Makes the tables on both sides, filled alike, and the procedure that writes on the publisher.
pub(crate) async fn prepare(bed: &Bed) {
    bed.both(&format!(
        "CREATE TABLE stock (id bigint PRIMARY KEY, amount int NOT NULL, note text NOT NULL);
         CREATE TABLE sold (number bigint, line int, stock_id bigint NOT NULL, note text NOT NULL,
             at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (number, line));
         INSERT INTO stock SELECT i, 1000, 'shelf ' || i FROM generate_series(1, {STOCK_ROWS}) i;
         ANALYZE"
    ))
    .await;
    meet(bed, 0).await;
    bed.both("CHECKPOINT").await;
}

/// Makes the procedure that writes, in which so many transactions of a thousand change one row that
/// they have in common.
pub(crate) async fn meet(bed: &Bed, per_thousand: u32) {
    let publisher = bed.publisher().await;
    publisher
        .run(&format!(
            "CREATE OR REPLACE PROCEDURE sell(first bigint, last bigint) LANGUAGE plpgsql AS $$
             DECLARE
                 a bigint;
                 b bigint;
             BEGIN
                 FOR i IN first..last LOOP
                     a := 1 + (i::bigint * 7919) % {STOCK_ROWS};
                     b := 1 + (i::bigint * 104729 + 17) % {STOCK_ROWS};
                     IF (i::bigint * 617) % 1000 < {per_thousand} THEN
                         a := 1;
                     END IF;
                     UPDATE stock SET amount = amount - 1 WHERE id = a;
                     UPDATE stock SET amount = amount - 1 WHERE id = b;
                     INSERT INTO sold VALUES (i, 1, a, 'first line of a sale');
                     INSERT INTO sold VALUES (i, 2, b, 'second line of a sale');
                     COMMIT;
                 END LOOP;
             END $$"
        ))
        .await;
}

/// Writes the transactions `first` to `last` on the publisher, one after the other.
pub(crate) async fn sell(publisher: &Session, first: u64, last: u64) {
    publisher.run("SET synchronous_commit = off").await;
    publisher.run(&format!("CALL sell({first}, {last})")).await;
    publisher
        .run("SELECT pg_logical_emit_message(true, 'bench', 'written')")
        .await;
    publisher.run("RESET synchronous_commit; CHECKPOINT").await;
}

/// The highest transaction that is visible; 0 when none is.
pub(crate) async fn newest(session: &Session) -> u64 {
    session
        .value("SELECT coalesce(max(number), 0) FROM sold")
        .await
        .parse()
        .unwrap()
}

/// Waits until the slot has confirmed all that is committed.
pub(crate) async fn until_in_kafka(bed: &Bed, publisher: &Session, longest: Duration) {
    let target = publisher.value("SELECT pg_current_wal_insert_lsn()").await;
    let reached = format!(
        "SELECT confirmed_flush_lsn >= '{target}' FROM pg_replication_slots WHERE slot_name = '{}'",
        bed.name
    );
    until("the backlog is in Kafka", longest, async || {
        publisher.holds(&reached).await.then_some(())
    })
    .await;
}
