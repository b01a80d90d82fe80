//! The repository around the tests: its root and the binary that they run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The walbraid binary: `WALBRAID_TEST_BINARY`, or built once by the profile of the tests.
pub fn walbraid() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("WALBRAID_TEST_BINARY") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root())
        .args(["build", "--quiet", "-p", "walbraid", "--bin", "walbraid"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo cannot be run");
    assert!(status.success(), "walbraid does not build");
    // The test binary lies in target/PROFILE/deps.
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("walbraid")
}
