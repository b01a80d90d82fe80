//! A load whose rows can be checked at any moment: money moves between accounts.
//!
//! Every transfer touches several tables in one transaction, and some roll back to a savepoint on
//! the way. In each state that the publisher ever committed, no money is made or lost, and each
//! account holds what its transfers say: `INVARIANT` is true. A load is made by its seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::session::Session;

/// The tables, the same on both sides.
pub const SCHEMA: &str = "
    CREATE TABLE account (id int PRIMARY KEY, owner text NOT NULL, balance bigint NOT NULL);
    CREATE TABLE transfer (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        source int NOT NULL REFERENCES account, target int NOT NULL REFERENCES account,
        amount bigint NOT NULL, note text, at timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE TABLE pending (id bigint PRIMARY KEY, amount numeric(12, 2), payload jsonb);
";

/// True in every state of the publisher.
pub const INVARIANT: &str = "
    SELECT coalesce(sum(balance), 0) = 1000 * count(*) AND NOT EXISTS (
        SELECT FROM account a
        WHERE balance <> 1000
            + coalesce((SELECT sum(amount) FROM transfer WHERE target = a.id), 0)
            - coalesce((SELECT sum(amount) FROM transfer WHERE source = a.id), 0))
    FROM account";

const ACCOUNTS: i32 = 20;

/// Opens the accounts.
pub async fn open(publisher: &Session) {
    publisher
        .run(&format!(
            "INSERT INTO account
             SELECT i, 'owner ' || i, 1000 FROM generate_series(1, {ACCOUNTS}) i"
        ))
        .await;
}

/// Runs `sessions` sessions side by side, `transactions` each.
pub async fn load(url: &str, seed: u64, sessions: u64, transactions: u32) {
    eprintln!("seed {seed}");
    let mut running = JoinSet::new();
    for number in 0..sessions {
        let (url, random) = (url.to_owned(), StdRng::seed_from_u64(seed ^ (number << 32)));
        running.spawn(work(url, random, transactions));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

async fn work(url: String, mut random: StdRng, transactions: u32) {
    let session = Session::open(&url).await;
    for _ in 0..transactions {
        let sql = transaction(&mut random);
        // Two transfers the other way round are a deadlock: the application tries again.
        while let Err(error) = session.batch_execute(&sql).await {
            session.run("ROLLBACK").await;
            let code = error.code().map(|code| code.code().to_owned());
            assert_eq!(code.as_deref(), Some("40P01"), "{error}: {sql}");
        }
    }
}

fn transaction(random: &mut StdRng) -> String {
    let transfer = |random: &mut StdRng| {
        // Few accounts are hot.
        let source = 1 + random
            .random_range(0..ACCOUNTS)
            .min(random.random_range(0..ACCOUNTS));
        let target = 1 + (source + random.random_range(0..ACCOUNTS - 1)) % ACCOUNTS;
        let amount = random.random_range(1..100);
        let note_chars = if random.random_ratio(1, 20) { 5000 } else { 20 };
        format!(
            "UPDATE account SET balance = balance - {amount} WHERE id = {source};
             UPDATE account SET balance = balance + {amount} WHERE id = {target};
             INSERT INTO transfer (source, target, amount, note)
             VALUES ({source}, {target}, {amount}, repeat('x', {note_chars}));"
        )
    };
    let body = match random.random_range(0..10) {
        0 => format!(
            "SAVEPOINT a; {} ROLLBACK TO a; {}",
            transfer(random),
            transfer(random)
        ),
        1 => format!("{} {}", transfer(random), transfer(random)),
        2 => {
            let id: i64 = random.random_range(0..1000);
            format!(
                "INSERT INTO pending VALUES ({id}, {id} / 3.0, '{{\"n\": {id}}}')
                 ON CONFLICT (id) DO UPDATE SET amount = excluded.amount + 1;"
            )
        }
        3 => format!(
            "DELETE FROM pending WHERE id < {};",
            random.random_range(0..100)
        ),
        _ => transfer(random),
    };
    format!("BEGIN; {body} COMMIT")
}
