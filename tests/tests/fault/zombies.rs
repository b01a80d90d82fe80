//! Owners of a lane that are frozen with transactions in flight, and wake up when another owner, of
//! another number of workers, has gone on.

use walbraid_tests::bed::{Bed, PUBLICATION, Pipeline};
use walbraid_tests::config::Config;
use walbraid_tests::oracle;
use walbraid_tests::process::Process;
use walbraid_tests::session::Session;
use walbraid_tests::trouble::LANE;
use walbraid_tests::wait::{PATIENCE, until};
use walbraid_tests::witness::Witness;

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE log (n int)";

/// What only the subscriber has: who wrote a row.
const WRITERS: &str = "
    ALTER TABLE t ADD writer int DEFAULT pg_backend_pid();
    ALTER TABLE log ADD writer int DEFAULT pg_backend_pid()";

/// The sessions of the workers of a stream.
fn workers_of(bed: &Bed) -> String {
    let name = &bed.name;
    format!(
        "FROM pg_stat_activity WHERE datname = current_database()
         AND application_name LIKE 'walbraid {name} 0 worker %'"
    )
}

/// Each transaction its own unit; a lock that is not given is waited for; owners follow each other
/// under one name, so that the group gives the lane to the newer one at once.
fn config(bed: &Bed, workers: &str) -> Config {
    let mut config = bed.config();
    match workers.parse::<u32>() {
        Ok(workers) => config.set("consumer", "workers", workers),
        Err(_) => config.text("consumer", "workers", workers),
    };
    config
        .set("consumer", "group", 1)
        .set("consumer", "lock_timeout_ms", 0)
        .text("kafka", "group.instance.id", &bed.name)
        .set("kafka", "session.timeout.ms", 45_000);
    config
}

/// Transactions that depend on nothing.
async fn write(publisher: &Session, numbers: std::ops::Range<i32>) {
    for n in numbers {
        let sql =
            format!("BEGIN; INSERT INTO t VALUES ({n}); INSERT INTO log VALUES ({n}); COMMIT");
        publisher.run(&sql).await;
    }
}

/// A consumer that was stopped in the middle of its work.
struct Frozen {
    zombie: Process,
    /// Holds the row that the head waits for.
    holder: Session,
    /// The server processes of its workers.
    processes: String,
}

/// Freezes the consumer of that many workers: its head waits for a row, and what all other workers
/// have in flight waits for the head, with all its statements done and no COMMIT.
async fn freeze(bed: &Bed, pipeline: &mut Pipeline, workers: usize) -> Frozen {
    let publisher = bed.publisher().await;
    publisher.run("INSERT INTO t VALUES (0, 0)").await;
    pipeline.catch_up().await;
    let holder = bed.subscriber().await;
    holder
        .run("BEGIN; SELECT FROM t WHERE id = 0 FOR UPDATE")
        .await;
    publisher.run("UPDATE t SET v = 1 WHERE id = 0").await;
    write(&publisher, 1..20).await;
    let sessions = workers_of(bed);
    let held = format!(
        "SELECT count(*) = {} {sessions}
         AND wait_event = 'ClientRead' AND backend_xid IS NOT NULL",
        workers - 1
    );
    // Not in the transaction of the holder, which would see the same each time.
    let other = bed.subscriber().await;
    until("all but the head are held", PATIENCE, async || {
        other.holds(&held).await.then_some(())
    })
    .await;
    let zombie = pipeline.consumer.take().unwrap();
    zombie.pause();
    let processes = other
        .value(&format!("SELECT string_agg(pid::text, ', ') {sessions}"))
        .await;
    Frozen {
        zombie,
        holder,
        processes,
    }
}

impl Frozen {
    /// Lets it go on beside a new owner: it ends with its code, and no row is of its making.
    async fn wakes_up_and_does_no_harm(mut self, publisher: &Session, pipeline: &mut Pipeline) {
        pipeline.consumer().wait_for_log("lane taken").await;
        self.holder.run("COMMIT").await;
        write(publisher, 20..40).await;
        pipeline.catch_up().await;
        self.zombie.expect(&[LANE]).resume();
        write(publisher, 40..60).await;
        let message = self.zombie.stops(31).await;
        assert!(message.contains("HINT:  Another consumer"), "{message}");
        pipeline.catch_up().await;
        let processes = &self.processes;
        let of_the_zombie = format!(
            "SELECT (SELECT count(*) FROM t WHERE id > 0 AND writer IN ({processes}))
                  + (SELECT count(*) FROM log WHERE writer IN ({processes}))"
        );
        assert_eq!(self.holder.value(&of_the_zombie).await, "0");
    }
}

