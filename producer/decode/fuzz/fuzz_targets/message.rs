//! Any bytes: parsing refuses them, or reads a message that is built back into the same bytes.
//!
//! The first byte says what the stream before has said about the form of the message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walbraid_decode::message::{Framing, Message};

fuzz_target!(|data: &[u8]| {
    let Some((flags, bytes)) = data.split_first() else {
        return;
    };
    let framing = Framing {
        in_stream: flags & 1 != 0,
        parallel: flags & 2 != 0,
    };
    if let Ok(message) = Message::parse(bytes, framing) {
        let mut built = Vec::new();
        message.write(framing, &mut built);
        assert_eq!(built, bytes);
    }
});
