//! TLBs that hold the pages that the kernel has reached in its half.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Entry, Format, Formats};
use ptarmigan::page::Level;
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures};
use ptarmigan_hosted::Host;
use std::collections::HashMap;
use std::sync::Mutex;

/// TLBs of the kernel's half. They keep translations until they are told to forget them.
pub struct KernelTlbs {
    pub known: Mutex<Vec<HashMap<u64, (Pfn, Attr)>>>,
    pub valid: Mutex<Vec<u64>>,
}

impl KernelTlbs {
    pub fn new(cpus: usize) -> Self {
        KernelTlbs { known: Mutex::new(vec![HashMap::new(); cpus]), valid: Mutex::default() }
    }

    /// An access of the kernel on `cpu`, which has a space with `root` loaded; returns the frame
    /// that it reaches.
    pub fn access<F: Format>(
        &self,
        host: &Host<F>,
        root: PhysAddr,
        cpu: usize,
        va: u64,
    ) -> Option<(Pfn, Attr)> {
        let known = &mut self.known.lock().unwrap()[cpu];
        if let Some(held) = known.get(&va) {
            return Some(*held);
        }
        let found = walk(host, root, va)?;
        known.insert(va, found);
        Some(found)
    }
}

// SAFETY: 1., 3. and 4. no translation of user space is held. 2. the CPU drops covered
// translations. 5. it reaches one CPU. 6. it keeps neither. 7. `load` has no effect.
unsafe impl Mmu for &KernelTlbs {
    const FORMATS: Formats = Formats::ANY;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.known.lock().unwrap()[pin.cpu().0 as usize].retain(|va, _| !scope.covers(*va));
    }
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &ptarmigan::tlb::NewEntry) {
        if entry.space.is_none() {
            let pages = (0..entry.pages).map(|page| entry.va + (page << entry.shift));
            self.valid.lock().unwrap().extend(pages);
        }
    }
}

/// Walks to `va` from `root` on, as an MMU does.
pub fn walk<F: Format>(host: &Host<F>, root: PhysAddr, va: u64) -> Option<(Pfn, Attr)> {
    let mut at = root;
    for level in (0..F::LAYOUT.levels).map(Level).rev() {
        // SAFETY: 1. it is an entry of a table in use.
        let raw = unsafe { host.read(PhysAddr(at.0 + 8 * F::index(level, va) as u64), 8) }.unwrap();
        match F::entry(level, raw) {
            Entry::None => return None,
            Entry::Link(next) => at = next,
            Entry::Leaf => {
                return F::is_present(Level::PTE, raw)
                    .then(|| (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)));
            }
        }
    }
    unreachable!("a leaf table has no links")
}
