//! Describes an area of an address space.
use crate::addr::{PhysAddr, VirtRange};
use crate::format::{Attr, Format, MemoryType};
use crate::table::{Shown, Sizes};
use core::fmt;

/// Permissions and properties of an area.
///
/// ```
/// use ptarmigan::space::AreaFlags;
///
/// let both = AreaFlags::READ.with(AreaFlags::WRITE);
/// assert!(both.has(AreaFlags::WRITE));
/// assert_eq!(both.without(AreaFlags::WRITE), AreaFlags::READ);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct AreaFlags(pub u16);

impl AreaFlags {
    /// May be read.
    pub const READ: AreaFlags = AreaFlags(1);
    /// May be written, and read: see [`attr`](Self::attr).
    pub const WRITE: AreaFlags = AreaFlags(2);
    /// Instructions may be fetched. Alone, it may also be read where the format has no page for
    /// execution only: see [`attr`](Self::attr).
    pub const EXEC: AreaFlags = AreaFlags(4);
    /// Writes are seen through every mapping of it; without it, writes make a private copy.
    pub const SHARED: AreaFlags = AreaFlags(8);
    /// Backed by an object (a file) that says which frame a page is in; without it, by fresh
    /// zeroes.
    pub const BACKED: AreaFlags = AreaFlags(16);
    /// Grows downwards when touched just below: a stack.
    pub const GROWS_DOWN: AreaFlags = AreaFlags(32);
    /// Mapped by the kernel for its own ends (vdso): copied by fork although it has no private
    /// page.
    pub const SPECIAL: AreaFlags = AreaFlags(64);
    /// A private page has been written: fork has something to copy (Linux's `anon_vma`).
    pub const PRIVATE_PAGES: AreaFlags = AreaFlags(128);
    /// Not passed on by fork (`MADV_DONTFORK`).
    pub const NO_FORK: AreaFlags = AreaFlags(256);
    /// Passed on empty by fork (`MADV_WIPEONFORK`). Only for private memory, as in Linux: beside
    /// [`SHARED`](Self::SHARED) it means [`PHYSICAL`](Self::PHYSICAL).
    pub const WIPE_ON_FORK: AreaFlags = AreaFlags(512);
    /// Private pages were passed on by fork to this space. The area does not join one without
    /// private pages (in Linux an `anon_vma` with parents).
    pub const INHERITED: AreaFlags = AreaFlags(1024);
    /// The protection key of its pages: the number in bits 11 to 14 that
    /// [`with_key`](Self::with_key) sets. Only for formats with keys
    /// ([`Keyed`](crate::format::Keyed)).
    pub const KEY: AreaFlags = AreaFlags(0xf << 11);
    /// May have [large pages](super::LargePages): of fresh zeroes, or of the object behind it
    /// ([`backing_block`](super::SpaceMachine::backing_block)). Not kept where the format has none,
    /// and beside [`SPECIAL`](Self::SPECIAL). Areas of physical memory have
    /// [sizes](Area::sizes) of their own.
    pub const LARGE: AreaFlags = AreaFlags(1 << 15);
    /// Shows physical memory, for instance a device's: made by
    /// [`SpaceMut::map_physical`](super::SpaceMut::map_physical) and
    /// [`map_physical_large`](super::SpaceMut::map_physical_large) alone. Other calls refuse it
    /// ([`AreaError::Physical`](super::AreaError)). No bit is left for it alone: it is
    /// [`WIPE_ON_FORK`](Self::WIPE_ON_FORK) beside [`SHARED`](Self::SHARED), with
    /// [`LARGE`](Self::LARGE), so that faults look at one bit for both.
    pub const PHYSICAL: AreaFlags = Self::LARGE.with(Self::WIPED_SHARED);
    /// Only areas of physical memory have both.
    pub(super) const WIPED_SHARED: AreaFlags = Self::SHARED.with(Self::WIPE_ON_FORK);
    /// All permissions.
    pub const PERMISSIONS: AreaFlags = AreaFlags(7);
    /// The facts recorded about private pages.
    pub(super) const PRIVATE: AreaFlags = Self::PRIVATE_PAGES.with(Self::INHERITED);

