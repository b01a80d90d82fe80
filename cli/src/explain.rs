//! `walbraid explain`: why transactions of a lane waited or were serial, and what would mend it.
//!
//! Read from the subscriber alone, where the consumer keeps its counts; they begin when it was
//! given the lane. The names of the JSON form are stable.

use std::fmt;
use std::time::SystemTime;

use serde_json::{Value, json};
use walbraid_consumer::explain::{
    self, Counted, Explained, LaneExplained, Serial, TableExplained, Transactions,
};
use walbraid_consumer::policy::Failure;
use walbraid_consumer::{schema, stream};
use walbraid_schemas::Stop;

use crate::config::Config;
use crate::output::{json as print_json, line};
use crate::session;
use crate::time;

/// Prints what the lanes of the configured stream explain.
pub(crate) async fn run(config: &Config, json: bool) -> Result<(), Stop> {
    let lanes = read(config).await.map_err(Failure::into_stop)?;
    let stream = &config.stream;
    if json {
        let lanes: Vec<Value> = lanes.iter().map(lane_json).collect();
        print_json(&json!({ "stream": stream, "lanes": lanes }));
    } else {
        lanes.iter().for_each(|lane| line(text(stream, lane)));
    }
    Ok(())
}

async fn read(config: &Config) -> Result<Vec<LaneExplained>, Failure> {
    let subscriber = session::subscriber(config, "walbraid explain").await;
    let subscriber = subscriber.map_err(Failure::Definite)?;
    schema::require(&subscriber).await?;
    stream::require(&subscriber, &config.stream).await?;
    explain::read(&subscriber, &config.stream).await
}

fn lane_json(lane: &LaneExplained) -> Value {
    let mut value = json!({ "lane": lane.lane, "consumer": lane.member, "since": null });
    let Some(Counted {
        since,
        updated,
        explained,
    }) = &lane.counted
    else {
        return value;
    };
    let reruns: u64 = explained.reruns.values().sum();
    let Transactions {
        in_order,
        no_conflict,
        conflict,
        unknown,
        barrier,
        serial,
        behind_alone,
    } = explained.transactions;
    value["since"] = json!(time::rfc3339(*since));
    value["updated"] = json!(time::rfc3339(*updated));
    value["workers"] = json!(explained.workers);
    value["transaction_us"] = json!(explained.transaction_us);
    value["busy_us"] = json!(explained.busy_us);
    value["units"] = json!(explained.units);
    value["transactions"] = json!({
        "total": explained.transactions.all(),
        "in_order": in_order,
        "looked_at": explained.transactions.looked_at(),
        "NO_CONFLICT": no_conflict,
        "CONFLICT": conflict,
        "UNKNOWN": unknown,
        "BARRIER": barrier,
        "serial": serial,
        "serial_share": share(serial, explained.transactions.looked_at()),
        "behind_alone": behind_alone,
    });
    value["tables"] = json!(explained.tables);
    value["serial"] = json!(explained.serial);
    value["reruns"] = json!({
        "total": reruns,
        "share": share(reruns, explained.units),
        "causes": explained.reruns,
    });
    value
}

/// A share of the whole, null where there is none.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What is shown of a lane.
fn text(stream: &str, lane: &LaneExplained) -> String {
    let head = format!("stream {stream} lane {}", lane.lane);
    match &lane.counted {
        None => format!("{head}: nothing was counted; no consumer has applied it yet"),
        Some(counted) => {
            let mut text = format!("{head}: {}", Since(counted.since));
            text += &format!(", as of {}", time::rfc3339(counted.updated));
            sums(&counted.explained, &mut text);
            for table in &counted.explained.tables {
                self::table(table, &mut text);
            }
            if !counted.explained.serial.is_empty() {
                text += "\nno table of the subscriber";
                serial(&counted.explained.serial, &mut text);
            }
            text
        }
    }
}

/// Since when it was counted.
struct Since(SystemTime);

impl fmt::Display for Since {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "counted since {}", time::rfc3339(self.0))
    }
}

fn sums(explained: &Explained, text: &mut String) {
    let transactions = &explained.transactions;
    let looked_at = transactions.looked_at();
    let mut add = |name: &str, value: String| *text += &format!("\n  {name:<18}{value}");
    let busy = explained.transaction_us;
    add("workers", explained.workers.to_string());
    add(
        "a transaction",
        busy.map_or_else(
            || "takes an unknown time".to_owned(),
            |us| format!("keeps a connection busy for {us} µs"),
        ),
    );
    add("transactions", transactions.all().to_string());
    if transactions.in_order > 0 {
        let note = "on one connection, without being looked at";
        add("  in order", format!("{} {note}", transactions.in_order));
    }
    for (name, count) in [
        ("  NO_CONFLICT", transactions.no_conflict),
        ("  CONFLICT", transactions.conflict),
        ("  UNKNOWN", transactions.unknown),
        ("  BARRIER", transactions.barrier),
    ] {
        if looked_at > 0 {
            add(name, count_of(count, looked_at));
        }
    }
    if looked_at > 0 {
        add("serial", count_of(transactions.serial, looked_at));
        add(
            "behind serial",
            count_of(transactions.behind_alone, looked_at),
        );
    }
    let reruns: u64 = explained.reruns.values().sum();
    let of = format!(" of {} target transactions", explained.units);
    add("ran again", count_of(reruns, explained.units) + &of);
    let mut causes: Vec<(&String, &u64)> = explained.reruns.iter().collect();
    causes.sort_by_key(|(name, times)| (std::cmp::Reverse(**times), *name));
    for (cause, times) in causes {
        add(&format!("  {cause}"), times.to_string());
    }
}

