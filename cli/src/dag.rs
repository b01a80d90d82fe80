//! `walbraid dag`: the next transactions of a running consumer, recorded and drawn.
//!
//! Asks through a row on the subscriber, waits for the answer, takes the row back. Shown are units
//! (what becomes one target transaction), their edges with the key that both touch, and the worker
//! lanes over time, with attempts that were undone. An idle lane is no error: it is told so.

mod html;
mod lanes;
mod text;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use walbraid_consumer::policy::Failure;
use walbraid_consumer::recording::{self, Answer, Recording, Request};
use walbraid_consumer::{schema, stream};
use walbraid_schemas::{Stop, StopKind};

use crate::args;
use crate::config::Config;
use crate::output::{json as print_json, line};
use crate::session::{self, Session};

/// How often the answer is looked for.
const POLL_MS: u64 = 100;

/// How long an answer may be overdue: the consumer looks and writes once a second.
const OVERDUE_MS: u64 = 5_000;

/// A lane and what was recorded of it.
struct Recorded {
    lane: u32,
    recording: Recording,
}

/// Records and shows.
pub(crate) async fn run(config: &Config, options: &args::Dag) -> Result<(), Stop> {
    let lanes = record(config, options).await?;
    let stream = &config.stream;
    if let Some(file) = &options.html {
        let page = html::page(stream, &lanes);
        std::fs::write(file, page).map_err(|error| {
            let message = format!("cannot write \"{}\": {error}", file.display());
            Stop::new(StopKind::Usage, message)
        })?;
        line(format_args!("wrote {}", file.display()));
    }
    if options.json {
        let lanes: Vec<Value> = lanes.iter().map(lane_json).collect();
        print_json(&json!({ "stream": stream, "lanes": lanes }));
    } else if options.html.is_none() {
        let texts = lanes.iter().map(|lane| text::lane(stream, lane));
        texts.for_each(line);
    }
    Ok(())
}

fn lane_json(recorded: &Recorded) -> Value {
    let mut value = json!(recorded.recording);
    value["lane"] = json!(recorded.lane);
    value
}

/// Asks for a recording of every lane, and waits for the answers.
async fn record(config: &Config, options: &args::Dag) -> Result<Vec<Recorded>, Stop> {
    let subscriber = session::writing_subscriber(config, "walbraid dag").await?;
    let requests = ask(&subscriber, config, options)
        .await
        .map_err(Failure::into_stop)?;
    let mut lanes = Vec::with_capacity(requests.len());
    let mut end = Ok(());
    let until = Instant::now() + options.timeout + Duration::from_millis(OVERDUE_MS);
    for request in &requests {
        match answered(&subscriber, request, options.timeout, until).await {
            Ok(recording) => lanes.push(Recorded {
                lane: request.lane,
                recording,
            }),
            Err(stop) => end = end.and(Err(stop)),
        }
        recording::withdraw(&subscriber, request)
            .await
            .map_err(Failure::into_stop)?;
    }
    end.map(|()| lanes)
}

async fn ask(
    subscriber: &Session,
    config: &Config,
    options: &args::Dag,
) -> Result<Vec<Request>, Failure> {
    schema::require(subscriber).await?;
    stream::require(subscriber, &config.stream).await?;
    let transactions = usize::try_from(options.transactions).unwrap_or(usize::MAX);
    recording::ask(subscriber, &config.stream, transactions, options.timeout).await
}

