//! What real servers of version 14 to 18 sent, checked in (`tests/golden`), as data.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walbraid_decode::message::{Framing, Message};
use walbraid_decode::{Decoder, Protocol, Streaming};
use walbraid_schemas::Lsn;

use crate::describe::describe;

/// A captured stream.
pub(crate) struct Capture {
    /// `VERSION-READER`.
    pub(crate) name: String,
    /// WAL position and bytes of each message.
    pub(crate) messages: Vec<(Lsn, Vec<u8>)>,
    /// What the second decoder read, a line a message.
    pub(crate) described: String,
}

impl Capture {
    pub(crate) fn protocol(&self) -> Protocol {
        let (version, reader) = self.name.split_once('-').unwrap();
        let streaming = match reader {
            "streamed" | "two-phase" => Streaming::On,
            "parallel" => Streaming::Parallel,
            _ => Streaming::Off,
        };
        let newest = match version {
            "14" => 2,
            "15" => 3,
            _ => 4,
        };
        Protocol {
            version: newest,
            streaming,
            two_phase: reader == "two-phase",
        }
    }
}

pub(crate) fn captures() -> Vec<Capture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    assert_eq!(paths.len(), 3 + 4 + 3 * 5, "captured files");
    paths.iter().map(|path| capture(path)).collect()
}

fn capture(path: &Path) -> Capture {
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut messages = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<12>() {
        let lsn = u64::from_be_bytes(head[..8].try_into().unwrap());
        let length = u32::from_be_bytes(head[8..].try_into().unwrap());
        let (message, behind) = body.split_at(length as usize);
        messages.push((Lsn(lsn), message.to_owned()));
        rest = behind;
    }
    assert!(rest.is_empty(), "{}", path.display());
    Capture {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        messages,
        described: fs::read_to_string(path.with_extension("txt")).unwrap(),
    }
}

#[test]
fn every_message_reads_as_the_second_decoder_reads_it() {
    for capture in captures() {
        let mut decoder = Decoder::new(capture.protocol());
        let mut expected = capture.described.lines();
        for (lsn, bytes) in &capture.messages {
            let message = decoder.decode(*lsn, bytes).unwrap();
            let line = format!("{lsn} {}", describe(&message));
            assert_eq!(Some(line.as_str()), expected.next(), "{}", capture.name);
        }
        assert_eq!(expected.next(), None, "{}", capture.name);
    }
}

#[test]
fn every_message_is_built_as_the_server_built_it() {
    for capture in captures() {
        let mut framing = Framing {
            in_stream: false,
            parallel: capture.protocol().streaming == Streaming::Parallel,
        };
        for (lsn, bytes) in &capture.messages {
            let message = Message::parse(bytes, framing).unwrap();
            let mut built = Vec::new();
            message.write(framing, &mut built);
            assert_eq!(&built, bytes, "{} at {lsn}", capture.name);
            framing.in_stream = match message {
                Message::StreamStart { .. } => true,
                Message::StreamStop => false,
                _ => framing.in_stream,
            };
        }
    }
}

#[test]
fn the_captures_hold_every_kind_of_message() {
    let check = |version: &str, expected: &str| {
        let tags: BTreeSet<u8> = captures()
            .iter()
            .filter(|capture| capture.name.starts_with(version))
            .flat_map(|capture| {
                capture
                    .messages
                    .iter()
                    .map(|(_, bytes)| bytes[0])
                    .collect::<Vec<_>>()
            })
            .collect();
        let expected: BTreeSet<u8> = expected.bytes().collect();
        assert_eq!(tags, expected, "version {version}");
    };
    check("14", "BCORYIUDTMSEcA");
    for version in ["15", "16", "17", "18"] {
        check(version, "BCORYIUDTMSEcAbPpKr");
    }
}
