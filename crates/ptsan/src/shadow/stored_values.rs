//! Keeps the values that told stores left in the entries of a table.
//!
//! Two forms hold 64 entries each. The exact one has the value and the event of each store. The
//! compact one takes less than half: it has the value, and the last event before the store at
//! which a CPU left a root. That is all that matters to who may have cached an entry
//! ([`Visits`](crate::cpu::Visits)): a root was left after the store if and only if it was left
//! after that event.
//!
//! Page-table entries differ in the address and agree in their attributes, and stores that follow
//! each other in the event. The compact form has a list for either, and four bits of an index for
//! each entry. A chunk that needs longer lists becomes exact.

/// The number of entries in a chunk.
const CHUNK: usize = 64;
/// The lowest address bit in an entry, of all formats.
const SHIFT: u32 = 10;
/// The most attributes, and the most events, of a compact chunk.
const ATTRIBUTES: usize = 8;
const EVENTS: usize = 16;

/// The content that the last told store left in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) raw: u64,
    /// Event of the store. In a compact chunk, that of the last departure of a CPU before it.
    pub(crate) since: u64,
}

/// Entries with the event of each store.
struct Exact {
    known: u64,
    entries: [Told; CHUNK],
}

/// Entries as addresses, with attributes and events from lists.
struct Compact {
    known: u64,
    /// Bits 10 to 41 of each entry.
    addresses: [u32; CHUNK],
    /// The index of its other bits in `attributes`, and of its event in `events` times 8.
    indices: [u8; CHUNK],
    attributes: [u32; ATTRIBUTES],
    /// Distances from `base`.
    events: [u32; EVENTS],
    base: u64,
    attributes_used: u8,
    events_used: u8,
}

enum Chunk {
    Exact(Box<Exact>),
    Compact(Box<Compact>),
}

/// How many chunks of all tables are exact.
pub(crate) struct Budget {
    /// The most chunks that are made exact at first.
    most: usize,
    used: usize,
}

