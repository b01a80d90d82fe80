//! Parsers and builders are each other's mirror; damaged messages are refused, never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use walbraid_decode::message::{Abort, ColumnBody, Framing, Message, Oids, Prepare, RelationBody};
use walbraid_decode::{Datum, OldTuple, Tuple};
use walbraid_schemas::Lsn;

/// What messages are made of.
#[derive(Clone, Debug)]
struct Ingredients {
    kind: u8,
    framing: Framing,
    xid: u32,
    ints: [u32; 3],
    lsns: [u64; 2],
    times: [i64; 2],
    texts: [String; 2],
    flags: [bool; 2],
    content: Vec<u8>,
    rows: [Vec<Column>; 2],
    columns: Vec<(bool, String, u32, i32)>,
    oids: Vec<u32>,
}

/// A column of a row, owned.
#[derive(Clone, Debug)]
enum Column {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

/// The variable parts of a message in their bytes, for the message to borrow.
struct Buffers {
    rows: [Vec<u8>; 2],
    columns: Vec<u8>,
    oids: Vec<u8>,
}

const KINDS: u8 = 19;

impl Ingredients {
    fn buffers(&self) -> Buffers {
        let row = |columns: &[Column]| {
            let datums: Vec<Datum<'_>> = columns
                .iter()
                .map(|column| match column {
                    Column::Null => Datum::Null,
                    Column::Unchanged => Datum::Unchanged,
                    Column::Text(text) => Datum::Text(text),
                    Column::Binary(bytes) => Datum::Binary(bytes),
                })
                .collect();
            Tuple::build(&datums)
        };
        let columns: Vec<ColumnBody<'_>> = self
            .columns
            .iter()
            .map(|(key, name, type_oid, type_modifier)| ColumnBody {
                key: *key,
                name,
                type_oid: *type_oid,
                type_modifier: *type_modifier,
            })
            .collect();
        Buffers {
            rows: [row(&self.rows[0]), row(&self.rows[1])],
            columns: RelationBody::build_columns(&columns),
            oids: self.oids.iter().flat_map(|oid| oid.to_be_bytes()).collect(),
        }
    }

    fn message<'a>(&'a self, buffers: &'a Buffers) -> Message<'a> {
        let xid = self.framing.in_stream.then_some(self.xid);
        let relation = self.ints[0];
        let [first, second] =
            [&buffers.rows[0], &buffers.rows[1]].map(|bytes| Tuple::from_bytes(bytes).unwrap());
        let old = if self.flags[0] {
            OldTuple::Key(first)
        } else {
            OldTuple::Full(first)
        };
        let [cascade, restart_identity] = self.flags;
        match self.kind {
            0 => Message::Insert {
                xid,
                relation,
                new: second,
            },
            1 => Message::Update {
                xid,
                relation,
                old: None,
                new: second,
            },
            2 => Message::Update {
                xid,
                relation,
                old: Some(old),
                new: second,
            },
            3 => Message::Delete { xid, relation, old },
            4 => {
                let relations = Oids::from_bytes(&buffers.oids);
                Message::Truncate {
                    xid,
                    cascade,
                    restart_identity,
                    relations,
                }
            }
            5 => {
                let count = u16::try_from(self.columns.len()).unwrap();
                let identity = b"dnfi"[self.flags.iter().filter(|flag| **flag).count()];
                let [schema, name] = &self.texts;
                let body = RelationBody::new(xid, relation, schema, name, identity);
                let body = body.with_columns(count, &buffers.columns).unwrap();
                Message::Relation(body)
            }
            6 => {
                let [schema, name] = &self.texts;
                Message::Type {
                    xid,
                    oid: relation,
                    schema,
                    name,
                }
            }
            7 => Message::Logical {
                xid,
                transactional: self.flags[0],
                lsn: Lsn(self.lsns[0]),
                prefix: &self.texts[0],
                content: &self.content,
            },
            _ => self.frame(),
        }
    }

