//! Declares the traits by which TLB code reaches the hardware: the thin, machine-specific leaf.
use super::error::WrongMode;
use super::id::SpaceId;
use super::request::{Invalidation, KernelRoot, NewEntry, Root};
use super::scope::Scope;
use crate::addr::PhysAddr;
use crate::cpu::{CpuSet, Pinned};
use crate::format::Formats;
use crate::sync;

/// The effect of an invalidation by address on paging-structure caches (walk caches), which keep
/// links of tables. It decides the addresses that a flush names when tables have been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structures {
    /// It drops all links that the CPU keeps of the space, of whatever addresses: x86's `INVLPG`.
    /// (`INVPCID` of type 0 promises this of the links on the way to its address only: with it, the
    /// machine is [`Tagged`](Self::Tagged).)
    AnyInvalidation,
    /// It drops the links on the way to its address, on every level, and no others: AArch64's `TLBI
    /// VAE1`. A flush names an address of each table that was freed.
    Tagged,
    /// It drops no link: RISC-V's `SFENCE.VMA` with an address. When tables have been freed, a
    /// flush is of the whole space.
    WholeSpace,
}

impl Structures {
    /// Whether a flush has to name an address of each table.
    #[inline]
    pub(crate) const fn is_tagged(self) -> bool {
        matches!(self, Structures::Tagged)
    }

    /// Whether no flush by address will do.
    #[inline]
    pub(super) const fn wants_everything(self) -> bool {
        matches!(self, Structures::WholeSpace)
    }
}

/// The operations of a CPU on its own TLB, and the events that it is told of.
///
/// Its methods are called while the CPU has its state of the TLB for itself: requests of other CPUs
/// wait for them, so they do not wait for other CPUs. [`Tlb::serve`](super::Tlb::serve) may be
/// called in them; it leaves requests for later. Other calls of the same [`Tlb`](super::Tlb) with
/// the same pin are refused in them.
///
/// # Safety
///
/// An implementation must ensure:
/// 1. When [`invalidate`](Self::invalidate) returns, the calling CPU (every CPU, if
///    [`BROADCASTS`](Self::BROADCASTS)) has forgotten the translations of the pages in the
///    request's scope under the request's number, and does not use them for accesses that come
///    later. If `tables_freed`, the same holds of links of tables, which paging-structure caches
///    (walk caches) keep: all of the space's under that number if the scope is [`Scope::Full`] or
///    [`STRUCTURES`](Self::STRUCTURES) says [`Structures::AnyInvalidation`]; of the links on the
///    way to each page in the scope, on every level, if it says [`Structures::Tagged`]. A CPU that
///    walks tables later finds the calling CPU's earlier stores in them: a barrier that makes
///    stores visible to walks is the implementation's.
/// 2. When [`invalidate_kernel`](Self::invalidate_kernel) returns, the same holds of translations
///    of the kernel's half that are global, and of those under every number. Of links of tables,
///    [`Scope::Full`] covers all of the kernel's half, under every number. With any other scope,
///    those on the way to each page in the scope have gone if `STRUCTURES` says
///    [`Structures::Tagged`], under every number; otherwise they may stay.
/// 3. When [`load`](Self::load) returns, the calling CPU uses no translation of another space's
///    non-global pages, and unless `keep` no translation of the space itself that is older than the
///    call; if `forget_all`, no translation under any number that is older than the call.
/// 4. When [`unload`](Self::unload) returns, the calling CPU walks no tables of user space.
/// 5. [`FORMATS`](Self::FORMATS), [`BROADCASTS`](Self::BROADCASTS),
///    [`WALKS_TABLES`](Self::WALKS_TABLES) and [`NEEDS_ENTRY_VALID`](Self::NEEDS_ENTRY_VALID) must
///    describe the hardware, as its CPUs are set up.
/// 6. If it keeps a [`Root`], a [`NewEntry`] or a [`KernelRoot`] beyond the call that it was given
///    in, no [`Mmu`] is given it later: its tables may have gone, or be another machine's. It may
///    load a `KernelRoot` itself as long as it exists.
/// 7. If [`load`](Self::load) unwinds, the calling CPU has found only translations of the space
///    that it had loaded before, under the number of that space, and of the new space, under the
///    new number. The translations need not have been forgotten, and either root may be loaded:
///    [`unload`](Self::unload) is called next, and may not unwind then (the program is aborted if
///    it does). If `unload` unwinds at another time, either root may be loaded too.
pub unsafe trait Mmu: Sync {
    /// The formats of the tables that the MMU reads, or software that fills its TLB. Tables of
    /// another format do not compile on the machine:
    ///
    /// ```compile_fail,E0080
    /// # use ptarmigan::format::{I386, Sv32};
    /// # use ptarmigan::{frames::AllocFlags, machine::*, table::Tree, tlb::*};
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<I386>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let i386 = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// let on = i386.on(&pin)?;
    /// let tree = Tree::<Sv32>::new(on, AllocFlags::NORMAL)?;
    /// # tree.end(on)?;
    /// # Ok(())
    /// # }
    /// ```
    const FORMATS: Formats;

