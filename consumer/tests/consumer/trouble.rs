//! What goes wrong, and how it ends.

use std::sync::atomic::Ordering;

use walbraid_schemas::{Lsn, StopKind, Value};

use crate::bed::{Bed, connect};
use crate::log::{insert, table, update};

const N: &str = "CREATE TABLE n (id int8 PRIMARY KEY, v int CHECK (v < 100))";

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_refused_stops_behind_the_prefix_and_goes_on_when_mended() {
    let bed = Bed::new("refused", N).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let mut refused = (0, Lsn(0));
    for id in 0..40 {
        let v = if id == 25 { 100 } else { id };
        let row = [Value::Int(id), Value::Int(v)];
        let end = bed
            .log
            .transaction(&tables, vec![insert(0, &n, &row)])
            .await;
        if id == 25 {
            refused = (bed.log.xid(), end);
        }
    }
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::RowRefused, "{stop}");
    let text = stop.to_string();
    for part in ["n_v_check", &refused.0.to_string(), &bed.name, "\"n\""] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert_eq!(
        bed.value("SELECT count(*) || ' ' || max(id) FROM n").await,
        "25 24"
    );
    let lane = bed.lane().await;
    assert_eq!(
        (lane.state.as_str(), lane.stop_kind.as_deref()),
        ("stopped", Some("row-refused"))
    );
    bed.sql
        .batch_execute("ALTER TABLE n DROP CONSTRAINT n_v_check")
        .await
        .unwrap();
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "40");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_row_is_a_stop_before_its_commit_where_that_is_wanted() {
    let bed = Bed::new("onmissing", N).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let row = |id| [Value::Int(id), Value::Int(1)];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1))])
        .await;
    bed.log
        .transaction(
            &tables,
            vec![insert(0, &n, &row(2)), update(0, &n, &row(9))],
        )
        .await;
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(3))])
        .await;
    let mut config = bed.config();
    config.apply.on_missing = walbraid_apply::coordinator::OnMissing::Error;
    let stop = bed.consume_with(config.clone()).stopped().await;
    assert_eq!(stop.kind, StopKind::Conflict, "{stop}");
    assert_eq!(
        bed.value("SELECT string_agg(id::text, ' ') FROM n").await,
        "1"
    );
    bed.sql
        .batch_execute("INSERT INTO n VALUES (9, 1)")
        .await
        .unwrap();
    let consumer = bed.consume_with(config);
    bed.drained().await;
    assert_eq!(
        bed.value("SELECT string_agg(id::text, ' ' ORDER BY id) FROM n")
            .await,
        "1 2 3 9"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_missing_stops_and_is_found_when_it_is_there() {
    let bed = Bed::new("shape", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let (n, m) = (
        table("n", &["id int8*"]),
        table("m", &["id int8*", "v int4"]),
    );
    let tables = [bed.log.table(&n).await, bed.log.table(&m).await];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    bed.log
        .transaction(
            &tables,
            vec![insert(1, &m, &[Value::Int(1), Value::Int(2)])],
        )
        .await;
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::SubscriberShape, "{stop}");
    assert!(stop.to_string().contains("\"public\".\"m\""), "{stop}");
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "1");
    bed.sql
        .batch_execute("CREATE TABLE m (v int, id int8 PRIMARY KEY)")
        .await
        .unwrap();
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(
        bed.value("SELECT string_agg(m::text, ' ') FROM m").await,
        "(2,1)"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_changes_while_it_is_applied_is_read_again() {
    let bed = Bed::new("changed", "CREATE TABLE n (id int8 PRIMARY KEY, v text)").await;
    let n = table("n", &["id int8*", "v text"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume();
    let row = |id| [Value::Int(id), Value::Text("1")];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1))])
        .await;
    bed.drained().await;
    bed.sql
        .batch_execute("ALTER TABLE n ALTER v TYPE int USING v::int")
        .await
        .unwrap();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(2))])
        .await;
    bed.drained().await;
    bed.sql
        .batch_execute("DROP TABLE n; CREATE TABLE n (v int, id int PRIMARY KEY)")
        .await
        .unwrap();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(3))])
        .await;
    bed.drained().await;
    assert_eq!(
        bed.value("SELECT string_agg(n::text, ' ') FROM n").await,
        "(1,3)"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_waited_out_and_a_killed_session_is_taken_over() {
    let bed = Bed::new("locked", N).await;
    let n = table("n", &["id int8*", "v int4"]);
    let tables = [bed.log.table(&n).await];
    let row = |id, v| [Value::Int(id), Value::Int(v)];
    let mut config = bed.config();
    config.subscriber.lock_timeout_ms = 300;
    let consumer = bed.consume_with(config);
    bed.log
        .transaction(&tables, vec![insert(0, &n, &row(1, 1))])
        .await;
    bed.drained().await;
    let other = connect(&bed.url).await;
    other
        .batch_execute("BEGIN; UPDATE n SET v = 50 WHERE id = 1")
        .await
        .unwrap();
    bed.log
        .transaction(&tables, vec![update(0, &n, &row(1, 2))])
        .await;
    bed.until("the lane says that it retries", async || {
        bed.lane().await.state == "retrying"
    })
    .await;
    other.batch_execute("ROLLBACK").await.unwrap();
    bed.drained().await;
    for id in 2..40 {
        bed.log
            .transaction(&tables, vec![insert(0, &n, &row(id, 1))])
            .await;
        if id % 10 == 0 {
            let which = ["worker 0", "side"][usize::try_from(id / 10 % 2).unwrap()];
            let end = format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name = 'walbraid {} 0 {which}'",
                bed.name
            );
            assert_eq!(bed.value(&end).await, "1", "{which}");
            bed.drained().await;
        }
    }
    bed.drained().await;
    assert_eq!(
        bed.value("SELECT count(*) || ' ' || sum(v) FROM n").await,
        "39 40"
    );
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_in_the_chain_stops_with_both_positions() {
    let bed = Bed::new("break", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let first = bed
        .log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    let (_, lost) = bed.log.advance();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(3)])])
        .await;
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::ChainBreak, "{stop}");
    for lsn in [first, lost] {
        assert!(
            stop.to_string().contains(&lsn.to_string()),
            "{lsn} is not in\n{stop}"
        );
    }
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "1");
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_gave_an_id_out_again_is_not_believed() {
    let bed = Bed::new("fingerprint", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let good = bed.log.table(&n).await;
    bed.log
        .transaction(&[good], vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    let mut bad = good;
    bad.fingerprint += 1;
    bed.log
        .transaction(&[bad], vec![insert(0, &n, &[Value::Int(2)])])
        .await;
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::RegistryIncompatible, "{stop}");
    // What stands before it is applied.
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "1");
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_record_stop_by_offset() {
    let bed = Bed::new("garbage", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let offset = bed.log.write_bytes(b"\x01not a record").await;
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::Undecodable, "{stop}");
    assert!(
        stop.to_string().contains(&format!("record {offset} ")),
        "{stop}"
    );
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_was_set_back_reads_further_back_than_the_group() {
    let bed = Bed::new("back", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let mut ends = Vec::new();
    for id in 0..500 {
        ends.push(
            bed.log
                .transaction(&tables, vec![insert(0, &n, &[Value::Int(id)])])
                .await,
        );
    }
    let consumer = bed.consume();
    bed.drained().await;
    consumer.stop().await;
    // As after a fail-over to a stand-by that had not everything: rows and progress go back
    // together.
    let back = format!(
        "DELETE FROM n WHERE id > 100; DELETE FROM walbraid.progress; \
         INSERT INTO walbraid.progress SELECT id, '{0}', 1, 42 FROM walbraid.lanes; \
         UPDATE walbraid.lanes \
         SET flushed_lsn = '{0}', applied_lsn = '{0}', quiet_until_lsn = '{0}'",
        ends[100]
    );
    bed.sql.batch_execute(&back).await.unwrap();
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "500");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_that_was_lost_is_a_stop_and_no_start_from_zero() {
    let bed = Bed::new("lost", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    let consumer = bed.consume();
    bed.drained().await;
    consumer.stop().await;
    bed.sql
        .batch_execute("DELETE FROM walbraid.progress")
        .await
        .unwrap();
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::NotSetUp, "{stop}");
    let drop = format!(
        "SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin \
         WHERE roname LIKE '%{}%\\_anchor'",
        bed.name
    );
    bed.sql.batch_execute(&drop).await.unwrap();
    let stop = bed.consume().stopped().await;
    assert_eq!(stop.kind, StopKind::NotSetUp, "{stop}");
    assert!(stop.to_string().contains("anchor"), "{stop}");
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_changed_are_another_view_of_the_same_wal() {
    let bed = Bed::new("view", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume();
    let first = bed
        .log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(2)])])
        .await;
    bed.drained().await;
    // The new view has no link between the first one and one that ends behind the second.
    bed.log.options_hash.store(43, Ordering::Relaxed);
    let end = bed.log.end_lsn();
    bed.log.set_end(first);
    bed.log.claim().await;
    bed.log.set_end(Lsn(end.0 + 0x80));
    let (_, next) = bed.log.advance();
    let part = bed.log.part(bed.log.next_xid(), next, 0, true, &tables, {
        vec![insert(0, &n, &[Value::Int(3)])]
    });
    let body = walbraid_schemas::Body::Part(part);
    bed.log.write(bed.log.envelope(next, first, body)).await;
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "3");
    consumer.stop().await;
    bed.done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_that_moves_the_origin_moves_no_progress() {
    let bed = Bed::new("abort", "CREATE TABLE n (id int8 PRIMARY KEY)").await;
    let n = table("n", &["id int8*"]);
    let tables = [bed.log.table(&n).await];
    let consumer = bed.consume();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(1)])])
        .await;
    bed.drained().await;
    consumer.stop().await;
    // What a session does that is ended between its last statement and its COMMIT.
    let other = connect(&bed.url).await;
    let abort = format!(
        "SELECT pg_replication_origin_session_setup(roname) FROM pg_replication_origin \
         WHERE roname LIKE '%{}%\\_0\\_0'; \
         BEGIN; INSERT INTO n VALUES (2); \
         SELECT pg_replication_origin_xact_setup('FF/0', now()); ROLLBACK",
        bed.name
    );
    other.batch_execute(&abort).await.unwrap();
    other.close().await.unwrap();
    bed.log
        .transaction(&tables, vec![insert(0, &n, &[Value::Int(2)])])
        .await;
    let consumer = bed.consume();
    bed.drained().await;
    assert_eq!(bed.value("SELECT count(*) FROM n").await, "2");
    consumer.stop().await;
    bed.done().await;
}
