//! MMUs that set accessed and dirty bits, on top of the software MMUs, which write nothing.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Entry, Format, Formats, Slot};
use ptarmigan::page::Level;
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use std::sync::Mutex;

/// A leaf as a TLB has it: its bits are set in memory, so the MMU does not set them again.
#[derive(Clone, Copy)]
struct Cached {
    start: u64,
    end: u64,
    is_dirty: bool,
}

/// A leaf whose bits an MMU has found or made set.
#[derive(Debug)]
pub struct Leaf {
    pub start: u64,
    pub shift: u32,
}

/// MMUs that set bits, each in a CPU that remembers whose it has set until it has to forget them.
pub struct NotingMmu<'s, 'h, F: Format, T> {
    pub soft: &'s SoftMmu<'h, F, T>,
    cached: Mutex<Vec<Vec<Cached>>>,
}

impl<'s, 'h, F: Format, T: MmuTraits> NotingMmu<'s, 'h, F, T> {
    pub fn new(soft: &'s SoftMmu<'h, F, T>, cpus: usize) -> Self {
        NotingMmu { soft, cached: Mutex::new(vec![Vec::new(); cpus]) }
    }

    /// Has the CPU of an invalidation, or all of them, forget the leaves that `is_gone` names by
    /// their first address and the first one behind.
    fn forget(&self, pin: &Pinned<'_>, is_gone: impl Fn(u64, u64) -> bool) {
        for (cpu, cached) in self.cached.lock().unwrap().iter_mut().enumerate() {
            if T::BROADCASTS || cpu == usize::from(pin.cpu().0) {
                cached.retain(|leaf| !is_gone(leaf.start, leaf.end));
            }
        }
    }

    fn forget_scope(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.forget(pin, |first, behind| match scope.runs() {
            Some(mut runs) => runs.any(|(start, end, _)| start < behind && (end == 0 || first < end)),
            None => true,
        });
    }

    /// The entry of the leaf that maps `va` below the root at `root`.
    fn leaf(&self, root: PhysAddr, va: u64) -> Option<(Level, &F::Slot)> {
        let window = self.soft.host().window();
        let (mut at, mut level) = (root, F::LAYOUT.root());
        loop {
            let table = window.open(at).base().cast::<F::Slot>();
            // SAFETY: the index is one of the table's, which stays as long as its tree, and the
            // memory as long as the host. Its entries are read and written as slots only.
            let slot = unsafe { &*table.add(F::index(level, va)) };
            match F::entry(level, slot.load()) {
                Entry::None => return None,
                Entry::Leaf => return Some((level, slot)),
                Entry::Link(below) => (at, level) = (below, Level(level.0 - 1)),
            }
        }
    }

    /// Sets bits of the leaf that maps `va`; returns the leaf, `None` if it refuses the access.
    fn set(&self, root: PhysAddr, va: u64, write: bool) -> Option<Leaf> {
        let (level, slot) = self.leaf(root, va)?;
        let (needs, bits) = match write {
            true => (Attr::READ | Attr::WRITE, Attr::ACCESSED | Attr::DIRTY),
            false => (Attr::READ, Attr::ACCESSED),
        };
        loop {
            let raw = slot.load();
            let attr = F::attr(level, raw);
            if !attr.has(needs) {
                return None;
            }
            // An entry of a group is written alone, and known for all.
            let own = F::unhinted(level, F::index(level, va), raw);
            let is_group = F::is_hinted(level, raw);
            let new = F::map_attr(level, own, |attr| attr | bits);
            let new = if is_group { F::hinted(level, new) } else { new };
            if new == raw || slot.exchange(raw, new).is_ok() {
                let group = if is_group { F::GROUP_BITS[level.at()] } else { 0 };
                let shift = F::shift(level) + u32::from(group);
                return Some(Leaf { start: va >> shift << shift, shift });
            }
        }
    }

    /// Reads or writes the memory at `va` as a CPU that has loaded the root at `root`; `None` if
    /// that faults. Returns the leaf, unless the CPU remembers that its bits are set.
    pub fn access(&self, cpu: usize, root: PhysAddr, va: u64, write: bool) -> Option<Option<Leaf>> {
        let kind = if write { ptsan::Access::WRITE } else { ptsan::Access::READ };
        let translate = || {
            self.soft.with(|sanitizer, memory| {
                sanitizer.running_on(cpu);
                sanitizer.translate(memory, cpu, va, kind)
            })
        };
        let found = match translate() {
            // An MMU that notes uses goes on where the sanitizer's has it fault.
            Err(ptsan::Fault::NotAccessed { .. }) => {
                self.set(root, va, false)?;
                translate().ok()?
            }
            found => found.ok()?,
        };
        let holds = |leaf: &Cached| leaf.start <= va && va < leaf.end;
        let mut cached = self.cached.lock().unwrap();
        if !found.from_tlb {
            cached[cpu].retain(|leaf| !holds(leaf));
        }
        if cached[cpu].iter().any(|leaf| holds(leaf) && (leaf.is_dirty || !write)) {
            return Some(None);
        }
        drop(cached);
        // A CPU may hold a large page that has been split: it remembers the bits of a part then.
        let set = self.set(root, va, write)?;
        let leaf = Cached { start: set.start, end: set.start + (1 << set.shift), is_dirty: write };
        self.cached.lock().unwrap()[cpu].push(leaf);
        Some(Some(set))
    }
}

// SAFETY: as the software MMUs, which do the work.
unsafe impl<F: Format, T: MmuTraits> Mmu for &NotingMmu<'_, '_, F, T> {
    const FORMATS: Formats = Formats::of::<F>();
    const BROADCASTS: bool = T::BROADCASTS;
    const STRUCTURES: Structures = T::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = T::NEEDS_ENTRY_VALID;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.forget_scope(pin, &what.scope);
        self.soft.invalidate(pin, what);
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.soft.invalidate_kernel(pin, scope);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        if !root.keep || root.forget_all {
            self.forget(pin, |_, _| true);
        }
        self.soft.load(pin, root);
    }

    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.soft.lazy(pin, space);
    }

    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.soft.resume(pin, space);
    }

    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.soft.unload(pin, space);
    }

    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        self.soft.entry_became_valid(pin, entry);
    }
}
