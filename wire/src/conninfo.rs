//! Connection strings: libpq's two spellings → pairs of parameter and value.
//!
//! Syntax only; what a value means is judged in `connect_options`. Errors name the parameter or
//! the place, never a value: a password may stand where it is not expected.

use crate::error::Error;

/// A parameter and what was given for it, in the order given.
pub(crate) type Settings = Vec<(String, String)>;

/// Reads either spelling.
pub(crate) fn parse(text: &str) -> Result<Settings, Error> {
    match strip_scheme(text) {
        Some(rest) => parse_url(rest),
        None => parse_pairs(text),
    }
}

fn strip_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://")
        .or_else(|| text.strip_prefix("postgres://"))
}

/// `name = value` pairs; values may be quoted, and a backslash takes the next character as it is.
fn parse_pairs(text: &str) -> Result<Settings, Error> {
    let mut settings = Settings::new();
    let mut rest = text.char_indices().peekable();
    loop {
        while rest.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let Some(&(at, _)) = rest.peek() else {
            return Ok(settings);
        };
        let mut name = String::new();
        while let Some((_, c)) = rest.next_if(|(_, c)| *c != '=' && !c.is_whitespace()) {
            name.push(c);
        }
        while rest.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        if name.is_empty() || rest.next_if(|(_, c)| *c == '=').is_none() {
            return Err(Error::configuration(format!(
                "missing \"=\" after the word at character {} of the connection string",
                text[..at].chars().count() + 1
            )));
        }
        while rest.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let value = pair_value(&mut rest, &name)?;
        settings.push((name, value));
    }
}

fn pair_value(
    rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    name: &str,
) -> Result<String, Error> {
    let quoted = rest.next_if(|(_, c)| *c == '\'').is_some();
    let mut value = String::new();
    loop {
        match rest.next_if(|(_, c)| quoted || !c.is_whitespace()) {
            Some((_, '\'')) if quoted => return Ok(value),
            Some((_, '\\')) => match rest.next() {
                Some((_, c)) => value.push(c),
                None if quoted => {}
                None => return Ok(value),
            },
            Some((_, c)) => value.push(c),
            None if quoted => {
                return Err(Error::configuration(format!(
                    "unterminated quoted string for connection parameter \"{name}\""
                )));
            }
            None => return Ok(value),
        }
    }
}

/// `[user[:password]@][host[:port][,…]][/dbname][?name=value[&…]]`, all of it percent-encoded.
fn parse_url(rest: &str) -> Result<Settings, Error> {
    let mut settings = Settings::new();
    // A password may hold a "?" but no "/", as libpq has it.
    let rest = match rest.find(['@', '/']) {
        Some(at) if rest[at..].starts_with('@') => {
            let (user, password) = match rest[..at].split_once(':') {
                Some((user, password)) => (user, password),
                None => (&rest[..at], ""),
            };
            push_decoded(&mut settings, "user", user)?;
            push_decoded(&mut settings, "password", password)?;
            &rest[at + 1..]
        }
        _ => rest,
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (hosts, database) = match rest.split_once('/') {
        Some((hosts, database)) => (hosts, Some(database)),
        None => (rest, None),
    };
    url_hosts(&mut settings, hosts)?;
    if let Some(database) = database {
        push_decoded(&mut settings, "dbname", database)?;
    }
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::configuration(
                "missing \"=\" in the query part of the connection string",
            ));
        };
        let name = decode(name, "a parameter's name")?;
        let value = decode(value, &name)?;
        // What JDBC URLs say.
        match (name.as_str(), value.as_str()) {
            ("ssl", "true") => settings.push(("sslmode".to_owned(), "require".to_owned())),
            _ => settings.push((name, value)),
        }
    }
    Ok(settings)
}

