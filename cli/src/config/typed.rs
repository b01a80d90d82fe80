//! What was typed, before anything is known to be right.
//!
//! Owns the three places a value comes from (the file, the environment, `--set`), their order (each
//! overrides the one before it), and the names: an unknown one is refused here, with the known one
//! nearest to it. Whether a value is right is [`super::validated`]'s. Every value remembers where
//! it was typed, because a message that cannot say so is of little use.
//!
//! Inside `[kafka]` a name that is not ours is a property of librdkafka. Its dots may be quoted
//! (`"linger.ms" = 5`) or not (`linger.ms = 5`, to TOML a table in a table): both are the same.

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{self, Key, SECTIONS};
use super::nearest::nearest;
use super::{Violation, kafka, property};

/// Environment variables that begin like ours and are no keys.
const RESERVED: &[&str] = &["CONFIG", "LOG"];
/// First words of variables that belong to the scripts beside this program.
const RESERVED_PREFIXES: &[&str] = &["STACK", "TEST", "BENCH", "DEMO"];

/// Where a value was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A line of the file, counted from 1.
    File {
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The command line.
    Argument,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { line } => write!(f, "line {line}"),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Argument => write!(f, "--set"),
        }
    }
}

/// A value as it was typed. The environment and `--set` know texts only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    /// A text.
    Text(String),
    /// A whole number, in decimal.
    Integer(String),
    /// `true` or `false`.
    Flag(bool),
    /// A list of texts.
    List(Vec<String>),
    /// Something no key takes; the word for it.
    Other(&'static str),
}

impl Raw {
    /// As librdkafka wants it: it takes texts only.
    pub(crate) fn spelled(&self) -> String {
        match self {
            Self::Text(text) | Self::Integer(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(items) => items.join(","),
            Self::Other(word) => (*word).to_owned(),
        }
    }

    /// What it is, in words.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Other(word) => word,
        }
    }
}

/// A value and where it was typed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The value.
    pub(crate) raw: Raw,
    /// The place.
    pub(crate) source: Source,
}

/// Everything that was typed, by the full name of the key.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    /// The values.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// What is wrong with names and syntax.
    pub(crate) violations: Vec<Violation>,
}

/// Reads all three places.
pub(crate) fn read<'a>(
    text: &str,
    environment: impl IntoIterator<Item = (String, String)>,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Typed {
    let mut typed = Typed::default();
    typed.read_file(text);
    for (variable, value) in environment {
        typed.read_variable(&variable, value);
    }
    for argument in arguments {
        typed.read_argument(argument);
    }
    typed
}

