//! CRC-64-AVRO, the fingerprint that Avro's specification gives for schemas.
//!
//! Taken over the *whole* text of a table's schema as [`crate::Table::to_avro`] writes it, not
//! over Avro's Parsing Canonical Form: that form drops properties, and a column that changed its
//! PostgreSQL type, key flag or name would keep its fingerprint.

/// The polynomial, which is also the fingerprint of no bytes.
const EMPTY: u64 = 0xC15D_213A_A4D7_A795;

static TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (EMPTY & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// The fingerprint of a text, as the signed number that Avro's `long` holds.
pub fn of(text: &str) -> i64 {
    let step = |value: u64, byte: u8| (value >> 8) ^ TABLE[usize::from(value as u8 ^ byte)];
    text.bytes().fold(EMPTY, step) as i64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use apache_avro::rabin::Rabin;

    use super::*;

    #[test]
    fn same_as_another_implementation() {
        let check = |text: &str| {
            let schema = apache_avro::Schema::parse_str(text).unwrap();
            let bytes: [u8; 8] = schema.fingerprint::<Rabin>().bytes.try_into().unwrap();
            assert_eq!(
                of(&schema.canonical_form()),
                i64::from_le_bytes(bytes),
                "{text}"
            );
        };
        check("\"int\"");
        check("{\"type\":\"fixed\",\"name\":\"x\",\"size\":1}");
        check(crate::envelope::SCHEMA);
    }

    #[test]
    fn value_of_the_specification() {
        assert_eq!(of("\"int\""), 0x7275_D51A_3F39_5C8F);
    }
}
