//! Numbers, and the check sum of the bytes so far.

/// The most bytes between a record's length and its check.
pub(crate) const MAX_PAYLOAD: usize = 255;
/// The bytes of a check.
pub(crate) const CHECK_BYTES: usize = 2;
/// Set in the kind: the payload begins with the address of an instruction.
pub(crate) const WITH_PC: u8 = 0x80;
/// The most bytes of a number.
const MAX_NUMBER: usize = 10;

/// The running check of a log: CRC-16 with polynomial `0x1021`, from `0xffff`, of all bytes of the
/// log but the checks themselves.
///
/// Each record ends with its value so far, so that a record that is lost, repeated or damaged is
/// noticed at the record that follows, or at itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check(u16);

impl Check {
    /// Returns the check of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xffff)
    }

    /// Returns the check with `bytes` added.
    #[must_use]
    pub const fn with(self, bytes: &[u8]) -> Self {
        let mut crc = self.0;
        let mut at = 0;
        while at < bytes.len() {
            crc = crc << 8 ^ TABLE[(crc >> 8) as usize ^ bytes[at] as usize];
            at += 1;
        }
        Self(crc)
    }

    /// Returns the value, as it is written in little-endian order.
    #[must_use]
    pub const fn value(self) -> u16 {
        self.0
    }
}

impl Default for Check {
    fn default() -> Self {
        Self::new()
    }
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The payload of a record that is being written. Bytes that do not fit are cut off, which no
/// record of ours needs.
pub(crate) struct Payload {
    bytes: [u8; MAX_PAYLOAD],
    len: usize,
}

impl Payload {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MAX_PAYLOAD], len: 0 }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.raw(&[byte]);
    }

    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let fits = bytes.len().min(room.len());
        room[..fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The payload of a record that is being read. Each method names the field for the error.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

/// An error of a field.
pub(crate) type Bad = (&'static str, Option<u64>);

impl<'a> Fields<'a> {
    pub(crate) fn byte(&mut self, name: &'static str) -> Result<u8, Bad> {
        let (first, rest) = self.0.split_first().ok_or((name, None))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<u64, Bad> {
        let mut value = 0u64;
        for place in 0..MAX_NUMBER {
            let byte = self.byte(name)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit, and no byte follows it.
            if place == MAX_NUMBER - 1 && byte > 1 {
                break;
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err((name, Some(value)))
    }

    /// Reads a number that older logs do not have.
    pub(crate) fn optional(&mut self, name: &'static str) -> Result<Option<u64>, Bad> {
        if self.0.is_empty() { Ok(None) } else { self.number(name).map(Some) }
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self, name: &'static str) -> Result<T, Bad> {
        let value = self.number(name)?;
        T::try_from(value).map_err(|_| (name, Some(value)))
    }

    pub(crate) fn raw(&mut self, name: &'static str, bytes: usize) -> Result<&'a [u8], Bad> {
        let (raw, rest) = self.0.split_at_checked(bytes).ok_or((name, None))?;
        self.0 = rest;
        Ok(raw)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_crc_16_ccitt_false() {
        assert_eq!(Check::new().with(b"123456789").value(), 0x29b1);
        assert_eq!(Check::new().with(b"1234").with(b"56789"), Check::new().with(b"123456789"));
    }

    #[test]
    fn numbers_of_every_length_come_back_and_longer_ones_do_not() {
        for value in (0..64).map(|bits| u64::MAX >> bits).chain([0, 0x7f, 0x80, 1 << 63]) {
            let mut payload = Payload::new();
            payload.number(value);
            let mut fields = Fields(payload.as_bytes());
            assert_eq!((fields.number("n"), fields.0.len()), (Ok(value), 0));
        }
        assert!(Fields(&[0xff; 9]).number("n").is_err());
        assert!(Fields(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number("n").is_err());
        assert!(Fields(&[0x80; 11]).number("n").is_err());
        assert!(Fields(&[]).number("n").is_err());
    }
}