impl Budget {
    /// Makes a budget for `entries` entries.
    pub(crate) fn new(entries: usize) -> Self {
        Self { most: entries / CHUNK, used: 0 }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// The entries of a table to which stores were told, in chunks that are made when they are needed.
#[derive(Default)]
pub(crate) struct ToldEntries {
    chunks: Vec<Option<Chunk>>,
}

/// Returns the bits of an entry without those of the address.
fn attributes_of(raw: u64) -> u32 {
    let low = raw & ((1 << SHIFT) - 1);
    (low | raw >> (SHIFT + u32::BITS) << SHIFT) as u32
}

/// Returns the entry with this address and these attributes.
fn joined(address: u32, attributes: u32) -> u64 {
    let attributes = u64::from(attributes);
    let (low, high) = (attributes & ((1 << SHIFT) - 1), attributes >> SHIFT);
    low | u64::from(address) << SHIFT | high << (SHIFT + u32::BITS)
}

/// Returns the index of `value` in a list of `used` values, to which it is added while there is
/// room.
fn index_of<const N: usize>(list: &mut [u32; N], used: &mut u8, value: u32) -> Option<u8> {
    let count = usize::from(*used);
    if let Some(known) = list[..count].iter().position(|&known| known == value) {
        return Some(known as u8);
    }
    *list.get_mut(count)? = value;
    *used += 1;
    Some(count as u8)
}

impl Exact {
    fn new() -> Box<Self> {
        Box::new(Self { known: 0, entries: [Told { raw: 0, since: 0 }; CHUNK] })
    }
}

impl Compact {
    fn new(base: u64) -> Box<Self> {
        Box::new(Self {
            known: 0,
            addresses: [0; CHUNK],
            indices: [0; CHUNK],
            attributes: [0; ATTRIBUTES],
            events: [0; EVENTS],
            base,
            attributes_used: 0,
            events_used: 0,
        })
    }

    #[inline]
    fn get(&self, slot: usize) -> Told {
        let index = usize::from(self.indices[slot]);
        let (attributes, event) = (self.attributes[index % ATTRIBUTES], self.events[index / ATTRIBUTES]);
        Told { raw: joined(self.addresses[slot], attributes), since: self.base + u64::from(event) }
    }

    /// Returns the same entries in the exact form.
    fn exact(&self) -> Box<Exact> {
        let mut exact = Exact::new();
        exact.known = self.known;
        slots(self.known).for_each(|slot| exact.entries[slot] = self.get(slot));
        exact
    }

    /// Records an entry, and returns whether there was room in the lists.
    #[inline]
    fn set(&mut self, slot: usize, new: Told) -> bool {
        let event = new.since.checked_sub(self.base).and_then(|distance| u32::try_from(distance).ok());
        let attributes = index_of(&mut self.attributes, &mut self.attributes_used, attributes_of(new.raw));
        let event = event.and_then(|event| index_of(&mut self.events, &mut self.events_used, event));
        let (Some(attributes), Some(event)) = (attributes, event) else { return false };
        self.addresses[slot] = (new.raw >> SHIFT) as u32;
        self.indices[slot] = event * ATTRIBUTES as u8 + attributes;
        self.known |= 1 << slot;
        true
    }

    /// Returns the same entries with a new one, and without what no entry has in the lists; `None`
    /// if there is no room. An event is replaced by the last of `departures`, which rise, that is
    /// not after it.
    fn repacked(&self, slot: usize, new: Told, departures: &[u64]) -> Option<Box<Self>> {
        let mut entries: Vec<_> = slots(self.known & !(1 << slot))
            .map(|slot| {
                let Told { raw, since } = self.get(slot);
                (slot, Told { raw, since: last_before(departures, since) })
            })
            .collect();
        entries.push((slot, new));
        let base = entries.iter().map(|(_, told)| told.since).min().unwrap_or(self.base);
        let mut packed = Self::new(base);
        entries.into_iter().all(|(slot, told)| packed.set(slot, told)).then_some(packed)
    }
}

/// Returns the last of `departures` that is not after an event, or 0.
fn last_before(departures: &[u64], event: u64) -> u64 {
    departures[..departures.partition_point(|&departure| departure <= event)].last().copied().unwrap_or(0)
}

/// Lists the bits that are set.
fn slots(known: u64) -> impl Iterator<Item = usize> {
    (0..CHUNK).filter(move |slot| known & 1 << slot != 0)
}

impl Chunk {
    fn get(&self, slot: usize) -> Option<Told> {
        let known = match self {
            Self::Exact(chunk) => chunk.known,
            Self::Compact(chunk) => chunk.known,
        };
        (known & 1 << slot != 0).then(|| match self {
            Self::Exact(chunk) => chunk.entries[slot],
            Self::Compact(chunk) => chunk.get(slot),
        })
    }
}

impl ToldEntries {
    /// Records a store, and returns the value that the store before it left. A CPU left a root last
    /// at event `left`; `departures` lists the events at which CPUs did, as far as they matter, in
    /// order.
    pub(crate) fn replace(
        &mut self,
        index: usize,
        new: Told,
        budget: &mut Budget,
        (left, departures): (u64, &dyn Fn() -> Vec<u64>),
    ) -> Option<Told> {
        let (chunk, slot) = (index / CHUNK, index % CHUNK);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let chunk = self.chunks[chunk].get_or_insert_with(|| {
            if budget.used < budget.most {
                budget.used += 1;
                Chunk::Exact(Exact::new())
            } else {
                Chunk::Compact(Compact::new(left))
            }
        });
        match chunk {
            Chunk::Exact(exact) => {
                let known = exact.known & 1 << slot != 0;
                exact.known |= 1 << slot;
                let old = std::mem::replace(&mut exact.entries[slot], new);
                known.then_some(old)
            }
            Chunk::Compact(compact) => {
                let old = (compact.known & 1 << slot != 0).then(|| compact.get(slot));
                let coarse = Told { since: left, ..new };
                if !compact.set(slot, coarse) {
                    match compact.repacked(slot, coarse, &departures()) {
                        Some(packed) => *compact = packed,
                        None => {
                            let mut exact = compact.exact();
                            exact.known |= 1 << slot;
                            exact.entries[slot] = new;
                            budget.used += 1;
                            *chunk = Chunk::Exact(exact);
                        }
                    }
                }
                old
            }
        }
    }

    /// Returns the value that the last told store left in an entry.
    pub(crate) fn get(&self, index: usize) -> Option<Told> {
        self.chunks.get(index / CHUNK)?.as_ref()?.get(index % CHUNK)
    }

    /// Replaces the value of an entry to which a store was told, as if that store had left it.
    pub(crate) fn amend(&mut self, index: usize, raw: u64, budget: &mut Budget) {
        let Some(old) = self.get(index) else { return };
        let (new, slot) = (Told { raw, ..old }, index % CHUNK);
        match self.chunks.get_mut(index / CHUNK).and_then(Option::as_mut) {
            Some(Chunk::Exact(exact)) => exact.entries[slot] = new,
            Some(chunk @ Chunk::Compact(_)) => {
                let Chunk::Compact(compact) = chunk else { return };
                if !compact.set(slot, new) {
                    let mut exact = compact.exact();
                    exact.entries[slot] = new;
                    budget.used += 1;
                    *chunk = Chunk::Exact(exact);
                }
            }
            None => {}
        }
    }

    /// Returns whether no store was told.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Lists the entries to which stores were told, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Told)> + '_ {
        let chunks = self.chunks.iter().enumerate().filter_map(|(n, chunk)| Some((n, chunk.as_ref()?)));
        chunks.flat_map(|(n, chunk)| {
            (0..CHUNK).filter_map(move |slot| Some((n * CHUNK + slot, chunk.get(slot)?)))
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, budget: &mut Budget) {
        let exact = self.chunks.iter().flatten().filter(|chunk| matches!(chunk, Chunk::Exact(_)));
        budget.used -= exact.count();
        self.chunks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Vec<u64> {
        Vec::new()
    }

    #[test]
    fn an_entry_is_known_from_its_first_store_on() {
        for most in [0, 1 << 20] {
            let (mut told, mut budget) = (ToldEntries::default(), Budget::new(most));
            let store = |raw| Told { raw, since: raw };
            let mut replace = |told: &mut ToldEntries, index, raw| {
                told.replace(index, store(raw), &mut budget, (raw, &none))
            };
            assert_eq!(told.get(700), None);
            assert_eq!(replace(&mut told, 700, 1), None);
            assert_eq!(replace(&mut told, 700, 2), Some(store(1)));
            assert_eq!((told.get(700), told.get(701), told.get(5)), (Some(store(2)), None, None));
            replace(&mut told, 64, 9);
            assert_eq!(told.iter().collect::<Vec<_>>(), [(64, store(9)), (700, store(2))]);
            told.clear(&mut budget);
            assert_eq!(budget.used, 0);
            assert_eq!(told.get(700), None);
        }
    }

    #[test]
    fn entries_of_all_bits_come_back() {
        for raw in
            [0, 1, 0x3ff, 0x400, u64::from(u32::MAX), 1 << 41, 1 << 42, 0x8000_0123_4567_8c67, u64::MAX]
        {
            assert_eq!(joined((raw >> SHIFT) as u32, attributes_of(raw)), raw, "{raw:#x}");
        }
    }

    /// Stores at random, with CPUs that leave roots in between, in few or many kinds of entries.
    #[test]
    fn compact_entries_have_the_values_and_departures_of_exact_ones() {
        for (kinds, live, seed) in [(3, 4, 1u64), (40, 4, 2), (3, 40, 3), (9, 16, 4)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut below = |n: u64| rng.u64(..n);
            let (mut exact, mut every) = (ToldEntries::default(), Budget::default());
            let (mut compact, mut few) = (ToldEntries::default(), Budget::new(0));
            let (mut departures, mut left) = (Vec::new(), 0);
            for event in 1..6000u64 {
                if below(4) == 0 {
                    // The oldest roots are flushed or gone.
                    departures.push(event);
                    left = event;
                    if departures.len() > live {
                        departures.remove(0);
                    }
                    continue;
                }
                let index = below(200) as usize;
                let new = Told { raw: below(1 << 30) << 12 | below(kinds), since: event };
                let all = || departures.clone();
                let was = exact.replace(index, new, &mut every, (left, &all));
                let is = compact.replace(index, new, &mut few, (left, &all));
                assert_eq!(was.map(|told| told.raw), is.map(|told| told.raw));
                let after = |told: Option<Told>| {
                    let since = told.map(|told| told.since);
                    departures.iter().map(|left| since.is_some_and(|since| *left > since)).collect::<Vec<_>>()
                };
                assert_eq!(after(was), after(is), "event {event}");
            }
            assert_eq!(few.used == 0, (kinds, live) == (3, 4), "longer lists need exact chunks");
            let raws = |told: &ToldEntries| told.iter().map(|(at, told)| (at, told.raw)).collect::<Vec<_>>();
            assert_eq!(raws(&exact), raws(&compact));
            compact.clear(&mut few);
            exact.clear(&mut every);
            assert_eq!((few.used, every.used), (0, 0));
        }
    }

    #[test]
    fn a_compact_table_takes_less_than_half_of_an_exact_one() {
        assert_eq!((size_of::<Exact>(), size_of::<Compact>()), (1032, 440));
    }
}
