//! `resolver`: several workers where old values are not on the wire.
//!
//! The transactions of `parallel`, each stalling 2 ms in the subscriber, but what they update is a
//! table with a unique e-mail under REPLICA IDENTITY DEFAULT: one row gets another e-mail, one
//! another balance, and in every hundredth transaction the one hands its e-mail over to the other.
//! Drained with one worker, with 8, and with 8 whose consumer does not read old values.

use walbraid_tests::bed::Bed;

use crate::parallel::{TRANSACTIONS, one_by_one, stall};
use crate::small;
use crate::summary::{Samples, Verdict};

const USERS: u64 = 100_000;
const WORKERS: u32 = 8;
const FLOOR: f64 = 4.0;

/// Runs `rounds` rounds; true when the floor was reached.
pub(crate) async fn run(rounds: u32) -> bool {
    let bed = Bed::new().await;
    small::prepare(&bed).await;
    stall(&bed).await;
    users(&bed).await;
    let (mut one, mut many, mut without) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut written = 0;
    for round in 1..=rounds {
        let mut drain = async |workers, resolver| {
            let first = written + 1;
            written += TRANSACTIONS;
            let rate = one_by_one(&bed, (first, written), workers, resolver).await;
            let resolves = if resolver { "on" } else { "off" };
            println!(
                "round {round}: {workers} workers, resolver {resolves}: {rate:.0} transactions/s"
            );
            rate
        };
        one.push(drain(1, true).await);
        many.push(drain(WORKERS, true).await);
        without.push(drain(WORKERS, false).await);
        bed.assert_equal().await;
    }
    println!("1 worker {one} transactions/s");
    let ratio = without.over(&one);
    println!("{WORKERS} workers, resolver off {without} transactions/s, ratio {ratio}");
    let ratio = many.over(&one);
    println!("{WORKERS} workers, resolver on {many} transactions/s, ratio {ratio}");
    let verdict = Verdict {
        name: "resolver",
        ratio: ratio.median(),
        floor: FLOOR,
        target: FLOOR,
    };
    println!("{verdict}");
    verdict.passed()
}

/// The table, and the procedure that changes it instead of the stock.
async fn users(bed: &Bed) {
    bed.both(&format!(
        "CREATE TABLE users (id bigint PRIMARY KEY, email text NOT NULL UNIQUE, balance int);
         INSERT INTO users SELECT i, 'user ' || i, 0 FROM generate_series(1, {USERS}) i;
         ANALYZE users"
    ))
    .await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!(
            "CREATE OR REPLACE PROCEDURE sell(first bigint, last bigint) LANGUAGE plpgsql AS $$
             DECLARE
                 a bigint;
                 b bigint;
                 freed text;
             BEGIN
                 FOR i IN first..last LOOP
                     a := 1 + (i::bigint * 7919) % {USERS};
                     b := 1 + (i::bigint * 104729 + 17) % {USERS};
                     IF i % 100 = 0 THEN
                         SELECT email INTO freed FROM users WHERE id = b;
                         UPDATE users SET email = 'between ' || i WHERE id = b;
                     ELSE
                         freed := 'mail ' || i;
                     END IF;
                     UPDATE users SET email = freed WHERE id = a;
                     UPDATE users SET balance = balance + 1 WHERE id = b;
                     INSERT INTO sold VALUES (i, 1, a, 'first line of a sale');
                     INSERT INTO sold VALUES (i, 2, b, 'second line of a sale');
                     COMMIT;
                 END LOOP;
             END $$"
        ))
        .await;
}
