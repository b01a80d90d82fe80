//! Whether the topic is still there, asked while Kafka acknowledges nothing.
//!
//! The client that writes goes on for long after its topic is gone: it takes the topic for one that
//! brokers have not heard of yet. A question to the brokers tells at once. It is asked after
//! records have waited for a while, and "gone" is believed when it is said twice: a broker that has
//! just started may not know its topics yet. A Kafka that does not answer says nothing about them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use walbraid_schemas::StopKind;

use crate::lane::LaneReader;
use crate::policy::{Failure, once};

/// How long records wait before the question, and between two of them.
const PAUSE: Duration = Duration::from_secs(2);

/// Answers in a row that are believed.
const BELIEVED: u32 = 2;

type Asked = Pin<Box<dyn Future<Output = Result<bool, Failure>> + Send + Sync>>;

/// The question, and what was answered.
pub(crate) struct Question {
    due: Instant,
    asked: Option<Asked>,
    gone: u32,
}

impl Default for Question {
    fn default() -> Question {
        Question {
            due: Instant::now() + PAUSE,
            asked: None,
            gone: 0,
        }
    }
}

impl Question {
    /// Kafka acknowledges: nothing is to be asked for a while.
    pub(crate) fn put_off(&mut self) {
        *self = Question::default();
    }

    /// Returns when the topic is gone. Loses nothing when dropped.
    pub(crate) async fn is_gone(&mut self, reader: &Arc<LaneReader>) {
        while self.gone < BELIEVED {
            let asked = match &mut self.asked {
                Some(asked) => asked,
                None => {
                    tokio::time::sleep_until(self.due).await;
                    let reader = Arc::clone(reader);
                    self.asked
                        .insert(Box::pin(async move { reader.is_there().await }))
                }
            };
            let answer = asked.await;
            self.asked = None;
            self.due = Instant::now() + PAUSE;
            self.gone = match answer.map_err(once) {
                Ok(false) => self.gone + 1,
                Err(stop) if stop.kind == StopKind::TopicMissing => self.gone + 1,
                Ok(true) | Err(_) => 0,
            };
        }
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Question({} of {BELIEVED} say gone)", self.gone)
    }
}
