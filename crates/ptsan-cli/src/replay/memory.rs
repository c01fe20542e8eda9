//! The memory of the machine, rebuilt from the stores of a log.
use ptsan::Memory;
use std::collections::HashMap;

const PAGE: u64 = 4096;
/// Physical addresses of all formats are below.
pub(super) const END: u64 = 1 << 56;

/// Pages that something was stored to. All other memory is zero.
pub(super) struct Pages {
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
    most: usize,
}

/// There are more pages than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Pages {
    /// Creates memory of which at most `most` pages are kept.
    pub(super) fn new(most: usize) -> Self {
        Self { pages: HashMap::new(), most }
    }

    /// Stores bytes. Addresses wrap nowhere: the decoder has checked.
    pub(super) fn write(&mut self, mut phys: u64, mut bytes: &[u8]) -> Result<(), Full> {
        while !bytes.is_empty() {
            let offset = (phys % PAGE) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(PAGE as usize - offset));
            let known = self.pages.contains_key(&(phys / PAGE));
            // A page of zeroes needs no memory.
            if known || now.iter().any(|byte| *byte != 0) {
                if !known && self.pages.len() >= self.most {
                    return Err(Full);
                }
                let page = self.pages.entry(phys / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
                page[offset..offset + now.len()].copy_from_slice(now);
            }
            phys = phys.saturating_add(now.len() as u64);
            bytes = later;
        }
        Ok(())
    }
}

impl Memory for Pages {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        if phys >= END {
            return None;
        }
        let Some(page) = self.pages.get(&(phys / PAGE)) else { return Some(0) };
        let offset = (phys % PAGE) as usize;
        let raw = page.get(offset..offset + usize::from(bytes))?;
        Some(raw.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        let end = phys.checked_add(bytes).filter(|end| *end <= END)?;
        let mut at = phys;
        while at < end {
            let next = (at / PAGE + 1) * PAGE;
            if let Some(page) = self.pages.get(&(at / PAGE)) {
                let part = &page[(at % PAGE) as usize..][..(next.min(end) - at) as usize];
                if part.iter().any(|byte| *byte != 0) {
                    return Some(false);
                }
            }
            at = next;
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_any_size_are_read_and_the_rest_is_zero() {
        let mut memory = Pages::new(2);
        memory.write(0x1ffe, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.read(0x1ff8, 8), Some(0x0201 << 48));
        assert_eq!(memory.read(0x2000, 4), Some(0x0403));
        assert_eq!(memory.read(0x9000, 8), Some(0));
        assert_eq!(memory.read(1 << 56, 8), None);
        assert_eq!(
            (memory.is_zero(0x1000, 0xff8), memory.is_zero(0x1000, 0x1000)),
            (Some(true), Some(false))
        );
        assert_eq!(memory.is_zero((1 << 56) - 8, 16), None);
    }

    #[test]
    fn memory_is_bounded_and_zeroes_take_none() {
        let mut memory = Pages::new(1);
        memory.write(0, &[0; 9000]).unwrap();
        memory.write(0x5000, &[1]).unwrap();
        memory.write(0x5000, &[0]).unwrap();
        assert_eq!(memory.write(0x6000, &[1]), Err(Full));
        assert_eq!(memory.read(0x5000, 8), Some(0));
    }
}
