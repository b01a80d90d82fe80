//! The password file: `host:port:database:user:password` lines, first match wins.
//!
//! As libpq reads it: `*` matches anything, a backslash takes the next character as it is, lines
//! that begin with `#` are comments, and a file that others may read is not used.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a line has to match.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub host: &'a str,
    pub port: u16,
    pub database: &'a str,
    pub user: &'a str,
}

/// Files that are known not to be used: a process opens many connections and says so once.
static UNUSED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Whether this file is met for the first time.
fn is_news(known: &Mutex<BTreeSet<PathBuf>>, file: &Path) -> bool {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert(file.to_owned())
}

/// Looks the password up; a file that is not there, or that others may read, has none.
pub(crate) fn look_up(file: &Path, wanted: Wanted<'_>) -> Option<String> {
    let metadata = std::fs::metadata(file).ok()?;
    let problem = if !metadata.is_file() {
        Some("is not a plain file and is not used")
    } else if metadata.permissions().mode() & 0o077 != 0 {
        Some("has group or world access and is not used; permissions should be u=rw (0600) or less")
    } else {
        None
    };
    if let Some(problem) = problem {
        if is_news(&UNUSED, file) {
            tracing::warn!("password file \"{}\" {problem}", file.display());
        }
        return None;
    }
    find(&std::fs::read_to_string(file).ok()?, wanted)
}

fn find(text: &str, wanted: Wanted<'_>) -> Option<String> {
    let port = wanted.port.to_string();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for value in [wanted.host, &port, wanted.database, wanted.user] {
                let (field, after) = field(rest);
                rest = after?;
                if field != "*" && unescape(field) != value {
                    return None;
                }
            }
            let (password, _) = field(rest);
            (!password.is_empty()).then(|| unescape(password))
        })
}

/// The text up to the next colon that is not escaped, and what is behind it.
fn field(text: &str) -> (&str, Option<&str>) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ':' => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => out.extend(rest.next()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches() {
        let wanted = Wanted {
            host: "h",
            port: 5432,
            database: "d",
            user: "u",
        };
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(find(text, wanted).as_deref(), expected, "{text:?}");
        };
        check("h:5432:d:u:p", Some("p"));
        check("*:*:*:*:p", Some("p"));
        check(
            "# c\n\nx:5432:d:u:no\nh:*:d:u:yes\nh:*:*:*:late",
            Some("yes"),
        );
        check("h:5432:d:u:a\\:b\\\\c", Some("a:b\\c"));
        check("h:5432:d:u:a:rest", Some("a"));
        check("h:5433:d:u:p", None);
        check("h:5432:d:u", None);
        check("h:5432:d:u:", None);
        check("\\*:*:*:*:p", None);
        check("", None);
    }

    #[test]
    fn a_file_that_is_not_used_is_told_once() {
        let known = Mutex::default();
        let told: Vec<bool> = ["/a", "/a", "/b", "/a"]
            .into_iter()
            .map(|file| is_news(&known, Path::new(file)))
            .collect();
        assert_eq!(told, [true, false, true, false]);
    }

    #[test]
    fn names_with_colons() {
        let wanted = Wanted {
            host: "::1",
            port: 1,
            database: "a:b",
            user: "u",
        };
        let text = "\\:\\:1:1:a\\:b:u:p";
        assert_eq!(find(text, wanted).as_deref(), Some("p"));
    }
}
