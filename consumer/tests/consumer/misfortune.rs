//! Everything that can be ended is ended, at random moments, again and again.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use walbraid_schemas::Value;

use crate::bed::{Bed, Consumer};
use crate::log::{insert, table, update};

/// A counter that goes up by one with each transaction, or the transaction is refused; and a row
/// for each transaction.
const TABLES: &str = "
    CREATE TABLE c (id int PRIMARY KEY, v int8);
    INSERT INTO c VALUES (1, 0);
    CREATE TABLE n (id int8 PRIMARY KEY);
    CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF new.v <> old.v + 1 THEN
            RAISE EXCEPTION 'from % to %', old.v, new.v;
        END IF;
        RETURN new;
    END $$;
    CREATE TRIGGER step BEFORE UPDATE ON c FOR EACH ROW EXECUTE FUNCTION step();
    ALTER TABLE c ENABLE ALWAYS TRIGGER step";

const ROUNDS: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn no_hole_and_no_double_whatever_is_ended() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bed = Bed::new("misfortune", TABLES).await;
    let (c, n) = (
        table("c", &["id int4*", "v int8"]),
        table("n", &["id int8*"]),
    );
    let tables = [bed.log.table(&c).await, bed.log.table(&n).await];
    let mut count = 0_i64;
    let mut consumer = start(&bed, &mut random);
    for _ in 0..ROUNDS {
        for _ in 0..random.random_range(20..200) {
            count += 1;
            let changes = vec![
                insert(1, &n, &[Value::Int(count)]),
                update(0, &c, &[Value::Int(1), Value::Int(count)]),
            ];
            bed.log.transaction(&tables, changes).await;
        }
        let pause = Duration::from_millis(random.random_range(0..300));
        tokio::time::sleep(pause).await;
        match random.random_range(0..6) {
            0 => {
                consumer.kill().await;
                consumer = start(&bed, &mut random);
            }
            1 => {
                consumer.stop().await;
                consumer = start(&bed, &mut random);
            }
            2 => end(&bed, "worker 0").await,
            3 => end(&bed, "side").await,
            4 => end(&bed, "%").await,
            _ => {
                bed.log.claim().await;
            }
        }
    }
    bed.drained().await;
    let state = "SELECT (SELECT v FROM c) || ' ' || (SELECT count(*) FROM n)";
    assert_eq!(bed.value(state).await, format!("{count} {count}"));
    consumer.stop().await;
    bed.done().await;
}

fn start(bed: &Bed, random: &mut StdRng) -> Consumer {
    let mut config = bed.config();
    config.apply.group_transactions_max = if random.random() { 1 } else { 64 };
    bed.consume_with(config)
}

async fn end(bed: &Bed, which: &str) {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name LIKE 'walbraid {} 0 {which}'",
        bed.name
    );
    bed.sql.batch_execute(&sql).await.unwrap();
}
