//! Page-table memory: where page-table pages come from, what state they are in, how they are
//! reached, and when the TLB has forgotten them so that they may be used again.
//!
//! # Example
//!
//! A space on a machine made of threads and `mmap`. A kernel does the same on a machine of its own.
//!
//! ```
//! use ptarmigan::addr::{VirtAddr, VirtRange};
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
//! use ptarmigan::machine::Machine;
//! use ptarmigan::space::{Access, AreaFlags, Space};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
//! let cpus = host.slots(); // logical CPUs, owned by this thread
//! let pin = cpus[0].pin(); // proof of being on one
//! let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
//! let on = machine.on(&pin)?; // the machine, seen from that CPU
//!
//! let mut space = Space::<X86_64>::new(on)?;
//! let heap = VirtRange::new(0x40_0000, 0x50_0000)?;
//! space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
//! space.fault(on, VirtAddr(0x40_0123), Access::Write)?;
//! assert_eq!(space.tree().tables_below_root(), 3);
//! space.end(on)?; // every table and frame is back
//! # Ok(())
//! # }
//! ```
//!
//! # Which layer do I need?
//!
//! | you have | use | begin with |
//! |---|---|---|
//! | memory, and no allocator of frames | frames | [`frames::Frames`] |
//! | page tables of your own | lists of pages known to be zero | [`quicklist::Quicklists`], [`page::ForeignTable`] |
//! | tables of a released crate | an adapter | the crate `ptarmigan-adapters` |
//! | a plan of your own for address spaces | trees | [`table::Tree`] |
//! | system calls to serve: `mmap`, fork, faults | spaces | [`space::Space`], [`space::SharedSpace`] |
//! | a kernel, and no machine yet | set-up: all parts from a description | [`setup::Setup`], [`arch`] |
//! | areas of the kernel's half to map | kernel ranges | [`table::KernelMap`], [`vmalloc`] |
//! | memory that is not mapped always | slots, local maps, tables in high memory | [`highmem`] |
//! | a test, an emulator or a simulation | a machine of threads and `mmap` | the crate `ptarmigan-hosted` |
//! | a program, not a kernel | a pool of pages or stacks | the crate `ptarmigan-pool` |
//! | a comparison with Linux to make | its quicklists and `kmap` pool | the crate `ptarmigan-linux` |
//! | doubts about any of it | the sanitizer | the crate `ptsan` |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `std` | no | for machines in a process: waits yield to other threads, and an `Arc` may keep boot memory |
//! | `small` | no | trades speed for smaller code |
//!
//! The crate is `no_std` without the feature `std`, needs no heap, and has no dependency. In a
//! process, the crate `ptarmigan-hosted` is the machine.
//!
//! # Modules
//!
//! From the bottom up, each module uses only those before it: [`addr`], [`sync`], [`bootmem`],
//! [`params`], [`cpu`], [`window`], [`frames`] (physical memory), [`page`] (the life of a table
//! page), [`format`](mod@format) (entries), [`tlb`] (flushes), [`parking`] (pages that wait for
//! CPUs), [`arch`] (MMUs of three architectures), [`quicklist`] (pages in a known state),
//! [`machine`] (the parts, put together), [`gather`] (pages between unlinking and reuse),
//! [`highmem`] (frames that are mapped for a while), [`table`] (trees), [`vmalloc`] (areas of the
//! kernel), [`space`] (address spaces), and [`setup`] (a machine from a description).
//!
//! A kernel brings a [`window::Window`] to reach its memory, a [`tlb::Mmu`] to invalidate (or one
//! of [`arch`]), a [`tlb::Ipi`] to reach other CPUs, and a [`cpu::Pinned`] as proof of where it
//! runs. [`setup::Setup`] makes a machine of them; the library's own arrays lie in the kernel's
//! memory, as the library uses no heap. Parts can be put together by hand as a
//! [`machine::Machine`].
//!
//! # Rules
//!
//! Three rules are enforced by types: a page that a TLB may know is not handed out
//! ([`page::Unhooked`] becomes [`page::Flushed`] only by a flush); the state of a frame's content
//! is part of its type ([`frames::Frame`]); what is per CPU is reached only with proof of being
//! there ([`cpu::PerCpu`]).
#![cfg_attr(not(any(feature = "std", test, loom)), no_std)]
pub mod addr;
mod any_error;
pub mod arch;
mod bits;
pub mod bootmem;
pub mod cpu;
mod error;
pub mod format;
pub mod frames;
pub mod gather;
pub mod highmem;
pub mod machine;
pub mod page;
pub mod params;
pub mod parking;
pub mod quicklist;
pub mod setup;
pub mod space;
pub mod sync;
pub mod table;
pub mod tlb;
pub mod vmalloc;
pub mod window;

pub use any_error::Error;
