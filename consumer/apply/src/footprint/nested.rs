//! Canonical forms of values that hold other values: arrays, ranges, multiranges, jsonb.
//!
//! As strict as [`super::scalar`]: the form is that of the type's own output function. Quotes are
//! taken off, so that how a value had to be quoted does not matter.

use std::borrow::Cow;

use super::digest::Digest;
use super::kind::Kind;
use super::scalar;

const NULL: u64 = 1;
const VALUE: u64 = 2;
const INFINITE: u64 = 3;

/// `{1,NULL,"x"}`, `[0:1]={…}`: equal if lower bounds, lengths and elements are.
pub(super) fn array(text: &[u8], element: &Kind, digest: &mut Digest) -> Option<()> {
    let mut rest = bounds(text, digest)?;
    let mut depth = 0_usize;
    // What stands before: a brace, a comma, or an element, which is written as a quote.
    let mut before = b',';
    loop {
        let (&byte, tail) = rest.split_first()?;
        let begins = matches!(before, b'{' | b',');
        match byte {
            b'{' if begins => depth += 1,
            _ if depth == 0 => return None,
            b'}' if before == b'{' && (depth != 1 || !tail.is_empty()) => return None,
            b'}' if before != b',' => depth -= 1,
            b',' if !begins => {}
            _ if !begins => return None,
            b'"' => {
                let (value, after) = quoted(rest, false)?;
                digest.word(VALUE);
                element.text(&value, digest)?;
                (before, rest) = (b'"', after);
                continue;
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}');
                let value = &rest[..rest.iter().position(ends)?];
                plain(value)?;
                if value == b"NULL" {
                    digest.word(NULL);
                } else {
                    digest.word(VALUE);
                    element.text(value, digest)?;
                }
                (before, rest) = (b'"', &rest[value.len()..]);
                continue;
            }
        }
        digest.word(u64::from(byte) << 8);
        (before, rest) = (byte, tail);
        if depth == 0 {
            return rest.is_empty().then_some(());
        }
    }
}

/// Takes `[0:1][3:4]=` off, which stands there only if not all lower bounds are 1.
fn bounds<'a>(text: &'a [u8], digest: &mut Digest) -> Option<&'a [u8]> {
    if text.first() != Some(&b'[') {
        return Some(text);
    }
    let end = text.iter().position(|&byte| byte == b'=')?;
    let bounds = std::str::from_utf8(&text[..end]).ok()?;
    let mut moved = false;
    for bound in bounds.strip_prefix('[')?.strip_suffix(']')?.split("][") {
        let (lower, upper) = bound.split_once(':')?;
        scalar::integer(upper.as_bytes())?;
        moved |= scalar::integer(lower.as_bytes())? != 1;
    }
    digest.bytes(bounds.as_bytes());
    moved.then_some(&text[end + 1..])
}

/// An element that needs no quotes.
fn plain(value: &[u8]) -> Option<()> {
    let other_null = value.eq_ignore_ascii_case(b"null") && value != b"NULL";
    let special = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\\' | b'{');
    let fits = !value.is_empty() && !other_null && !value.iter().any(special);
    (fits && !value.contains(&0x0b)).then_some(())
}

/// Takes a quoted value off: `\` in front of a byte stands for the byte, and so may a doubled
/// quote.
fn quoted(text: &[u8], doubles: bool) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let inner = text.strip_prefix(b"\"")?;
    let special = |byte: &u8| matches!(byte, b'"' | b'\\');
    let first = inner.iter().position(special)?;
    if inner[first] == b'"' && !(doubles && inner.get(first + 1) == Some(&b'"')) {
        return Some((Cow::Borrowed(&inner[..first]), &inner[first + 1..]));
    }
    let mut value = Vec::with_capacity(inner.len());
    let mut rest = inner;
    loop {
        let (&byte, tail) = rest.split_first()?;
        let after = tail.split_first();
        rest = match (byte, after) {
            (b'"', Some((b'"', after))) if doubles => {
                value.push(b'"');
                after
            }
            (b'"', _) => return Some((Cow::Owned(value), tail)),
            (b'\\', Some((&escaped, after))) => {
                value.push(escaped);
                after
            }
            _ => {
                value.push(byte);
                tail
            }
        };
    }
}

/// `[1,5)`, `(,"a b"]`, `empty`.
pub(super) fn range(text: &[u8], bound: &Kind, digest: &mut Digest) -> Option<()> {
    let rest = one_range(text, bound, digest)?;
    rest.is_empty().then_some(())
}

/// `{[1,5),[7,9)}`.
pub(super) fn multirange(text: &[u8], bound: &Kind, digest: &mut Digest) -> Option<()> {
    let mut rest = text.strip_prefix(b"{")?;
    let mut count = 0;
    while rest != b"}" {
        if count > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        rest = one_range(rest, bound, digest)?;
        count += 1;
    }
    digest.word(count);
    Some(())
}

fn one_range<'a>(text: &'a [u8], kind: &Kind, digest: &mut Digest) -> Option<&'a [u8]> {
    if let Some(rest) = text.strip_prefix(b"empty") {
        digest.word(0);
        return Some(rest);
    }
    let (&open, rest) = text.split_first()?;
    let rest = bound(rest, kind, digest)?.strip_prefix(b",")?;
    let (&close, rest) = bound(rest, kind, digest)?.split_first()?;
    let inclusive = match (open, close) {
        (b'[' | b'(', b']' | b')') => u64::from(open == b'[') << 1 | u64::from(close == b']'),
        _ => return None,
    };
    digest.word(inclusive);
    Some(rest)
}

fn bound<'a>(text: &'a [u8], kind: &Kind, digest: &mut Digest) -> Option<&'a [u8]> {
    if text.first() == Some(&b'"') {
        let (value, rest) = quoted(text, true)?;
        digest.word(VALUE);
        kind.text(&value, digest)?;
        return Some(rest);
    }
    let ends = |byte: &u8| matches!(byte, b',' | b')' | b']');
    let (value, rest) = text.split_at(text.iter().position(ends)?);
    if value.is_empty() {
        digest.word(INFINITE);
    } else {
        plain(value)?;
        digest.word(VALUE);
        kind.text(value, digest)?;
    }
    Some(rest)
}

/// jsonb as it is written; numbers as numerics, so that 1.0 is 1.00.
pub(super) fn jsonb(text: &[u8], digest: &mut Digest) -> Option<()> {
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let length = match byte {
            b'"' => string(rest)?,
            b'-' | b'0'..=b'9' => {
                let inside = |byte: &u8| !matches!(byte, b',' | b']' | b'}' | b' ' | b':');
                let length = rest.iter().take_while(|byte| inside(byte)).count();
                digest.word(VALUE);
                Kind::Numeric(None).text(&rest[..length], digest)?;
                rest = &rest[length..];
                continue;
            }
            _ => 1,
        };
        let (part, tail) = rest.split_at(length);
        if byte != b' ' {
            digest.bytes(part);
        }
        rest = tail;
    }
    Some(())
}

/// How long the string at the beginning is, with its quotes.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}
