//! Describes the place at which a rule was broken.
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The place of a finding; fields that do not apply are `None`.
/// ```
/// use ptsan::{Arch, Place, Session};
///
/// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
/// s.free(0x1000);
/// let place = s.sanitizer.findings()[0].place;
/// assert_eq!(place, Place { frame: Some(0x1000), ..Place::default() });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Physical address of the table frame.
    pub frame: Option<u64>,
    /// Virtual address.
    pub va: Option<u64>,
    /// The CPU that walked, or that may still hold the frame.
    pub cpu: Option<usize>,
    /// Level of the table.
    pub level: Option<u8>,
    /// The address space.
    pub space: Option<u64>,
}

impl Place {
    /// Returns the key that makes two findings of one rule the same: the frame, else the page, else
    /// the space.
    pub(super) fn identity(&self) -> u64 {
        self.frame.or(self.va.map(|va| va & !0xfff)).or(self.space).unwrap_or(u64::MAX)
    }

    /// Returns the key that makes two misuses of one rule the same: all of the place, whose fields
    /// tell the hooks apart, and the note, which names the hook.
    pub(super) fn identity_of_misuse(&self, note: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.frame, self.va, self.cpu, self.level, self.space, note).hash(&mut hasher);
        hasher.finish()
    }
}
