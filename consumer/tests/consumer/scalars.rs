//! Types of single values that are not text, with values that look different and may be equal.

use crate::values::{Case, Meets, address, case, decimal, float, integer, moment, span};

/// Single values that are not text.
pub(crate) const SCALARS: &[Case] = &[
    case("boolean", "pg_catalog.bool", &["true", "false"]),
    case("\"char\"", "pg_catalog.char", &["'a'", "'b'", "''", "'\\'"]),
    case(
        "name",
        "pg_catalog.name",
        &["'a'", "'A'", "'a '", "'é'", "''"],
    ),
    case(
        "uuid",
        "pg_catalog.uuid",
        &[
            "'00000000-0000-0000-0000-00000000000A'",
            "'0000000000000000000000000000000a'",
            "'00000000-0000-0000-0000-00000000000b'",
        ],
    ),
    case(
        "bytea",
        "pg_catalog.bytea",
        &["''", "'\\x00'", "'\\x0000'", "'a'", "'\\x61'"],
    ),
    case(
        "date",
        "pg_catalog.date",
        &[
            "'2026-01-01'",
            "'20260101'",
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 BC'",
            "'0044-03-15'",
            "'5874897-12-31'",
            "'4713-01-01 BC'",
        ],
    ),
    case(
        "time",
        "pg_catalog.time",
        &[
            "'00:00'",
            "'24:00'",
            "'12:00:00.5'",
            "'12:00:00.500000'",
            "'12:00:00.000001'",
        ],
    ),
    case(
        "timetz",
        "pg_catalog.timetz",
        &[
            "'12:00+00'",
            "'14:00+02'",
            "'12:00+02'",
            "'12:00-02'",
            "'12:00+02:30'",
            "'12:00-00'",
            "'24:00+00'",
            "'00:00+00'",
            "'12:00+15:59:59'",
            "'12:00+00:00:01'",
        ],
    ),
    Case {
        random: Some(moment),
        ..case(
            "timestamp",
            "pg_catalog.timestamp",
            &[
                "'infinity'",
                "'-infinity'",
                "'0001-01-01 00:00 BC'",
                "'0001-01-01 00:00'",
                "'294276-12-31 23:59:59.999999'",
            ],
        )
    },
    Case {
        random: Some(moment),
        ..case(
            "timestamptz",
            "pg_catalog.timestamptz",
            &[
                "'infinity'",
                "'-infinity'",
                "'4713-01-01 00:00 BC'",
                "'2026-03-01 12:00+00'",
                "'2026-03-01 14:00+02'",
            ],
        )
    },
    Case {
        name: "timestamp of the publisher in timestamp(0)",
        column: "timestamp(0)",
        random: Some(moment),
        meets: Meets::Often,
        ..case("timestamp", "pg_catalog.timestamp", &[])
    },
    Case {
        random: Some(span),
        ..case(
            "interval",
            "pg_catalog.interval",
            &[
                "'1 mon'",
                "'30 days'",
                "'720:00:00'",
                "'1 day'",
                "'24:00'",
                "'0'",
                "'-1 day +24:00'",
                "'1 year 2 mons 3 days 04:05:06.789'",
                "'-00:00:00.000001'",
                "'178000000 years'",
                "'-178000000 years'",
                "'1 year'",
                "'12 mons'",
                "'360 days'",
            ],
        )
    },
    Case {
        random: Some(integer),
        ..case("int2", "pg_catalog.int2", &["'32767'", "'-32768'"])
    },
    Case {
        random: Some(integer),
        ..case("int4", "pg_catalog.int4", &["'-2147483648'"])
    },
    Case {
        random: Some(integer),
        ..case("int8", "pg_catalog.int8", &["'9223372036854775807'"])
    },
    case("oid", "pg_catalog.oid", &["'0'", "'1'", "'4294967295'"]),
    case(
        "money",
        "pg_catalog.money",
        &["'1'", "'1.00'", "'-1'", "'1234567.89'", "'0'", "'-0.01'"],
    ),
    case(
        "pg_lsn",
        "pg_catalog.pg_lsn",
        &["'0/0'", "'0/A'", "'0/0a'", "'A/0'", "'1/FFFFFFFF'"],
    ),
    case(
        "xid8",
        "pg_catalog.xid8",
        &["'0'", "'1'", "'18446744073709551615'"],
    ),
    Case {
        random: Some(address),
        ..case(
            "inet",
            "pg_catalog.inet",
            &[
                "'::1'",
                "'::1/128'",
                "'::1/64'",
                "'::ffff:10.0.0.1'",
                "'::10.0.0.1'",
                "'2001:DB8::'",
                "'2001:db8:0:0:0:0:0:0'",
                "'1:0:0:2::'",
                "'1:0:0:2:0:0:0:0'",
            ],
        )
    },
    case(
        "cidr",
        "pg_catalog.cidr",
        &["'10'", "'10.0.0.0/8'", "'10.0.0.0/32'", "'::/0'"],
    ),
    case(
        "macaddr",
        "pg_catalog.macaddr",
        &["'08002b010203'", "'08-00-2B-01-02-03'", "'0:0:0:0:0:1'"],
    ),
    case(
        "macaddr8",
        "pg_catalog.macaddr8",
        &[
            "'08002b0102030405'",
            "'08:00:2B:01:02:03'",
            "'08:00:2b:ff:fe:01:02:03'",
        ],
    ),
    case("bit(4)", "pg_catalog.bit", &["B'0000'", "B'1010'", "X'A'"]),
    case(
        "varbit",
        "pg_catalog.varbit",
        &["B''", "B'0'", "B'00'", "X'A'", "B'1010'"],
    ),
    Case {
        random: Some(decimal),
        ..case(
            "numeric",
            "pg_catalog.numeric",
            &[
                "'NaN'",
                "'Infinity'",
                "'-Infinity'",
                "'0'",
                "'-0.00'",
                "'1'",
                "'1.0'",
                "'1.00'",
                "'1e10'",
                "'10000000000'",
                "'1e-10'",
                "'0.0000000001'",
                "'123456789012345678901234567890.12'",
                "'123456789012345678901234567890.120'",
                "'1e300'",
                "'100'",
                "'1e2'",
                "'0.1'",
                "'.01'",
            ],
        )
    },
    Case {
        name: "numeric of the publisher in numeric(9,2)",
        column: "numeric(9,2)",
        random: Some(decimal),
        meets: Meets::Often,
        ..case(
            "numeric",
            "pg_catalog.numeric",
            &["'1.00'", "'1.004'", "'1.005'", "'1.01'"],
        )
    },
    Case {
        random: Some(float),
        ..case(
            "float8",
            "pg_catalog.float8",
            &[
                "'0'",
                "'-0'",
                "'NaN'",
                "'Infinity'",
                "'-Infinity'",
                "'5e-324'",
                "'1e308'",
                "'0.1'",
                "'0.10000000000000001'",
                "'-216237.00000035969'",
                "'1'",
                "'1.0'",
            ],
        )
    },
    Case {
        random: Some(float),
        ..case(
            "float4",
            "pg_catalog.float4",
            &[
                "'0'",
                "'-0'",
                "'NaN'",
                "'-Infinity'",
                "'1e-45'",
                "'16777216'",
                "'16777217'",
                "'0.1'",
            ],
        )
    },
    Case {
        name: "float4 of the publisher in float8",
        column: "float8",
        random: Some(float),
        ..case(
            "float4",
            "pg_catalog.float4",
            &["'0.1'", "'-0'", "'0'", "'16777217'"],
        )
    },
    Case {
        name: "float8 of the publisher in float4",
        column: "float4",
        random: Some(float),
        meets: Meets::Seldom,
        ..case(
            "float8",
            "pg_catalog.float8",
            &["'0.1'", "'0.10000000149'", "'-0'", "'0'", "'1e-40'"],
        )
    },
    Case {
        name: "numeric of the publisher in float8",
        column: "float8",
        random: Some(decimal),
        ..case(
            "numeric",
            "pg_catalog.numeric",
            &["'0.1'", "'0.10'", "'0.10000000000000001'", "'NaN'"],
        )
    },
    Case {
        name: "int4 of the publisher in numeric",
        column: "numeric",
        random: Some(integer),
        ..case("int4", "pg_catalog.int4", &["'100'", "'1000000'"])
    },
    Case {
        name: "text of the publisher in numeric",
        column: "numeric",
        meets: Meets::Often,
        ..case(
            "text",
            "pg_catalog.text",
            &["'1.0'", "'1'", "' 1'", "'+1'", "'01.00'", "'2'", "'3'"],
        )
    },
    Case {
        name: "text of the publisher in timestamptz",
        column: "timestamptz",
        random: Some(moment),
        meets: Meets::Often,
        ..case("text", "pg_catalog.text", &[])
    },
];