/// `7 (35.0 %)`.
fn count_of(count: u64, whole: u64) -> String {
    match share(count, whole) {
        Some(share) if count > 0 => format!("{count} ({:.1} %)", share * 100.0),
        _ => count.to_string(),
    }
}

fn table(table: &TableExplained, text: &mut String) {
    let TableExplained {
        table,
        transactions,
        parallel,
        waited,
        alone,
        waits,
        serial,
    } = table;
    *text += &format!(
        "\n{table}: {transactions} transactions, {parallel} in parallel, {waited} waited, {alone} \
         alone"
    );
    for wait in waits {
        *text += &format!("\n  {} waited for {}", wait.transactions, wait.key);
    }
    self::serial(serial, text);
}

fn serial(serial: &[Serial], text: &mut String) {
    for Serial {
        key,
        reason,
        remedy,
        transactions,
    } in serial
    {
        let of = match key.as_str() {
            "" => String::new(),
            key => format!(" for {key}"),
        };
        *text += &format!("\n  {transactions} serial{of}: {reason}");
        *text += &format!("\n      {remedy}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use walbraid_consumer::explain::Wait;

    use super::*;

    fn lane() -> LaneExplained {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_777_624_200);
        let tables = vec![
            TableExplained {
                table: "public.account".to_owned(),
                transactions: 20,
                parallel: 12,
                waited: 6,
                alone: 2,
                waits: vec![Wait {
                    key: "public.account (account_pkey)".to_owned(),
                    transactions: 4,
                }],
                serial: Vec::new(),
            },
            TableExplained {
                table: "public.audited".to_owned(),
                transactions: 2,
                parallel: 0,
                waited: 0,
                alone: 2,
                waits: Vec::new(),
                serial: vec![Serial {
                    key: "public.audited".to_owned(),
                    reason: "trigger".to_owned(),
                    remedy: "Disable \"audit\".".to_owned(),
                    transactions: 2,
                }],
            },
        ];
        LaneExplained {
            lane: 0,
            member: Some("host:7".to_owned()),
            counted: Some(Counted {
                since,
                updated: since + Duration::from_secs(60),
                explained: Explained {
                    workers: 4,
                    transaction_us: Some(2_100),
                    busy_us: 42_000,
                    units: 25,
                    transactions: Transactions {
                        in_order: 5,
                        no_conflict: 12,
                        conflict: 6,
                        unknown: 2,
                        barrier: 0,
                        serial: 2,
                        behind_alone: 2,
                    },
                    tables,
                    serial: Vec::new(),
                    reruns: BTreeMap::from([("blocked_head".to_owned(), 1)]),
                },
            }),
        }
    }

    #[test]
    fn the_text_says_what_was_counted_and_what_would_mend_it() {
        let expected = "\
stream shop lane 0: counted since 2026-05-01T08:30:00.000Z, as of 2026-05-01T08:31:00.000Z
  workers           4
  a transaction     keeps a connection busy for 2100 µs
  transactions      25
    in order        5 on one connection, without being looked at
    NO_CONFLICT     12 (60.0 %)
    CONFLICT        6 (30.0 %)
    UNKNOWN         2 (10.0 %)
    BARRIER         0
  serial            2 (10.0 %)
  behind serial     2 (10.0 %)
  ran again         1 (4.0 %) of 25 target transactions
    blocked_head    1
public.account: 20 transactions, 12 in parallel, 6 waited, 2 alone
  4 waited for public.account (account_pkey)
public.audited: 2 transactions, 0 in parallel, 0 waited, 2 alone
  2 serial for public.audited: trigger
      Disable \"audit\".";
        assert_eq!(text("shop", &lane()), expected);
    }

    #[test]
    fn shares_are_of_what_was_looked_at_and_of_units() {
        let value = lane_json(&lane());
        assert_eq!(value["transactions"]["serial_share"], 0.1);
        assert_eq!(value["transactions"]["total"], 25);
        assert_eq!(value["reruns"]["share"], 0.04);
        assert_eq!(value["tables"][1]["serial"][0]["reason"], "trigger");
    }

    #[test]
    fn a_lane_that_nobody_applied_is_told_so() {
        let lane = LaneExplained {
            counted: None,
            ..lane()
        };
        let expected = "stream shop lane 0: nothing was counted; no consumer has applied it yet";
        assert_eq!(text("shop", &lane), expected);
        assert_eq!(lane_json(&lane)["since"], Value::Null);
    }
}
