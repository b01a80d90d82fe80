//! The rules of the house that a machine can check: the walls between crates, and the style.

#![allow(clippy::unwrap_used)]

#[path = "style/text.rs"]
mod text;
#[path = "style/walls.rs"]
mod walls;
