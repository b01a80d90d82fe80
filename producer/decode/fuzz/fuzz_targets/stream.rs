//! Any messages in any order, up to the parts of the log: refused or encoded, never a panic, and
//! the parts of a run are numbered without a gap.
//!
//! The form is that of the captured streams (`tests/golden/*.bin`), which make a good corpus: WAL
//! position (8 bytes), length (4 bytes), message, and so on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walbraid_decode::encoder::RECORD_BYTES_MIN;
use walbraid_decode::{Assembler, Decoder, Encoder, Event, Protocol, Streaming};
use walbraid_schemas::{Lsn, TableRef};

fuzz_target!(|data: &[u8]| {
    let protocol = Protocol {
        version: 4,
        streaming: Streaming::Parallel,
        two_phase: true,
    };
    let mut assembler = Assembler::new(Decoder::new(protocol));
    let mut encoder = Encoder::new(RECORD_BYTES_MIN);
    let (mut parts, mut rest, mut number) = (Vec::new(), data, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let [a, b, c, d, e, f, g, h, size @ ..] = *head;
        let lsn = Lsn(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
        let size = u32::from_be_bytes(size) as usize;
        let Some((message, behind)) = behind.split_at_checked(size) else {
            return;
        };
        rest = behind;
        let Ok(events) = assembler.push(lsn, message) else {
            return;
        };
        for event in events {
            if let Event::Relation(relation) = &event {
                encoder.register(
                    relation,
                    TableRef {
                        schema_id: 1,
                        fingerprint: 1,
                    },
                );
            }
            if encoder.push(event, &mut parts).is_err() {
                return;
            }
        }
        for part in parts.drain(..) {
            assert_eq!(part.part.number, number);
            assert_eq!(part.part.last, !part.end_lsn.is_invalid());
            number = if part.part.last { 0 } else { number + 1 };
        }
    }
});