    /// Whether all of `other` are set.
    #[inline]
    pub const fn has(self, other: AreaFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[inline]
    pub const fn with(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 | other.0)
    }

    /// Whether an area with them may have large pages of fresh zeroes.
    #[inline]
    pub(super) const fn may_have_zeroes(self) -> bool {
        self.has(Self::LARGE) && !self.has_object()
    }

    /// Whether an area with them has something behind it that says which frame a page is in.
    #[inline]
    pub(super) const fn has_object(self) -> bool {
        self.0 & Self::BACKED.with(Self::SHARED).0 != 0
    }

    /// Those of the area in the copy that fork makes.
    #[inline]
    pub(super) const fn inherited(self) -> AreaFlags {
        const SHIFT: u32 =
            AreaFlags::INHERITED.0.trailing_zeros() - AreaFlags::PRIVATE_PAGES.0.trailing_zeros();
        if self.has(Self::WIPE_ON_FORK) {
            return self.without(Self::PRIVATE);
        }
        AreaFlags(self.0 | (self.0 & Self::PRIVATE_PAGES.0) << SHIFT)
    }

    /// Permissions of which each lets a program read, in a format `F`.
    pub(super) const fn reads<F: Format>() -> AreaFlags {
        if F::RIGHTS.can_say(Attr::EXEC.with(Attr::USER)) {
            Self::READ.with(Self::WRITE)
        } else {
            Self::PERMISSIONS
        }
    }

    /// Returns the same with the protection key `n`; `None` if there is no such key, as there are
    /// 16.
    pub const fn with_key(self, n: u8) -> Option<AreaFlags> {
        if n < 16 { Some(self.without(Self::KEY).with(AreaFlags((n as u16) << 11))) } else { None }
    }

    /// The key as an attribute: those of `self` that are in `which`.
    #[inline]
    pub(super) const fn key(self, which: AreaFlags) -> Attr {
        const SHIFT: u32 = Attr::KEY.0.trailing_zeros() - AreaFlags::KEY.0.trailing_zeros();
        Attr(((self.0 & which.0 & Self::KEY.0) as u32) << SHIFT)
    }

    /// [`KEY`](Self::KEY) in formats that have keys, and nothing in others.
    pub(super) const fn keys<F: Format>() -> AreaFlags {
        let keyed = F::RIGHTS.can_say(Attr::READ.with(Attr::USER).with(Attr::KEY));
        if keyed { Self::KEY } else { AreaFlags(0) }
    }

    /// Returns the permissions that a page of such an area has once it has been written: the least
    /// that entries of the format `F` can say. A page that may be written may be read. A page for
    /// execution only may be read where [`Format::RIGHTS`] have none (POSIX, `mmap`: "an
    /// implementation may permit accesses other than those specified by `prot`"). The protection
    /// key is with them.
    ///
    /// ```
    /// use ptarmigan::format::{Attr, Sv39, X86_64};
    /// use ptarmigan::space::AreaFlags;
    ///
    /// let code = Attr::EXEC | Attr::USER;
    /// assert_eq!(AreaFlags::EXEC.attr::<Sv39>(), code);
    /// assert_eq!(AreaFlags::EXEC.attr::<X86_64>(), code | Attr::READ);
    /// let data = Attr::READ | Attr::WRITE | Attr::USER;
    /// assert_eq!(AreaFlags::WRITE.attr::<Sv39>(), data);
    /// ```
    pub const fn attr<F: Format>(self) -> Attr {
        let mut attr = Attr::USER.with(self.key(Self::KEY));
        if self.0 & const { Self::reads::<F>().0 } != 0 {
            attr = attr.with(Attr::READ);
        }
        if self.has(Self::WRITE) {
            attr = attr.with(Attr::WRITE);
        }
        if self.has(Self::EXEC) { attr.with(Attr::EXEC) } else { attr }
    }

    /// Without those of `other`.
    #[inline]
    pub const fn without(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 & !other.0)
    }
}

