//! A unique column to be tried, and random values for it.

/// What values that are not equal do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meets {
    /// They never meet in a key: the equality is mirrored exactly.
    Never,
    /// Few do.
    Seldom,
    /// Many do: values that the column does not keep as they are may be any.
    Often,
    /// All do: one key stands for all values, and it is said why.
    Always,
}

/// A unique column on the subscriber, and what the publisher writes into it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The publisher's type, to cast to.
    pub(crate) published: &'static str,
    /// Its name in the log.
    pub(crate) type_name: &'static str,
    /// The subscriber's column.
    pub(crate) column: &'static str,
    /// What makes the column unique on `t`.
    pub(crate) index: &'static str,
    /// When the index takes `a.v` and `b.v` for one.
    pub(crate) equal: &'static str,
    pub(crate) values: &'static [&'static str],
    pub(crate) random: Option<fn(&mut Random) -> String>,
    pub(crate) meets: Meets,
    /// The type is one of [`OBJECTS`].
    pub(crate) published_by_subscriber: bool,
}

/// Types and collations of the subscriber.
pub(crate) const OBJECTS: &str = "
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'Ok', 'happy');
CREATE DOMAIN price AS numeric(12, 4);
CREATE DOMAIN dearer AS price;
CREATE TYPE pair AS (a int, b numeric);
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION turkish (provider = icu, locale = 'tr');
CREATE COLLATION lithuanian (provider = icu, locale = 'lt');
CREATE COLLATION german (provider = icu, locale = 'de')";

/// Numbers from a seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

const UNIQUE: &str = "ALTER TABLE t ADD UNIQUE (v)";
const EQUAL: &str = "a.v = b.v";

/// A type of `pg_catalog` that is the same on both sides.
pub(crate) const fn case(
    published: &'static str,
    type_name: &'static str,
    values: &'static [&'static str],
) -> Case {
    Case {
        name: published,
        published,
        type_name,
        column: published,
        index: UNIQUE,
        equal: EQUAL,
        values,
        random: None,
        meets: Meets::Never,
        published_by_subscriber: false,
    }
}

pub(crate) fn integer(random: &mut Random) -> String {
    format!("'{}'", random.below(40) as i64 - 20)
}

pub(crate) fn decimal(random: &mut Random) -> String {
    let sign = random.pick(&["", "-"]);
    let zeros = random.pick(&["", "0", "000"]);
    let whole = random.below(3) * random.below(1000);
    match random.below(3) {
        0 => format!("'{sign}{whole}'"),
        1 => format!("'{sign}{whole}.{}{zeros}'", random.below(4)),
        _ => format!("'{sign}{whole}.{}{zeros}'", random.below(300)),
    }
}

pub(crate) fn float(random: &mut Random) -> String {
    let exponent = random.pick(&["", "e1", "e-3", "e20", "e-20"]);
    format!("'{}.{}{exponent}'", random.below(5), random.below(40))
}

pub(crate) fn word(random: &mut Random) -> String {
    const LETTERS: &[&str] = &[
        "a", "A", "b", "B", "i", "I", "ı", "İ", "k", "K", "\u{212a}", "ß", "SS", "ss", "é", "É",
        "e\u{301}", "j\u{301}", "J\u{301}", "I\u{300}", "σ", "Σ", "ς", "ſ", "ﬁ", "Å", "å", " ",
    ];
    let length = random.below(4);
    let letters: Vec<&str> = (0..length).map(|_| random.pick(LETTERS)).collect();
    format!("'{}'", letters.concat())
}

pub(crate) fn mail(random: &mut Random) -> String {
    let name = random.pick(&["kim", "Kim", "KIM", "rita", "bob", "Bob"]);
    format!("'{name}{}@example.org'", random.below(20))
}

pub(crate) fn span(random: &mut Random) -> String {
    format!(
        "'{} mons {} days {}:00:00'",
        random.below(3) as i64 - 1,
        random.below(61) as i64 - 30,
        random.below(49) as i64 - 24
    )
}

pub(crate) fn moment(random: &mut Random) -> String {
    let zone = random.pick(&["+00", "+02", "-03:30"]);
    let fraction = random.pick(&["", ".5", ".50", ".000001"]);
    let (day, hour) = (1 + random.below(2), random.below(24));
    format!(
        "'2026-03-{day:02} {hour:02}:{:02}:00{fraction}{zone}'",
        random.below(2) * 30
    )
}

pub(crate) fn numbers_range(random: &mut Random) -> String {
    let (open, close) = (random.pick(&["[", "("]), random.pick(&["]", ")"]));
    let lower = random.below(3);
    let upper = lower + random.below(3);
    let zeros = random.pick(&["", ".0", ".00"]);
    format!("'{open}{lower}{zeros},{upper}{close}'")
}

pub(crate) fn integers_range(random: &mut Random) -> String {
    let (open, close) = (random.pick(&["[", "("]), random.pick(&["]", ")"]));
    let lower = random.below(4);
    format!("'{open}{lower},{}{close}'", lower + random.below(3))
}

pub(crate) fn json(random: &mut Random) -> String {
    let number = random.pick(&["1", "1.0", "1.00", "-0", "0", "1e2", "100", "\"1\"", "null"]);
    let key = random.pick(&["a", "b", "1.0", "\\\"x"]);
    format!("'{{\"z\": [{number}, true], \"{key}\": {number}}}'")
}

pub(crate) fn numbers(random: &mut Random) -> String {
    let number = |random: &mut Random| random.pick(&["1", "1.0", "NULL", "2.50", "2.5"]);
    let (one, other) = (number(random), number(random));
    let bounds = random.pick(&["", "[0:1]=", "[1:2]="]);
    format!("'{bounds}{{{one},{other}}}'")
}

pub(crate) fn address(random: &mut Random) -> String {
    let bits = random.pick(&["", "/32", "/24", "/8"]);
    format!("'10.0.{}.{}{bits}'", random.below(2), random.below(3))
}
