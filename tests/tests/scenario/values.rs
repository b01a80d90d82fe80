//! Every value arrives as it left.

use std::fmt::Write;

use walbraid_tests::bed::Bed;

/// A type, and values that others have lost on the way.
const TYPES: &[(&str, &[&str])] = &[
    ("bool", &["true", "false"]),
    ("int2", &["-32768", "32767", "0"]),
    ("int4", &["-2147483648", "2147483647"]),
    ("int8", &["-9223372036854775808", "9223372036854775807"]),
    (
        "float4",
        &[
            "'-0'",
            "'NaN'",
            "'Infinity'",
            "'-Infinity'",
            "1e-45",
            "3.4028235e38",
            "0.1",
        ],
    ),
    (
        "float8",
        &[
            "'-0'",
            "'NaN'",
            "'Infinity'",
            "'-Infinity'",
            "5e-324",
            "-216237.00000035969",
            "0.1",
        ],
    ),
    (
        "numeric",
        &["'NaN'", "1.0", "1.00", "1e-1000", "1e1000", "-0.5"],
    ),
    (
        "text",
        &[
            "''",
            "'NULL'",
            "E'a\\nb\\t\\\\\\'\"'",
            "'Ünï🐘'",
            "repeat('x', 100000)",
        ],
    ),
    ("varchar(10)", &["'1234567890'", "'a  '"]),
    ("char(10)", &["'a'", "''", "'1234567890'"]),
    ("name", &["'a'", "''"]),
    ("\"char\"", &["'a'", "''"]),
    (
        "bytea",
        &[
            "''",
            "'\\x00'",
            "'\\xff5c'",
            "'\\x5c7834 31'",
            "decode(repeat('00ff5c', 50000), 'hex')",
        ],
    ),
    (
        "date",
        &[
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 BC'",
            "'4713-01-01 BC'",
            "'5874897-12-31'",
        ],
    ),
    (
        "timestamp",
        &[
            "'infinity'",
            "'0001-01-01 BC'",
            "'294276-12-31 23:59:59.999999'",
        ],
    ),
    (
        "timestamptz",
        &[
            "'-infinity'",
            "'0001-01-01 00:00+00'",
            "'294276-12-31 23:59:59.999999+00'",
        ],
    ),
    ("time", &["'24:00'", "'00:00:00.000001'"]),
    ("timetz", &["'10:00:00+15:59'", "'24:00-15:59'"]),
    (
        "interval",
        &[
            "'1 year -2 mons +3 days -04:05:06.789'",
            "'178000000 years'",
            "'1 mon'",
            "'30 days'",
        ],
    ),
    ("money", &["'12.34'", "'-92233720368547758.08'"]),
    ("uuid", &["'00000000-0000-0000-0000-000000000000'"]),
    (
        "json",
        &["'{\"a\": 1, \"a\":   2}'", "'null'", "'[1.0, 1.00]'"],
    ),
    ("jsonb", &["'{\"b\": 1.00, \"a\": null}'", "'\"\\u00e9\"'"]),
    ("xml", &["'<a>&amp;</a>'"]),
    ("bit(3)", &["B'101'", "B'000'"]),
    ("varbit", &["B''", "B'1'"]),
    ("inet", &["'10.0.0.1/8'", "'::1'"]),
    ("cidr", &["'10.0.0.0/8'"]),
    ("macaddr8", &["'08:00:2b:01:02:03:04:05'"]),
    ("point", &["'(1e300,-0)'", "'(NaN,1)'"]),
    ("box", &["'(1,1),(0,0)'"]),
    ("path", &["'[(0,0),(1,1)]'", "'((0,0),(1,1))'"]),
    ("polygon", &["'((0,0),(1,0),(1,1))'"]),
    ("circle", &["'<(0,0),1>'"]),
    ("tsvector", &["'a:1A fat:2B,4C'", "''"]),
    ("tsquery", &["'fat & (rat | !cat)'"]),
    ("pg_lsn", &["'FFFFFFFF/FFFFFFFF'"]),
    ("oid", &["4294967295"]),
    ("int4range", &["'empty'", "'(,)'", "'[1,5)'"]),
    ("nummultirange", &["'{}'", "'{[1.0,1.50),[3,)}'"]),
    (
        "int[]",
        &[
            "'{}'",
            "'{1,NULL}'",
            "'[0:1][3:4]={{1,2},{3,4}}'",
            "'{{1,2},{3,4}}'",
        ],
    ),
    (
        "text[]",
        &["'{}'", "'{\"NULL\",NULL,\"\",\"a\\\"b\",\"{x}\",\"a,b\"}'"],
    ),
    ("box[]", &["'{(1,1),(0,0);(2,2),(1,1)}'"]),
    ("interval[]", &["'{1 mon,NULL,30 days}'"]),
    ("float8[]", &["'{NaN,-0,Infinity,5e-324}'"]),
    ("bytea[]", &["'{\"\\\\\\\\x00\",\"\\\\\\\\x\",NULL}'"]),
    ("mood", &["'happy'", "'so so'"]),
    ("mood[]", &["'{happy,\"so so\",NULL}'"]),
    ("positive", &["1", "100"]),
    (
        "pair",
        &["ROW(1, 'a,\"b\"\\c')", "ROW(NULL, NULL)", "ROW(1, '')"],
    ),
    ("pair[]", &["ARRAY[ROW(1, 'x')::pair, NULL]"]),
    ("hstore", &["'a=>NULL, \"b c\"=>\"d\\\"e\"'", "''"]),
    ("citext", &["'Bob'", "'bob'"]),
    ("ltree", &["'a.b.c'"]),
];