async fn answered(
    subscriber: &Session,
    request: &Request,
    time: Duration,
    until: Instant,
) -> Result<Recording, Stop> {
    loop {
        let answer = recording::answer(subscriber, request).await;
        let answer = answer.map_err(Failure::into_stop)?;
        if let Answer::Recorded(recording) = answer {
            return Ok(recording);
        }
        if answer == Answer::Lost || Instant::now() >= until {
            return Err(unanswered(request.lane, &answer, time));
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}

/// Why there is no recording.
fn unanswered(lane: u32, answer: &Answer, time: Duration) -> Stop {
    let seconds = time.as_secs_f64();
    let (message, hint) = match answer {
        Answer::Unseen => (
            format!("no consumer began to record lane {lane} within {seconds} s"),
            "walbraid status tells whether one runs.",
        ),
        Answer::Recording | Answer::Recorded(_) => (
            format!("the consumer began to record lane {lane} and did not answer"),
            "It may have lost its sessions or have been stopped: look at walbraid status.",
        ),
        Answer::Lost => (
            format!("the recording of lane {lane} was given up"),
            "Another walbraid dag asked meanwhile, or another version of the consumer answered.",
        ),
    };
    Stop::new(StopKind::WaitTimedOut, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use walbraid_consumer::recording::{Attempt, Edge, Transaction, Unit};
    use walbraid_schemas::Lsn;

    fn attempt(worker: usize, times: [Option<u64>; 4], end: &str, cause: Option<&str>) -> Attempt {
        let [sent_ms, counted_ms, turn_ms, ended_ms] = times;
        Attempt {
            worker,
            sent_ms: sent_ms.unwrap(),
            counted_ms,
            turn_ms,
            ended_ms,
            end: end.to_owned(),
            cause: cause.map(str::to_owned),
        }
    }

    fn unit(number: usize, xids: &[u32], edges: Vec<Edge>, attempts: Vec<Attempt>) -> Unit {
        let transactions = xids.iter().map(|&xid| Transaction {
            xid,
            commit_lsn: Lsn(u64::from(xid)),
        });
        Unit {
            unit: number,
            transactions: transactions.collect(),
            tables: vec!["public.a<b".to_owned()],
            changes: 3,
            dependence: if edges.is_empty() {
                "NO_CONFLICT"
            } else {
                "CONFLICT"
            }
            .to_owned(),
            edges,
            edges_left_out: 0,
            formed_ms: 100,
            attempts,
            split: false,
        }
    }

    /// Three units on two workers; the second is undone once.
    pub(super) fn recorded() -> Recorded {
        let key = Some("public.a<b (a_pkey)".to_owned());
        let first = [Some(100), Some(104), Some(104), Some(110)];
        let undone = [Some(100), Some(103), None, Some(105)];
        let again = [Some(110), None, None, Some(120)];
        let units = vec![
            unit(1, &[16], vec![], vec![attempt(0, first, "committed", None)]),
            unit(
                2,
                &[32],
                vec![Edge { unit: Some(1), key }],
                vec![
                    attempt(1, undone, "called_back", Some("not_found")),
                    attempt(0, again, "committed", None),
                ],
            ),
            unit(
                3,
                &[48, 64, 80, 96, 112],
                vec![Edge {
                    unit: None,
                    key: None,
                }],
                vec![attempt(1, [Some(115), None, None, None], "open", None)],
            ),
        ];
        let recording = Recording {
            duration_ms: 140,
            units,
        };
        Recorded { lane: 0, recording }
    }

    pub(super) fn idle() -> Recorded {
        let recording = Recording {
            duration_ms: 10_000,
            units: Vec::new(),
        };
        Recorded { lane: 0, recording }
    }

    #[test]
    fn the_json_form_is_what_was_recorded_with_its_lane() {
        let value = lane_json(&recorded());
        assert_eq!(value["lane"], 0);
        assert_eq!(value["units"][1]["edges"][0]["unit"], 1);
        assert_eq!(value["units"][0]["transactions"][0]["commit_lsn"], "0/10");
    }

    #[test]
    fn who_does_not_answer_is_told_apart() {
        let time = Duration::from_secs(10);
        let check = |answer: Answer, message: &str| {
            let stop = unanswered(0, &answer, time);
            assert_eq!(
                (stop.kind, stop.message.as_str()),
                (StopKind::WaitTimedOut, message)
            );
        };
        check(
            Answer::Unseen,
            "no consumer began to record lane 0 within 10 s",
        );
        check(
            Answer::Recording,
            "the consumer began to record lane 0 and did not answer",
        );
        check(Answer::Lost, "the recording of lane 0 was given up");
    }
}
