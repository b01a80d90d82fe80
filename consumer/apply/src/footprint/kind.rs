//! The equality of a type, as far as it can be mirrored: values that are equal to the database get
//! the same number.
//!
//! A value comes as the log carries it, or as text that PostgreSQL wrote under the pinned settings
//! (`TimeZone` UTC, `DateStyle` ISO, `IntervalStyle` postgres, `lc_monetary` C). The publisher's
//! type need not be the subscriber's, so the forms are strict: a text that is not just what the
//! subscriber's own type would write is no value here (`None`), and whoever asked must then take
//! the value for any value at all.
//!
//! A type that cannot be mirrored has no [`Kind`]: all its values are taken for equal.

use walbraid_schemas::row::Value;
use walbraid_schemas::text::{parse_float4, parse_float8};

use super::digest::Digest;
use super::{clock, nested, scalar};
use crate::keys::{KeyType, TypeForm};
use crate::number;

/// How values of a type are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Booleans.
    Bool,
    /// Integers of any width.
    Int,
    /// Unsigned decimals: oid, xid8.
    Unsigned,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// Numerics of at most so many decimal places.
    Numeric(Option<i32>),
    /// Text, byte by byte: text, enum labels.
    Text,
    /// Text whose spaces at the end do not count: char(n).
    Padded,
    /// Text whose spaces at the end may be cut off on the way in: varchar(n) of another length than
    /// the publisher's.
    Trimmed,
    /// Text without regard to case.
    Folded,
    /// `name`: at most 63 bytes.
    Name,
    /// `"char"`.
    Char,
    /// Bytes.
    Bytea,
    /// Calendar dates.
    Date,
    /// Times of day.
    Time(clock::Clock),
    /// Timestamps.
    Timestamp(clock::Clock),
    /// Intervals: a month has 30 days, a day 24 hours.
    Interval,
    /// UUIDs.
    Uuid,
    /// inet and cidr.
    Inet,
    /// MAC addresses of so many bytes.
    Mac(usize),
    /// Bit strings.
    Bit,
    /// Money.
    Money,
    /// WAL positions.
    Lsn,
    /// jsonb.
    Jsonb,
    /// Arrays.
    Array(Box<Kind>),
    /// Ranges.
    Range(Box<Kind>),
    /// Multiranges.
    Multirange(Box<Kind>),
}

/// The publisher's type of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published<'a> {
    /// As the log has it: `pg_catalog.int4`.
    pub(crate) type_name: &'a str,
    /// Its modifier.
    pub(crate) modifier: i32,
}

impl Published<'_> {
    /// Any type at all.
    pub(crate) const ANY: Self = Self {
        type_name: "",
        modifier: -1,
    };
}

impl Kind {
    /// How values of that type are compared that come from a column of the publisher's type; none
    /// if it cannot be mirrored.
    pub(crate) fn of(key_type: &KeyType, published: Published<'_>) -> Option<Self> {
        if !key_type.stock_equality || !key_type.deterministic {
            return None;
        }
        let kind = match &key_type.form {
            TypeForm::Enum => Self::Text,
            TypeForm::Citext => Self::Folded,
            TypeForm::Array(element) => {
                let element = KeyType {
                    modifier: key_type.modifier,
                    ..KeyType::clone(element)
                };
                let type_name = published.type_name.replacen("._", ".", 1);
                let published = Published {
                    type_name: &type_name,
                    ..published
                };
                Self::Array(Box::new(Self::of(&element, published)?))
            }
            TypeForm::Base => Self::base(key_type.oid, key_type.modifier)?,
        };
        // Their text has several forms for one value, and only the type itself writes the one.
        let same = |name: &str| published.type_name.strip_prefix("pg_catalog.") == Some(name);
        let uncut = same("varchar") && (4..=key_type.modifier).contains(&published.modifier);
        match kind {
            Self::Trimmed if uncut => Some(Self::Text),
            Self::Jsonb if !same("jsonb") => None,
            Self::Range(_) | Self::Multirange(_) if !same(&key_type.name) => None,
            kind => Some(kind),
        }
    }