    /// An invalidation on one CPU reaches all of them: AArch64's inner-shareable `TLBI`, x86's
    /// `INVLPGB`. Spaces have the same number on all CPUs then.
    const BROADCASTS: bool = false;

    /// The MMU reads tables by itself. One that does not finds translations in a [hash
    /// table](super::hash) that software fills from them, or nowhere but in its TLB. No CPU has to
    /// forget anything before tables of such a machine are used again: a flush covers the pages
    /// that were hashed, and code that fills the hash table is a [reader](super::Readers).
    const WALKS_TABLES: bool = true;

    /// The effect of an invalidation by address on paging-structure caches. A machine whose CPUs
    /// [walk no tables](Self::WALKS_TABLES) has no such cache; it may say anything.
    const STRUCTURES: Structures;

    /// The machine has to be told of entries that become valid or allow more than they did: it
    /// caches entries that are not valid (some RISC-V), or entries that deny an access (AArch64),
    /// so that a CPU would fault again and again; or stores to tables reach its walks after a
    /// barrier only (AArch64, RISC-V); or it wants a page in its hash table before it misses it
    /// (some PowerPC).
    const NEEDS_ENTRY_VALID: bool;

    /// CPUs may read tables without a lock, as faults on a shared space do, so that flushes that
    /// take tables away wait for [readers](super::Readers). If not, [`Tlb::readers`] does not
    /// compile, and the code that waits is left out:
    ///
    /// ```compile_fail,E0080
    /// # use ptarmigan::{cpu::*, format::{Formats, I386}, tlb::*};
    /// struct Locked;
    /// # // SAFETY: never used.
    /// unsafe impl Mmu for Locked {
    ///     const HAS_READERS: bool = false;
    /// #   const FORMATS: Formats = Formats::of::<I386>();
    /// #   const STRUCTURES: Structures = Structures::AnyInvalidation;
    /// #   const NEEDS_ENTRY_VALID: bool = false;
    ///     // ...
    /// #   fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    /// #   fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    /// #   fn load(&self, _: &Pinned<'_>, _: &Root) {}
    /// #   fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    /// }
    /// # impl Ipi for Locked {
    /// #   fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
    /// # }
    /// fn readers(tlb: &Tlb<Locked>) -> &Readers {
    ///     tlb.readers()
    /// }
    /// # let _ = readers as fn(&Tlb<Locked>) -> &Readers;
    /// ```
    ///
    /// [`Tlb::readers`]: super::Tlb::readers
    const HAS_READERS: bool = true;

    /// Chains may be parked: unlinked pages wait for lazy CPUs, if
    /// [`Parking`](crate::parking::Parking) has room for them. If not, lazy CPUs are interrupted at
    /// once, and the code for the other way is left out.
    const PARKS: bool = true;

    /// TLBs tell spaces apart by numbers, of which [`TlbConfig::asids`](super::TlbConfig::asids)
    /// says how many. If not, it is never given out, whatever that says.
    const HAS_ASIDS: bool = true;

    /// The kernel's half has a window of slots. If not, [`Tlb::flush_kernel_slots`] does not
    /// compile, and CPUs need no code for its requests.
    ///
    /// [`Tlb::flush_kernel_slots`]: super::Tlb::flush_kernel_slots
    const HAS_SLOTS: bool = true;

