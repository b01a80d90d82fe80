//! The walls: which crate may depend on which, and what the pure ones must never reach.
//!
//! A new arrow is a change of the design: it is made in docs/ARCHITECTURE.md and here.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use walbraid_tests::workspace::root;

/// Every arrow between crates of the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("walbraid-schemas", &[]),
    ("walbraid-wire", &["walbraid-schemas"]),
    ("walbraid-decode", &["walbraid-schemas"]),
    (
        "walbraid-producer",
        &["walbraid-decode", "walbraid-schemas", "walbraid-wire"],
    ),
    ("walbraid-apply", &["walbraid-schemas"]),
    (
        "walbraid-consumer",
        &["walbraid-apply", "walbraid-schemas", "walbraid-wire"],
    ),
    (
        "walbraid",
        &[
            "walbraid-consumer",
            "walbraid-producer",
            "walbraid-schemas",
            "walbraid-wire",
        ],
    ),
    ("walbraid-tests", &[]),
];

/// No runtime, no sockets, no servers below these: events in, actions out.
const PURE: &[&str] = &["walbraid-schemas", "walbraid-decode", "walbraid-apply"];
const IMPURE: &[&str] = &[
    "tokio",
    "rdkafka",
    "tokio-postgres",
    "reqwest",
    "hyper",
    "tokio-util",
    "socket2",
    "mio",
];

/// What `cargo metadata` says, without the dependencies of tests and build scripts.
struct Graph {
    /// Package id to name.
    names: BTreeMap<String, String>,
    /// Package id to the ids it depends on.
    edges: BTreeMap<String, Vec<String>>,
    members: BTreeSet<String>,
}

fn graph() -> Graph {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let names = list(&metadata["packages"])
        .iter()
        .map(|p| (text(&p["id"]), text(&p["name"])))
        .collect();
    let is_normal = |dependency: &Value| {
        list(&dependency["dep_kinds"])
            .iter()
            .any(|k| k["kind"].is_null())
    };
    let edges = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let normal = list(&node["deps"]).into_iter().filter(is_normal);
            (
                text(&node["id"]),
                normal.map(|dependency| text(&dependency["pkg"])).collect(),
            )
        })
        .collect();
    let members = list(&metadata["workspace_members"])
        .iter()
        .map(text)
        .collect();
    Graph {
        names,
        edges,
        members,
    }
}

impl Graph {
    fn id(&self, name: &str) -> &str {
        let is_named = |id: &&String| self.names[*id] == name;
        self.members
            .iter()
            .find(is_named)
            .unwrap_or_else(|| panic!("no crate {name}"))
    }

    /// One way from `from` to a crate named in `forbidden`.
    fn way(&self, from: &str, forbidden: &[&str]) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([from.to_owned()]);
        let mut open = vec![vec![from.to_owned()]];
        while let Some(way) = open.pop() {
            let last = way.last().unwrap();
            if forbidden.contains(&self.names[last].as_str()) {
                return Some(way.iter().map(|id| self.names[id].clone()).collect());
            }
            for next in &self.edges[last] {
                if seen.insert(next.clone()) {
                    open.push([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    }
}

#[test]
fn crates_depend_on_each_other_only_as_drawn() {
    let graph = graph();
    assert_eq!(
        graph.members.len(),
        ARROWS.len(),
        "a crate is not in the list of arrows"
    );
    for (name, allowed) in ARROWS {
        for dependency in &graph.edges[graph.id(name)] {
            if graph.members.contains(dependency) {
                let dependency = graph.names[dependency].as_str();
                assert!(
                    allowed.contains(&dependency),
                    "a new arrow: {name} to {dependency}"
                );
            }
        }
    }
}

#[test]
fn pure_crates_reach_no_runtime_and_no_server() {
    let graph = graph();
    for name in PURE {
        let way = graph.way(graph.id(name), IMPURE);
        assert!(
            way.is_none(),
            "a pure crate reaches {}",
            way.unwrap().join(" > ")
        );
    }
    // The search finds what is there.
    assert!(graph.way(graph.id("walbraid-wire"), IMPURE).is_some());
}

#[test]
fn producer_and_consumer_do_not_know_each_other() {
    let graph = graph();
    let sides = [
        ("walbraid-producer", ["walbraid-consumer", "walbraid-apply"]),
        (
            "walbraid-consumer",
            ["walbraid-producer", "walbraid-decode"],
        ),
    ];
    for (name, other) in sides {
        assert!(
            graph.way(graph.id(name), &other).is_none(),
            "{name} reaches one of {other:?}"
        );
    }
}
