//! The session that reads old values: questions one after the other, each in one snapshot.
//!
//! A question waits for whoever holds its table alone (a TRUNCATE that waits for its turn). Between
//! the snapshot and the answer others commit.

use std::collections::VecDeque;
use std::sync::Arc;

use walbraid_apply::event::Event;
use walbraid_apply::footprint::old_row;
use walbraid_apply::mapping::Mapped;
use walbraid_apply::resolver::{OldRow, ReadId, query};

use super::schema::table_of;
use super::server::Server;
use crate::random::Random;

#[derive(Debug)]
struct Question {
    read: ReadId,
    table: Arc<Mapped>,
    keys: Vec<Vec<String>>,
}

#[derive(Debug, Default)]
pub struct Reads {
    questions: VecDeque<Question>,
    /// What the first of them found.
    found: Option<Vec<OldRow>>,
}

impl Reads {
    pub fn ask(&mut self, read: ReadId, table: Arc<Mapped>, keys: Vec<Vec<String>>) {
        self.questions.push_back(Question { read, table, keys });
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reads, or answers; none if there is nothing to do, or it waits.
    pub fn go_on(
        &mut self,
        server: &Server,
        random: &mut Random,
        fails: bool,
    ) -> Option<Vec<Event>> {
        let question = self.questions.front()?;
        let fails = fails && random.once_in(6);
        if self.found.is_none() && !fails {
            let table = table_of(question.table.relation().oid);
            if server.is_locked(table) {
                return None;
            }
            self.found = Some(question.rows(server, table));
            return Some(Vec::new());
        }
        let Question { read, .. } = self.questions.pop_front()?;
        let rows = self.found.take().filter(|_| !fails);
        let took_us = 1_000;
        Some(vec![Event::OldValues {
            read,
            rows,
            took_us,
        }])
    }
}

impl Question {
    fn rows(&self, server: &Server, table: usize) -> Vec<OldRow> {
        assert_eq!((self.keys.len(), query(&self.table).columns), (1, 1));
        let mut found = Vec::new();
        for (place, key) in self.keys[0].iter().enumerate() {
            let key = key.parse().unwrap();
            let rows = server.heap.rows(table).iter();
            for row in rows.filter_map(|row| row.committed) {
                if row[0] == Some(key) {
                    let text = row[1].map(|value| value.to_string());
                    let hashes = old_row(&self.table, &[text.as_deref()]);
                    found.push(OldRow { place, hashes });
                }
            }
        }
        found
    }
}
