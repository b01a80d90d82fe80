//! A reader that watches an invariant on the subscriber for as long as a test runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinHandle;

use crate::session::Session;

/// A session that asks the same question again and again.
pub struct Watch {
    stopping: Arc<AtomicBool>,
    polls: Arc<AtomicU64>,
    task: JoinHandle<Vec<String>>,
}

impl Watch {
    /// Starts to ask `sql`, whose one value is true as long as the invariant holds.
    pub async fn start(url: &str, sql: &str) -> Self {
        let session = Session::open(url).await;
        let (stopping, polls) = (Arc::default(), Arc::default());
        let task = tokio::spawn(ask(
            session,
            sql.to_owned(),
            Arc::clone(&stopping),
            Arc::clone(&polls),
        ));
        Self {
            stopping,
            polls,
            task,
        }
    }

    /// How often it has asked.
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Stops, and fails the test if the invariant did not hold each time.
    pub async fn finish(self) {
        self.stopping.store(true, Ordering::Relaxed);
        let polls = self.polls;
        let broken = self.task.await.unwrap();
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls > 0, "the invariant was never looked at");
        assert!(
            broken.is_empty(),
            "broken {} of {polls} times: {:?}",
            broken.len(),
            broken.first()
        );
    }
}

async fn ask(
    session: Session,
    sql: String,
    stopping: Arc<AtomicBool>,
    polls: Arc<AtomicU64>,
) -> Vec<String> {
    let mut broken = Vec::new();
    while !stopping.load(Ordering::Relaxed) {
        let value = session.value(&sql).await;
        if value != "t" {
            broken.push(value);
        }
        polls.fetch_add(1, Ordering::Relaxed);
    }
    broken
}
