//! The clock that runs on when the machine is off (MC146818), which goes by UTC.

use crate::port;

/// Registers of the clock: from seconds to the year, without those of alarms.
const FIELDS: [u8; 6] = [0, 2, 4, 7, 8, 9];
const STATUS_A: u8 = 10;
const STATUS_B: u8 = 11;
/// Bit of status A: the clock changes.
const CHANGES: u8 = 0x80;
/// Bit of status B: numbers are binary, not two decimal digits a byte.
const BINARY: u8 = 4;
/// Bit of status B: hours go to 23.
const ALL_HOURS: u8 = 2;
/// Bit of an hour that goes to 12: it is after noon.
const AFTERNOON: u8 = 0x80;
/// Reads of a clock that changes all the time, which is none.
const TRIES: u32 = 1 << 20;

fn read(register: u8) -> u8 {
    // SAFETY: 1. The first port selects a register of the clock, with non-maskable interrupts
    // allowed as they were. Reading one of these registers has no effect.
    unsafe {
        port::write(0x70, register);
        port::read(0x71)
    }
}

/// Returns the seconds since 1970; 0 if the clock does not stand still.
pub fn seconds() -> u64 {
    let all = || FIELDS.map(read);
    for _ in 0..TRIES {
        if read(STATUS_A) & CHANGES == 0 {
            let fields = all();
            // The second read shows whether the clock went on during the first.
            if read(STATUS_A) & CHANGES == 0 && all() == fields {
                return since_1970(fields, read(STATUS_B));
            }
        }
    }
    0
}

/// Returns the seconds from 1970 to a time of this century: second, minute, hour, day, month, year.
fn since_1970([second, minute, hour, day, month, year]: [u8; 6], status: u8) -> u64 {
    let number = |byte: u8| {
        let digits = u64::from(byte >> 4) * 10 + u64::from(byte & 15);
        if status & BINARY == 0 { digits } else { byte.into() }
    };
    let hours = match (status & ALL_HOURS, hour & AFTERNOON) {
        (0, 0) => number(hour) % 12,
        (0, _) => number(hour & !AFTERNOON) % 12 + 12,
        _ => number(hour),
    };
    let (year, month, day) = (2000 + number(year), number(month), number(day));
    // Years begin in March, so that a leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    /// Days from March of the year 0 to 1970, and one, as days of a month begin at 1.
    const TO_1970: u64 = 719_469;
    days.saturating_sub(TO_1970) * 86_400 + hours * 3600 + number(minute) * 60 + number(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (fields, status, wanted) in [
            ([0x00, 0x00, 0x00, 0x01, 0x01, 0x00], ALL_HOURS, 946_684_800),
            ([0x56, 0x34, 0x12, 0x29, 0x02, 0x24], ALL_HOURS, 1_709_210_096),
            ([56, 34, 12, 29, 2, 24], ALL_HOURS | BINARY, 1_709_210_096),
            ([56, 34, 12 | AFTERNOON, 29, 2, 24], BINARY, 1_709_210_096),
            ([0x59, 0x59, 0x11 | AFTERNOON, 0x31, 0x12, 0x99], 0, 4_102_444_799),
            ([0x00, 0x00, 0x12, 0x01, 0x03, 0x26], 0, 1_772_323_200),
        ] {
            assert_eq!(since_1970(fields, status), wanted, "{fields:x?}");
        }
    }
}