impl fmt::Debug for AreaFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in ["r", "w", "x", "s", "b", "g", "k", "p", "n", "z", "i"].iter().enumerate() {
            f.write_str(if self.0 >> i & 1 != 0 { name } else { "-" })?;
        }
        match (self.has(Self::PHYSICAL), self.has(Self::LARGE)) {
            (true, _) => f.write_str("+physical"),
            (false, true) => f.write_str("+large"),
            (false, false) => Ok(()),
        }
    }
}

/// How a space uses large pages of fresh zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargePages {
    /// Areas of private anonymous memory that are mapped from now on may have them, but for stacks
    /// (`always` in Linux). Without it, those that are given the flag [`AreaFlags::LARGE`], when
    /// they are mapped or by [`Advice::Large`](super::Advice) (`madvise` in Linux).
    pub in_new_areas: bool,
    /// A large page that fork has shared is copied as a whole when it is written, if a block is
    /// free for the copy; it is split otherwise, and the page that is written is copied.
    pub copy: bool,
}

/// A place in something that can be mapped: a file, shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Object {
    /// The object's name, which the machine understands; 0 without an object.
    pub id: u32,
    /// Where in it, in bytes, a multiple of the page size.
    pub offset: u64,
}

impl From<u32> for Object {
    /// The start of an object.
    fn from(id: u32) -> Self {
        Object { id, offset: 0 }
    }
}

/// Bits of the number for an area of physical memory that stand for the type of the memory; those
/// above stand for the sizes of leaves.
const TYPE_BITS: u32 = 8;

/// A run of pages with the same properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Where in the object behind it the area begins, in bytes. Of an area without an object, the
    /// address at which it was mapped: one that was moved does not join an area that it does not
    /// continue. Of an area of physical memory, the physical address.
    pub offset: u64,
    /// The object behind it, a name that the machine understands; 0 without an object. Of an area
    /// of physical memory, a number for its [type](Self::memory) and its [sizes](Self::sizes).
    pub object: u32,
    /// Permissions and properties.
    pub flags: AreaFlags,
    /// Properties that the caller knows and the library does not: areas that differ in them do not
    /// join (in Linux `VM_LOCKED`, `VM_DONTDUMP` and others).
    pub tag: u16,
    /// Whose private pages it has: a number below 4096 that the library gives when
    /// [`PRIVATE_PAGES`](AreaFlags::PRIVATE_PAGES) is set, and 0 until then. Areas with different
    /// numbers do not join (in Linux an `anon_vma`): see docs/linux.md, "Areas".
    pub history: u16,
}

impl Area {
    /// An area, with tag 0.
    pub fn new(range: VirtRange, flags: AreaFlags, object: impl Into<Object>) -> Self {
        let Object { id, offset } = object.into();
        let (start, end) = (range.start, range.end);
        let area = Area { start, end, offset, object: id, flags, tag: 0, history: 0 };
        if flags.has_object() { area } else { Area { offset: range.start, ..area } }
    }

    /// An area of the physical memory from `at` on, in leaves of `sizes`.
    pub(super) fn physical(
        range: VirtRange,
        flags: AreaFlags,
        at: PhysAddr,
        memory: MemoryType,
        sizes: Sizes,
    ) -> Self {
        let flags = flags.with(AreaFlags::PHYSICAL);
        let id = (memory as u32 + 1) | (sizes.number() << TYPE_BITS);
        Self::new(range, flags, Object { id, offset: at.0 })
    }

    /// Returns the type of the memory that pages of the area show. Only areas of physical memory
    /// have another one than the usual.
    #[inline]
    pub const fn memory(&self) -> MemoryType {
        // 0 is no object.
        let number = self.object & ((1 << TYPE_BITS) - 1);
        let number = if self.flags.has(AreaFlags::PHYSICAL) { number.wrapping_sub(1) } else { 0 };
        match MemoryType::numbered(number) {
            Some(memory) => memory,
            None => MemoryType::Device,
        }
    }