    fn base(oid: u32, modifier: i32) -> Option<Self> {
        let with_zone = |zone| clock::Clock {
            digits_max: usize::try_from(modifier).unwrap_or(6),
            zone,
        };
        let range = |kind| Self::Range(Box::new(kind));
        let multirange = |kind| Self::Multirange(Box::new(kind));
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            18 => Self::Char,
            19 => Self::Name,
            20 | 21 | 23 => Self::Int,
            26 | 5069 => Self::Unsigned,
            25 => Self::Text,
            650 | 869 => Self::Inet,
            700 => Self::Float4,
            701 => Self::Float8,
            774 => Self::Mac(8),
            790 => Self::Money,
            829 => Self::Mac(6),
            1042 => Self::Padded,
            1043 if modifier == -1 => Self::Text,
            1043 => Self::Trimmed,
            1082 => Self::Date,
            1083 => Self::Time(with_zone(clock::Zone::None)),
            1266 => Self::Time(with_zone(clock::Zone::Any)),
            1114 => Self::Timestamp(with_zone(clock::Zone::None)),
            1184 => Self::Timestamp(with_zone(clock::Zone::Utc)),
            1186 if modifier == -1 => Self::Interval,
            1560 | 1562 => Self::Bit,
            1700 => Self::Numeric((modifier >= 4).then_some(scale(modifier))),
            2950 => Self::Uuid,
            3220 => Self::Lsn,
            3802 => Self::Jsonb,
            3904 | 3926 => range(Self::Int),
            3906 => range(Self::Numeric(None)),
            3908 => range(Self::base(1114, -1)?),
            3910 => range(Self::base(1184, -1)?),
            3912 => range(Self::Date),
            4451 | 4536 => multirange(Self::Int),
            4532 => multirange(Self::Numeric(None)),
            4533 => multirange(Self::base(1114, -1)?),
            4534 => multirange(Self::base(1184, -1)?),
            4535 => multirange(Self::Date),
            _ => return None,
        })
    }

    /// True if values that get the same number are equal.
    pub(crate) fn exact(&self) -> bool {
        match self {
            Self::Trimmed | Self::Folded => false,
            Self::Array(element) => element.exact(),
            _ => true,
        }
    }

    /// The number of a value that is neither NULL nor absent; `None` where it may be any value.
    #[inline]
    pub(crate) fn digest(&self, value: Value<'_>, scratch: &mut Vec<u8>) -> Option<u64> {
        let mut digest = Digest::new(0);
        match (self, value) {
            (Self::Int, Value::Int(value)) => digest.word(value as u64),
            (_, Value::Text(text)) => self.text(text.as_bytes(), &mut digest)?,
            (Self::Bool, Value::Bool(value)) => digest.word(value.into()),
            (Self::Float4, Value::Float4(value)) => float(value.into(), &mut digest),
            (Self::Float8, Value::Float8(value)) => float(value, &mut digest),
            (Self::Bytea, Value::Bytes(bytes)) => digest.bytes(bytes),
            (_, value) => {
                render(value, scratch)?;
                self.text(scratch, &mut digest)?;
            }
        }
        Some(digest.finish())
    }

    /// Adds a value in PostgreSQL's text form. What is added ends by itself.
    pub(crate) fn text(&self, text: &[u8], digest: &mut Digest) -> Option<()> {
        match self {
            Self::Text => digest.bytes(text),
            Self::Int => digest.word(scalar::integer(text)? as u64),
            Self::Padded | Self::Trimmed => digest.bytes(scalar::trimmed(text)),
            Self::Uuid => digest.bytes(scalar::uuid(text)?),
            Self::Numeric(scale) => scalar::numeric(text, *scale, digest)?,
            Self::Timestamp(clock) => digest.bytes(clock::timestamp(text, *clock)?),
            Self::Date => digest.bytes(clock::date(text)?),
            Self::Time(clock) => digest.bytes(clock::time_of_day(text, *clock)?),
            Self::Bool => match text {
                b"t" => digest.word(1),
                b"f" => digest.word(0),
                _ => return None,
            },
            Self::Unsigned => digest.word(scalar::unsigned(text)?),
            Self::Float4 => float(parse_float4(text).ok()?.into(), digest),
            Self::Float8 => float(parse_float8(text).ok()?, digest),
            Self::Folded => scalar::folded(text, digest),
            Self::Name => digest.bytes(Some(text).filter(|text| text.len() <= 63)?),
            Self::Char => digest.bytes(scalar::char(text)?),
            Self::Bytea => scalar::bytea(text, digest)?,
            Self::Interval => clock::interval(text, digest)?,
            Self::Inet => scalar::inet(text, digest)?,
            Self::Mac(bytes) => digest.bytes(scalar::mac(text, *bytes)?),
            Self::Bit => digest.bytes(scalar::bit(text)?),
            Self::Money => scalar::money(text, digest)?,
            Self::Lsn => digest.word(scalar::lsn(text)?),
            Self::Jsonb => nested::jsonb(text, digest)?,
            Self::Array(element) => nested::array(text, element, digest)?,
            Self::Range(bound) => nested::range(text, bound, digest)?,
            Self::Multirange(bound) => nested::multirange(text, bound, digest)?,
        }
        Some(())
    }
}