const OWN_TYPES: &str = "
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('so so', 'happy');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (a int, b text);";

fn table(number: usize, kind: &str) -> String {
    format!("CREATE TABLE t{number} (id int PRIMARY KEY, v {kind});")
}

#[tokio::test]
async fn values_of_every_type_arrive_as_they_left() {
    let bed = Bed::new().await;
    let mut schema = OWN_TYPES.to_owned();
    let (mut insert, mut change) = (String::new(), String::new());
    for (number, (kind, values)) in TYPES.iter().enumerate() {
        schema += &table(number, kind);
        let rows = values.iter().copied().chain(["NULL"]).enumerate();
        for (id, value) in rows {
            writeln!(
                insert,
                "INSERT INTO t{number} VALUES ({id}, ({value})::{kind});"
            )
            .unwrap();
        }
        // Each row takes the value of the next one, and the first is gone.
        writeln!(
            change,
            "UPDATE t{number} a SET v = b.v FROM t{number} b
             WHERE b.id = (a.id + 1) % (SELECT count(*) FROM t{number});
             DELETE FROM t{number} WHERE id = 0;"
        )
        .unwrap();
    }
    bed.both(&schema).await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run(&insert).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    publisher.run(&change).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}

#[tokio::test]
async fn rows_without_a_key_are_found_by_their_values() {
    // Types without an equality the server could use (json, xml, point) cannot be keys this way.
    const FOUND: &[&str] = &[
        "bool",
        "int8",
        "float4",
        "float8",
        "numeric",
        "text",
        "char(10)",
        "bytea",
        "date",
        "timestamptz",
        "timetz",
        "interval",
        "jsonb",
        "int[]",
        "float8[]",
        "mood",
        "pair",
        "citext",
        "int4range",
    ];
    let bed = Bed::new().await;
    let mut schema = OWN_TYPES.to_owned();
    let (mut insert, mut delete) = (String::new(), String::new());
    for (number, (kind, values)) in TYPES
        .iter()
        .filter(|(kind, _)| FOUND.contains(kind))
        .enumerate()
    {
        write!(schema, "CREATE TABLE k{number} (v {kind}, w int);").unwrap();
        write!(schema, "ALTER TABLE k{number} REPLICA IDENTITY FULL;").unwrap();
        for (row, value) in values.iter().copied().chain(["NULL"]).enumerate() {
            writeln!(
                insert,
                "INSERT INTO k{number} VALUES (({value})::{kind}, {row});"
            )
            .unwrap();
        }
        writeln!(
            delete,
            "UPDATE k{number} SET w = w + 1; DELETE FROM k{number} WHERE w < 2;"
        )
        .unwrap();
    }
    bed.both(&schema).await;
    let mut pipeline = bed.pipeline().await;
    let publisher = bed.publisher().await;
    publisher.run(&insert).await;
    publisher.run(&delete).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    pipeline.terminate().await;
}
