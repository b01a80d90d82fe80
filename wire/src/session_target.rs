//! `target_session_attrs`: which kind of server is wanted, and whether a session is on one.

/// The kind of server that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionTarget {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerState {
    /// `default_transaction_read_only` is on.
    pub read_only: bool,
    /// In recovery.
    pub standby: bool,
}

impl ServerState {
    /// Asks a server that does not report it by itself.
    pub(crate) const QUERY: &str = "SELECT (current_setting('default_transaction_read_only') = \
        'on')::text, pg_catalog.pg_is_in_recovery()::text";

    /// As PostgreSQL 14 and later report it with the first parameters.
    pub(crate) fn reported<'a>(parameter: impl Fn(&str) -> Option<&'a str>) -> Option<ServerState> {
        Some(ServerState {
            read_only: parameter("default_transaction_read_only")? == "on",
            standby: parameter("in_hot_standby")? == "on",
        })
    }
}

impl SessionTarget {
    pub(crate) const WORDS: &[(&str, SessionTarget)] = &[
        ("any", SessionTarget::Any),
        ("read-write", SessionTarget::ReadWrite),
        ("read-only", SessionTarget::ReadOnly),
        ("primary", SessionTarget::Primary),
        ("standby", SessionTarget::Standby),
        ("prefer-standby", SessionTarget::PreferStandby),
    ];

    /// What to look for in each round over the hosts.
    pub(crate) fn rounds(self) -> &'static [SessionTarget] {
        match self {
            SessionTarget::Any => &[SessionTarget::Any],
            SessionTarget::ReadWrite => &[SessionTarget::ReadWrite],
            SessionTarget::ReadOnly => &[SessionTarget::ReadOnly],
            SessionTarget::Primary => &[SessionTarget::Primary],
            SessionTarget::Standby => &[SessionTarget::Standby],
            SessionTarget::PreferStandby => &[SessionTarget::Standby, SessionTarget::Any],
        }
    }

    /// Why a server is not what is wanted, in libpq's words.
    pub(crate) fn refusal(self, state: ServerState) -> Option<&'static str> {
        let read_only = state.read_only || state.standby;
        match self {
            SessionTarget::ReadWrite if read_only => Some("session is read-only"),
            SessionTarget::ReadOnly if !read_only => Some("session is not read-only"),
            SessionTarget::Primary if state.standby => Some("server is in hot standby mode"),
            SessionTarget::Standby if !state.standby => Some("server is not in hot standby mode"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_server_suits() {
        let check = |target: SessionTarget, read_only, standby, suits| {
            let state = ServerState { read_only, standby };
            assert_eq!(
                target.refusal(state).is_none(),
                suits,
                "{target:?} {state:?}"
            );
        };
        check(SessionTarget::Any, true, true, true);
        check(SessionTarget::ReadWrite, false, false, true);
        check(SessionTarget::ReadWrite, true, false, false);
        check(SessionTarget::ReadWrite, false, true, false);
        check(SessionTarget::ReadOnly, false, false, false);
        check(SessionTarget::ReadOnly, true, false, true);
        check(SessionTarget::Primary, true, false, true);
        check(SessionTarget::Primary, false, true, false);
        check(SessionTarget::Standby, false, true, true);
        check(SessionTarget::Standby, false, false, false);
    }
}
