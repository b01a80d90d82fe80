//! Eight workers on a real subscriber whose every statement stalls, under loads that are made to
//! trip them: transactions hand keys on to each other, delete what the next one inserts, and meet
//! in one row. No reader sees a state that the publisher never had, and both sides agree.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::task::JoinSet;
use walbraid_tests::bed::{Bed, Pipeline};
use walbraid_tests::session::Session;
use walbraid_tests::wait::{PATIENCE, until};
use walbraid_tests::watch::Watch;

/// Fires in replica mode for each row of all tables of the test: work that waits in the server.
const STALL: &str = "
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(0.002); RETURN NULL; END';
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relkind = 'r'
                AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('CREATE TRIGGER stall AFTER INSERT OR UPDATE OR DELETE ON %I
                        FOR EACH ROW EXECUTE FUNCTION stall()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER stall', name);
    END LOOP;
END $$";

/// Every transaction counts its session's turn in both tables.
const TURNS: &str = "
CREATE TABLE turn_a (session int PRIMARY KEY, n int);
CREATE TABLE turn_b (session int PRIMARY KEY, n int)";

const WHOLE: &str = "
NOT EXISTS (SELECT FROM turn_a FULL JOIN turn_b USING (session)
            WHERE turn_a.n IS DISTINCT FROM turn_b.n)";

const SESSIONS: u64 = 4;
const TRANSACTIONS: u32 = 120;

/// What is written, and what holds of it.
struct Load {
    /// The tables, on both sides.
    tables: &'static str,
    /// Those that are declared safe: all that stall.
    safe: &'static str,
    /// What only the subscriber has, made behind the triggers that stall.
    subscriber: &'static str,
    /// What is there before the load.
    opening: &'static str,
    /// An expression that is true in every state of the publisher.
    rule: &'static str,
    /// The body of a transaction; what is refused there is rolled back and left out.
    body: fn(&mut StdRng) -> String,
}

impl Load {
    /// A pipeline with eight workers whose consumer does not run, and the load in the log.
    async fn written(&self, bed: &Bed) -> Pipeline {
        bed.both(self.tables).await;
        let subscriber = bed.subscriber().await;
        subscriber.run(STALL).await;
        // They do not stall, and need no declaration.
        bed.both(TURNS).await;
        subscriber.run(self.subscriber).await;
        let mut config = bed.config();
        config
            .set("consumer", "workers", 8)
            .set("consumer", "group", 1)
            .set("consumer", "parallel_safe", self.safe);
        let mut pipeline = bed.set_up(&config).await;
        pipeline.start_producer();
        bed.publisher().await.run(self.opening).await;
        let turns = format!("SELECT generate_series(0, {SESSIONS}), 0");
        let turns = format!("INSERT INTO turn_a {turns}; INSERT INTO turn_b {turns}");
        bed.publisher().await.run(&turns).await;
        let seed: u64 = rand::random();
        eprintln!("seed {seed}");
        let mut running = JoinSet::new();
        for number in 0..SESSIONS {
            let random = StdRng::seed_from_u64(seed ^ (number << 32));
            running.spawn(work(bed.publisher_url.clone(), number, random, self.body));
        }
        while let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
        pipeline
    }

    async fn watch(&self, bed: &Bed) -> Watch {
        let rule = format!("SELECT ({}) AND {WHOLE}", self.rule);
        Watch::start(&bed.subscriber_url, &rule).await
    }

    async fn check(&self) {
        let bed = Bed::new().await;
        let mut pipeline = self.written(&bed).await;
        let watch = self.watch(&bed).await;
        pipeline.start_consumer();
        pipeline.catch_up().await;
        watch.finish().await;
        bed.assert_equal().await;
        ran_in_parallel(&pipeline).await;
        pipeline.terminate().await;
    }
}

/// Fails the test if every transaction was applied alone.
async fn ran_in_parallel(pipeline: &Pipeline) {
    until("some transaction ran beside others", PATIENCE, async || {
        let explain = pipeline.run(&["explain", "--json"]).await.expect(0);
        let explain: Value = serde_json::from_str(&explain.stdout).unwrap();
        let parallel = explain["lanes"][0]["transactions"]["NO_CONFLICT"].as_u64();
        (parallel > Some(0)).then_some(())
    })
    .await;
}

async fn work(url: String, number: u64, mut random: StdRng, body: fn(&mut StdRng) -> String) {
    let session = Session::open(&url).await;
    for _ in 0..TRANSACTIONS {
        let sql = format!(
            "BEGIN; UPDATE turn_a SET n = n + 1 WHERE session = {number}; {}
             UPDATE turn_b SET n = n + 1 WHERE session = {number}; COMMIT",
            body(&mut random)
        );
        if session.batch_execute(&sql).await.is_err() {
            session.run("ROLLBACK").await;
        }
    }
}

#[tokio::test]
async fn parallel_apply_of_unique_values_that_change_hands() {
    const LOAD: Load = Load {
        tables: "CREATE TABLE mail (id int PRIMARY KEY, address text UNIQUE, v int)",
        safe: "[\"public.mail\"]",
        subscriber: "",
        opening: "INSERT INTO mail SELECT i, 'm' || i, 0 FROM generate_series(0, 11) i",
        rule: "true",
        body: |random| {
            let [a, b]: [i32; 2] = std::array::from_fn(|_| random.random_range(0..12));
            match random.random_range(0..6) {
                0 => format!(
                    "UPDATE mail SET address = 'between {a} {b}' WHERE id = {a};
                     UPDATE mail SET address = 'm{a}' WHERE id = {b};
                     UPDATE mail SET address = 'm{b}' WHERE id = {a};"
                ),
                1 => format!("UPDATE mail SET address = NULL WHERE id = {a};"),
                2 => format!("UPDATE mail SET address = 'm{b}' WHERE id = {a};"),
                3 => format!("DELETE FROM mail WHERE id = {a};"),
                4 => format!("INSERT INTO mail VALUES ({a}, 'm{b}', 0);"),
                _ => format!("UPDATE mail SET v = v + 1 WHERE address = 'm{a}';"),
            }
        },
    };
    LOAD.check().await;
}

#[tokio::test]
async fn parallel_apply_of_keys_that_come_and_go() {
    const LOAD: Load = Load {
        tables: "CREATE TABLE one (id int PRIMARY KEY, v int);
                 CREATE TABLE two (id int PRIMARY KEY, v int);
                 CREATE TABLE bag (v int); ALTER TABLE bag REPLICA IDENTITY FULL",
        safe: "[\"public.one\", \"public.two\", \"public.bag\"]",
        subscriber: "",
        opening: "INSERT INTO one SELECT i, 0 FROM generate_series(0, 9) i;
                  INSERT INTO two SELECT i, 0 FROM generate_series(0, 9) i;
                  INSERT INTO bag SELECT i % 3 FROM generate_series(0, 9) i",
        rule: "true",
        body: |random| {
            let [a, b]: [i32; 2] = std::array::from_fn(|_| random.random_range(0..10));
            match random.random_range(0..6) {
                0 => format!("DELETE FROM one WHERE id = {a}; DELETE FROM two WHERE id = {a};"),
                1 => format!("INSERT INTO one VALUES ({a}, 1); INSERT INTO two VALUES ({a}, 1);"),
                // It meets its own keys again and again.
                2 => format!(
                    "UPDATE one SET id = id + 100 WHERE id = {a};
                     UPDATE one SET id = id + 100, v = v + 1 WHERE id = {a} + 100;
                     DELETE FROM one WHERE id = {b}; INSERT INTO one VALUES ({b}, 0);
                     DELETE FROM two WHERE id = {b}; INSERT INTO two VALUES ({b}, 0);
                     UPDATE one SET id = id - 200 WHERE id = {a} + 200;"
                ),
                3 => format!(
                    "UPDATE bag SET v = v + 1 WHERE ctid IN
                         (SELECT ctid FROM bag WHERE v = {a} % 4 LIMIT 1);"
                ),
                4 => format!(
                    "DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE v = {a} % 3 LIMIT 1);
                     INSERT INTO bag VALUES ({b} % 3);"
                ),
                _ => format!("UPDATE two SET v = v + 1 WHERE id IN ({a}, {b});"),
            }
        },
    };
    LOAD.check().await;
}

#[tokio::test]
async fn parallel_apply_of_parents_and_children_whose_foreign_key_is_checked() {
    const LOAD: Load = Load {
        tables: "CREATE TABLE parent (id int PRIMARY KEY);
                 CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent)",
        safe: "[\"public.parent\", \"public.child\"]",
        subscriber: "DO $$ DECLARE it record; BEGIN
                         FOR it IN SELECT tgname, tgrelid::regclass AS t FROM pg_trigger
                                   WHERE tgrelid IN ('parent'::regclass, 'child'::regclass) LOOP
                             EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I',
                                            it.t, it.tgname);
                         END LOOP;
                     END $$",
        opening: "INSERT INTO parent SELECT generate_series(0, 4)",
        rule: "SELECT count(*) = 0 FROM child LEFT JOIN parent ON parent.id = child.parent
               WHERE child.parent IS NOT NULL AND parent.id IS NULL",
        body: |random| {
            let [a, b]: [i32; 2] = std::array::from_fn(|_| random.random_range(0..8));
            match random.random_range(0..6) {
                0 => format!("INSERT INTO parent VALUES ({a});"),
                1 => format!(
                    "DELETE FROM child WHERE parent = {a}; DELETE FROM parent WHERE id = {a};"
                ),
                2 => format!("UPDATE child SET parent = NULL WHERE parent = {a};"),
                3 => format!("UPDATE child SET parent = {b} WHERE id = {a};"),
                4 => format!("DELETE FROM child WHERE id = {a};"),
                _ => format!("INSERT INTO child VALUES ({a}, {b});"),
            }
        },
    };
    LOAD.check().await;
}

