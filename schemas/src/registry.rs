//! Where the schemas of the log are kept: what both sides are told of the registry.
//!
//! Settings alone. Each side has a client of its own: one registers, the other reads.

use std::fmt;
use std::path::PathBuf;

/// How to reach a Schema Registry with Confluent's interface.
#[derive(Clone)]
pub struct Registry {
    /// Base addresses, tried in turn.
    pub urls: Vec<String>,
    /// User of HTTP basic authentication.
    pub user: Option<String>,
    /// Password of HTTP basic authentication.
    pub password: Option<String>,
    /// Certificates to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Time allowed to one request.
    pub timeout_ms: u64,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            urls: Vec::new(),
            user: None,
            password: None,
            ca_file: None,
            timeout_ms: 10_000,
        }
    }
}

impl fmt::Debug for Registry {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("urls", &self.urls)
            .field("user", &self.user)
            .field("ca_file", &self.ca_file)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_never_shown() {
        let registry = Registry {
            user: Some("reader".to_owned()),
            password: Some("secret".to_owned()),
            ..Registry::default()
        };
        let text = format!("{registry:?}");
        assert!(
            text.contains("reader") && !text.contains("secret"),
            "{text}"
        );
    }
}