/// How many workers of the stream have an origin.
async fn origins(bed: &Bed) -> String {
    let count = format!(
        "SELECT count(*) FROM pg_replication_origin o, pg_database d
         WHERE d.datname = current_database() AND roname LIKE format('walbraid\\_%s\\_%%', d.oid)
           AND roname ~ '_{}_.*_0_[0-9]+$'",
        bed.name
    );
    bed.subscriber().await.value(&count).await
}

async fn taken_over(former: usize, next: &str, origins_left: &str) {
    let bed = Bed::new().await.watched();
    bed.both(TABLES).await;
    bed.subscriber().await.run(WRITERS).await;
    let first = config(&bed, &former.to_string());
    let mut pipeline = bed.pipeline_with(&first).await;
    let publisher = bed.publisher().await;
    let frozen = freeze(&bed, &mut pipeline, former).await;
    let first = pipeline.config.clone();
    pipeline.config = bed.write(&config(&bed, next), "next");
    pipeline.start_consumer();
    frozen
        .wakes_up_and_does_no_harm(&publisher, &mut pipeline)
        .await;
    bed.assert_equal().await;
    assert_eq!(origins(&bed).await, origins_left, "{former} to {next}");
    // One like the first has its origins again, and goes on where the other was.
    pipeline.consumer.take().unwrap().terminate().await;
    pipeline.config = first;
    pipeline.start_consumer();
    write(&publisher, 60..70).await;
    pipeline.catch_up().await;
    bed.assert_equal().await;
    assert_eq!(origins(&bed).await, former.to_string(), "{former} again");
    pipeline.terminate().await;
}

#[tokio::test]
async fn a_zombie_with_transactions_in_flight_does_no_harm_to_an_owner_of_other_workers() {
    tokio::join!(
        taken_over(8, "2", "2"),
        taken_over(2, "8", "8"),
        taken_over(8, "auto", "8"),
    );
}

/// Two streams into one database, and one of them into another database of the same cluster under
/// the same name.
#[tokio::test]
async fn a_zombie_of_one_stream_does_no_harm_to_its_neighbours() {
    let bed = Bed::new().await.watched();
    let neighbour = Bed::new()
        .await
        .unwatched("its tables are in the database of the other");
    let second = Bed::new()
        .await
        .unwatched("its stream is of the publisher of the other");
    bed.both(TABLES).await;
    bed.subscriber().await.run(WRITERS).await;
    let other_table = "CREATE TABLE other (id int PRIMARY KEY)";
    let (publisher, to_neighbour) = (bed.publisher().await, neighbour.publisher().await);
    to_neighbour.run(other_table).await;
    bed.subscriber().await.run(other_table).await;
    let second_subscriber = second.subscriber().await;
    second_subscriber.run(TABLES).await;
    Witness::prepare(&publisher, &second_subscriber).await;

    let mut same_name = config(&bed, "8");
    same_name
        .text("publisher", "slot", &second.name)
        .text("kafka", "topic", &second.topic.name)
        .text("kafka", "group.id", &second.name)
        .text("subscriber", "url", &second.subscriber_url);
    let mut same_name = second.pipeline_with(&same_name).await;
    let mut pipeline = bed.pipeline_with(&config(&bed, "8")).await;
    let mut beside = config(&neighbour, "8");
    beside.text("subscriber", "url", &bed.subscriber_url);
    let mut beside = neighbour.pipeline_with(&beside).await;

    let frozen = freeze(&bed, &mut pipeline, 8).await;
    for id in 0..20 {
        let insert = format!("INSERT INTO other VALUES ({id})");
        to_neighbour.run(&insert).await;
    }
    // Neither waits for the one that is frozen.
    beside.catch_up().await;
    same_name.catch_up().await;
    pipeline.start_consumer();
    frozen
        .wakes_up_and_does_no_harm(&publisher, &mut pipeline)
        .await;
    beside.catch_up().await;
    same_name.catch_up().await;
    bed.assert_equal().await;
    let copies = [
        (&to_neighbour, bed.subscriber().await),
        (&publisher, second_subscriber),
    ];
    for (from, to) in copies {
        let found = oracle::differences(from, &to, PUBLICATION).await;
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    for pipeline in [&mut pipeline, &mut beside, &mut same_name] {
        pipeline.terminate().await;
    }
}