/// What a declaration hides: every transaction waits for one row's lock, which the analysis cannot
/// know, so that heads wait for later ones again and again.
#[tokio::test]
async fn parallel_apply_where_a_declared_trigger_meets_others_in_one_row() {
    const LOAD: Load = Load {
        tables: "CREATE TABLE t (id int PRIMARY KEY, v int)",
        safe: "[\"public.t\"]",
        subscriber: "CREATE TABLE tally (n int); INSERT INTO tally VALUES (0);
             CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN UPDATE public.tally SET n = n + 1; RETURN NEW; END';
             CREATE TRIGGER count_it BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_it();
             ALTER TABLE t ENABLE ALWAYS TRIGGER count_it",
        opening: "",
        rule: "SELECT n = (SELECT count(*) FROM t) FROM tally",
        body: |random| {
            let id: u32 = random.random();
            format!("INSERT INTO t VALUES ({} / 2, 0);", id / 4)
        },
    };
    LOAD.check().await;
}

#[tokio::test]
async fn parallel_apply_while_a_unique_index_is_added() {
    const LOAD: Load = Load {
        tables: "CREATE TABLE mail (id int PRIMARY KEY, address text, v int);
                 ALTER TABLE mail REPLICA IDENTITY FULL",
        safe: "[\"public.mail\"]",
        subscriber: "",
        opening: "INSERT INTO mail SELECT i, 'm' || i, 0 FROM generate_series(0, 11) i;
                  CREATE UNIQUE INDEX unique_address ON mail (address)",
        rule: "SELECT count(*) = count(DISTINCT address) FROM mail WHERE address IS NOT NULL",
        body: |random| {
            let [a, b]: [i32; 2] = std::array::from_fn(|_| random.random_range(0..12));
            match random.random_range(0..3) {
                0 => format!("UPDATE mail SET address = NULL WHERE id = {a};"),
                1 => format!("UPDATE mail SET address = 'm{b}' WHERE id = {a};"),
                _ => format!("UPDATE mail SET v = v + 1 WHERE id = {a};"),
            }
        },
    };
    let bed = Bed::new().await;
    let mut pipeline = LOAD.written(&bed).await;
    let watch = LOAD.watch(&bed).await;
    pipeline.start_consumer();
    pipeline.consumer().wait_for_log("lane taken").await;
    let subscriber = bed.subscriber().await;
    subscriber
        .run("CREATE UNIQUE INDEX CONCURRENTLY unique_address ON mail (address)")
        .await;
    // Both sides have it now: whatever hands a value on must keep its order.
    let session = bed.publisher().await;
    for number in 0..TRANSACTIONS {
        let (a, b) = (number % 12, (number * 5) % 12);
        let sql = format!(
            "BEGIN; UPDATE mail SET address = NULL WHERE address = 'm{b}';
             UPDATE mail SET address = 'm{b}' WHERE id = {a}; COMMIT"
        );
        session.run(&sql).await;
    }
    pipeline.catch_up().await;
    watch.finish().await;
    bed.assert_equal().await;
    ran_in_parallel(&pipeline).await;
    pipeline.terminate().await;
}
