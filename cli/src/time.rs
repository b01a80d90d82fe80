//! Times as RFC 3339 text, in UTC with milliseconds: `2026-05-01T08:30:00.000Z`.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: i64 = 86_400;

/// The text of a time.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let ms = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    let seconds = ms.div_euclid(1_000);
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let second = seconds.rem_euclid(DAY_S);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60,
        ms.rem_euclid(1_000)
    )
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years begin in
/// March here, so that the leap day is the last one of its year.
fn date(day: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    const MARCH_0000: i64 = 719_468;
    let shifted = day + MARCH_0000;
    let era = shifted.div_euclid(DAYS_OF_400_YEARS);
    let of_era = shifted.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era =
        (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (DAYS_OF_400_YEARS - 1)) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (
        era * 400 + year_of_era + i64::from(month <= 2),
        month,
        day_of_month,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn texts() {
        let check = |ms: u64, text: &str| {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(ms)), text);
        };
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z");
        check(1_709_251_200_000, "2024-03-01T00:00:00.000Z");
        check(4_107_542_400_123, "2100-03-01T00:00:00.123Z");
        assert_eq!(
            rfc3339(UNIX_EPOCH - Duration::from_millis(1)),
            "1969-12-31T23:59:59.999Z"
        );
    }
}