fn url_hosts(settings: &mut Settings, hosts: &str) -> Result<(), Error> {
    if hosts.is_empty() {
        return Ok(());
    }
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for host in hosts.split(',') {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let Some((name, after)) = rest.split_once(']') else {
                    return Err(Error::configuration(
                        "missing \"]\" behind an IPv6 address in the connection string",
                    ));
                };
                match after.strip_prefix(':') {
                    Some(port) => (name, port),
                    None if after.is_empty() => (name, ""),
                    None => {
                        return Err(Error::configuration(
                            "expected \":\" or \"/\" behind an IPv6 address in the connection \
                             string",
                        ));
                    }
                }
            }
            None => host.split_once(':').unwrap_or((host, "")),
        };
        names.push(decode(name, "host")?);
        ports.push(decode(port, "port")?);
    }
    settings.push(("host".to_owned(), names.join(",")));
    if ports.iter().any(|port| !port.is_empty()) {
        settings.push(("port".to_owned(), ports.join(",")));
    }
    Ok(())
}

fn push_decoded(settings: &mut Settings, name: &str, value: &str) -> Result<(), Error> {
    if !value.is_empty() {
        settings.push((name.to_owned(), decode(value, name)?));
    }
    Ok(())
}

fn decode(text: &str, what: &str) -> Result<String, Error> {
    let refuse = || {
        Error::configuration(format!(
            "invalid percent-encoding of {what} in the connection string"
        ))
    };
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) if high + low > 0 => out.push((high * 16 + low) as u8),
            _ => return Err(refuse()),
        }
    }
    String::from_utf8(out).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let settings = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let settings: Vec<_> = settings
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(settings, expected, "{text}");
    }

    fn check_refused(text: &str, expected: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn pairs() {
        check("", &[]);
        check("host=h port=5", &[("host", "h"), ("port", "5")]);
        check("  host = h  port=5 ", &[("host", "h"), ("port", "5")]);
        check("password='a b\\'c\\\\'", &[("password", "a b'c\\")]);
        check(
            "password=a\\ b user=u",
            &[("password", "a b"), ("user", "u")],
        );
        check("password='' user=u", &[("password", ""), ("user", "u")]);
        check("options='-c a=b'", &[("options", "-c a=b")]);
        check("user=Jürgen", &[("user", "Jürgen")]);
        check_refused(
            "host=h secret",
            "missing \"=\" after the word at character 8 of the connection string",
        );
        check_refused(
            "=x",
            "missing \"=\" after the word at character 1 of the connection string",
        );
        check_refused(
            "password='secret",
            "unterminated quoted string for connection parameter \"password\"",
        );
    }

    #[test]
    fn urls() {
        check("postgresql://", &[]);
        check("postgres://h", &[("host", "h")]);
        check(
            "postgresql://h:5433/d",
            &[("host", "h"), ("port", "5433"), ("dbname", "d")],
        );
        check(
            "postgresql://u:p%40%3A@h/d?sslmode=require&application_name=a%20b",
            &[
                ("user", "u"),
                ("password", "p@:"),
                ("host", "h"),
                ("dbname", "d"),
                ("sslmode", "require"),
                ("application_name", "a b"),
            ],
        );
        check("postgresql://u@/d", &[("user", "u"), ("dbname", "d")]);
        check(
            "postgresql:///d?host=/tmp",
            &[("dbname", "d"), ("host", "/tmp")],
        );
        check(
            "postgresql://%2Fvar%2Frun/d",
            &[("host", "/var/run"), ("dbname", "d")],
        );
        check(
            "postgresql://[::1]:5/d",
            &[("host", "::1"), ("port", "5"), ("dbname", "d")],
        );
        check("postgresql://[::1]", &[("host", "::1")]);
        check(
            "postgresql://a:1,b,[::2]:3/d",
            &[("host", "a,b,::2"), ("port", "1,,3"), ("dbname", "d")],
        );
        check(
            "postgresql://h/?ssl=true",
            &[("host", "h"), ("sslmode", "require")],
        );
        check_refused(
            "postgresql://[::1",
            "missing \"]\" behind an IPv6 address in the connection string",
        );
        check_refused(
            "postgresql://u:%zz@h",
            "invalid percent-encoding of password in the connection string",
        );
        check_refused(
            "postgresql://u:%00@h",
            "invalid percent-encoding of password in the connection string",
        );
        check_refused(
            "postgresql://h?x",
            "missing \"=\" in the query part of the connection string",
        );
    }
}
