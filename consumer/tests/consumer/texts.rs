//! Text by several collations and operator classes, and values that hold values.

use crate::values::{
    Case, Meets, case, decimal, integers_range, json, mail, numbers, numbers_range, word,
};

/// Text, indexes that compare it otherwise, and values that hold values.
pub(crate) const TEXTS: &[Case] = &[
    Case {
        random: Some(word),
        ..case("text", "pg_catalog.text", &["'a'", "'a '", "'é'"])
    },
    Case {
        name: "text_pattern_ops",
        index: "CREATE UNIQUE INDEX ON t (v text_pattern_ops)",
        random: Some(word),
        ..case("text", "pg_catalog.text", &[])
    },
    Case {
        name: "text by an ICU collation",
        column: "text COLLATE german",
        random: Some(word),
        ..case("text", "pg_catalog.text", &[])
    },
    Case {
        name: "text by a nondeterministic collation",
        column: "text COLLATE no_case",
        random: Some(word),
        meets: Meets::Always,
        ..case("text", "pg_catalog.text", &["'Bob'", "'bob'"])
    },
    Case {
        name: "an index by a nondeterministic collation",
        index: "CREATE UNIQUE INDEX ON t (v COLLATE no_case)",
        equal: "a.v = b.v COLLATE no_case",
        random: Some(word),
        meets: Meets::Always,
        ..case("text", "pg_catalog.text", &["'Bob'", "'bob'"])
    },
    Case {
        name: "varchar(6)",
        column: "varchar(6)",
        random: Some(word),
        meets: Meets::Seldom,
        ..case(
            "text",
            "pg_catalog.text",
            &[
                "'a'",
                "'a        '",
                "'a     '",
                "'a '",
                "'abcdef  '",
                "'abcdef'",
            ],
        )
    },
    Case {
        random: Some(word),
        ..case("varchar", "pg_catalog.varchar", &["'a'", "'a '"])
    },
    Case {
        random: Some(word),
        ..case(
            "char(6)",
            "pg_catalog.bpchar",
            &["'a'", "'a  '", "''", "'  '"],
        )
    },
    Case {
        name: "text of the publisher in char(6)",
        column: "char(6)",
        random: Some(word),
        ..case("text", "pg_catalog.text", &["'a'", "'a  '", "'  '", "''"])
    },
    Case {
        name: "text of the publisher in citext",
        column: "citext",
        random: Some(word),
        meets: Meets::Often,
        ..case(
            "text",
            "pg_catalog.text",
            &[
                "'Bob'",
                "'bob'",
                "'BÓB'",
                "'bób'",
                "'robert@x'",
                "'ROBERT@x'",
            ],
        )
    },
    Case {
        name: "lower()",
        index: "CREATE UNIQUE INDEX ON t (lower(v))",
        equal: "lower(a.v) = lower(b.v)",
        random: Some(word),
        meets: Meets::Often,
        ..case(
            "text",
            "pg_catalog.text",
            &["'Bob'", "'bob'", "'k'", "'\u{212a}'"],
        )
    },
    Case {
        name: "lower() of addresses",
        index: "CREATE UNIQUE INDEX ON t (lower(v))",
        equal: "lower(a.v) = lower(b.v)",
        random: Some(mail),
        meets: Meets::Seldom,
        ..case("text", "pg_catalog.text", &[])
    },
    Case {
        name: "lower() in Turkish",
        column: "varchar(20) COLLATE turkish",
        index: "CREATE UNIQUE INDEX ON t (lower(v))",
        equal: "lower(a.v) = lower(b.v)",
        random: Some(word),
        meets: Meets::Often,
        ..case(
            "text",
            "pg_catalog.text",
            &["'I'", "'ı'", "'İ'", "'i'", "'kil'"],
        )
    },
    Case {
        name: "lower() in Lithuanian",
        column: "text COLLATE lithuanian",
        index: "CREATE UNIQUE INDEX ON t (lower(v))",
        equal: "lower(a.v) = lower(b.v)",
        random: Some(word),
        meets: Meets::Often,
        ..case(
            "text",
            "pg_catalog.text",
            &["'J\u{301}'", "'j\u{307}\u{301}'", "'I\u{300}'"],
        )
    },
    Case {
        name: "another expression",
        index: "CREATE UNIQUE INDEX ON t (upper(v))",
        equal: "upper(a.v) = upper(b.v)",
        random: Some(word),
        meets: Meets::Always,
        ..case("text", "pg_catalog.text", &["'ß'", "'ss'"])
    },
    Case {
        name: "an exclusion constraint",
        index: "ALTER TABLE t ADD EXCLUDE USING gist (v WITH &&)",
        equal: "a.v && b.v",
        random: Some(numbers_range),
        meets: Meets::Always,
        ..case("numrange", "pg_catalog.numrange", &[])
    },
    Case {
        name: "a domain over a domain over numeric(12,4)",
        column: "dearer",
        random: Some(decimal),
        ..case("numeric(12,4)", "pg_catalog.numeric", &["'1'", "'1.0000'"])
    },
    Case {
        published_by_subscriber: true,
        ..case("mood", "public.mood", &["'sad'", "'ok'", "'Ok'", "'happy'"])
    },
    Case {
        name: "a composite",
        published_by_subscriber: true,
        meets: Meets::Always,
        ..case(
            "pair",
            "public.pair",
            &["'(1,1.0)'", "'(1,1.00)'", "'(2,)'"],
        )
    },
    Case {
        random: Some(json),
        ..case(
            "jsonb",
            "pg_catalog.jsonb",
            &[
                "'1.0'",
                "'1.00'",
                "'\"1.0\"'",
                "'\"1.00\"'",
                "'[]'",
                "'{}'",
                "'[[]]'",
                "'null'",
                "'\"\\\\\"'",
                "'[1,2]'",
                "'[12]'",
                "'{\"a\":1,\"a\":2}'",
                "'{\"a\":2}'",
                "'\"a, 1.0\"'",
                "'\"a, 1.00\"'",
            ],
        )
    },
    Case {
        name: "json of the publisher in jsonb",
        column: "jsonb",
        meets: Meets::Always,
        ..case(
            "json",
            "pg_catalog.json",
            &["'{\"b\": 1, \"a\": 2}'", "'{\"a\":2,\"b\":1}'"],
        )
    },
    Case {
        random: Some(numbers),
        ..case(
            "numeric[]",
            "pg_catalog._numeric",
            &[
                "'{}'",
                "'{{1,2},{3,4}}'",
                "'{{1.0,2},{3,4}}'",
                "'{1,2,3,4}'",
                "'[0:1][3:4]={{1,2},{3,4}}'",
                "'{NULL}'",
                "'{NaN}'",
            ],
        )
    },
    case(
        "text[]",
        "pg_catalog._text",
        &[
            "'{}'",
            "'{NULL}'",
            "'{\"NULL\"}'",
            "'{\"\"}'",
            "'{a,b}'",
            "'{\"a,b\"}'",
            "'{\"a\\\"b\"}'",
            "'{\"a\\\\b\"}'",
            "'{\"{x}\"}'",
            "'{{x}}'",
            "'{\" a\"}'",
            "'{a}'",
            "'{\"a\"}'",
        ],
    ),
    case(
        "timestamptz[]",
        "pg_catalog._timestamptz",
        &[
            "'{\"2026-01-01 12:00+00\"}'",
            "'{\"2026-01-01 14:00+02\"}'",
            "'{infinity}'",
        ],
    ),
    Case {
        name: "citext[]",
        column: "citext[]",
        meets: Meets::Seldom,
        ..case(
            "text[]",
            "pg_catalog._text",
            &["'{Bob,b}'", "'{bob,B}'", "'{bo,bb}'", "'{rob}'", "'{tom}'"],
        )
    },
    Case {
        random: Some(numbers_range),
        ..case(
            "numrange",
            "pg_catalog.numrange",
            &[
                "'empty'",
                "'[1,1)'",
                "'(,)'",
                "'[,5)'",
                "'(,5)'",
                "'[1.0,2)'",
                "'[1,2.00)'",
            ],
        )
    },
    Case {
        random: Some(integers_range),
        ..case("int8range", "pg_catalog.int8range", &["'empty'"])
    },
    case(
        "daterange",
        "pg_catalog.daterange",
        &[
            "'[2026-01-01,2026-01-02]'",
            "'[2026-01-01,2026-01-03)'",
            "'[2026-01-01,infinity]'",
            "'[2026-01-01,)'",
            "'[2026-01-01,infinity)'",
        ],
    ),
    case(
        "tstzrange",
        "pg_catalog.tstzrange",
        &[
            "'[2026-01-01 12:00+00,2026-01-02 00:00+00)'",
            "'[2026-01-01 14:00+02,2026-01-02 00:00+00)'",
            "'[2026-01-01 12:00+00,)'",
            "'empty'",
        ],
    ),
    case(
        "nummultirange",
        "pg_catalog.nummultirange",
        &[
            "'{}'",
            "'{[1,2),[3,4)}'",
            "'{[1.0,2),[3,4.00)}'",
            "'{[1,3),[2,4)}'",
            "'{[1,4)}'",
            "'{(,)}'",
        ],
    ),
];
