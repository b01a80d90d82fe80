//! Who waits for whom: conflict keys of changes, table by table.

#![allow(clippy::unwrap_used)]

mod catalogue;
mod tables;
mod unique;
mod width;
