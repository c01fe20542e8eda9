//! Owned frames, their content's state in the type.
use crate::addr::{FRAME_SIZE, Pfn, PhysAddr};
use crate::window::{Window, WindowGuard};
use core::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// What is known of a frame's content.
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

/// 2^`order` adjacent frames that belong to the holder. Never `Copy`: giving it back consumes it.
///
/// Dropping one without giving it back loses the memory; the exact counts of [`Frames`](super::Frames) show it.
#[must_use = "a dropped frame is lost: give it back"]
#[derive(Debug)]
pub struct Frame<S: State> {
    pfn: Pfn,
    order: u8,
    _state: PhantomData<S>,
}

impl<S: State> Frame<S> {
    /// The number of the first frame.
    #[inline(always)]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The physical address of the first byte.
    #[inline(always)]
    pub fn addr(&self) -> PhysAddr {
        self.pfn.addr()
    }

    /// Binary logarithm of the number of frames.
    #[inline(always)]
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Forgets what is known of the content.
    #[inline(always)]
    pub fn dirty(self) -> Frame<Dirty> {
        // SAFETY: point 1 is passed on from `self`, consumed here; point 2 asks nothing for `Dirty`.
        unsafe { Frame::from_raw(self.pfn, self.order) }
    }

    /// Gives up the type: the number, to be kept in a list or in an entry. [`Frame::from_raw`] takes it back.
    #[inline(always)]
    pub fn into_raw(self) -> Pfn {
        self.pfn
    }

    /// Takes ownership back.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the frames `pfn` .. `pfn` + 2^`order`: they came from [`Frame::into_raw`] and nobody
    ///    else has taken them back.
    /// 2. The content is as `S` says.
    #[inline(always)]
    pub unsafe fn from_raw(pfn: Pfn, order: u8) -> Self {
        Frame { pfn, order, _state: PhantomData }
    }
}

impl Frame<Dirty> {
    /// Clears every byte.
    pub fn clear<W: Window>(self, window: &W) -> Frame<Zero> {
        for i in 0..1u32 << self.order {
            let guard = window.map(Pfn(self.pfn.0 + i).addr());
            // SAFETY: the guard's memory is valid for the whole frame (contract of `Window`, point 1), and the
            // frame is ours, so nobody else uses it.
            unsafe { guard.base().as_ptr().write_bytes(0, FRAME_SIZE) };
        }
        // SAFETY: 1. ownership is passed on from `self`, consumed here. 2. All bytes have just been cleared.
        unsafe { Frame::from_raw(self.pfn, self.order) }
    }
}
