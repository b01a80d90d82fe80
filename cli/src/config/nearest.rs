//! The known name nearest to one that is not known.
//!
//! Owns the distance (insertions, deletions, replacements and swaps of neighbours, each one) and
//! the bound above which a name is no longer a likely slip of the hand. Knows nothing of keys.

/// The candidate that is fewest slips away from `name`, if one is near enough to be meant.
///
/// Near enough: at most a third of the longer name's letters, and always one or two.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= bound(name, candidate))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

fn bound(left: &str, right: &str) -> usize {
    (left.chars().count().max(right.chars().count()) / 3).max(2)
}

/// The optimal string alignment distance.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before = vec![0; right.len() + 1];
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1; right.len() + 1];
        for (j, b) in right.iter().enumerate() {
            let mut slips = (above[j + 1] + 1)
                .min(row[j] + 1)
                .min(above[j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                slips = slips.min(before[j - 1] + 1);
            }
            row[j + 1] = slips;
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let check = |left, right, slips| assert_eq!(distance(left, right), slips, "{left} {right}");
        check("", "", 0);
        check("slot", "slot", 0);
        check("slot", "", 4);
        check("sloot", "slot", 1);
        check("solt", "slot", 1);
        check("topics", "topic", 1);
        check("kitten", "sitting", 3);
    }

    #[test]
    fn what_was_meant() {
        let known = ["publisher.url", "publisher.slot", "kafka.topic"];
        let check = |name, meant| assert_eq!(nearest(name, known), meant, "{name}");
        check("publisher.urll", Some("publisher.url"));
        check("publihser.slot", Some("publisher.slot"));
        check("kafka.tpoic", Some("kafka.topic"));
        check("metrics.listen", None);
    }
}
