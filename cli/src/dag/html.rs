//! A recording as a page of its own: no other file, no address, no row of a table is in it.
//!
//! The lanes are an inline SVG, the units a table below; pointing at a unit marks it, what it waits
//! for, and what waits for it. Colours follow what the reader's browser prefers. Everything that
//! came from a database is escaped.

use std::fmt::Write;

use walbraid_consumer::recording::{Recording, Unit};

use super::Recorded;
use super::lanes::{Bar, Lanes, Outcome};
use super::text;

/// Width of the lanes, pixels.
const WIDTH: f64 = 1_600.0;

/// Left of the lanes stand the workers.
const LEFT: f64 = 80.0;

/// Height of a lane, and of the bar in it.
const LANE: f64 = 40.0;
const BAR: f64 = 24.0;

/// The smallest bar that can be seen, and the smallest that holds a number.
const SEEN: f64 = 3.0;
const NUMBERED: f64 = 22.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fff; --text: #1c1f24; --quiet: #6a727d;
  --line: #d5d9df; --run: #2f6fde; --turn: #9dbdf2; --undone: #d9480f; --open: #8a8f98;
  --edge: #57606a; --mark: #e3a008; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --text: #e4e7eb; --quiet: #97a0ab;
  --line: #343a42; --run: #5b93f5; --turn: #2f4f85; --undone: #f2733a; --open: #6a727d;
  --edge: #aab2bc; --mark: #f5c542; } }
body { margin: 24px; background: var(--ground); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin-top: 32px; }
p, .quiet { color: var(--quiet); }
.lanes { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .name { fill: var(--quiet); } svg .rule { stroke: var(--line); }
.run { fill: var(--run); } .turn { fill: var(--turn); } .undone { fill: var(--undone); }
.open { fill: var(--open); } svg .number { fill: var(--ground); pointer-events: none; }
.edge { fill: none; stroke: var(--edge); stroke-width: 1.2; opacity: .55; }
.marked rect { stroke: var(--mark); stroke-width: 3; }
.edge.marked { stroke: var(--mark); stroke-width: 2.5; opacity: 1; }
table { border-collapse: collapse; width: 100%; } tr.marked { outline: 2px solid var(--mark); }
th, td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid var(--line); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 4px 0 12px; }
.key.run { background: var(--run); } .key.turn { background: var(--turn); }
.key.undone { background: var(--undone); } .key.open { background: var(--open); }
";

const SCRIPT: &str = "
for (const section of document.querySelectorAll('section')) {
  const mark = (unit, on) => {
    for (const one of section.querySelectorAll('[data-unit=\"' + unit + '\"]'))
      one.classList.toggle('marked', on);
    for (const edge of section.querySelectorAll('.edge'))
      if (edge.dataset.from === unit || edge.dataset.to === unit)
        edge.classList.toggle('marked', on);
  };
  for (const one of section.querySelectorAll('[data-unit]')) {
    one.addEventListener('mouseenter', () => mark(one.dataset.unit, true));
    one.addEventListener('mouseleave', () => mark(one.dataset.unit, false));
  }
}
";

/// The page.
pub(super) fn page(stream: &str, lanes: &[Recorded]) -> String {
    let name = escape(stream);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>{name}: transactions</title>\n<style>{STYLE}</style>\n\
         <h1>Stream {name}</h1>\n"
    );
    for Recorded { lane, recording } in lanes {
        let _ = write!(page, "<section>\n<h2>Lane {lane}</h2>\n");
        section(recording, &mut page);
        page.push_str("</section>\n");
    }
    let _ = write!(page, "<script>{SCRIPT}</script>\n</html>\n");
    page
}

/// Text that may stand anywhere in the page.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn section(recording: &Recording, page: &mut String) {
    let _ = writeln!(page, "<p>{}.</p>", escape(&text::sum(recording)));
    if let Some(lanes) = Lanes::of(recording) {
        page.push_str(
            "<p><span class=\"key run\"></span>statements<span class=\"key turn\"></span>waits for \
             its turn and commits<span class=\"key undone\"></span>undone, runs again\
             <span class=\"key open\"></span>open at the end</p>\n",
        );
        drawing(recording, &lanes, page);
    }
    if !recording.units.is_empty() {
        table(recording, page);
    }
}

fn x(lanes: &Lanes, ms: u64) -> f64 {
    LEFT + lanes.place(ms) * (WIDTH - LEFT - 20.0)
}

fn y(worker: usize) -> f64 {
    worker as f64 * LANE + (LANE - BAR) / 2.0
}

fn drawing(recording: &Recording, lanes: &Lanes, page: &mut String) {
    let bottom = lanes.workers as f64 * LANE;
    let height = bottom + 24.0;
    let _ = writeln!(
        page,
        "<div class=\"lanes\"><svg width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"worker lanes over time\">"
    );
    for worker in 0..lanes.workers {
        let middle = y(worker) + BAR / 2.0;
        let _ = writeln!(
            page,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{middle}\" y2=\"{middle}\"/>\
             <text class=\"name\" x=\"8\" y=\"{}\">worker {worker}</text>",
            middle + 4.0
        );
    }
    for (ms, anchor) in [(lanes.from_ms, "start"), (lanes.to_ms, "end")] {
        let _ = writeln!(
            page,
            "<text class=\"name\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{ms} ms</text>",
            x(lanes, ms),
            bottom + 16.0
        );
    }
    edges(recording, lanes, page);
    for bar in &lanes.bars {
        let unit = recording.units.iter().find(|unit| unit.unit == bar.unit);
        self::bar(bar, unit, lanes, page);
    }
    page.push_str("</svg></div>\n");
}