impl Typed {
    fn read_file(&mut self, text: &str) {
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let source = error.span().map(|span| file(text, span.start));
            self.refuse(source, error.message().to_owned(), None);
        }
        for (name, value) in document.get_ref() {
            let source = file(text, name.span().start);
            let name = name.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(section) if SECTIONS.contains(&name) => {
                    self.read_section(text, name, section);
                }
                DeValue::Table(_) => self.unknown_section(name, source),
                value if SECTIONS.contains(&name) => self.refuse(
                    Some(source),
                    format!("\"{name}\" is a section, not a key"),
                    Some(format!(
                        "Write [{name}] and its keys below it; found {}.",
                        word(value)
                    )),
                ),
                value => self.take(name.to_owned(), raw(value), source),
            }
        }
    }

    fn read_section(&mut self, text: &str, path: &str, section: &DeTable<'_>) {
        for (name, value) in section {
            let source = file(text, name.span().start);
            let name = format!("{path}.{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) if path.starts_with("kafka") => {
                    self.read_section(text, &name, inner);
                }
                value => self.take(name, raw(value), source),
            }
        }
    }

    fn read_variable(&mut self, variable: &str, value: String) {
        let Some(rest) = variable.strip_prefix("WALBRAID_") else {
            return;
        };
        let first = rest.split('_').next().unwrap_or_default();
        if RESERVED.contains(&rest) || RESERVED_PREFIXES.contains(&first) {
            return;
        }
        let source = Source::Environment {
            variable: variable.to_owned(),
        };
        match key_of_variable(rest) {
            Some(name) => self.take(name, Raw::Text(value), source),
            None => {
                let known: Vec<String> = names().map(|name| variable_of_key(&name)).collect();
                let hint = nearest(variable, known.iter().map(String::as_str))
                    .map(|meant| format!("Perhaps you meant {meant}."));
                self.refuse(Some(source), "no key has this name".to_owned(), hint);
            }
        }
    }

    fn read_argument(&mut self, argument: &str) {
        match argument.split_once('=') {
            Some((name, value)) => {
                let name = name.trim().replace('"', "");
                self.take(name, Raw::Text(value.to_owned()), Source::Argument);
            }
            None => self.refuse(
                Some(Source::Argument),
                format!("\"{argument}\" has no value"),
                Some("Write --set key=value.".to_owned()),
            ),
        }
    }

    /// Keeps a value if its name is known.
    fn take(&mut self, name: String, raw: Raw, source: Source) {
        let known = match name.strip_prefix("kafka.") {
            Some(rest) => key::find(&name).is_some() || property::scope(rest).is_some(),
            None => key::find(&name).is_some(),
        };
        if known {
            self.entries.insert(name, Entry { raw, source });
            return;
        }
        if let Some(reason) = name.strip_prefix("kafka.").and_then(kafka::no_text) {
            self.refuse(
                Some(source),
                format!("key \"{name}\" cannot be set"),
                Some(reason),
            );
            return;
        }
        let known: Vec<String> = names().collect();
        let hint = nearest(&name, known.iter().map(String::as_str))
            .map(|meant| format!("Perhaps you meant \"{meant}\"."));
        self.refuse(Some(source), format!("unknown key \"{name}\""), hint);
    }

    fn unknown_section(&mut self, name: &str, source: Source) {
        let hint = nearest(name, SECTIONS.iter().copied())
            .map(|meant| format!("Perhaps you meant [{meant}]."));
        self.refuse(Some(source), format!("unknown section [{name}]"), hint);
    }

    fn refuse(&mut self, source: Option<Source>, message: String, hint: Option<String>) {
        self.violations.push(Violation {
            source,
            message,
            hint,
        });
    }
}

/// Every name that may be typed.
fn names() -> impl Iterator<Item = String> {
    let ours = key::KEYS.iter().map(|Key { name, .. }| (*name).to_owned());
    ours.chain(property::all().map(|(name, _)| format!("kafka.{name}")))
}

/// `WALBRAID_PUBLISHER_URL` for `publisher.url`.
pub(crate) fn variable_of_key(name: &str) -> String {
    format!("WALBRAID_{}", name.replace('.', "_").to_uppercase())
}

/// The key a variable stands for; the variable comes without `WALBRAID_`.
fn key_of_variable(rest: &str) -> Option<String> {
    if rest == "KAFKA" {
        return Some("kafka.bootstrap.servers".to_owned());
    }
    let variable = format!("WALBRAID_{rest}");
    names().find(|name| variable_of_key(name) == variable)
}

