//! Maintains PowerPC's hashed page table: its layout, its size and its entries.
//!
//! The MMU of a hashed machine walks no tables. It looks a page up in one hash table for all
//! spaces, which software fills from its own tables when a page is missed. Flushing a page takes
//! its entry out of the table and then out of the TLBs.
//!
//! * `layout`: the bits of an entry: 8 bytes in groups of 64 (32-bit implementations such as the
//!   604), or 16 in groups of 128 (64-bit ones such as POWER3).
//! * `table`: the table itself: insert, remove, look up, wipe.
//! * `size`: how large it is to be.
//!
//! # Where an entry may be
//!
//! A page is named by a [`Tag`]: the number of its virtual segment (VSID) and its index in the
//! segment. The exclusive or of both, reduced to the number of groups, is the primary group; its
//! complement is the secondary one. Each has eight entries. If both are full, one entry of the
//! primary group goes: its page is missed again when it is used, and filled in again.
//!
//! # The bit in the software's entry
//!
//! Software notes in its own page-table entry that the page was put into the hash table
//! (`HASHPTE`). The bit says that there is something to flush, not that the entry is still there:
//! an entry that had to go leaves it set. It survives the clearing of the entry, and is taken away
//! by the flush alone (REQ-28). So while the bit is clear the page is in neither group, and it is
//! put in without a search for it.
//!
//! # Linux's rules
//!
//! Order of the groups, place of an eviction and search are those of `create_hpte` in Linux 2.4
//! (`arch/ppc/mm/hashtable.S`). Linux 2.6 has two more, which are left out here: an entry of the
//! kernel's text is not evicted (the next one in turn is), and on POWER4 entry 0 of a group is
//! passed over, for an erratum.
//!
//! Source: *PowerPC Microprocessor Family: The Programming Environments*, chapter 7 ("Memory
//! Management"), for 32-bit and 64-bit implementations.
mod layout;
mod size;
mod table;

pub use layout::{HashLayout, Hashed32, Hashed64, Mapping, Tag};
pub use size::{HashSize, HashSizeError};
pub use table::{HashCounts, HashTable, Inserted, Refill};
