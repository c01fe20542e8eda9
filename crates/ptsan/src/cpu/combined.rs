//! Translations that a CPU has combined of both stages: from a guest's virtual address to a
//! physical one.
use super::entry::TlbEntry;
use super::slots::Slots;
use crate::hash::FastMap;

/// The smallest page of either stage, in bits of its offset.
const PAGE: u32 = 12;

/// An address of a guest, with the number of the guest's space (ASID, PCID).
/// ```
/// use ptsan::{Access, Arch, Config, GuestPage, Kind, Session};
///
/// let config = Config { asids: true, two_stages: true, ..Config::new(Arch::npt()) };
/// let mut s = Session::with(config, vec![0u8; 1 << 16]);
/// for (table, entry) in [(0x1000, 0x2007), (0x2000, 0x3007), (0x3000, 0x4007), (0x4000, 0x9007)] {
///     s.alloc(table);
///     s.memory[table as usize..][..8].copy_from_slice(&u64::to_le_bytes(entry));
/// }
/// s.load(0x1000);                                             // the guest's number is that of the root
/// let page = GuestPage { number: 1, va: 0x40_0123 };          // stage 1 maps it to 0x123
/// let Session { sanitizer, memory, .. } = &mut s;
/// let found = sanitizer.translate_combined(memory, 0, page, 0x123, Access::READ);
/// assert_eq!(found.unwrap().phys, 0x9123);
/// memory[0x4000..0x4008].fill(0);                             // without a flush,
/// assert!(sanitizer.translate_combined(memory, 0, page, 0x123, Access::READ).is_ok());
/// assert_eq!(sanitizer.count(Kind::StaleUse), 1);             // the CPU answers from its cache
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GuestPage {
    /// The number of the space in the guest.
    pub number: u64,
    /// The virtual address.
    pub va: u64,
}

/// A translation of a page of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CombinedEntry {
    /// The guest-physical address of the page.
    pub(crate) gpa: u64,
    /// The answer of stage 2. The physical address is that of the 4 KiB.
    pub(crate) entry: TlbEntry,
    pub(crate) level: u8,
}

/// The combined translations of a CPU, by guest (VMID, ASID of the host, root of the EPT).
#[derive(Default)]
pub(crate) struct Combined {
    guests: FastMap<u64, FastMap<u64, Slots<CombinedEntry>>>,
}

impl Combined {
    pub(crate) fn get(&self, guest: u64, page: GuestPage) -> Option<CombinedEntry> {
        self.guests.get(&guest)?.get(&page.number)?.get(page.va >> PAGE).copied()
    }

    /// Caches a translation, and evicts another one if there are more than `most` of the space.
    pub(crate) fn insert(&mut self, guest: u64, page: GuestPage, entry: CombinedEntry, most: usize) {
        let pages = self.guests.entry(guest).or_default().entry(page.number).or_default();
        if pages.insert(page.va >> PAGE, entry).is_none() && pages.len() > most.max(1) {
            pages.evict();
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.guests.clear();
    }

    /// Drops all that was combined for a guest.
    pub(crate) fn drop_guest(&mut self, guest: u64) {
        self.guests.remove(&guest);
    }

    /// Drops the target of an invalidation of stage 1: a space of the guest or all, a page or all.
    pub(crate) fn drop_stage1(&mut self, guest: u64, number: Option<u64>, va: Option<u64>) {
        let Some(spaces) = self.guests.get_mut(&guest) else { return };
        for (_, pages) in spaces.iter_mut().filter(|(of, _)| number.is_none_or(|number| number == **of)) {
            match va {
                Some(va) => _ = pages.remove(va >> PAGE),
                None => pages.clear(),
            }
        }
    }

    /// Drops the translations of the guest, or of all, that are hit.
    pub(crate) fn drop_addresses(&mut self, guest: Option<u64>, hit: impl Fn(&CombinedEntry) -> bool) {
        for (_, spaces) in self.guests.iter_mut().filter(|(of, _)| guest.is_none_or(|guest| guest == **of)) {
            for pages in spaces.values_mut() {
                let gone: Vec<_> = pages.iter().filter(|(_, e)| hit(e)).map(|(page, _)| page).collect();
                gone.into_iter().for_each(|page| _ = pages.remove(page));
            }
        }
    }

    /// Lists the translations of a guest.
    pub(crate) fn of(&self, guest: u64) -> impl Iterator<Item = (GuestPage, CombinedEntry)> + '_ {
        let spaces = self.guests.get(&guest).into_iter().flatten();
        spaces.flat_map(|(&number, pages)| {
            pages.iter().map(move |(page, entry)| (GuestPage { number, va: page << PAGE }, *entry))
        })
    }
}
