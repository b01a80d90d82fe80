//! The chain: the one rule by which a lane's records are read.
//!
//! A lane is written by whoever thinks it is the producer. There may be several at a time, some
//! of them zombies (stopped, partitioned, overtaken), some with other options than the others;
//! they repeat each other's work, die in the middle of it, and Kafka keeps all of it. The chain
//! makes one sequence of links out of that, the same one for every reader: [`Reader`] is fed the
//! lane's records by offset and says of each what it is. It owns no record and no IO. [`Tail`] is
//! the producer's side of it: what its first link says its predecessor is.
//!
//! # Terms
//!
//! Every record names its writer's claim by the claim's offset. The **newest** claim at a place
//! of the log is the one with the highest offset before it. *P* is the end of the last link
//! taken. *K*, the **covered LSN**, is what is known of the WAL: every link that ended at or
//! below it was taken (or was no link to whoever covered it first); it is moved by links and by
//! heartbeats, and `P <= K`. *C* is a claim's confirmed LSN.
//!
//! # The rule
//!
//! 1. A record counts only if its claim is the newest at its place. A claim voids the unfinished
//!    run of the claim before it.
//! 2. A claim with `C > K` is a break.
//! 3. A link that ends at or below K is dropped. A link with `previous > K` is a break. Any other
//!    is taken, part by part; with its last part `P = K = end`.
//! 4. A heartbeat with `previous > K` is a break; otherwise `K = max(K, end)`.
//! 5. A link or heartbeat that passes over P (`previous < P < end`) contradicts what was taken,
//!    and is a divergence, unless a new claim explains it: another view of the WAL (the options
//!    changed since P was taken), or a claim with `C >= P`, which does not need to know P.
//! 6. A reader that starts anew counts nothing until it knows that it started at or before the
//!    place where it had taken P; until then it asks to be started further back.
//!
//! What producers must keep for this: hold the slot when reading C, and write the claim after
//! it; send every link above C, in WAL order, and under one claim never go back (who must go
//! back claims anew: after a lost walsender, after a fatal error of the Kafka client); confirm
//! only what is acknowledged, and only up to the first foreign claim behind their own. Kafka's
//! idempotent producer keeps a repeated batch from landing behind later records.
//!
//! # Hazards
//!
//! Numbered stories; the tests name them. A, B are producers, `A:x` is A's link that ends at x.
//!
//! 1. *The zombie.* A is frozen with links in its queue. B takes the slot over, claims, re-sends
//!    what was not confirmed, and confirms. A wakes up and appends its queue. The links are
//!    true, but B may have other options, and A's place in the WAL is not B's. Rule 1 drops
//!    them all. Nothing is lost: B sends everything above C, and what is confirmed stands before
//!    B's claim, since a producer confirms only up to the first foreign claim.
//! 2. *The late claim.* A read C, sent its claim, and was frozen before it arrived. B claimed,
//!    wrote, and confirmed. Then A's claim lands and voids what B writes from now on. B finds a
//!    foreign claim behind its own, confirms nothing behind it, and claims again if it still
//!    holds the slot. What A writes meanwhile repeats what is above A's older C: dropped by
//!    rule 3, or true and taken.
//! 3. *The broken run.* A dies after part 2 of 5. B's copy of the link has three parts. Parts of
//!    two runs must never be joined: rule 1 voids A's run at B's claim, B's run starts at 0.
//! 4. *The same run, begun again.* A part 0 of the run that is open starts it anew. A number
//!    that was there already is a repeat. A number that is missing is a break: the log lost it.
//! 5. *The changed view.* Under A, links end at 100 and 200. The options change; B has none at
//!    200 and one at 150 and 300, and C is 100. Readers have taken `A:100`, `A:200`. `B:150` is
//!    below K and dropped: each stretch of the WAL is read in one view, that of the record that
//!    covered it first. `B:300` names 150 as its predecessor and passes over P = 200: rule 5
//!    takes it, since the view changed.
//! 6. *Back to the old view.* As in 5, but B wrote only a heartbeat (100, 230] and confirmed 230.
//!    Then A's options return: `A:300` with previous 100 and the same options under which 200
//!    was taken. No divergence: the view changed *since* P. Hence a mark that another view was
//!    newest in between, which a restarted reader finds again since it reads the same records.
//! 7. *The restored publisher.* Links 100, 200 are taken, C is 100. The publisher comes back from
//!    a backup and its WAL now has 100, 250. Same options: 250 passes over 200, which the new
//!    claim should have sent again. Rule 5 stops.
//! 8. *The seek too far.* A reader restarts with P = 100 at an offset behind `A:150`, B's claim
//!    and `B:200`, whose predecessor is 100 in B's view. Taking it would lose 150. Rule 6: under
//!    another claim than P's nothing is counted, and under P's own claim only once a record
//!    shows that the start was not behind P. (Under one claim offsets and LSNs rise together, so
//!    that one record tells.)
//! 9. *The start in mid-run.* A reader starts between parts 2 and 3 of a run. Rule 6 again: a run
//!    that ends above P cannot be the first thing it sees.
//! 10. *The truncated head.* Retention removed the place where P was taken. The reader starts at
//!     the log's first record and cannot go back. It goes on only if that record shows that it
//!     follows P in P's own view (`previous = P`, same options), otherwise it stops: the log is
//!     truncated. Known limit: if the options changed in the removed stretch, or right behind it,
//!     the reader may read that stretch in another view than readers before it did. It is read
//!     whole, in one view; which one, the log no longer tells.
//! 11. *The lost tail.* Kafka lost acknowledged records (an unclean election). The producer goes
//!     on, and its next link names a predecessor above K: rule 3. If it restarted meanwhile, its
//!     C is above K: rule 2 (and [`Tail`] finds no record at C: it stops before it claims to
//!     know).
//! 12. *The heartbeat over an open run.* It would cover the run's rest and so drop it: a
//!     divergence. Producers do not write one there.
//! 13. *Other lives.* Records of an older incarnation may stand in front of ours: skipped by a
//!     reader that starts from nothing. Zombies of an older one are void behind setup's
//!     heartbeat, which counts as a claim for that. Records of a newer one stop the reader.
//! 14. *The recreated topic.* Offsets start again at 0. The offset of P's claim holds something
//!     else or lies beyond the end; a reader that passes it and did not find its claim stops.
//! 15. *The zombie at the start.* P was taken under A, then B claimed, and A's zombie still wrote.
//!     A search for P ends among the zombie's records, which stand where P's own could. The next
//!     record of B tells: it names a claim that the reader did not come by, since it stands before
//!     the start. The reader asks to be started further back. It does so with anything that does
//!     not fit, a claim above K for one, as long as no more than such a record says where it began.

mod position;
mod reader;
mod refusal;
#[cfg(test)]
mod script;
#[cfg(test)]
mod stories;
mod tail;

pub use position::{Position, Side};
pub use reader::{Nothing, Reader, Start, Step, Verdict};
pub use tail::{Tail, TailStep};
