//! Transactions of the log become target transactions.

use walbraid_consumer::config::{Ack, Apply, Workers};
use walbraid_schemas::{Change, Lsn, Value};

use crate::bed::{Bed, START};
use crate::log::{delete, insert, table, update};

const ITEM: &str = "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric)";

#[tokio::test(flavor = "multi_thread")]
async fn rows_arrive_and_progress_is_told() {
    let bed = Bed::new("rows", ITEM).await;
    let item = table("item", &["id int4*", "name text", "price numeric"]);
    let tables = [bed.log.table(&item).await];
    let row = |id, name, price| [Value::Int(id), Value::Text(name), Value::Text(price)];
    bed.log
        .transaction(
            &tables,
            vec![
                insert(0, &item, &row(1, "a", "1.50")),
                insert(0, &item, &row(2, "b", "NaN")),
            ],
        )
        .await;
    let consumer = bed.consume();
    bed.drained().await;
    bed.log
        .transaction(
            &tables,
            vec![
                update(0, &item, &[Value::Int(1), Value::Unchanged, Value::Null]),
                delete(0, &item, &[Value::Int(2), Value::NotSent, Value::NotSent]),
                insert(0, &item, &row(3, "ü \\ ' \"", "-0.00")),
            ],
        )
        .await;
    bed.drained().await;
    let rows = "SELECT string_agg(i::text, ' ' ORDER BY id) FROM item i";
    assert_eq!(bed.value(rows).await, "(1,a,) (3,\"ü \\\\ ' \"\"\",0.00)");
    let lane = bed.lane().await;
    assert_eq!(lane.state, "running");
    assert_eq!(lane.transactions_applied, 2);
    assert_eq!(lane.applied_lsn, bed.log.end_lsn());
    consumer.stop().await;
    assert_eq!(bed.lane().await.state, "idle");
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_where_the_origin_stands() {
    let bed = Bed::new("restart", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    for round in 0..4 {
        let consumer = bed.consume();
        for id in 0..50 {
            let id = Value::Int(round * 50 + id);
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[id])])
                .await;
        }
        if round % 2 == 0 {
            bed.drained().await;
            consumer.stop().await;
        } else {
            consumer.kill().await;
        }
    }
    let consumer = bed.consume();
    bed.drained().await;
    // A transaction applied twice would have stopped at the primary key.
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "200");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_grouped_and_one_to_one_is_kept_where_wanted() {
    for (group, most) in [(256, 60), (1, 300)] {
        let bed = Bed::new("group", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
        let n = table("n", &["id int8*"]);
        let tables = [bed.log.table(&n).await];
        for id in 0..300 {
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[Value::Int(id)])])
                .await;
        }
        let mut config = bed.config();
        config.apply = Apply {
            group_transactions_max: group,
            ..Apply::default()
        };
        let consumer = bed.consume_with(config);
        bed.drained().await;
        let commits = bed.value("SELECT count(DISTINCT xmin::text) FROM n").await;
        let commits: u32 = commits.parse().unwrap();
        assert!(
            if group == 1 {
                commits == most
            } else {
                commits <= most
            },
            "{commits}"
        );
        assert_eq!(bed.lane().await.transactions_applied, 300);
        consumer.stop().await;
        bed.done().await;
    }
}

