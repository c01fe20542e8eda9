//! Physical memory as the walker reads it.

/// Physical memory that holds page tables.
///
/// Implemented for byte slices (address 0 is the first byte, little-endian) and for closures
/// `Fn(phys, bytes) -> Option<u64>`.
pub trait Memory {
    /// Reads an entry of `bytes` bytes (4 or 8) at physical address `phys`, which is a multiple of `bytes`.
    ///
    /// `None` means that there is no memory at that address; the sanitizer reports it.
    fn read(&self, phys: u64, bytes: u8) -> Option<u64>;

    /// Whether the `bytes` bytes at `phys` are all zero, `None` if some are outside memory. Both are multiples of 8.
    ///
    /// Worth overriding where whole tables can be compared faster than word by word.
    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        for at in (phys..phys.checked_add(bytes)?).step_by(8) {
            if self.read(at, 8)? != 0 {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl<F: Fn(u64, u8) -> Option<u64>> Memory for F {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self(phys, bytes)
    }
}

impl Memory for [u8] {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        let start = usize::try_from(phys).ok()?;
        let raw = self.get(start..start.checked_add(usize::from(bytes))?)?;
        Some(match *raw {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        let start = usize::try_from(phys).ok()?;
        let raw = self.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)?;
        Some(raw.iter().all(|&b| b == 0))
    }
}

impl Memory for Vec<u8> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self.as_slice().read(phys, bytes)
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        self.as_slice().is_zero(phys, bytes)
    }
}
