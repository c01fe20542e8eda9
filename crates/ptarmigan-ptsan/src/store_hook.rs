//! Calls a hook at each store to an entry.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Rights, Slot};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use std::cell::Cell;
use std::marker::PhantomData;

/// Is told where an entry was stored, and whether it was exchanged.
type Hook<'a> = &'a dyn Fn(usize, bool);

thread_local! {
    static HOOK: Cell<Option<Hook<'static>>> = const { Cell::new(None) };
}

/// Puts the hook back that was there before.
struct Restore(Option<Hook<'static>>);

impl Drop for Restore {
    fn drop(&mut self) {
        HOOK.set(self.0);
    }
}

/// Calls `f`, and `hook` after each store that this thread makes through a [`ToldSlot`] meanwhile.
pub(crate) fn tell<R>(hook: &dyn Fn(usize, bool), f: impl FnOnce() -> R) -> R {
    // SAFETY: the hook is called by this thread alone, and `restore` takes it away before this
    // function returns or unwinds, when `hook` is still borrowed.
    let hook = unsafe { std::mem::transmute::<Hook<'_>, Hook<'static>>(hook) };
    let restore = Restore(HOOK.replace(Some(hook)));
    let result = f();
    drop(restore);
    result
}

/// A slot that tells of each store to it: see [`SoftMmu::told`](crate::SoftMmu::told).
#[repr(transparent)]
pub struct ToldSlot<S>(S);

impl<S> ToldSlot<S> {
    fn tell(&self, exchanged: bool) {
        if let Some(hook) = HOOK.get() {
            hook(std::ptr::from_ref(self).addr(), exchanged);
        }
    }
}

// SAFETY: as `S`, whose functions do the work.
unsafe impl<S: Slot> Slot for ToldSlot<S> {
    const FILLS_AT_ONCE: bool = S::FILLS_AT_ONCE;

    fn load(&self) -> u64 {
        self.0.load()
    }

    fn store(&self, raw: u64) {
        self.0.store(raw);
        self.tell(false);
    }

    fn fill(&self, raw: u64) -> bool {
        let filled = self.0.fill(raw);
        if filled {
            self.tell(true);
        }
        filled
    }

    fn swap(&self, raw: u64) -> u64 {
        let was = self.0.swap(raw);
        self.tell(true);
        was
    }

    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.0.exchange(old, new)?;
        self.tell(true);
        Ok(())
    }
}

/// The format `F` with slots that tell of each store, so that the sanitizer sees all of them in
/// order ([`SoftMmu::told`](crate::SoftMmu::told)): an entry that takes the place of a live one
/// without a break in between, a table that is linked before it is cleared.
///
/// Without `BREAK`, the library is told that the format never demands a break. A test whose format
/// does then has findings; a format that never demands one would pass unnoticed.
#[derive(Clone, Copy, Debug)]
pub struct Told<F, const BREAK: bool = true>(PhantomData<F>);

impl<F, const BREAK: bool> Default for Told<F, BREAK> {
    fn default() -> Self {
        Told(PhantomData)
    }
}

// SAFETY: 1. to 6. as `F`, whose functions these are. Without `BREAK` 6. is not kept on purpose,
// which the sanitizer is to find: no MMU but its own walks such tables.
unsafe impl<F: Format, const BREAK: bool> Format for Told<F, BREAK> {
    type Slot = ToldSlot<F::Slot>;
    const NAME: &'static str = F::NAME;
    const LAYOUT: Layout = F::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = F::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;
    const INDEX_BITS: [u8; MAX_LEVELS] = F::INDEX_BITS;
    const USER_END: u64 = F::USER_END;
    const KERNEL_START: u64 = F::KERNEL_START;
    const USER_ROOT_ENTRIES: usize = F::USER_ROOT_ENTRIES;
    const ROOT_IN_REGISTERS: bool = F::ROOT_IN_REGISTERS;
    const PHYS_BITS: u32 = F::PHYS_BITS;
    const LEAF_LEVELS: u8 = F::LEAF_LEVELS;
    const GUEST: bool = F::GUEST;
    const RIGHTS: Rights = F::RIGHTS;
    const GROUP_BITS: [u8; MAX_LEVELS] = F::GROUP_BITS;
    const EVER_BREAKS: bool = BREAK && F::EVER_BREAKS;
    const KEPT: u64 = F::KEPT;

    fn link(level: Level, at: PhysAddr) -> u64 {
        F::link(level, at)
    }
    fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
        F::linked(level, raw)
    }
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        F::leaf(level, pfn, attr)
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        F::frame(level, raw)
    }
    fn attr(level: Level, raw: u64) -> Attr {
        F::attr(level, raw)
    }
    fn is_present(level: Level, raw: u64) -> bool {
        F::is_present(level, raw)
    }
    fn allows(level: Level, raw: u64, access: Access) -> bool {
        F::allows(level, raw, access)
    }
    fn write_protected(level: Level, raw: u64) -> u64 {
        F::write_protected(level, raw)
    }
    fn is_special(level: Level, raw: u64) -> bool {
        F::is_special(level, raw)
    }
    fn hinted(level: Level, raw: u64) -> u64 {
        F::hinted(level, raw)
    }
    fn is_hinted(level: Level, raw: u64) -> bool {
        F::is_hinted(level, raw)
    }
    fn unhinted(level: Level, index: usize, raw: u64) -> u64 {
        F::unhinted(level, index, raw)
    }
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        BREAK && F::needs_break(level, old, new)
    }
}
