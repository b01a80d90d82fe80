//! The value of one key: from what was typed to a value of the key's kind.
//!
//! Owns what each kind takes and the words in which another value is refused. Knows one key at a
//! time.

use super::key::{Key, Kind};
use super::typed::Raw;

/// A value of its key's kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Of a text or a choice.
    Text(String),
    /// Of a list, not empty.
    List(Vec<String>),
    /// Of a flag.
    Flag(bool),
    /// Of a number, within the key's limits.
    Integer(i64),
}

impl Value {
    /// Reads what was typed, or says what is wrong with it.
    pub(crate) fn read(key: &Key, raw: Raw) -> Result<Self, String> {
        let name = key.name;
        match (key.kind, raw) {
            (_, Raw::Text(text)) if text.trim().is_empty() => {
                Err(format!("key \"{name}\" is empty"))
            }
            (Kind::Text, Raw::Text(text)) => Ok(Self::Text(text)),
            (Kind::List, Raw::Text(text)) => Self::items(
                name,
                text.split(',').map(|item| item.trim().to_owned()).collect(),
            ),
            (Kind::List, Raw::List(items)) => Self::items(name, items),
            (Kind::Flag, Raw::Flag(flag)) => Ok(Self::Flag(flag)),
            (Kind::Flag, Raw::Text(text)) => text
                .parse()
                .map(Self::Flag)
                .map_err(|_| format!("key \"{name}\" is true or false, not \"{text}\"")),
            (Kind::Integer { min, max }, Raw::Integer(text) | Raw::Text(text)) => {
                Self::integer(key, min, max, &text)
            }
            (Kind::IntegerOr { word, .. }, Raw::Text(text)) if text == word => Ok(Self::Text(text)),
            (Kind::IntegerOr { word, min, max }, Raw::Integer(text) | Raw::Text(text)) => {
                Self::integer(key, min, max, &text)
                    .map_err(|error| format!("{error}, or \"{word}\""))
            }
            (Kind::Choice(words), Raw::Text(text)) => {
                if words.contains(&text.as_str()) {
                    return Ok(Self::Text(text));
                }
                Err(format!(
                    "key \"{name}\" is {}, not \"{text}\"",
                    one_of(words)
                ))
            }
            (kind, raw) => Err(format!(
                "key \"{name}\" is {}, not {}",
                wanted(kind),
                raw.word()
            )),
        }
    }

    fn items(name: &str, items: Vec<String>) -> Result<Self, String> {
        if items.is_empty() || items.iter().any(String::is_empty) {
            return Err(format!("key \"{name}\" has an empty item"));
        }
        Ok(Self::List(items))
    }

    fn integer(key: &Key, min: i64, max: i64, text: &str) -> Result<Self, String> {
        let name = key.name;
        let Ok(number) = text.trim().replace('_', "").parse::<i128>() else {
            return Err(format!("key \"{name}\" is a whole number, not \"{text}\""));
        };
        match i64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Self::Integer(number)),
            _ if min == max => Err(format!(
                "key \"{name}\" is {min} in this version, not {text}"
            )),
            _ => {
                let unit = key.unit;
                Err(format!(
                    "key \"{name}\" is between {min} and {max} {unit}, not {text}"
                ))
            }
        }
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Text => "a text".to_owned(),
        Kind::List => "a text or a list of texts".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Integer { .. } => "a whole number".to_owned(),
        Kind::IntegerOr { word, .. } => format!("a whole number or \"{word}\""),
        Kind::Choice(words) => one_of(words),
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::{self, Presence};
    use super::*;

    #[test]
    fn every_default_is_right() {
        for key in key::KEYS {
            if let Presence::Default(text) = key.presence {
                let value = Value::read(key, Raw::Text(text.to_owned()));
                assert!(value.is_ok(), "{}: {value:?}", key.name);
            }
        }
    }

    #[test]
    fn kinds() {
        let check = |name: &str, raw: Raw, expected: Result<Value, &str>| {
            let key = key::find(name).expect("there is such a key");
            assert_eq!(Value::read(key, raw), expected.map_err(str::to_owned));
        };
        let text = |text: &str| Raw::Text(text.to_owned());
        let list = |items: &[&str]| {
            items
                .iter()
                .map(|item| (*item).to_owned())
                .collect::<Vec<_>>()
        };
        let two = Ok(Value::List(list(&["a", "b"])));
        check("publisher.publication", text("a, b"), two);
        check(
            "publisher.publication",
            Raw::List(list(&["a,b"])),
            Ok(Value::List(list(&["a,b"]))),
        );
        check(
            "consumer.group",
            Raw::Integer("7".to_owned()),
            Ok(Value::Integer(7)),
        );
        check("consumer.group", text("1_000"), Ok(Value::Integer(1_000)));
        check(
            "consumer.group",
            Raw::Flag(true),
            Err("key \"consumer.group\" is a whole number, not true or false"),
        );
        check("publisher.failover", Raw::Flag(true), Ok(Value::Flag(true)));
        check(
            "consumer.workers",
            text("65"),
            Err("key \"consumer.workers\" is between 1 and 64 sessions, not 65, or \"auto\""),
        );
        let auto = Ok(Value::Text("auto".to_owned()));
        check("consumer.workers", text("auto"), auto);
        check(
            "consumer.workers",
            Raw::Flag(true),
            Err("key \"consumer.workers\" is a whole number or \"auto\", not true or false"),
        );
    }
}
