//! Page-table memory: where page-table pages come from, what state they are in, how they are
//! reached, and when the TLB has forgotten them so that they may be used again.
//!
//! From the bottom up, each module knowing only those before it: [`addr`], [`sync`] and
//! [`bootmem`], [`cpu`], [`window`], [`frames`] (physical memory), [`quicklist`] (pages in a known
//! state), [`format`](mod@format) (entries), [`tlb`] (gathers and flushes), [`highmem`] (frames
//! that are mapped for a while), [`table`] (trees), [`space`] (address spaces), and with the
//! feature `hosted` a machine made of threads and mmap (`hosted`), whose documentation begins with
//! an example.
//!
//! A kernel brings a [`window::Window`] to reach its memory, a [`tlb::Mmu`] to invalidate, a
//! [`tlb::Ipi`] to reach other CPUs, and a [`cpu::Pinned`] as proof of where it runs; it hands over
//! [`bootmem::BootMemory`] for the library's own arrays, as the library uses no heap. It puts the
//! parts together as a [`machine::Machine`].
//!
//! Three rules are enforced by types: a page that a TLB may know is not handed out
//! ([`page::Unhooked`] becomes [`page::Flushed`] only by a flush); the state of a frame's content
//! is part of its type ([`frames::Frame`]); what is per CPU is reached only with proof of being
//! there ([`cpu::PerCpu`]).
#![cfg_attr(not(any(feature = "hosted", test, loom)), no_std)]
#[cfg(feature = "adapters")]
pub mod adapters;
pub mod addr;
mod bits;
pub mod bootmem;
pub mod cpu;
pub mod format;
pub mod frames;
pub mod gather;
pub mod highmem;
#[cfg(feature = "hosted")]
pub mod hosted;
pub mod machine;
pub mod page;
pub mod params;
pub mod quicklist;
pub mod space;
pub mod sync;
pub mod table;
pub mod tlb;
pub mod vmalloc;
pub mod window;
