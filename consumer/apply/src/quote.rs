//! Quoting of SQL names. Always quoted, never folded: a name is taken as the catalogue holds it.

/// `"name"`, its quotes doubled.
pub fn identifier(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for character in name.chars() {
        if character == '"' {
            quoted.push('"');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

/// `"schema"."name"`.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_case_dots_and_quotes() {
        assert_eq!(identifier("UPPER a.b"), "\"UPPER a.b\"");
        assert_eq!(identifier("Weird \"T"), "\"Weird \"\"T\"");
        assert_eq!(qualified("My Schema", "select"), "\"My Schema\".\"select\"");
    }
}
