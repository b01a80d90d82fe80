//! `shares`: how much of the demo's load runs beside other transactions.
//!
//! The shop's mixed load (hot tills, foreign keys, a renamed product, a table without a key) with
//! eight workers. The figures are shares, not times: transactions of which nothing was known or of
//! which some key stood for a whole table, and units that ran again under rule 0.

use walbraid_tests::bed::Bed;
use walbraid_tests::process::{Process, run as command};

use crate::backlog::explained;

const WORKERS: u32 = 8;
const SECONDS: &str = "20";
const PER_SECOND: &str = "500";
const CEILING: f64 = 0.05;
/// The demo's own.
const PUBLICATION: &str = "walbraid_demo";

/// Runs once; true when both shares were below their ceiling.
pub(crate) async fn run() -> bool {
    let bed = Bed::new().await;
    let mut config = bed.config();
    config
        .text("publisher", "publication", PUBLICATION)
        .set("consumer", "workers", WORKERS);
    let config = bed.write(&config, "shares");
    command(&config, &["demo", "--only", "shop"])
        .await
        .expect(0);
    command(&config, &["setup"]).await.expect(0);
    let producing = Process::start(&config, &["produce"]);
    let consuming = Process::start(&config, &["consume"]);
    let load = [
        "demo",
        "--only",
        "load",
        "--seconds",
        SECONDS,
        "--rate",
        PER_SECOND,
    ];
    let load = command(&config, &load).await.expect(0);
    println!("{}", load.stdout.trim_end());
    command(&config, &["wait", "--timeout", "100"])
        .await
        .expect(0);
    producing.terminate().await;
    consuming.terminate().await;
    let lane = explained(&config).await;
    command(&config, &["teardown"]).await.expect(0);
    let transactions = &lane["transactions"];
    println!("transactions {transactions}\nreruns {}", lane["reruns"]);
    for table in lane["tables"].as_array().unwrap() {
        println!("{} serial {}", table["table"], table["serial"]);
    }
    let count = |name: &str| transactions[name].as_f64().unwrap();
    let looked_at = count("looked_at");
    assert!(looked_at > 0.0, "nothing ran on several connections");
    let serial = (count("UNKNOWN") + count("serial")) / looked_at;
    let reruns = lane["reruns"]["share"].as_f64().unwrap();
    println!(
        "shares serial or unknown {:.2} %, run again {:.2} % (ceilings {:.0} %)",
        100.0 * serial,
        100.0 * reruns,
        100.0 * CEILING
    );
    serial < CEILING && reruns < CEILING
}
