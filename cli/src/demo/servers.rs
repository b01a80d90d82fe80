//! The servers the demo runs on, and the configuration file it writes for them.
//!
//! Named by options, or by the variables that `bin/stack env` prints. The file may hold passwords:
//! its directory is for its owner alone.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use walbraid_schemas::{Stop, StopKind};

use super::shop::PUBLICATION;
use crate::args::Demo;
use crate::config::{self, Config};

/// Where everything is.
pub(super) struct Servers {
    publisher: String,
    subscriber: String,
    kafka: String,
    registry: String,
}

impl Servers {
    /// What was named, all of which must be.
    pub(super) fn named(options: &Demo) -> Result<Self, Stop> {
        let mut missing = Vec::new();
        let mut named = |option: &str, value: &Option<String>, variable: &str| {
            let found = value.clone().or_else(|| std::env::var(variable).ok());
            found.filter(|text| !text.is_empty()).unwrap_or_else(|| {
                missing.push(format!("{option} ({variable})"));
                String::new()
            })
        };
        let servers = Self {
            publisher: named("--publisher", &options.publisher, "WALBRAID_PUBLISHER_URL"),
            subscriber: named(
                "--subscriber",
                &options.subscriber,
                "WALBRAID_SUBSCRIBER_URL",
            ),
            kafka: named("--kafka", &options.kafka, "WALBRAID_KAFKA"),
            registry: named("--registry", &options.registry, "WALBRAID_REGISTRY_URL"),
        };
        if missing.is_empty() {
            return Ok(servers);
        }
        let message = format!("demo needs servers: {}", missing.join(", "));
        Err(Stop::new(StopKind::Usage, message)
            .hint("bin/demo brings servers up by itself; bin/stack env names those it brought up."))
    }

    /// The directory for configuration and logs, made.
    pub(super) fn directory(&self, options: &Demo) -> Result<PathBuf, Stop> {
        let fresh = || std::env::temp_dir().join(format!("walbraid-demo-{}", std::process::id()));
        let directory = options.dir.clone().unwrap_or_else(fresh);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| {
                let directory = directory.display();
                Stop::new(
                    StopKind::Usage,
                    format!("cannot make directory {directory}: {error}"),
                )
            })?;
        Ok(directory)
    }

    /// Writes the file and reads it as any other.
    pub(super) fn write_configuration(&self, directory: &Path) -> Result<Config, Stop> {
        let path = directory.join("walbraid.toml");
        std::fs::write(&path, self.configuration()).map_err(|error| {
            Stop::new(
                StopKind::Usage,
                format!("cannot write {}: {error}", path.display()),
            )
        })?;
        config::load(&path, &[]).map_err(|invalid| Stop::new(StopKind::Usage, invalid.to_string()))
    }

    fn configuration(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        format!(
            "stream = \"demo\"\n\n[publisher]\nurl = {}\npublication = \"{PUBLICATION}\"\n\
             slot = \"walbraid_demo\"\n\n[kafka]\n\"bootstrap.servers\" = {}\n\
             topic = \"walbraid.demo\"\n\n[registry]\nurl = {}\n\n[subscriber]\nurl = {}\n",
            quoted(&self.publisher),
            quoted(&self.kafka),
            quoted(&self.registry),
            quoted(&self.subscriber)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_configuration_is_right_whatever_the_urls_hold() {
        let servers = Servers {
            publisher: "host=a password='it\\'s \"quoted\"'".to_owned(),
            subscriber: "postgres://b/shop".to_owned(),
            kafka: "c:9092,d:9092".to_owned(),
            registry: "http://e:8081".to_owned(),
        };
        let text = servers.configuration();
        let surroundings = walbraid_wire::Environment::empty().with_user("me");
        let config = config::parse("demo", &text, [], &[], &surroundings)
            .unwrap_or_else(|invalid| panic!("{invalid}\n{text}"));
        assert_eq!(config.stream, "demo");
        assert_eq!(config.consumer.subscriber.connect.database(), "shop");
    }
}
