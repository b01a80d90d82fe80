//! Canonical forms of dates, times and intervals in PostgreSQL's text.
//!
//! But for intervals, equal values are written alike; the functions check that the text is just
//! what the type's output function writes, and give it back.

use std::str::from_utf8;

use super::digest::Digest;

/// How a clock's time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Digits of a second that the column keeps.
    pub(crate) digits_max: usize,
    /// Its zone.
    pub(crate) zone: Zone,
}

/// The zone of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// None is written.
    None,
    /// Always `+00`.
    Utc,
    /// Part of the value: two times at the same moment in other zones are not equal.
    Any,
}

/// Takes a byte off.
fn byte(rest: &mut &[u8], wanted: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[wanted])?;
    Some(())
}

/// Takes a number of two digits off.
fn pair(rest: &mut &[u8], most: u8) -> Option<u8> {
    let ([tens @ b'0'..=b'9', ones @ b'0'..=b'9'], tail) = rest.split_first_chunk()? else {
        return None;
    };
    *rest = tail;
    let number = (tens - b'0') * 10 + (ones - b'0');
    (number <= most).then_some(number)
}

/// Takes a year, month and day off: a year has four digits, or as many as it needs.
fn calendar(rest: &mut &[u8]) -> Option<()> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits < 4 || digits > 4 && rest.first() == Some(&b'0') {
        return None;
    }
    *rest = &rest[digits..];
    byte(rest, b'-')?;
    pair(rest, 12)?;
    byte(rest, b'-')?;
    pair(rest, 31)?;
    Some(())
}

/// Takes a time off; digits of a second have no zeros at their end.
fn time(rest: &mut &[u8], hour_max: u8, digits_max: usize) -> Option<()> {
    pair(rest, hour_max)?;
    minutes(rest, digits_max)
}

fn minutes(rest: &mut &[u8], digits_max: usize) -> Option<()> {
    byte(rest, b':')?;
    pair(rest, 59)?;
    byte(rest, b':')?;
    pair(rest, 59)?;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        if digits == 0 || digits > digits_max.min(6) || fraction[digits - 1] == b'0' {
            return None;
        }
        *rest = &fraction[digits..];
    }
    Some(())
}

fn zone(rest: &mut &[u8], zone: Zone) -> Option<()> {
    match zone {
        Zone::None => {}
        Zone::Utc => *rest = rest.strip_prefix(b"+00")?,
        Zone::Any => {
            let [sign @ (b'+' | b'-'), tail @ ..] = *rest else {
                return None;
            };
            *rest = tail;
            let hour = pair(rest, 15)?;
            let (mut minute, mut second) = (None, None);
            if rest.first() == Some(&b':') {
                byte(rest, b':')?;
                minute = Some(pair(rest, 59)?);
            }
            if rest.first() == Some(&b':') {
                byte(rest, b':')?;
                second = Some(pair(rest, 59)?);
            }
            let shortest = match (minute, second) {
                (None, _) => hour > 0 || *sign == b'+',
                (Some(minute), None) => minute > 0,
                (Some(_), Some(second)) => second > 0,
            };
            if !shortest {
                return None;
            }
        }
    }
    Some(())
}

fn infinite(text: &[u8]) -> bool {
    matches!(text, b"infinity" | b"-infinity")
}

/// A date as it is written.
pub(super) fn date(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    if !infinite(text) {
        calendar(&mut rest)?;
        matches!(rest, b"" | b" BC").then_some(())?;
    }
    Some(text)
}

/// A time as it is written.
pub(super) fn time_of_day(text: &[u8], clock: Clock) -> Option<&[u8]> {
    let mut rest = text;
    match text.strip_prefix(b"24:00:00") {
        Some(tail) => rest = tail,
        None => time(&mut rest, 23, clock.digits_max)?,
    }
    zone(&mut rest, clock.zone)?;
    rest.is_empty().then_some(text)
}

/// A timestamp as it is written.
pub(super) fn timestamp(text: &[u8], clock: Clock) -> Option<&[u8]> {
    let mut rest = text;
    if !infinite(text) {
        calendar(&mut rest)?;
        byte(&mut rest, b' ')?;
        time(&mut rest, 23, clock.digits_max)?;
        zone(&mut rest, clock.zone)?;
        matches!(rest, b"" | b" BC").then_some(())?;
    }
    Some(text)
}

/// An interval: microseconds, a month taken for 30 days and a day for 24 hours.
pub(super) fn interval(text: &[u8], digest: &mut Digest) -> Option<()> {
    if infinite(text) {
        digest.word(text.len() as u64);
        return Some(());
    }
    const DAY_US: i128 = 86_400_000_000;
    let text = from_utf8(text).ok()?;
    let mut span = 0_i128;
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        if word.contains(':') {
            span += clock_us(word)?;
            words.next().is_none().then_some(())?;
            break;
        }
        let count: i128 = i64::from(word.parse::<i32>().ok()?).into();
        span += count
            * match words.next()? {
                "year" | "years" => 360 * DAY_US,
                "mon" | "mons" => 30 * DAY_US,
                "day" | "days" => DAY_US,
                _ => return None,
            };
    }
    digest.word(100);
    digest.word(span as u64);
    digest.word((span >> 64) as u64);
    Some(())
}

/// `-04:05:06.789`, its hours without bound.
fn clock_us(word: &str) -> Option<i128> {
    let (negative, word) = match word.strip_prefix('-') {
        Some(word) => (true, word),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let hours: i128 = word[..digits].parse().ok()?;
    let mut rest = &word.as_bytes()[digits..];
    let tail = rest;
    minutes(&mut rest, 6)?;
    rest.is_empty().then_some(())?;
    let number = |range: std::ops::Range<usize>| -> Option<i128> {
        from_utf8(tail.get(range)?).ok()?.parse().ok()
    };
    let seconds = (hours * 60 + number(1..3)?) * 60 + number(4..6)?;
    let fraction = tail.get(7..).unwrap_or_default();
    let mut micros = seconds * 1_000_000;
    let mut unit = 100_000;
    for digit in fraction {
        micros += i128::from(digit - b'0') * unit;
        unit /= 10;
    }
    Some(if negative { -micros } else { micros })
}
