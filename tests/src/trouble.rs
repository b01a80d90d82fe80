//! The words in which walbraid tells of what passes by itself: one WARN when it begins, however
//! often it is tried meanwhile, and one INFO when it is over.
//!
//! A test names the troubles that it makes; every other loud line fails it. See `process`.

use crate::process::is_loud;

/// One kind of trouble: what the lines speak of, and a part of each of the two.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    what: &'static str,
    begins: &'static str,
    is_over: &'static str,
}

/// Producer: what ends a claim, or keeps it from beginning.
pub const CARRYING: Trouble = Trouble {
    what: "",
    begins: "; trying again until it works",
    is_over: "went on after trouble: ",
};

/// Producer: Kafka takes no records.
pub const ACKNOWLEDGEMENT: Trouble = Trouble {
    what: "",
    begins: "Kafka does not acknowledge record",
    is_over: "Kafka acknowledges records again",
};

/// Producer: the slot is held, by another or by a walsender of its own that is left over.
pub const SLOT_IN_USE: Trouble = Trouble {
    what: "",
    begins: "is in use; waiting until its walsender is gone",
    is_over: "is free",
};

/// Consumer: a server that is needed at the start.
pub const START: Trouble = retried("reading what is set up");

/// Consumer: the log cannot be read.
pub const LOG: Trouble = retried("reading from Kafka");

/// Consumer: the group does not answer.
pub const GROUP: Trouble = retried("being a member of the consumer group");

/// Consumer: the registry does not answer.
pub const SCHEMA: Trouble = retried("reading a schema from the registry");

/// Consumer: sessions of the lane are lost.
pub const LANE: Trouble = retried("applying the lane");

/// Consumer: the session that reads the subscriber's tables is lost.
pub const CATALOGUE: Trouble = retried("reading the subscriber's catalogue");

/// Consumer: the oldest transaction does not go through.
pub const TARGET: Trouble = Trouble {
    what: "",
    begins: "a target transaction is tried again: ",
    is_over: "a target transaction went through at last",
};

const fn retried(what: &'static str) -> Trouble {
    Trouble {
        what,
        begins: " failed, trying again: ",
        is_over: " works again after ",
    }
}

impl Trouble {
    /// Whether this line says that it begins.
    pub fn begins(&self, line: &str) -> bool {
        is_loud(line) && line.contains(self.what) && line.contains(self.begins)
    }

    /// Whether this line says that it is over.
    pub fn is_over(&self, line: &str) -> bool {
        !is_loud(line) && line.contains(self.what) && line.contains(self.is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_known_by_its_two_lines() {
        let check = |trouble: Trouble, line, begins, is_over| {
            assert_eq!(trouble.begins(line), begins, "{trouble:?} {line}");
            assert_eq!(trouble.is_over(line), is_over, "{trouble:?} {line}");
        };
        let line = "2026-01-01T00:00:00.000000Z  WARN w: applying the lane failed, trying again: x";
        check(LANE, line, true, false);
        check(LOG, line, false, false);
        let line = "2026-01-01T00:00:00.000000Z  INFO w: applying the lane works again after 1.0 s";
        check(LANE, line, false, true);
        check(TARGET, line, false, false);
        let line = "2026-01-01T00:00:00.000000Z  INFO w: slot \"a\" is free";
        check(SLOT_IN_USE, line, false, true);
    }
}
