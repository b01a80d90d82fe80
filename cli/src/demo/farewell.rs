//! What a demo that leaves all running says at its end: how to look at it, and how to end it.
//!
//! Each line under a heading is a command that works as it stands, and those that end it work in
//! their order. Server addresses are shown without passwords.

use std::path::Path;

use super::shop::SCHEMA;
use crate::config::Config;

/// The text. `pids` are the producer and the consumer.
pub(super) fn text(program: &Path, directory: &Path, config: &Config, pids: &[u32]) -> String {
    let program = quoted(&program.to_string_lossy());
    let folder = quoted(&directory.to_string_lossy());
    let file = quoted(&directory.join("walbraid.toml").to_string_lossy());
    let psql = |url: String| format!("psql {}", quoted(&url));
    let publisher = psql(config.producer.publisher.connect.to_string());
    let subscriber = psql(config.consumer.subscriber.connect.to_string());
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let pids = pids.join(" ");
    let stream = &config.stream;
    format!(
        "\nProducer and consumer of stream \"{stream}\" go on; the shop is in schema {SCHEMA} of \
         both servers,\nconfiguration and logs are in {folder}.\n\
         To look at them:\n  \
         {program} status --config {file}\n  \
         {publisher}\n  \
         {subscriber}\n  \
         tail -n 20 {folder}/*.log\n\
         More load:\n  \
         {program} demo --only load --seconds 10 --config {file}\n\
         To end them, in this order:\n  \
         kill {pids}\n  \
         for pid in {pids}; do while kill -0 $pid 2>/dev/null; do sleep 0.2; done; done\n  \
         {program} teardown --config {file}\n  \
         {program} demo --only clear --config {file}\n  \
         rm -r {folder}"
    )
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@=+,%".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn every_command_stands_as_it_is_to_be_typed_and_shows_no_password() {
        let text = "stream = \"demo\"\n[publisher]\nurl = \"postgres://me:secret@a/shop\"\n\
            publication = \"p\"\nslot = \"s\"\n[kafka]\n\"bootstrap.servers\" = \"c:9092\"\n\
            topic = \"t\"\n[registry]\nurl = \"http://e\"\n[subscriber]\nurl = \"host=b\"\n";
        let surroundings = walbraid_wire::Environment::empty().with_user("me");
        let config = config::parse("demo", text, [], &[], &surroundings).unwrap();
        let (program, directory) = (Path::new("/opt/walbraid"), Path::new("/tmp/a demo"));
        let text = super::text(program, directory, &config, &[7, 8]);
        for command in [
            "/opt/walbraid status --config '/tmp/a demo/walbraid.toml'",
            "psql postgresql://me@a:5432/shop",
            "psql postgresql://me@b:5432/me",
            "kill 7 8",
            "/opt/walbraid teardown --config '/tmp/a demo/walbraid.toml'",
            "/opt/walbraid demo --only clear --config '/tmp/a demo/walbraid.toml'",
            "rm -r '/tmp/a demo'",
        ] {
            let line = format!("\n  {command}");
            assert!(text.contains(&line), "{command} is not in: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
    }
}
