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
