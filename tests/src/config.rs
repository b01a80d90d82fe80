//! A configuration file for walbraid, as a user would write it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Sections with their keys; a value is written as it stands, in TOML.
#[derive(Clone, Debug, Default)]
pub struct Config {
    stream: String,
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl Config {
    /// A file with nothing but the name of a stream.
    pub fn new(stream: &str) -> Self {
        Self {
            stream: stream.to_owned(),
            sections: BTreeMap::new(),
        }
    }

    /// Sets a key to a text.
    pub fn text(&mut self, section: &str, key: &str, value: &str) -> &mut Self {
        self.raw(section, key, format!("{value:?}"))
    }

    /// Sets a key to a number or a flag.
    pub fn set(&mut self, section: &str, key: &str, value: impl ToString) -> &mut Self {
        self.raw(section, key, value.to_string())
    }

    fn raw(&mut self, section: &str, key: &str, value: String) -> &mut Self {
        self.sections
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned(), value);
        self
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        let mut text = format!("stream = {:?}\n", self.stream);
        for (section, keys) in &self.sections {
            writeln!(text, "\n[{section}]").unwrap();
            for (key, value) in keys {
                writeln!(text, "{key:?} = {value}").unwrap();
            }
        }
        std::fs::write(path, text).unwrap();
    }
}