fn file(text: &str, at: usize) -> Source {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    Source::File {
        line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Raw::Integer(number.to_string()),
            Err(_) => Raw::Integer(number.to_string()),
        },
        DeValue::Float(number) => Raw::Text(number.to_string()),
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Array(items) => items
            .iter()
            .map(|item| match Spanned::get_ref(item) {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map_or(Raw::Other("a list of other things than texts"), Raw::List),
        DeValue::Table(_) | DeValue::Datetime(_) => Raw::Other(word(value)),
    }
}

fn word(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Typed {
        read(text, [], [])
    }

    #[test]
    fn later_places_override_earlier_ones() {
        let text = "stream = \"file\"\n[publisher]\nslot = \"file\"\n[kafka]\nlinger.ms = 5\n";
        let environment = [
            ("WALBRAID_PUBLISHER_SLOT", "variable"),
            ("WALBRAID_KAFKA_LINGER_MS", "7"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let typed = read(text, environment, ["publisher.slot=argument"]);
        assert_eq!(typed.violations, []);
        let check = |name: &str, raw: Raw| assert_eq!(typed.entries[name].raw, raw, "{name}");
        check("stream", Raw::Text("file".to_owned()));
        check("publisher.slot", Raw::Text("argument".to_owned()));
        check("kafka.linger.ms", Raw::Text("7".to_owned()));
        assert_eq!(typed.entries["stream"].source, Source::File { line: 1 });
    }

    #[test]
    fn dots_of_properties_need_no_quotes() {
        let check = |text| {
            let typed = typed(text);
            assert_eq!(typed.violations, [], "{text}");
            assert!(
                typed.entries.contains_key("kafka.bootstrap.servers"),
                "{text}"
            );
        };
        check("[kafka]\n\"bootstrap.servers\" = \"h:1\"");
        check("[kafka]\nbootstrap.servers = \"h:1\"");
        check("[kafka.bootstrap]\nservers = \"h:1\"");
        check("kafka.bootstrap.servers = \"h:1\"");
    }

    #[test]
    fn unknown_names_are_refused_with_the_one_that_was_meant() {
        let check = |text, message: &str, hint: Option<&str>| {
            let violations = typed(text).violations;
            assert_eq!(violations.len(), 1, "{violations:?}");
            assert_eq!(violations[0].message, message);
            assert_eq!(violations[0].hint.as_deref(), hint);
        };
        check(
            "[publisher]\npubication = \"p\"",
            "unknown key \"publisher.pubication\"",
            Some("Perhaps you meant \"publisher.publication\"."),
        );
        check(
            "[kafka]\nlinger.sm = 4",
            "unknown key \"kafka.linger.sm\"",
            Some("Perhaps you meant \"kafka.linger.ms\"."),
        );
        check(
            "[publihser]\nurl = \"\"",
            "unknown section [publihser]",
            Some("Perhaps you meant [publisher]."),
        );
        check("zzz = 1", "unknown key \"zzz\"", None);
        check(
            "kafka = 1",
            "\"kafka\" is a section, not a key",
            Some("Write [kafka] and its keys below it; found a whole number."),
        );
    }

    #[test]
    fn syntax_errors_say_their_line() {
        let violations = typed("stream = \"a\"\n[publisher\n").violations;
        assert!(!violations.is_empty());
        assert_eq!(
            violations[0].source,
            Some(Source::File { line: 2 }),
            "{violations:?}"
        );
    }

    #[test]
    fn variables() {
        let check = |variable: &str, violations: usize, entry: Option<&str>| {
            let typed = read("", [(variable.to_owned(), "1".to_owned())], []);
            assert_eq!(typed.violations.len(), violations, "{variable}");
            assert_eq!(
                typed.entries.keys().next().map(String::as_str),
                entry,
                "{variable}"
            );
        };
        check("PATH", 0, None);
        check("WALBRAID_STREAM", 0, Some("stream"));
        check("WALBRAID_KAFKA", 0, Some("kafka.bootstrap.servers"));
        check(
            "WALBRAID_KAFKA_BOOTSTRAP_SERVERS",
            0,
            Some("kafka.bootstrap.servers"),
        );
        check("WALBRAID_KAFKA_RETENTION_MS", 0, Some("kafka.retention_ms"));
        check("WALBRAID_STACK_DIR", 0, None);
        check("WALBRAID_STACK", 0, None);
        check("WALBRAID_LOG", 0, None);
        check("WALBRAID_PUBLISHER_ULR", 1, None);
    }

    #[test]
    fn variables_are_one_to_one() {
        let mut variables: Vec<String> = names().map(|name| variable_of_key(&name)).collect();
        let count = variables.len();
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), count);
    }

    #[test]
    fn an_argument_without_a_value_is_refused() {
        assert_eq!(read("", [], ["stream"]).violations.len(), 1);
    }
}
