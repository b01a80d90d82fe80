//! Replica identity and values that were not sent because they did not change.

use walbraid_tests::bed::Bed;

const NOISE: &str = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 3000) i)";

#[tokio::test]
async fn a_toasted_value_that_did_not_change_is_kept() {
    let bed = Bed::new().await;
    bed.both(
        "CREATE TABLE d (id int PRIMARY KEY, big text, v int);
         CREATE TABLE i (id int PRIMARY KEY, u int NOT NULL UNIQUE, big text, v int);
         ALTER TABLE i REPLICA IDENTITY USING INDEX i_u_key;
         CREATE TABLE f (id int PRIMARY KEY, big text, v int);
         ALTER TABLE f REPLICA IDENTITY FULL;
         ALTER TABLE d ALTER big SET STORAGE EXTERNAL;
         ALTER TABLE i ALTER big SET STORAGE EXTERNAL;
         ALTER TABLE f ALTER big SET STORAGE EXTERNAL",
    )
    .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!(
            "BEGIN; INSERT INTO d VALUES (1, {NOISE}, 0); UPDATE d SET v = 1; COMMIT;
             INSERT INTO i VALUES (1, 1, {NOISE}, 0); INSERT INTO f VALUES (1, {NOISE}, 0)"
        ))
        .await;
    for _ in 0..5 {
        publisher.run("UPDATE d SET v = v + 1").await;
        publisher.run("UPDATE i SET v = v + 1, u = u + 1").await;
        publisher.run("UPDATE f SET v = v + 1").await;
    }
    publisher
        .run("UPDATE d SET id = 2; UPDATE i SET id = 2")
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_key_that_is_itself_toasted() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE k (id text, note text, v int, PRIMARY KEY (id))")
        .await;
    bed.both("ALTER TABLE k ALTER id SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(&format!(
            "INSERT INTO k VALUES (left({NOISE}, 2500), {NOISE}, 0)"
        ))
        .await;
    publisher.run("UPDATE k SET v = 1").await;
    publisher.run("UPDATE k SET id = reverse(id)").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    publisher.run("DELETE FROM k").await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn equal_rows_without_a_key_are_changed_one_at_a_time() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE nn (a int, b int); ALTER TABLE nn REPLICA IDENTITY FULL")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(
            "INSERT INTO nn SELECT 1, NULL FROM generate_series(1, 5);
              INSERT INTO nn VALUES (NULL, NULL), (NULL, NULL)",
        )
        .await;
    let one = "(SELECT ctid FROM nn WHERE a = 1 AND b IS NULL LIMIT 1)";
    publisher
        .run(&format!("DELETE FROM nn WHERE ctid = {one}"))
        .await;
    publisher
        .run(&format!("UPDATE nn SET b = 5 WHERE ctid = {one}"))
        .await;
    publisher
        .run(&format!("DELETE FROM nn WHERE ctid = {one}"))
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_composite_of_nulls_is_not_null_and_rows_without_columns_are_counted() {
    let bed = Bed::new().await;
    bed.both(
        "CREATE TYPE pair AS (x int, y text);
         CREATE TABLE c (a int, p pair); ALTER TABLE c REPLICA IDENTITY FULL;
         CREATE TABLE none (); ALTER TABLE none REPLICA IDENTITY FULL",
    )
    .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run(
            "INSERT INTO c VALUES (1, NULL), (1, (NULL, NULL)), (1, NULL), (1, (NULL, NULL));
             DELETE FROM c WHERE ctid = '(0,2)'; UPDATE c SET a = 2 WHERE ctid = '(0,4)';
             UPDATE c SET a = 3 WHERE ctid = '(0,1)';
             INSERT INTO none DEFAULT VALUES; INSERT INTO none DEFAULT VALUES;
             INSERT INTO none DEFAULT VALUES; DELETE FROM none WHERE ctid = '(0,2)'",
        )
        .await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn rows_are_found_by_domains_over_types_of_every_kind() {
    const DOMAINS: &[(&str, [&str; 3])] = &[
        ("mood", ["'calm'", "'angry'", "'sad'"]),
        ("mood_domain", ["'calm'", "'angry'", "'sad'"]),
        ("int[]", ["'{1,2}'", "'{NULL}'", "'{}'"]),
        ("pair", ["'(1,a)'", "'(,)'", "'(2,)'"]),
        ("int4range", ["'[1,5)'", "'empty'", "'(,)'"]),
        ("int4multirange", ["'{[1,5)}'", "'{}'", "'{(,)}'"]),
        ("numeric(6,2)", ["1.005", "'NaN'", "0"]),
    ];
    let bed = Bed::new().await;
    let mut schema = "CREATE TYPE mood AS ENUM ('sad', 'calm', 'angry');
         CREATE TYPE pair AS (x int, y text); CREATE DOMAIN mood_domain AS mood;"
        .to_owned();
    let (mut insert, mut change) = (String::new(), String::new());
    for (number, (kind, [first, second, third])) in DOMAINS.iter().enumerate() {
        schema.push_str(&format!(
            "CREATE DOMAIN d{number} AS {kind};
             CREATE TABLE k{number} (d d{number} PRIMARY KEY, w int);
             CREATE TABLE f{number} (d d{number}, w int);
             ALTER TABLE f{number} REPLICA IDENTITY FULL;"
        ));
        for table in ["k", "f"] {
            insert.push_str(&format!(
                "INSERT INTO {table}{number} VALUES ({first}, 1), ({second}, 2);"
            ));
            change.push_str(&format!(
                "UPDATE {table}{number} SET w = -w; DELETE FROM {table}{number} WHERE w = -1;
                 UPDATE {table}{number} SET d = {third};"
            ));
        }
    }
    bed.both(&schema).await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run(&insert).await;
    publisher.run(&change).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn identity_changes_on_the_way() {
    let bed = Bed::new().await;
    bed.both("CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL UNIQUE, v int)")
        .await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher
        .run("INSERT INTO t SELECT i, i, i FROM generate_series(1, 5) i")
        .await;
    for identity in ["FULL", "USING INDEX t_u_key", "DEFAULT", "FULL"] {
        publisher
            .run(&format!("ALTER TABLE t REPLICA IDENTITY {identity}"))
            .await;
        publisher
            .run("UPDATE t SET v = v + 1, u = u + 100 WHERE id < 4")
            .await;
        publisher.run("UPDATE t SET v = v WHERE id = 4").await;
        publisher
            .run("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
            .await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