/// The scale of a numeric's modifier; signed from 15 on, and never beyond what 14 allows.
fn scale(modifier: i32) -> i32 {
    (((modifier - 4) & 0x7ff) ^ 1024) - 1024
}

/// -0 is 0, and all NaN are one.
fn float(value: f64, digest: &mut Digest) {
    let value = if value.is_nan() {
        f64::NAN
    } else {
        value + 0.0
    };
    digest.word(value.to_bits());
}

/// The text that is sent to the subscriber for a typed value whose column there has another type.
pub(super) fn render(value: Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    match value {
        Value::Null | Value::Unchanged | Value::NotSent => return None,
        Value::Bool(value) => out.push(if value { b't' } else { b'f' }),
        Value::Int(value) => number::write_integer(value, out),
        Value::Float4(value) => number::write_float4(value, out),
        Value::Float8(value) => number::write_float8(value, out),
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => number::write_hex(bytes, out),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with `~` between them are equal, those with a space are not, and those behind `!` may
    /// be any value.
    fn check(key_type: &KeyType, published: &str, texts: &str) {
        let published = Published {
            type_name: published,
            modifier: -1,
        };
        let kind = Kind::of(key_type, published).unwrap();
        let number = |text: &str| {
            let text = text.replace('_', " ");
            kind.digest(Value::Text(&text), &mut Vec::new())
        };
        let mut seen: Vec<u64> = Vec::new();
        for class in texts.split(' ') {
            if let Some(text) = class.strip_prefix('!') {
                assert_eq!(number(text), None, "{} {text:?}", key_type.name);
                continue;
            }
            let numbers: Vec<Option<u64>> = class.split('~').map(number).collect();
            let first = numbers[0].unwrap_or_else(|| panic!("{} {class:?}", key_type.name));
            let alike = numbers.iter().all(|number| *number == Some(first));
            assert!(alike, "{} {class:?}", key_type.name);
            assert!(!seen.contains(&first), "{} {class:?}", key_type.name);
            seen.push(first);
        }
    }

    #[test]
    fn single_values() {
        for (oid, name, modifier, texts) in [
            (23, "int4", -1, "0 1 -1 10 !-0 !+1 !01 !_1 !1_ !1.0 !"),
            (26, "oid", -1, "0 4294967295 !-1 !01"),
            (
                1700,
                "numeric",
                -1,
                "0~-0.00~0e5 1~1.0~1.00 -1 10~1e1 !1. !.5 !_1 NaN Infinity",
            ),
            (1700, "numeric", 0x0009_0006, "1.25~1.250 !1.255 !0.001 100"),
            (701, "float8", -1, "0~-0 0.1~0.10 1e3~1000 NaN !0x1"),
            (25, "text", -1, "a A a_ _a é"),
            (1042, "bpchar", -1, "a~a_~a__ A _a"),
            (1043, "varchar", 9, "a~a_ b"),
            (18, "char", -1, "a \\ \\303 !ab !\\103"),
            (
                1082,
                "date",
                -1,
                "2026-01-31 0044-03-15 0044-03-15_BC infinity !44-03-15 !02026-01-01",
            ),
            (
                1083,
                "time",
                -1,
                "00:00:00 24:00:00 01:02:03.5 !01:02:03.50 !1:02:03 !24:00:01",
            ),
            (
                1266,
                "timetz",
                -1,
                "12:00:00+02 14:00:00+04 12:00:00+02:30 !12:00:00+02:00 !12:00:00-00",
            ),
            (
                1184,
                "timestamptz",
                -1,
                "2026-01-31_12:00:00+00 !2026-01-31_12:00:00 !2026-01-31_24:00:00+00",
            ),
            (
                1114,
                "timestamp",
                0,
                "2026-01-31_12:00:00 !2026-01-31_12:00:00.5",
            ),
            (
                1186,
                "interval",
                -1,
                "1_mon~30_days~720:00:00 1_year~12_mons~360_days -1_days~-24:00:00 !1_week",
            ),
            (
                2950,
                "uuid",
                -1,
                "00000000-0000-0000-0000-00000000000a !00000000-0000-0000-0000-00000000000A",
            ),
            (
                869,
                "inet",
                -1,
                "10.0.0.1~10.0.0.1/32 10.0.0.1/24 ::1~::1/128 !10.1 !010.0.0.1",
            ),
            (
                790,
                "money",
                -1,
                "$1,000.00~$1000.00 -$1.00 $0.00 !1.00 !$1",
            ),
            (3220, "pg_lsn", -1, "0/A~0/0000000a A/0 !0A !/1"),
        ] {
            let key_type = KeyType {
                modifier,
                ..KeyType::builtin(oid, name)
            };
            check(&key_type, "pg_catalog.anything", texts);
        }
    }

    #[test]
    fn values_in_values() {
        let array = |element: KeyType| KeyType {
            form: TypeForm::Array(Box::new(element)),
            ..KeyType::builtin(1, "array")
        };
        let numbers = array(KeyType::builtin(1700, "numeric"));
        check(
            &numbers,
            "",
            "{1,2.0}~{1.0,2} {1,NULL} {} [0:1]={1,2} {{1},{2}} !{1,} !{1}{2} !{1",
        );
        check(
            &numbers,
            "",
            "!{null} !{_1} ![1:1]={1} !1,2 !{{}} !{1}} !{{1}",
        );
        let texts = array(KeyType::builtin(25, "text"));
        check(
            &texts,
            "",
            r#"{a}~{"a"}~{"\a"} {NULL} {"NULL"} {"a,b"} {a,b} {""} !{"a""b"} !{a"b"}"#,
        );
        let range = KeyType::builtin(3906, "numrange");
        let ranges = "[1.0,2)~[1,2.00) [1,2] (1,2) (,2) (,) empty ![1,2 ![1] !1,2";
        check(&range, "pg_catalog.numrange", ranges);
        let multirange = KeyType::builtin(4532, "nummultirange");
        let multiranges = "{} {[1,2)}~{[1.0,2)} {[1,2),[3,4)} !{[1,2)";
        check(&multirange, "pg_catalog.nummultirange", multiranges);
        let json = KeyType::builtin(3802, "jsonb");
        let jsons = r#"1.0~1.00 "1.0" "1.00" [1,_2]~[1.0,2] {"a":1.0}~{"a":_1} "a,_1.0" ["\"",1]"#;
        check(&json, "pg_catalog.jsonb", jsons);
    }

    /// However some locale takes case, equal values get one number.
    #[test]
    fn text_without_regard_to_case() {
        let citext = KeyType {
            form: TypeForm::Citext,
            ..KeyType::builtin(99_999, "citext")
        };
        let texts = "Bob~bob~BOB bo~bok~bo\u{212a}~BOİ~boI~boı~éboö ros";
        check(&citext, "pg_catalog.text", texts);
    }

    #[test]
    fn what_cannot_be_mirrored() {
        let none = |key_type: &KeyType, type_name: &str| {
            let published = Published {
                type_name,
                modifier: -1,
            };
            assert_eq!(Kind::of(key_type, published), None, "{}", key_type.name);
        };
        none(&KeyType::builtin(2249, "record"), "pg_catalog.record");
        none(&KeyType::builtin(3802, "jsonb"), "pg_catalog.json");
        none(&KeyType::builtin(3906, "numrange"), "public.numrange");
        let mut text = KeyType::builtin(25, "text");
        text.deterministic = false;
        none(&text, "pg_catalog.text");
        let mut text = KeyType::builtin(25, "text");
        text.stock_equality = false;
        none(&text, "pg_catalog.text");
    }
}
