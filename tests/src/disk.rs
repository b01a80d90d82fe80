//! A disk that is full under one table, without a disk of its own and without rights to mount one.
//!
//! The table's file is replaced by a link to `/dev/full`, where every write ends with ENOSPC: the
//! server meets the system's own error where it would meet it on a full disk. Only for a stack
//! made by `bin/stack`, and a table without rows.

use std::path::{Path, PathBuf};

use crate::session::Session;

/// A full disk, until it is mended.
pub struct FullDisk {
    table: String,
    file: PathBuf,
    aside: PathBuf,
}

impl FullDisk {
    /// Fills the disk under `table`.
    pub async fn under(server: &Session, table: &str) -> Self {
        // What is still to be synced is, as long as the file can be.
        server.run("CHECKPOINT").await;
        let directory = server.value("SHOW data_directory").await;
        let place = format!("SELECT pg_relation_filepath('{table}')");
        let file = Path::new(&directory).join(server.value(&place).await);
        let aside = file.with_extension("aside");
        std::fs::rename(&file, &aside).unwrap();
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        let table = table.to_owned();
        Self { table, file, aside }
    }

    /// Makes room. The table gets a new file, because sessions have the device open.
    pub async fn mend(self, server: &Session) {
        std::fs::rename(&self.aside, &self.file).unwrap();
        server.run(&format!("TRUNCATE {}", self.table)).await;
    }
}
