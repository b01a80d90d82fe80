//! The style of the text itself: lengths, contracts of modules, words that have no place here.

use std::fs;
use std::path::{Path, PathBuf};

use walbraid_tests::workspace::root;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;
/// A test may hold a table of cases.
const TEST_LINES_MAX: usize = 130;
const LINE_COLUMNS_MAX: usize = 100;

/// Folders with text that we write.
const FOLDERS: &[&str] = &[
    "bin", "cli", "compose", "consumer", "docs", "producer", "schemas", "tests", "wire", ".ci",
];

/// Words and pieces that must not be in the repository, in two halves so that this file may.
const FORBIDDEN: &[(&str, &str)] = &[
    ("to", "do!("),
    ("TO", "DO"),
    ("FIX", "ME"),
    ("unimple", "mented!("),
    ("#[ig", "nore"),
    ("for n", "ow,"),
    ("not yet imple", "mented"),
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("repo.ma", "ven"),
    ("cra", "tes.io"),
    ("deb.deb", "ian.org"),
    ("pypi.", "org"),
];

fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !["target", "__pycache__", "corpus", "artifacts"].contains(&name) {
                    open.push(path);
                }
            } else if name != "Cargo.lock" {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every file that is text, with its path from the root.
fn texts() -> Vec<(String, String)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        Some((
            path.strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
            text,
        ))
    };
    files().into_iter().filter_map(read).collect()
}

fn rust() -> Vec<(String, String)> {
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|kind| kind == "rs");
    texts()
        .into_iter()
        .filter(|(path, _)| is_rust(path))
        .collect()
}

/// Fails with all findings at once.
fn check(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}

#[test]
fn files_are_short() {
    let long = |(path, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{path}: {lines} lines"))
    };
    check(
        "files with more than one concept?",
        &rust().iter().filter_map(long).collect::<Vec<_>>(),
    );
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for (path, text) in rust() {
        let mut open: Vec<(usize, usize, &str)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let starts = ["fn ", "pub fn ", "async fn ", "pub async fn ", "const fn "];
            let code = line.trim_start().trim_start_matches("pub(crate) ");
            if starts
                .iter()
                .any(|start| code.trim_start_matches("pub(super) ").starts_with(start))
            {
                open.push((indent, number, line.trim()));
            }
            // The layout of rustfmt: a function ends at a brace under its first letter.
            while let Some((depth, first, name)) = open.last().copied() {
                if depth != indent || line.trim() != "}" || number == first {
                    break;
                }
                open.pop();
                let lines_max = if path.contains("tests/") {
                    TEST_LINES_MAX
                } else {
                    FUNCTION_LINES_MAX
                };
                if number - first + 1 > lines_max {
                    findings.push(format!(
                        "{path}:{}: {} lines: {name}",
                        first + 1,
                        number - first + 1
                    ));
                }
            }
            if line.trim_end().ends_with(';') && open.last().is_some_and(|last| last.1 == number) {
                open.pop();
            }
        }
    }
    check("functions longer than a screen", &findings);
}

#[test]
fn lines_are_short() {
    let mut findings = Vec::new();
    for (path, text) in rust() {
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_COLUMNS_MAX {
                findings.push(format!("{path}:{}", number + 1));
            }
        }
    }
    check("lines too long", &findings);
}

#[test]
fn modules_open_with_their_contract() {
    let bare = |(path, text): &(String, String)| (!text.starts_with("//! ")).then(|| path.clone());
    check(
        "modules without a contract",
        &rust().iter().filter_map(bare).collect::<Vec<_>>(),
    );
}

#[test]
fn drawers_have_no_place() {
    const DRAWERS: [&str; 5] = ["utils.rs", "util.rs", "common.rs", "helpers.rs", "types.rs"];
    let is_drawer = |path: &&String| {
        DRAWERS
            .iter()
            .any(|name| path.ends_with(&format!("/{name}")))
    };
    let paths: Vec<String> = rust().into_iter().map(|(path, _)| path).collect();
    check(
        "files named after nothing",
        &paths.iter().filter(is_drawer).cloned().collect::<Vec<_>>(),
    );
}

#[test]
fn words_that_have_no_place() {
    let mut findings = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for (left, right) in FORBIDDEN {
                let word = format!("{left}{right}");
                if line.contains(&word) {
                    findings.push(format!("{path}:{}: {word}", number + 1));
                }
            }
        }
    }
    check("words that have no place here", &findings);
}

/// A poll may pause for moments between two looks; a pause of a second hopes for something.
#[test]
fn tests_wait_for_conditions() {
    const POLL_MS_MAX: u64 = 50;
    let is_test = |path: &str| path.contains("/tests/") || path.starts_with("tests/");
    let is_long = |line: &str| {
        let pause = line
            .split_once("sleep(Duration::from_")
            .map(|(_, rest)| rest);
        match pause.and_then(|rest| rest.split_once('(')) {
            Some(("millis", rest)) => {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().is_ok_and(|millis: u64| millis > POLL_MS_MAX)
            }
            Some((unit, _)) => unit == "secs",
            None => line.contains("thread::sleep("),
        }
    };
    let mut findings = Vec::new();
    for (path, text) in rust().iter().filter(|(path, _)| is_test(path)) {
        for (number, line) in text.lines().enumerate() {
            if is_long(line) && !path.ends_with("style/text.rs") {
                findings.push(format!("{path}:{}", number + 1));
            }
        }
    }
    check("sleeps in tests", &findings);
}

/// Something fails in each of them, and a reader is to look at the subscriber meanwhile.
#[test]
fn fault_tests_are_watched_or_say_why_not() {
    let mut findings = Vec::new();
    let mut places = 0;
    for (path, text) in rust() {
        if !path.starts_with("tests/tests/fault/") {
            continue;
        }
        for statement in text.split(';') {
            let words: String = statement.split_whitespace().collect();
            let makes = ["Bed::new(", "Bed::on("]
                .iter()
                .any(|make| words.contains(make));
            places += usize::from(makes);
            if makes && !words.contains(".watched()") && !words.contains(".unwatched(\"") {
                findings.push(format!("{path}: {}", statement.trim()));
            }
        }
    }
    check("places of fault tests that nobody watches", &findings);
    assert!(places > 0, "no place was looked at");
}
