//! What the process's surroundings say about connections: `PG…` variables, home, user.
//!
//! A value like any other, so that parsing a connection string stays a function of its arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variables libpq knows and the parameter each stands for.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("PGAPPNAME", "application_name"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCLIENTENCODING", "client_encoding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGDATABASE", "dbname"),
    ("PGGSSENCMODE", "gssencmode"),
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
    ("PGMAXPROTOCOLVERSION", "max_protocol_version"),
    ("PGMINPROTOCOLVERSION", "min_protocol_version"),
    ("PGOPTIONS", "options"),
    ("PGPASSFILE", "passfile"),
    ("PGPASSWORD", "password"),
    ("PGPORT", "port"),
    ("PGREQUIREAUTH", "require_auth"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLCRL", "sslcrl"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLSNI", "sslsni"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGUSER", "user"),
];

/// Surroundings of a process.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
    user: Option<String>,
}

impl Environment {
    /// Nothing at all: only the connection string counts.
    pub fn empty() -> Environment {
        Environment::default()
    }

    /// The surroundings of this process.
    pub fn of_process() -> Environment {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("PG"))
            .collect();
        let account = account();
        Environment {
            variables,
            home: std::env::home_dir(),
            user: account.or_else(|| std::env::var("USER").ok()),
        }
    }

    /// With this variable set.
    pub fn with_variable(mut self, name: &str, value: &str) -> Environment {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With this home directory.
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Environment {
        self.home = Some(home.into());
        self
    }

    /// With this name of the operating system's user.
    pub fn with_user(mut self, user: &str) -> Environment {
        self.user = Some(user.to_owned());
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        // libpq takes an empty variable for one that is not set.
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A file of the home directory.
    pub(crate) fn home_file(&self, relative: &str) -> Option<PathBuf> {
        self.home.as_deref().map(|home: &Path| home.join(relative))
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// The account's name, as the user database has it for the effective user.
fn account() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let uid = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}
