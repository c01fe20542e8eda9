//! Tables, told of where the policy hands them out and takes them back.

use core::marker::PhantomData;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};

use crate::{code, is_on, send};

/// A layer around a policy whose tables are of the format `F`. `G` keeps interrupts masked.
pub struct Announced<'f, F, G> {
    frames: &'f Frames,
    mask: fn() -> G,
    format: PhantomData<fn() -> F>,
}

impl<'f, F: Format, G> Announced<'f, F, G> {
    /// Makes the layer. `mask` returns a guard, and masks interrupts until the guard is dropped.
    pub const fn new(frames: &'f Frames, mask: fn() -> G) -> Self {
        Announced { frames, mask, format: PhantomData }
    }

    #[inline]
    fn send(&self, pin: &Pinned<'_>, code: u64, arguments: [u64; 4]) {
        if is_on() {
            let _masked = (self.mask)();
            send(pin.cpu().0.into(), code, arguments);
        }
    }
}

fn bytes<F: Format>(level: Level) -> u64 {
    1 << F::LAYOUT.table_shift[level.at()]
}

// SAFETY: 1. The page is `inner`'s.
unsafe impl<F: Format, G, P: Policy> Layer<P> for Announced<'_, F, G> {
    #[inline]
    fn frames(&self) -> Option<&Frames> {
        // Chains are looked through only if somebody listens.
        is_on().then_some(self.frames)
    }

    #[inline]
    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        // A root has the kernel's entries already.
        let zero = u64::from(level != F::LAYOUT.root());
        self.send(pin, code::ALLOCATED, [page.addr().0, bytes::<F>(level), level.0.into(), zero]);
        Ok(page)
    }

    #[inline]
    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.send(pin, code::FREED, [at.0, bytes::<F>(level), 0, 0]);
    }
}