    /// Forgets translations of a space.
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation);

    /// Forgets translations of the kernel's half. If tables of it have been freed, the scope is
    /// [`Scope::Full`], or names an address of each on a machine that says
    /// [`Structures::Tagged`].
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope);

    /// Loads a space's root.
    fn load(&self, pin: &Pinned<'_>, root: &Root);

    /// Is told that this CPU keeps the root loaded but runs no code of the space.
    fn lazy(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// Is told that this CPU runs in the space again whose root it had kept loaded; it missed no
    /// flush in between.
    fn resume(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// Loads the kernel's own root.
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId);

    /// Checks that the calling CPU is in the mode in which it reads tables of
    /// [`FORMATS`](Self::FORMATS), where a register says so: RISC-V's `satp.MODE`, x86's CR4.PAE
    /// and CR4.LA57. [`Setup`](crate::setup::Setup) asks once, before anything else; the pin is of
    /// no machine yet, and its number may be another CPU's.
    ///
    /// # Errors
    ///
    /// [`WrongMode`] if it is in another one.
    fn check_mode(&self, _pin: &Pinned<'_>) -> Result<(), WrongMode> {
        Ok(())
    }

    /// Returns whether the CPU may find the memory at the physical address `phys` at `at`; false if
    /// it knows that it does not. [`Setup`](crate::setup::Setup) asks before it reads tables, with
    /// the pin of [`check_mode`](Self::check_mode).
    fn may_show(&self, _pin: &Pinned<'_>, _at: *const u8, _phys: PhysAddr) -> bool {
        true
    }

    /// Is told of a root without entries of programs, which [`unload`](Self::unload) may load. An
    /// implementation that has a root of its own for that ignores it.
    /// [`Setup`](crate::setup::Setup) calls this once, before any space is loaded; a kernel that
    /// puts its machine together by hand gives the implementation a root itself.
    fn set_kernel_root(&self, _root: KernelRoot) {}

    /// Writes back what the data cache holds of the `bytes` bytes at `at`, so that an instruction
    /// fetch can find it: AArch64's `DC CVAU` for each line. It is called for each frame that is
    /// about to become executable, before [`invalidate_code`](Self::invalidate_code).
    ///
    /// # Safety
    ///
    /// 1. The bytes can be read.
    unsafe fn clean_code(&self, _pin: &Pinned<'_>, _at: *const u8, _bytes: usize) {}

    /// Makes every CPU fetch instructions anew: AArch64's `IC IALLUIS` between barriers, `FENCE.I`
    /// on all RISC-V harts. Machines whose instruction caches see stores (x86) do nothing.
    fn invalidate_code(&self, _pin: &Pinned<'_>) {}

    /// Is told that entries have become valid that were not, or allow more than they did, if it
    /// [needs](Self::NEEDS_ENTRY_VALID) to be; also of an entry that allowed an access already
    /// which faulted. The entries can be walked to, as far as the calling CPU's stores are visible
    /// to walks: a barrier for that is the implementation's.
    ///
    /// Where entries that are not valid, or that deny, may be cached, it makes the calling CPU
    /// forget the pages; that CPU alone. If tables were [linked](NewEntry::linked), and entries
    /// that are not valid may be cached, it forgets those on the way, too. Another CPU faults once
    /// more at worst, and is told then, by the call that serves the fault: [`Space::fault`] for the
    /// user's half, [`KernelMap::serve_fault`] for the kernel's. So no broadcast is needed. This
    /// method is never called in the middle of an operation and may be interrupted.
    ///
    /// [`Space::fault`]: crate::space::Space::fault
    /// [`KernelMap::serve_fault`]: crate::table::KernelMap::serve_fault
    ///
    /// A machine that needs it and does not implement it does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use ptarmigan::{cpu::*, format::{Formats, Ppc32}, tlb::*};
    /// struct Hashed;
    /// # // SAFETY: never used.
    /// unsafe impl Mmu for Hashed {
    ///     const NEEDS_ENTRY_VALID: bool = true;
    ///     // ...
    /// #   const FORMATS: Formats = Formats::of::<Ppc32>();
    /// #   const STRUCTURES: Structures = Structures::AnyInvalidation;
    /// #   fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    /// #   fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    /// #   fn load(&self, _: &Pinned<'_>, _: &Root) {}
    /// #   fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    /// }
    /// # fn tell(pin: &Pinned<'_>, entry: &NewEntry) {
    /// Hashed.entry_became_valid(pin, entry);
    /// # }
    /// # let _ = tell as fn(&Pinned<'_>, &NewEntry);
    /// ```
    fn entry_became_valid(&self, _pin: &Pinned<'_>, _entry: &NewEntry) {
        const { assert!(!Self::NEEDS_ENTRY_VALID, "`entry_became_valid` is needed and does nothing") }
    }
}

/// How a CPU gets the attention of others, and how it waits for them.
///
/// No answer here is trusted: a request counts as carried out when its CPU says so, not when it was
/// sent. An implementation that loses requests makes CPUs wait for ever, no worse; so sending is
/// repeated now and then.
pub trait Ipi: Sync {
    /// Turns of a wait after which requests that were not answered are sent again, at least 1.
    const RESEND_AFTER: u32 = 256;

    /// Makes each of `cpus` call [`Tlb::serve`](super::Tlb::serve) soon: an inter-processor
    /// interrupt. `serve` is that function; a machine on which the caller may act for another CPU
    /// (an idle one) calls it with that CPU's pin instead.
    fn send(&self, pin: &Pinned<'_>, cpus: &CpuSet, serve: &dyn Fn(&Pinned<'_>));

    /// Takes turn number `turn` (from 1) of a wait for another CPU. The caller serves its own CPU
    /// between the turns; a machine that may run out of processors gives way here.
    #[inline]
    fn wait(&self, _pin: &Pinned<'_>, _turn: u32) {
        sync::spin();
    }
}

/// A machine that can shoot translations down: its MMUs and its interrupts.
pub trait Shootdown: Mmu + Ipi {}

impl<T: Mmu + Ipi> Shootdown for T {}
