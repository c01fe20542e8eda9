//! Owned frames, their content's state in the type.
use super::clear;
use crate::addr::{Pfn, PhysAddr};
use crate::cpu::MachineId;
use crate::window::{OpenWindow, WindowGuard};
use core::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// The knowledge of a frame's content.
pub trait State: sealed::Sealed {
    /// All bytes are zero.
    const ZERO: bool;
}

/// Content unknown.
#[derive(Debug)]
pub struct Dirty;

/// Every byte is zero.
#[derive(Debug)]
pub struct Zero;

impl sealed::Sealed for Dirty {}
impl sealed::Sealed for Zero {}
impl State for Dirty {
    const ZERO: bool = false;
}
impl State for Zero {
    const ZERO: bool = true;
}

/// 2^`order` adjacent frames of a machine that belong to the holder. Never `Copy`: giving it back
/// consumes it.
///
/// Dropping one without giving it back loses the memory; the exact counts of
/// [`Frames`](super::Frames) show it.
#[must_use = "a dropped frame is lost: give it back"]
#[derive(Debug)]
pub struct Frame<S: State> {
    pfn: Pfn,
    machine: MachineId,
    order: u8,
    _state: PhantomData<S>,
}

impl<S: State> Frame<S> {
    /// Returns the machine whose memory it is.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Returns the number of the first frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Returns the physical address of the first byte.
    #[inline]
    pub fn addr(&self) -> PhysAddr {
        self.pfn.addr()
    }

    /// Returns the binary logarithm of the number of frames.
    #[inline]
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Forgets the state of the content.
    #[inline]
    pub fn dirty(self) -> Frame<Dirty> {
        // SAFETY: point 1 is passed on from `self`, consumed here; point 2 has no demand for
        // `Dirty`.
        unsafe { Frame::from_raw(self.machine, self.pfn, self.order) }
    }

    /// Gives up the type: the number, to be kept in a list or in an entry. [`Frame::from_raw`]
    /// takes it back.
    #[inline]
    pub fn into_raw(self) -> Pfn {
        self.pfn
    }

    /// Takes ownership back.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the frames `pfn` .. `pfn` + 2^`order` of `machine`: they came from
    ///    [`Frame::into_raw`] and no other code has taken them back.
    /// 2. The content is as `S` says.
    #[inline]
    pub unsafe fn from_raw(machine: MachineId, pfn: Pfn, order: u8) -> Self {
        Frame { pfn, machine, order, _state: PhantomData }
    }
}

impl Frame<Dirty> {
    /// Clears every byte. The frame is in the cache then: right for a frame that is used next.
    ///
    /// # Safety
    ///
    /// 1. The window must reach the memory of the frame's machine, and this frame.
    ///
    /// ```compile_fail,E0133
    /// # use ptarmigan::{frames::{Dirty, Frame, Zero}, window::DirectMap};
    /// fn clear(frame: Frame<Dirty>, of_any_machine: &DirectMap) -> Frame<Zero> {
    ///     frame.clear(of_any_machine)
    /// }
    /// ```
    #[inline]
    pub unsafe fn clear<W: OpenWindow>(self, window: &W) -> Frame<Zero> {
        // SAFETY: of `clear_with`: 1. passed on. Of `through_caches`: 1. `clear_with` passes memory
        // of the frame, which is `self`'s alone.
        unsafe { self.clear_with(window, |base| clear::through_caches(base)) }
    }

    /// Clears every byte past the caches (non-temporal stores) where the processor can do that:
    /// right for a frame that rests before it is used, as it evicts no line that is in use. Its
    /// first user does not find it in the cache.
    ///
    /// On x86-64 the zeros go to memory directly; elsewhere this is [`clear`](Self::clear).
    ///
    /// # Safety
    ///
    /// 1. The window must reach the memory of the frame's machine, and this frame.
    pub unsafe fn clear_nontemporal<W: OpenWindow>(self, window: &W) -> Frame<Zero> {
        // SAFETY: of `clear_with`: 1. passed on. Of `past_caches`: 1. `clear_with` passes memory of
        // the frame, which is `self`'s alone. 2. it is as aligned as the frame's address (contract
        // of `Window`, point 3).
        unsafe { self.clear_with(window, |base| clear::past_caches(base)) }
    }

    /// # Safety
    ///
    /// 1. The window must reach the memory of the frame's machine, and this frame.
    #[inline]
    unsafe fn clear_with<W: OpenWindow>(self, window: &W, clear: impl Fn(*mut u8)) -> Frame<Zero> {
        for i in 0..1u32 << self.order {
            // The guard's memory is valid for the whole frame (contract of `Window`, point 1).
            let guard = window.open(Pfn(self.pfn.0 + i).addr());
            clear(guard.base());
        }
        // SAFETY: 1. ownership is passed on from `self`, consumed here. 2. All bytes have just been
        // cleared.
        unsafe { Frame::from_raw(self.machine, self.pfn, self.order) }
    }
}