/// From the end of the earlier unit to where the later one was last taken up.
fn edges(recording: &Recording, lanes: &Lanes, page: &mut String) {
    let last = |unit: usize| lanes.bars.iter().rfind(|bar| bar.unit == unit);
    for unit in &recording.units {
        for edge in &unit.edges {
            let (Some(before), Some(to)) = (edge.unit, last(unit.unit)) else {
                continue;
            };
            let Some(from) = last(before) else {
                continue;
            };
            let (x1, y1) = (x(lanes, from.to_ms), y(from.worker) + BAR / 2.0);
            let (x2, y2) = (x(lanes, to.from_ms), y(to.worker) + BAR / 2.0);
            let bend = ((x2 - x1).abs() / 2.0).max(16.0);
            let key = edge.key.as_deref().unwrap_or("order");
            let _ = writeln!(
                page,
                "<path class=\"edge\" data-from=\"{before}\" data-to=\"{}\" d=\"M{x1:.1} {y1} \
                 C{:.1} {y1} {:.1} {y2} {x2:.1} {y2}\"><title>{} waits for {before}: {}</title>\
                 </path>",
                unit.unit,
                x1 + bend,
                x2 - bend,
                unit.unit,
                escape(key)
            );
        }
    }
}

fn bar(bar: &Bar, unit: Option<&Unit>, lanes: &Lanes, page: &mut String) {
    let (from, top) = (x(lanes, bar.from_ms), y(bar.worker));
    let to = x(lanes, bar.to_ms).max(from + SEEN);
    let counted = x(lanes, bar.counted_ms).clamp(from, to);
    let number = bar.unit;
    let what = unit.map(text::transactions).unwrap_or_default();
    let _ = write!(
        page,
        "<g data-unit=\"{number}\"><title>{number}: {}, {} to {} ms</title>",
        escape(&what),
        bar.from_ms,
        bar.to_ms
    );
    let pieces = match bar.outcome {
        Outcome::Committed => [Some(("run", from, counted)), Some(("turn", counted, to))],
        Outcome::Undone => [Some(("undone", from, to)), None],
        Outcome::Open => [Some(("open", from, to)), None],
    };
    for (class, from, to) in pieces
        .into_iter()
        .flatten()
        .filter(|(_, from, to)| to > from)
    {
        let _ = write!(
            page,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" \
             height=\"{BAR}\"/>",
            to - from
        );
    }
    if to - from >= NUMBERED {
        let _ = write!(
            page,
            "<text class=\"number\" x=\"{:.1}\" y=\"{}\">{number}</text>",
            from + 4.0,
            top + BAR / 2.0 + 4.0
        );
    }
    page.push_str("</g>\n");
}

fn table(recording: &Recording, page: &mut String) {
    page.push_str(
        "<table>\n<tr><th>unit<th>dependence<th>transactions<th>changes<th>waits for<th>attempts\
         </tr>\n",
    );
    let lines = |lines: Vec<String>| {
        let escaped: Vec<String> = lines.iter().map(|line| escape(line)).collect();
        escaped.join("<br>")
    };
    for unit in &recording.units {
        let mut attempts: Vec<String> = unit.attempts.iter().map(text::attempt).collect();
        if unit.split {
            attempts.push("failed as a whole; its transactions follow one by one".to_owned());
        }
        let _ = writeln!(
            page,
            "<tr data-unit=\"{0}\"><td>{0}<td>{1}<td>{2}<td>{3} <span class=\"quiet\">{4}</span>\
             <td>{5}<td>{6}</tr>",
            unit.unit,
            escape(&unit.dependence),
            escape(&text::transactions(unit)),
            unit.changes,
            escape(&unit.tables.join(", ")),
            lines(text::edges(unit)),
            lines(attempts)
        );
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::tests::{idle, recorded};

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page("shop", &[recorded()]);
        for outside in ["http", "//", "src=", "href=", "url(", "@import", "<link"] {
            assert!(!page.contains(outside), "{outside} is in the page");
        }
    }

    #[test]
    fn names_are_escaped_everywhere() {
        let evil = "<script>alert(\"&'\")</script>";
        let mut recorded = recorded();
        for unit in &mut recorded.recording.units {
            unit.tables = vec![evil.to_owned()];
            unit.dependence = evil.to_owned();
            for edge in &mut unit.edges {
                edge.key = Some(evil.to_owned());
            }
            for attempt in &mut unit.attempts {
                attempt.cause = Some(evil.to_owned());
            }
        }
        let page = page(evil, &[recorded]);
        assert!(!page.contains("<script>alert"), "a name is not escaped");
        assert!(page.contains("&lt;script&gt;alert(&quot;&amp;&#39;&quot;)&lt;/script&gt;"));
        assert_eq!(page.matches("<script>").count(), 1);
    }

    #[test]
    fn every_attempt_has_a_bar_and_every_known_edge_a_line() {
        let page = page("shop", &[recorded()]);
        assert_eq!(page.matches("<g data-unit=").count(), 4);
        assert_eq!(page.matches("<path class=\"edge\"").count(), 1);
        assert!(page.contains("data-from=\"1\" data-to=\"2\""));
        assert_eq!(page.matches("<rect class=\"undone\"").count(), 1);
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn a_page_of_an_idle_lane_says_so() {
        let page = page("shop", &[idle()]);
        assert!(page.contains("<p>nothing happened for 10000 ms; the lane is idle.</p>"));
        assert!(!page.contains("<svg"));
    }
}
