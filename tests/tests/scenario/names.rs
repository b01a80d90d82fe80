//! Names that others fold, cut or confuse.

use walbraid_tests::bed::Bed;

#[tokio::test]
async fn names_with_capitals_quotes_dots_and_foreign_letters_stay_apart() {
    let tables = [
        r#""My Schema"."Weird ""T.able""#,
        r#""My Schema"."weird ""t.able""#,
        r#""My Schema"."Weird_x0020_""T.able""#,
        r#""my.schema"."select""#,
        r#"public."a.b""#,
        r#"public."Ünï""#,
        r#"public."1st""#,
        r#"public."_x0031_st""#,
    ];
    let bed = Bed::new().await;
    bed.both(r#"CREATE SCHEMA "My Schema"; CREATE SCHEMA "my.schema""#)
        .await;
    for table in tables {
        bed.both(&format!(
            r#"CREATE TABLE {table} ("Ünï Cødé" int PRIMARY KEY, "select" text, "a.b" int,
             "UPPER" int, "upper" int, "wi""th" int, "$1" int)"#
        ))
        .await;
    }
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    for (number, table) in tables.iter().enumerate() {
        publisher
            .run(&format!(
                r#"INSERT INTO {table} SELECT {number} * 10 + i, 'x', i, 1, 2, 3, 4
                   FROM generate_series(1, 5) i;
                   UPDATE {table} SET "UPPER" = {number}, "upper" = -1 WHERE "a.b" < 4;
                   UPDATE {table} SET "Ünï Cødé" = "Ünï Cødé" + 1000 WHERE "a.b" = 2;
                   DELETE FROM {table} WHERE "a.b" = 3"#
            ))
            .await;
    }
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