    /// Returns the sizes of the leaves that faults map in an area of physical memory, where
    /// addresses and memory are aligned for them. Of other areas, [`Sizes::PAGES`]:
    /// [`AreaFlags::LARGE`] decides about their large pages.
    #[inline]
    pub const fn sizes(&self) -> Sizes {
        let number = if self.flags.has(AreaFlags::PHYSICAL) { self.object >> TYPE_BITS } else { 0 };
        Sizes::numbered(number)
    }

    /// The addresses of an area of physical memory, and what they show.
    pub(super) fn shown(&self) -> Shown {
        Shown { range: self.range(), at: PhysAddr(self.offset), sizes: self.sizes() }
    }

    /// The same area of physical memory, in pages alone.
    pub(super) const fn in_pages(self) -> Self {
        Area { object: self.object & ((1 << TYPE_BITS) - 1), ..self }
    }

    /// Returns the physical memory that the area shows, from its start on; `None` if its pages are
    /// others.
    pub fn memory_at(&self) -> Option<PhysAddr> {
        self.flags.has(AreaFlags::PHYSICAL).then_some(PhysAddr(self.offset))
    }

    /// Where in the object behind it `va` lies, in bytes. Also for addresses next to the area, as
    /// it may come to reach.
    #[inline]
    pub fn offset_at(&self, va: u64) -> u64 {
        self.offset.wrapping_add(va.wrapping_sub(self.start))
    }

    /// Its addresses.
    #[inline]
    pub const fn range(&self) -> VirtRange {
        VirtRange::ordered(self.start, self.end)
    }

    /// Whether `next` can be one area with it: it begins where this one ends, is alike, and
    /// continues the same object, and their private pages may be of one history.
    #[inline]
    pub(super) fn joins(&self, next: &Area) -> bool {
        self.continues(next, AreaFlags::PRIVATE) && self.agrees(next)
    }

    /// Whether `next` begins where this one ends, continues the same object, and is alike but for
    /// the flags in `but`.
    #[inline]
    fn continues(&self, next: &Area, but: AreaFlags) -> bool {
        self.end == next.start
            && self.flags.without(but) == next.flags.without(but)
            && self.object == next.object
            && self.tag == next.tag
            && self.offset_at(next.start) == next.offset
    }

    /// Whether private pages of both may be in one area: they have one history, or one of the two
    /// has none and the other's began here.
    #[inline]
    pub(super) fn agrees(&self, other: &Area) -> bool {
        let (one, two) = (self.history, other.history);
        one == two || (one == 0 || two == 0) && !self.flags.with(other.flags).has(AreaFlags::INHERITED)
    }

    /// Returns both as one area, which `next` [can be](Self::joins) with it.
    #[inline]
    pub(super) fn joined(self, next: &Area) -> Area {
        let (flags, history) = (self.flags.with(next.flags), self.history | next.history);
        Area { end: next.end, flags, history, ..self }
    }

    /// Returns the same without private pages.
    pub(super) fn without_private(self) -> Area {
        Area { flags: self.flags.without(AreaFlags::PRIVATE), history: 0, ..self }
    }

    /// The history that `next`, which begins where this area ends, or the other way round, passes
    /// on to its neighbour that has none. They may differ in permissions.
    pub(super) fn passes_on(&self, next: &Area, which: &Area) -> Option<u16> {
        let but = AreaFlags::PRIVATE.with(AreaFlags::PERMISSIONS);
        let has = which.history != 0 && !which.flags.has(AreaFlags::INHERITED);
        (has && self.continues(next, but)).then_some(which.history)
    }

    /// Whether fork copies the tables of this area; others are filled again by faults
    /// (docs/linux.md, "Fork").
    #[inline]
    pub(super) fn is_copied(&self) -> bool {
        let flags = self.flags;
        (flags.has(AreaFlags::PRIVATE_PAGES) || flags.has(AreaFlags::SPECIAL))
            && flags.0 & AreaFlags::WIPED_SHARED.0 != AreaFlags::WIPE_ON_FORK.0
    }
}