    fn frame(&self) -> Message<'_> {
        let [xid, subxid, _] = self.ints;
        let [commit_lsn, end_lsn] = self.lsns.map(Lsn);
        let [commit_time_us, other_time_us] = self.times;
        let gid = self.texts[0].as_str();
        let prepare = Prepare {
            prepare_lsn: commit_lsn,
            end_lsn,
            prepare_time_us: commit_time_us,
            xid,
            gid,
        };
        match self.kind {
            8 => Message::Begin {
                commit_lsn,
                commit_time_us,
                xid,
            },
            9 => Message::Commit {
                commit_lsn,
                end_lsn,
                commit_time_us,
            },
            10 => Message::Origin {
                commit_lsn,
                name: gid,
            },
            11 => Message::StreamStart {
                xid,
                first_segment: self.flags[0],
            },
            12 => Message::StreamStop,
            13 => Message::StreamCommit {
                xid,
                commit_lsn,
                end_lsn,
                commit_time_us,
            },
            14 => {
                let abort = Abort {
                    lsn: end_lsn,
                    time_us: commit_time_us,
                };
                let abort = self.framing.parallel.then_some(abort);
                Message::StreamAbort { xid, subxid, abort }
            }
            15 => Message::BeginPrepare(prepare),
            16 => Message::Prepare(prepare),
            17 => Message::StreamPrepare(prepare),
            18 => Message::CommitPrepared {
                commit_lsn,
                end_lsn,
                commit_time_us,
                xid,
                gid,
            },
            _ => Message::RollbackPrepared {
                prepare_end_lsn: commit_lsn,
                rollback_end_lsn: end_lsn,
                prepare_time_us: commit_time_us,
                rollback_time_us: other_time_us,
                xid,
                gid,
            },
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.message(&self.buffers())
            .write(self.framing, &mut bytes);
        bytes
    }
}

fn column() -> impl Strategy<Value = Column> {
    prop_oneof![
        Just(Column::Null),
        Just(Column::Unchanged),
        vec(any::<u8>(), 0..20).prop_map(Column::Text),
        vec(any::<u8>(), 0..20).prop_map(Column::Binary),
    ]
}

fn framing() -> impl Strategy<Value = Framing> {
    any::<(bool, bool)>().prop_map(|(in_stream, parallel)| Framing {
        in_stream,
        parallel,
    })
}

fn ingredients() -> impl Strategy<Value = Ingredients> {
    // A time that PostgreSQL's epoch does not push out of an i64.
    let time = || (i64::MIN + 946_684_800_000_000)..=i64::MAX;
    let text = || "[^\0]{0,12}";
    let relation = (any::<bool>(), text(), any::<u32>(), any::<i32>());
    let numbers = (
        0..=KINDS,
        framing(),
        any::<u32>(),
        any::<[u32; 3]>(),
        any::<[u64; 2]>(),
    );
    let words = (
        [time(), time()],
        [text(), text()],
        any::<[bool; 2]>(),
        vec(any::<u8>(), 0..30),
    );
    let lists = (
        [vec(column(), 0..6), vec(column(), 0..6)],
        vec(relation, 0..5),
    );
    (numbers, words, lists, vec(any::<u32>(), 0..5)).prop_map(|(numbers, words, lists, oids)| {
        let (kind, framing, xid, ints, lsns) = numbers;
        let (times, texts, flags, content) = words;
        let (rows, columns) = lists;
        Ingredients {
            kind,
            framing,
            xid,
            ints,
            lsns,
            times,
            texts,
            flags,
            content,
            rows,
            columns,
            oids,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_is_parsed_back(ingredients in ingredients()) {
        let buffers = ingredients.buffers();
        let message = ingredients.message(&buffers);
        let mut bytes = Vec::new();
        message.write(ingredients.framing, &mut bytes);
        prop_assert_eq!(Message::parse(&bytes, ingredients.framing), Ok(message));
    }

    #[test]
    fn a_message_with_bytes_missing_or_left_over_is_refused(ingredients in ingredients()) {
        let mut bytes = ingredients.bytes();
        for length in 0..bytes.len() {
            prop_assert!(Message::parse(&bytes[..length], ingredients.framing).is_err());
        }
        bytes.push(0);
        prop_assert!(Message::parse(&bytes, ingredients.framing).is_err());
    }

    #[test]
    fn a_damaged_message_is_refused_or_reads_as_just_what_it_holds(
        ingredients in ingredients(),
        damage in vec((any::<prop::sample::Index>(), 0..8u8), 1..4),
    ) {
        let mut bytes = ingredients.bytes();
        for (place, bit) in damage {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        if let Ok(message) = Message::parse(&bytes, ingredients.framing) {
            let mut built = Vec::new();
            message.write(ingredients.framing, &mut built);
            prop_assert_eq!(built, bytes);
        }
    }
}
