//! The hooks of entries that say which tables a device has.
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::state::{DeviceEntry, KnownEntry, Sanitizer, read_entry};

/// The most entries that are known.
const MOST: usize = 1 << 16;

impl Sanitizer {
    /// Tells that a device reads the entry at `phys`, an entry of several words (a context entry, a
    /// PASID entry, a device-table entry, a stream-table entry), from now on. Stores to it are told
    /// by [`device_entry_written`](Self::device_entry_written).
    /// ```
    /// use ptsan::{Arch, Config, DeviceEntry, Kind, Sanitizer};
    ///
    /// let mut ram = vec![0u8; 1 << 16];
    /// let mut san = Sanitizer::new(Config { devices: 1, ..Config::new(Arch::x86_64()) });
    /// let disk = san.device(0);
    /// san.device_entry(&ram, disk, 0x1000, DeviceEntry::new(16));
    /// let mut store = |at: usize, word: u64, san: &mut Sanitizer| {
    ///     ram[at..at + 8].copy_from_slice(&word.to_le_bytes());
    ///     san.device_entry_written(&ram, at as u64);
    /// };
    /// store(0x1000, 0x5001, &mut san);            // the tables, and "present",
    /// store(0x1008, 0x0302, &mut san);            // then the domain: the device may read the old one
    /// assert_eq!(san.count(Kind::TornEntry), 1);
    /// ```
    pub fn device_entry(
        &mut self,
        memory: &(impl Memory + ?Sized),
        device: usize,
        phys: u64,
        shape: DeviceEntry,
    ) {
        self.hook(|s| {
            if !s.expects_device(device, "device_entry") {
                return;
            }
            let place = Place { frame: Some(phys), cpu: Some(device), ..Place::default() };
            let words = read_entry(memory, phys, shape).filter(|_| shape.is_usable());
            let aligned = phys.is_multiple_of(u64::from(shape.bytes.max(1)));
            let Some(words) = words.filter(|_| aligned && (s.device_entries.known.len() < MOST || s.device_entries.known.contains_key(&phys))) else {
                let needs = "device_entry needs 8, 16, 32 or 64 aligned bytes in memory, and a word of them that has valid bits";
                return s.bad_argument(place, needs);
            };
            // The cached entry outlives another announcement.
            let before = s.device_entries.known.get(&phys).filter(|k| (k.device, k.shape) == (device, shape));
            let held = before.and_then(|known| known.held);
            let new = KnownEntry {
                shape,
                device,
                words,
                held,
                stored: 0,
                changed: None,
                reported: false,
            };
            s.device_entries.known.insert(phys, new);
        });
    }

    /// Tells that bytes of an announced entry were stored to, at `phys`, by one instruction: call
    /// it once for each. A device may read the entry between two of them.
    ///
    /// A valid entry whose words are changed by several stores is torn ([`Kind::TornEntry`]), and
    /// so is one that is made valid before its last word is there, or invalid after its first word
    /// has gone. Make it invalid first, have the device forget it
    /// ([`device_entries_flushed`](Self::device_entries_flushed)), and set the valid bit last; or
    /// change it by one store. Stores with another hook in between are two updates.
    ///
    /// An entry that is made valid again with another content while the device may still hold the
    /// old one is [`Kind::FlushMissing`].
    pub fn device_entry_written(&mut self, memory: &(impl Memory + ?Sized), phys: u64) {
        self.hook(|s| {
            let Some(at) = s.device_entries.at(phys) else {
                let place = Place { frame: Some(phys), ..Place::default() };
                let needs = "device_entry_written needs an address in an entry that device_entry announced";
                return s.bad_argument(place, needs);
            };
            let event = s.event;
            if event != s.device_entries.last + 1 {
                s.device_entries.first = event;
            }
            s.device_entries.last = event;
            let first = s.device_entries.first;
            let Some(known) = s.device_entries.known.get_mut(&at) else { return };
            let Some(now) = read_entry(memory, at, known.shape) else { return };
            let again = known.stored >= first;
            let old = std::mem::replace(&mut known.words, now);
            let (was, is) = (known.is_valid(&old), known.is_valid(&now));
            let word = ((phys - at) / 8) as usize;
            // The store belongs to an update that has changed the valid entry, or made it valid.
            let before = known.changed.filter(|_| again && was);
            if !again {
                known.reported = false;
            }
            known.stored = event;
            known.changed = is.then_some(word);
            if was && (!is || old != now) {
                known.held.get_or_insert((old, event));
            }
            let device = known.device;
            let torn = was && old != now && before.is_some_and(|other| other != word);
            let stale = is && !was && known.held.is_some_and(|(held, _)| held != now);
            let since = known.held.map_or(0, |(_, since)| since);
            if known.reported {
                return;
            }
            known.reported = torn || stale;
            let place = Place { frame: Some(at), cpu: Some(device), ..Place::default() };
            if torn {
                s.report(Kind::TornEntry, Rule::ChangedInPieces, place, || {
                    let other = before.unwrap_or_default();
                    format!(
                        "word {other} was stored to before, and word {word} now, while the entry is valid"
                    )
                });
            } else if stale {
                s.report(Kind::FlushMissing, Rule::EntryNotFlushed, place, || {
                    format!("it was made invalid at event {since}, and is valid with another content")
                });
            }
        });
    }

    /// Tells that a device forgot the entry at `phys`, or all its entries (`None`): the
    /// invalidation was carried out, and waited for. Its cached tables are another matter
    /// ([`flush`](Self::flush)).
    pub fn device_entries_flushed(&mut self, device: usize, phys: Option<u64>) {
        self.hook(|s| {
            if !s.expects_device(device, "device_entries_flushed") {
                return;
            }
            let only = phys.map(|phys| s.device_entries.at(phys));
            if only == Some(None) {
                let place = Place { frame: phys, cpu: Some(device), ..Place::default() };
                let needs = "device_entries_flushed needs an address in an entry that device_entry announced";
                return s.bad_argument(place, needs);
            }
            for (at, known) in s.device_entries.known.iter_mut().filter(|(_, known)| known.device == device) {
                if only.is_none_or(|only| only == Some(*at)) {
                    known.held = None;
                }
            }
        });
    }
}
