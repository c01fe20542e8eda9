//! Where the TLB state of a space is: in the space, or beside it while the space is shared.
//!
//! CPUs switch to a shared space and away from it at any time, also while somebody changes its structure and holds it
//! exclusively; so the state they write to cannot be inside what is held.
use crate::tlb::SpaceTlb;
use core::ptr::NonNull;

pub(super) struct Home {
    own: SpaceTlb,
    /// Set only while a call with exclusive use of a shared space runs.
    elsewhere: Option<NonNull<SpaceTlb>>,
}

// SAFETY: the pointer stands for a shared reference to a `SpaceTlb`, which is `Sync`.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    pub fn new(own: SpaceTlb) -> Self {
        Home { own, elsewhere: None }
    }

    #[inline(always)]
    pub fn get(&self) -> &SpaceTlb {
        match self.elsewhere {
            None => &self.own,
            // SAFETY: whoever set it keeps the state in place, and unsets it before it goes (contract of `set`).
            Some(at) => unsafe { at.as_ref() },
        }
    }

    /// Takes the state out; what stays behind must not be used before another is put in.
    pub fn take(&mut self) -> SpaceTlb {
        let left = self.own.left_behind();
        core::mem::replace(&mut self.own, left)
    }

    /// Puts a state back that was taken out.
    pub fn put(&mut self, tlb: SpaceTlb) {
        self.own = tlb;
    }

    /// Says where the state is; `None`: in here.
    ///
    /// # Safety
    ///
    /// 1. The state stays where it is until this is called again with `None`.
    pub unsafe fn set(&mut self, at: Option<NonNull<SpaceTlb>>) {
        self.elsewhere = at;
    }
}
