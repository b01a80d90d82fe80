//! Names: PostgreSQL's into Avro's, one to one, and the registry's subjects.
//!
//! Avro allows `[A-Za-z_][A-Za-z0-9_]*`, PostgreSQL anything. The escaping is SQL/XML's idea: a
//! character that Avro does not allow becomes `_xHHHH_` (its code point in upper-case
//! hexadecimal, at least four digits), a digit in front likewise, and the `_` of a literal `_x`
//! becomes `_x005F_`. So ordinary names stay as they are, and two names never become one: every
//! `_x` in an escaped name starts an escape. An empty name becomes `_x_`.
//!
//! Invariant: `unescape(escape(name)) == Some(name)`, and `unescape` refuses what `escape` does
//! not write.

use std::fmt::Write as _;

/// The Avro name of a PostgreSQL name.
pub fn escape(name: &str) -> String {
    if name.is_empty() {
        return "_x_".to_owned();
    }
    let mut escaped = String::with_capacity(name.len());
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        let kept = match character {
            '_' => characters.peek() != Some(&'x'),
            '0'..='9' => !escaped.is_empty(),
            'a'..='z' | 'A'..='Z' => true,
            _ => false,
        };
        if kept {
            escaped.push(character);
        } else {
            // Writing into a String cannot fail.
            let _ = write!(escaped, "_x{:04X}_", u32::from(character));
        }
    }
    escaped
}

/// The PostgreSQL name of an Avro name.
pub fn unescape(escaped: &str) -> Option<String> {
    if escaped == "_x_" {
        return Some(String::new());
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((before, behind)) = rest.split_once("_x") {
        let (digits, tail) = behind.split_once('_')?;
        name.push_str(before);
        name.push(
            u32::from_str_radix(digits, 16)
                .ok()
                .and_then(char::from_u32)?,
        );
        rest = tail;
    }
    name.push_str(rest);
    (escape(&name) == escaped).then_some(name)
}

/// The subject of the envelope's schema.
pub fn envelope_subject(topic: &str) -> String {
    format!("{topic}-value")
}

/// The subject of a table's schema: `<topic>.<schema>.<table>`, both escaped. One to one for all
/// topics together: an escaped name has no dot.
pub fn table_subject(topic: &str, schema: &str, table: &str) -> String {
    format!("{topic}.{}.{}", escape(schema), escape(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping() {
        let check = |name: &str, expected: &str| {
            assert_eq!(escape(name), expected);
            assert_eq!(unescape(expected).as_deref(), Some(name));
        };
        check("order_id", "order_id");
        check("UPPER", "UPPER");
        check("_private", "_private");
        check("a.b", "a_x002E_b");
        check("Weird \"T.able", "Weird_x0020__x0022_T_x002E_able");
        check("Ünï Cødé", "_x00DC_n_x00EF__x0020_C_x00F8_d_x00E9_");
        check("1st", "_x0031_st");
        check("x1", "x1");
        check("_x002E_", "_x005F_x002E_");
        check("a_x", "a_x005F_x");
        check("__x", "__x005F_x");
        check("_", "_");
        check("__", "__");
        check("-x", "_x002D_x");
        check("-_x", "_x002D__x005F_x");
        check("🐘", "_x1F418_");
        check("", "_x_");
    }

    #[test]
    fn what_escape_does_not_write_is_refused() {
        for escaped in [
            "_x",
            "_x41_",
            "_x0041_",
            "_x002e_",
            "_x110000_",
            "a b",
            "_xD800_",
            "1",
        ] {
            assert_eq!(unescape(escaped), None, "{escaped}");
        }
    }

    proptest::proptest! {
        #[test]
        fn one_to_one(name in "(_|x|[0-9A-F]|.){0,12}") {
            let escaped = escape(&name);
            proptest::prop_assert_eq!(unescape(&escaped), Some(name));
            let legal = |c: char| c == '_' || c.is_ascii_alphanumeric();
            proptest::prop_assert!(escaped.chars().all(legal));
            proptest::prop_assert!(!escaped.starts_with(|c: char| c.is_ascii_digit()));
        }
    }
}
