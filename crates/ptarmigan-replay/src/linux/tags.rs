//! Properties of Linux's areas that the library does not know, as tags of its areas. Areas that
//! differ in one of them do not join.

/// A set of the constants below.
pub type Tag = u16;

/// Counted against the memory that may be committed (`VM_ACCOUNT`).
pub const ACCOUNT: Tag = 1;
/// Locked in memory (`VM_LOCKED`).
pub const LOCKED: Tag = 2;
/// Locked as pages come (`VM_LOCKONFAULT`).
pub const ON_FAULT: Tag = 4;
/// Never counted (`VM_NORESERVE`).
pub const NORESERVE: Tag = 8;
/// Left out of core dumps (`VM_DONTDUMP`).
pub const NO_DUMP: Tag = 16;
/// Huge pages are wanted (`VM_HUGEPAGE`).
pub const HUGE: Tag = 32;
/// Huge pages are not wanted (`VM_NOHUGEPAGE`).
pub const NO_HUGE: Tag = 64;
/// Read in order (`VM_SEQ_READ`).
pub const SEQUENTIAL: Tag = 128;
/// Read in any order (`VM_RAND_READ`).
pub const RANDOM: Tag = 256;
/// Equal pages may be merged (`VM_MERGEABLE`).
pub const MERGEABLE: Tag = 512;
/// The kernel may drop pages (`VM_DROPPABLE`).
pub const DROPPABLE: Tag = 1024;
/// Of huge pages only (`VM_HUGETLB`).
pub const HUGE_ONLY: Tag = 2048;
/// Maps a device or a ring of the kernel's: not locked, not joined (`VM_SPECIAL`).
pub const ALONE: Tag = 4096;

/// A System V segment: not moved together with others.
pub const SEGMENT: Tag = 8192;

/// Both kinds of lock.
pub const LOCKS: Tag = LOCKED | ON_FAULT;
