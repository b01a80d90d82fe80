//! A recording as text.

use std::fmt::Write;

use walbraid_consumer::recording::{Attempt, Recording, Unit};

use super::Recorded;
use super::lanes::{Bar, Lanes, Outcome};

/// Columns of a worker's lane.
const COLUMNS: usize = 80;

/// So many transactions of a unit are named.
const NAMED_MAX: usize = 3;

/// What was recorded of a lane.
pub(super) fn lane(stream: &str, recorded: &Recorded) -> String {
    let Recorded { lane, recording } = recorded;
    let mut text = format!("stream {stream} lane {lane}: {}", sum(recording));
    for unit in &recording.units {
        self::unit(unit, &mut text);
    }
    if let Some(lanes) = Lanes::of(recording) {
        workers(&lanes, &mut text);
    }
    text
}

/// How much was recorded.
pub(super) fn sum(recording: &Recording) -> String {
    let ms = recording.duration_ms;
    if recording.units.is_empty() {
        return format!("nothing happened for {ms} ms; the lane is idle");
    }
    let whole = recording.units.iter().filter(|unit| !unit.split);
    let transactions: usize = whole.map(|unit| unit.transactions.len()).sum();
    let units = recording.units.len();
    format!("{transactions} transactions in {units} units, recorded for {ms} ms")
}

/// `0/10 xid 16, 0/20 xid 32 and 3 more`.
pub(super) fn transactions(unit: &Unit) -> String {
    let named = unit.transactions.iter().take(NAMED_MAX);
    let named: Vec<String> = named
        .map(|one| format!("{} xid {}", one.commit_lsn, one.xid))
        .collect();
    let named = named.join(", ");
    match unit.transactions.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What the unit waits for, a line for each.
pub(super) fn edges(unit: &Unit) -> Vec<String> {
    let mut lines = Vec::new();
    for edge in &unit.edges {
        let before = edge
            .unit
            .map_or("an earlier unit".to_owned(), |n| n.to_string());
        let key = match (&edge.key, unit.dependence.as_str()) {
            (Some(key), _) => key,
            (None, "IN_ORDER") => "order",
            (None, _) => "one of them runs alone",
        };
        lines.push(format!("{before}: {key}"));
    }
    if unit.edges_left_out > 0 {
        lines.push(format!("{} more", unit.edges_left_out));
    }
    lines
}

/// `worker 0: sent 3 ms, counted 5 ms, committed 9 ms`.
pub(super) fn attempt(attempt: &Attempt) -> String {
    let mut text = format!("worker {}: sent {} ms", attempt.worker, attempt.sent_ms);
    for (what, ms) in [
        ("counted", attempt.counted_ms),
        ("COMMIT sent", attempt.turn_ms),
    ] {
        if let Some(ms) = ms {
            let _ = write!(text, ", {what} {ms} ms");
        }
    }
    let end = attempt.end.replace('_', " ");
    match attempt.ended_ms {
        Some(ms) => {
            let _ = write!(text, ", {end} {ms} ms");
        }
        None => text.push_str(", still open"),
    }
    if let Some(cause) = &attempt.cause {
        let _ = write!(text, " ({cause})");
    }
    text
}

fn unit(unit: &Unit, text: &mut String) {
    let Unit {
        unit: number,
        dependence,
        changes,
        tables,
        ..
    } = unit;
    let _ = write!(
        text,
        "\n{number:>4}  {dependence:<12} {}: {changes} changes of {}",
        transactions(unit),
        if tables.is_empty() {
            "no table".to_owned()
        } else {
            tables.join(", ")
        }
    );
    for edge in edges(unit) {
        let _ = write!(text, "\n        waits for {edge}");
    }
    for one in &unit.attempts {
        let _ = write!(text, "\n        {}", attempt(one));
    }
    if unit.split {
        text.push_str("\n        failed as a whole; its transactions follow one by one");
    }
}

fn workers(lanes: &Lanes, text: &mut String) {
    let Lanes {
        workers,
        from_ms,
        to_ms,
        ..
    } = lanes;
    let _ = write!(
        text,
        "\nworkers from {from_ms} to {to_ms} ms: = statements, - waits for its turn and commits, x \
         undone, ? open"
    );
    for worker in 0..*workers {
        let mut columns = [' '; COLUMNS];
        for bar in lanes.bars.iter().filter(|bar| bar.worker == worker) {
            draw(bar, lanes, &mut columns);
        }
        let columns: String = columns.iter().collect();
        let _ = write!(text, "\n{worker:>4} |{columns}|");
    }
}

fn draw(bar: &Bar, lanes: &Lanes, columns: &mut [char; COLUMNS]) {
    let column = |ms| (lanes.place(ms) * COLUMNS as f64) as usize;
    let from = column(bar.from_ms).min(COLUMNS - 1);
    let to = column(bar.to_ms).max(from + 1);
    let counted = column(bar.counted_ms).max(from + 1);
    for (place, drawn) in columns.iter_mut().enumerate().take(to).skip(from) {
        *drawn = match bar.outcome {
            Outcome::Undone => 'x',
            Outcome::Open => '?',
            Outcome::Committed if place < counted => '=',
            Outcome::Committed => '-',
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::tests::{idle, recorded};

    #[test]
    fn units_edges_attempts_and_lanes() {
        let expected = "\
stream shop lane 0: 7 transactions in 3 units, recorded for 140 ms
   1  NO_CONFLICT  0/10 xid 16: 3 changes of public.a<b
        worker 0: sent 100 ms, counted 104 ms, COMMIT sent 104 ms, committed 110 ms
   2  CONFLICT     0/20 xid 32: 3 changes of public.a<b
        waits for 1: public.a<b (a_pkey)
        worker 1: sent 100 ms, counted 103 ms, called back 105 ms (not_found)
        worker 0: sent 110 ms, committed 120 ms
   3  CONFLICT     0/30 xid 48, 0/40 xid 64, 0/50 xid 80 and 2 more: 3 changes of public.a<b
        waits for an earlier unit: one of them runs alone
        worker 1: sent 115 ms, still open
workers from 100 to 140 ms: = statements, - waits for its turn and commits, x undone, ? open
   0 |========------------====================                                        |
   1 |xxxxxxxxxx                    ??????????????????????????????????????????????????|";
        assert_eq!(lane("shop", &recorded()), expected);
    }

    #[test]
    fn an_idle_lane_is_told_so() {
        let expected = "stream shop lane 0: nothing happened for 10000 ms; the lane is idle";
        assert_eq!(lane("shop", &idle()), expected);
    }
}
