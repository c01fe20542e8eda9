//! The format with slots that tell of every store, so that the sanitizer sees each of them at once:
//! an entry that is replaced without a break in between, a table that is linked before it is
//! cleared.

use super::format::Stage1;
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Slot, Slot64};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use std::cell::RefCell;
use std::marker::PhantomData;

type Hook = Box<dyn Fn(usize, bool)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Stores of this thread are told as long as it is there.
pub struct Told<'a>(PhantomData<&'a ()>);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        HOOK.with(|hook| *hook.borrow_mut() = None);
    }
}

/// Tells `hook` of stores of this thread: where, and whether the entry was exchanged.
pub fn tell<'a>(hook: impl Fn(usize, bool) + 'a) -> Told<'a> {
    let hook: Box<dyn Fn(usize, bool) + 'a> = Box::new(hook);
    // SAFETY: `Told` takes it away before what it borrows goes.
    let hook = unsafe { std::mem::transmute::<Box<dyn Fn(usize, bool) + 'a>, Hook>(hook) };
    HOOK.with(|place| *place.borrow_mut() = Some(hook));
    Told(PhantomData)
}

/// A [`Slot64`] that tells.
#[repr(transparent)]
pub struct ToldSlot(Slot64);

impl ToldSlot {
    fn tell(&self, exchanged: bool) {
        HOOK.with(|hook| {
            if let Some(hook) = &*hook.borrow() {
                hook(std::ptr::from_ref(self).addr(), exchanged);
            }
        });
    }
}

// SAFETY: as `Slot64`, whose functions do the work.
unsafe impl Slot for ToldSlot {
    const FILLS_AT_ONCE: bool = Slot64::FILLS_AT_ONCE;

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

/// The format, told; without `BREAK`, the library is not told to break before it makes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToldFormat<const UPPER: bool, const BREAK: bool>;

/// The user's.
pub type AArch64<const BREAK: bool> = ToldFormat<false, BREAK>;
/// The kernel's.
pub type Upper<const BREAK: bool> = ToldFormat<true, BREAK>;

// SAFETY: 1. to 6. as the format, whose functions these are; without `BREAK` 6. is not kept on
// purpose: the sanitizer is to find that.
unsafe impl<const UPPER: bool, const BREAK: bool> Format for ToldFormat<UPPER, BREAK> {
    type Slot = ToldSlot;
    const EVER_BREAKS: bool = BREAK;
    entries_of_aarch64!(Stage1<UPPER>);
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        BREAK && Stage1::<UPPER>::needs_break(level, old, new)
    }
}