/// One whose rows are all missing, and one without any; with several workers too.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_writes_nothing_moves_progress() {
    for workers in [1, 4] {
        let bed = Bed::new("missing", ITEM).await;
        let item = table("item", &["id int4*", "name text", "price numeric"]);
        let tables = [bed.log.table(&item).await];
        let mut config = bed.config();
        config.apply.workers = Workers::Fixed(workers);
        config.apply.group_transactions_max = 1;
        let consumer = bed.consume_with(config);
        let missing = |id| {
            let row = [Value::Int(id), Value::Text("x"), Value::Null];
            vec![update(0, &item, &row)]
        };
        for changes in [missing(9), Vec::new(), missing(8), missing(7), Vec::new()] {
            bed.log.transaction(&tables, changes).await;
            // Nothing is written behind it, and yet progress is there.
            bed.drained().await;
            let newest = "SELECT max(end_lsn) FROM walbraid.progress";
            assert_eq!(bed.value(newest).await, bed.log.end_lsn().to_string());
        }
        assert_eq!(bed.value("SELECT count(*) FROM item").await, "0");
        consumer.stop().await;
        bed.done().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_parts_is_one_transaction_and_heartbeats_move_what_is_quiet() {
    let bed = Bed::new("parts", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let part = |from: i64| {
        (from..from + 100)
            .map(|id| insert(0, &n, &[Value::Int(id)]))
            .collect()
    };
    bed.log
        .run(&tables, (0..20).map(|one| part(one * 100)).collect())
        .await;
    let quiet = Lsn(bed.log.end_lsn().0 + 0x5000);
    bed.log.heartbeat(quiet).await;
    let consumer = bed.consume();
    bed.until("the heartbeat is told", async || {
        bed.lane().await.reached_lsn() == quiet
    })
    .await;
    assert_eq!(
        bed.value("SELECT count(DISTINCT xmin::text) || ' ' || count(*) FROM n")
            .await,
        "1 2000"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_larger_than_its_memory_is_applied_while_it_arrives() {
    let bed = Bed::new("large", "CREATE TABLE n (id int8 PRIMARY KEY, t text)").await;
    let n = table("n", &["id int8*", "t text"]);
    let tables = [bed.log.table(&n).await];
    let text = "x".repeat(1_000);
    let part = |from: i64| {
        (from..from + 400)
            .map(|id| insert(0, &n, &[Value::Int(id), Value::Text(&text)]))
            .collect::<Vec<Change>>()
    };
    bed.log
        .run(&tables, (0..50).map(|one| part(one * 400)).collect())
        .await;
    let mut config = bed.config();
    config.apply = Apply {
        memory_bytes: 4 << 20,
        ..Apply::default()
    };
    let consumer = bed.consume_with(config);
    bed.drained().await;
    assert_eq!(
        bed.value("SELECT count(DISTINCT xmin::text) || ' ' || count(*) FROM n")
            .await,
        "1 20000"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncate_and_generated_columns_and_identity() {
    let bed = Bed::new(
        "truncate",
        "CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, \
             twice int GENERATED ALWAYS AS (v * 2) STORED, own text DEFAULT 'mine')",
    )
    .await;
    let g = table("g", &["id int4*", "v int4"]);
    let tables = [bed.log.table(&g).await];
    let consumer = bed.consume();
    let row = |id, v| [Value::Int(id), Value::Int(v)];
    bed.log
        .transaction(&tables, vec![insert(0, &g, &row(1, 10))])
        .await;
    let truncate = Change::Truncate {
        tables: vec![0],
        cascade: false,
        restart_identity: false,
    };
    bed.log
        .transaction(
            &tables,
            vec![
                truncate,
                insert(0, &g, &row(7, 21)),
                update(0, &g, &row(7, 22)),
            ],
        )
        .await;
    bed.drained().await;
    let rows = "SELECT string_agg(g::text, ' ') FROM g";
    assert_eq!(bed.value(rows).await, "(7,22,44,mine)");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_shapes_than_are_kept_prepared() {
    let columns: Vec<String> = (0..11).map(|n| format!("c{n} text")).collect();
    let ddl = format!(
        "CREATE TABLE w (id int8 PRIMARY KEY, {})",
        columns.join(", ")
    );
    let bed = Bed::new("shapes", &ddl).await;
    let mut names = vec!["id int8*"];
    names.extend(columns.iter().map(String::as_str));
    let w = table("w", &names);
    let tables = [bed.log.table(&w).await];
    let whole: Vec<Value<'_>> = std::iter::once(Value::Int(1))
        .chain((0..11).map(|_| Value::Text("")))
        .collect();
    bed.log
        .transaction(&tables, vec![insert(0, &w, &whole)])
        .await;
    let text: Vec<String> = (0..2048).map(|mask| format!("m{mask}")).collect();
    for masks in (0..2048_usize).collect::<Vec<_>>().chunks(256) {
        let changes = masks.iter().map(|mask| {
            let column = |n: usize| match mask & (1 << n) {
                0 => Value::Unchanged,
                _ => Value::Text(&text[*mask]),
            };
            let values: Vec<Value<'_>> = std::iter::once(Value::Int(1))
                .chain((0..11).map(column))
                .collect();
            update(0, &w, &values)
        });
        bed.log.transaction(&tables, changes.collect()).await;
    }
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(bed.value("SELECT c0 || c10 FROM w").await, "m2047m2047");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_is_kept_with_the_position() {
    let bed = Bed::new("claim", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    bed.drained().await;
    let claim = bed.log.claim().await;
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(2)])])
        .await;
    bed.drained().await;
    let newest = "SELECT claim_offset || ' ' || options_hash FROM walbraid.progress \
                  ORDER BY end_lsn DESC LIMIT 1";
    let kept = bed.value(newest).await;
    assert_eq!(kept, format!("{claim} 42"));
    assert!(bed.log.end_lsn() > START);
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_wait_for_what_they_are_told_to() {
    for ack in [Ack::Applied, Ack::Replicated] {
        let bed = Bed::new("ack", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
        let n = table("n", &["id int8*"]);
        let tables = [bed.log.table(&n).await];
        let mut config = bed.config();
        config.apply = Apply {
            ack,
            ..Apply::default()
        };
        let consumer = bed.consume_with(config);
        for id in 0..20 {
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[Value::Int(id)])])
                .await;
        }
        bed.drained().await;
        consumer.stop().await;
        assert_eq!(bed.lane().await.flushed_lsn, bed.log.end_lsn());
        bed.done().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_role_with_the_documented_rights_is_enough() {
    let bed = Bed::new("role", "CREATE TABLE n (id int8 PRIMARY KEY, v int)").await;
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON n TO {role};";
    let Some(config) = bed.plain_role(grant).await else {
        bed.done().await;
        return;
    };
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    for round in 0..2 {
        let consumer = bed.consume_with(config.clone());
        let row = [Value::Int(round), Value::Int(0)];
        bed.log
            .transaction(&tables, vec![insert(0, &n, &row), update(0, &n, &row)])
            .await;
        bed.drained().await;
        consumer.stop().await;
    }
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "2");
    bed.drop_plain_role().await;
    bed.done().await;
}
