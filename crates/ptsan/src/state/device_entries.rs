//! Entries of several words that devices read: which tables a device has, and how.
use crate::hash::FastMap;
use crate::memory::Memory;

/// The most words of an entry.
const WORDS: usize = 8;

/// The shape of an entry that says which tables a device has: a context entry or PASID entry
/// (VT-d), a device-table entry (AMD), a stream-table entry (SMMU).
/// ```
/// use ptsan::DeviceEntry;
///
/// // A context entry of VT-d: 128 bits, of which bit 0 says that it is present.
/// assert_eq!(DeviceEntry::new(16), DeviceEntry { bytes: 16, valid: (0, 1) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its size in bytes: 8, 16, 32 or 64.
    pub bytes: u8,
    /// The word of 8 bytes, and in it the bits, of which any makes the entry valid.
    pub valid: (u8, u64),
}

impl DeviceEntry {
    /// Describes an entry of `bytes` bytes that is valid if bit 0 of its first word is set.
    #[must_use]
    pub const fn new(bytes: u8) -> Self {
        Self { bytes, valid: (0, 1) }
    }

    pub(crate) fn words(&self) -> usize {
        usize::from(self.bytes / 8)
    }

    /// Returns whether the description makes sense.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.bytes, 8 | 16 | 32 | 64)
            && usize::from(self.valid.0) < self.words()
            && self.valid.1 != 0
    }
}

/// The content of an entry.
pub(crate) type Words = [u64; WORDS];

/// An entry that was announced.
pub(crate) struct KnownEntry {
    pub(crate) shape: DeviceEntry,
    /// The device that reads it, by the number that hooks have for it.
    pub(crate) device: usize,
    pub(crate) words: Words,
    /// The content that the device may have cached, since the store of that event took it away.
    pub(crate) held: Option<(Words, u64)>,
    /// Event of the last store to it.
    pub(crate) stored: u64,
    /// The word that this store changed, if the entry was valid after it.
    pub(crate) changed: Option<usize>,
    /// A piece was reported; the rest of the update is the same mistake.
    pub(crate) reported: bool,
}

impl KnownEntry {
    pub(crate) fn is_valid(&self, words: &Words) -> bool {
        words[usize::from(self.shape.valid.0)] & self.shape.valid.1 != 0
    }
}

/// All entries that were announced, by physical address.
#[derive(Default)]
pub(crate) struct DeviceEntries {
    pub(crate) known: FastMap<u64, KnownEntry>,
    /// Event of the last hook that stored to any, and of the first of those that came one after the
    /// other until then.
    pub(crate) last: u64,
    pub(crate) first: u64,
}

impl DeviceEntries {
    /// Returns the address of the entry in which a byte lies.
    pub(crate) fn at(&self, phys: u64) -> Option<u64> {
        [8, 16, 32, 64].into_iter().map(|bytes| phys & !(bytes - 1)).find(|start| {
            self.known.get(start).is_some_and(|known| phys - start < u64::from(known.shape.bytes))
        })
    }
}

/// Reads an entry. Returns `None` if it lies outside memory.
pub(crate) fn read_entry(memory: &(impl Memory + ?Sized), phys: u64, shape: DeviceEntry) -> Option<Words> {
    let mut words = [0; WORDS];
    for (n, word) in words.iter_mut().take(shape.words()).enumerate() {
        *word = memory.read(phys.checked_add(8 * n as u64)?, 8)?;
    }
    Some(words)
}
