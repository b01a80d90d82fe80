//! What is known of the subscriber's relations: what each table of the log is there, and, of what
//! is watched, the fingerprint of the catalogue that it was read with.
//!
//! A relation whose fingerprint is another now is forgotten, with every shape of the table that is
//! mapped to it; the others stay. Of a table that has no relation nothing is watched: a unit that
//! needs it makes the lane read the catalogue anew.

use std::collections::HashMap;

use tokio_postgres::types::Oid;
use walbraid_apply::mapping::Target;
use walbraid_schemas::envelope::TableRef;

/// Tables kept; beyond it all are forgotten and read anew.
const TABLES_MAX: usize = 10_000;

/// What a table of the log is on the subscriber.
struct Place {
    target: Target,
    relation: Option<Oid>,
}

/// All that is known.
#[derive(Default)]
pub(crate) struct Known {
    places: HashMap<TableRef, Place>,
    /// The fingerprints of the relations that are watched.
    watched: HashMap<Oid, String>,
}

impl Known {
    /// What the table is.
    pub(crate) fn get(&self, table: &TableRef) -> Option<&Target> {
        Some(&self.places.get(table)?.target)
    }

    /// Keeps what the table is, as it was just read, and watches its relation from here on if that
    /// has a fingerprint. What was known of the relation under another one is forgotten.
    pub(crate) fn insert(&mut self, table: TableRef, target: Target, watch: Option<(Oid, String)>) {
        if self.places.len() >= TABLES_MAX {
            self.forget();
        }
        let relation = watch.as_ref().map(|(relation, _)| *relation);
        if let Some((relation, fingerprint)) = watch {
            let before = self.watched.remove(&relation);
            if before.is_some_and(|before| before != fingerprint) {
                self.places
                    .retain(|_, place| place.relation != Some(relation));
            }
            self.watched.insert(relation, fingerprint);
        }
        self.places.insert(table, Place { target, relation });
    }

    /// The relations that are watched.
    pub(crate) fn watched(&self) -> Vec<Oid> {
        self.watched.keys().copied().collect()
    }

    /// Forgets the relations that are not what they were; how many.
    pub(crate) fn compare(&mut self, seen: &HashMap<Oid, String>) -> usize {
        let before = self.watched.len();
        self.watched
            .retain(|relation, fingerprint| seen.get(relation) == Some(fingerprint));
        let watched = &self.watched;
        self.places.retain(|_, place| {
            let relation = place.relation.as_ref();
            relation.is_none_or(|relation| watched.contains_key(relation))
        });
        before - self.watched.len()
    }

    /// Forgets all.
    pub(crate) fn forget(&mut self) {
        self.places.clear();
        self.watched.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use walbraid_apply::mapping::{Mapped, MappingError};
    use walbraid_schemas::table::{Identity, Table};

    use super::*;

    const fn table(schema_id: i32) -> TableRef {
        TableRef {
            schema_id,
            fingerprint: 0,
        }
    }

    /// Of a table that is not there: what is known of it does not matter here.
    fn target() -> Target {
        let table = Table {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            identity: Identity::Default,
            columns: Vec::new(),
        };
        let missing: MappingError = Mapped::new(Arc::new(table), None).unwrap_err();
        Err(Arc::new(missing))
    }

    fn known(places: &[(i32, Option<(Oid, &str)>)]) -> Known {
        let mut known = Known::default();
        for (schema_id, watch) in places {
            let watch = watch.map(|(relation, fingerprint)| (relation, fingerprint.to_owned()));
            known.insert(table(*schema_id), target(), watch);
        }
        known
    }

    fn left(known: &Known) -> Vec<i32> {
        let ids = 1..=4;
        ids.filter(|id| known.get(&table(*id)).is_some()).collect()
    }

    #[test]
    fn only_what_has_changed_is_forgotten() {
        let places = [
            (1, Some((10, "a"))),
            (2, Some((20, "b"))),
            (3, Some((20, "b"))),
            (4, None),
        ];
        let mut known = known(&places);
        let seen = |pairs: &[(Oid, &str)]| -> HashMap<Oid, String> {
            let own = |(oid, text): &(Oid, &str)| (*oid, (*text).to_owned());
            pairs.iter().map(own).collect()
        };
        assert_eq!(known.compare(&seen(&[(10, "a"), (20, "b")])), 0);
        assert_eq!(left(&known), [1, 2, 3, 4]);
        assert_eq!(known.compare(&seen(&[(10, "a"), (20, "c")])), 1);
        assert_eq!(left(&known), [1, 4]);
        assert_eq!(known.watched(), [10]);
        assert_eq!(known.compare(&seen(&[])), 1, "it was dropped");
        assert_eq!(left(&known), [4]);
    }

    #[test]
    fn a_shape_that_is_read_later_shows_that_the_relation_has_changed() {
        let places = [
            (1, Some((10, "a"))),
            (2, Some((20, "b"))),
            (3, Some((10, "c"))),
        ];
        let known = known(&places);
        assert_eq!(left(&known), [2, 3]);
        assert_eq!(known.watched.len(), 2, "each relation once");
    }

    #[test]
    fn beyond_the_limit_all_is_forgotten_but_the_newest() {
        let watch = |id: i32| Some((id as Oid, "a".to_owned()));
        let mut known = Known::default();
        let last = TABLES_MAX as i32 + 1;
        for id in 1..=last {
            known.insert(table(id), target(), watch(id));
        }
        assert!(known.get(&table(last)).is_some() && known.get(&table(last - 1)).is_none());
        assert_eq!(known.watched(), [last as Oid]);
    }
}
