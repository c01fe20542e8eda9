//! Calls the kernel's hooks: its MMU, its interrupts between CPUs.
use crate::arch::Entries;
use core::ffi::{c_char, c_void};
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::format::Formats;
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, NewEntry, Root, Scope, SpaceId, Structures};

/// Called with `pt_hooks.context`, the calling CPU and an address: see the member.
pub type PtAddressHook = Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32, address: u64)>;
/// Called with `pt_hooks.context`, the calling CPU and another number: see the member.
pub type PtNumberHook = Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32, number: u32)>;
/// Called with `pt_hooks.context`, the calling CPU, and the physical address and number of pages:
/// see the member.
pub type PtFramesHook = Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32, phys: u64, pages: u64)>;
/// Called with `pt_hooks.context` and the calling CPU: see the member.
pub type PtHook = Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32)>;
/// Called when the library has found itself in a state that cannot be: text without a 0 at its end,
/// and where in the library's source. It must not return; if it does, the CPU executes an undefined
/// instruction.
pub type PtPanicHook = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        text: *const c_char,
        length: usize,
        file: *const c_char,
        file_length: usize,
        line: u32,
    ),
>;

/// Instruction caches see stores, and entries that are not valid are not cached.
const IS_X86: bool = cfg!(any(target_arch = "x86", target_arch = "x86_64"));

/// The kernel's functions for the library. Every function acts on the CPU that it is called on,
/// must not be left by `longjmp`, and calls no function of the library but `pt_cpu_serve`. It
/// brings its own barriers: a walk after it finds the CPU's earlier stores to tables, and later
/// accesses use no translation that it drops.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PtHooks {
    /// Passed to all of them.
    pub context: *mut c_void,
    /// Loads the root at the physical address: CR3, TTBR0_EL1 or satp. Afterwards the TLB may hold
    /// global translations only: numbers of address spaces are not used.
    pub load_root: PtAddressHook,
    /// Drops the page at the address, global or not. x86: INVLPG, which drops all paging-structure
    /// caches as well. AArch64: TLBI VAAE1, which drops those on the way to the address. RISC-V:
    /// SFENCE.VMA with an address and without a number.
    ///
    /// AArch64 and RISC-V: called for pages that have become valid, too, as the TLB may know that
    /// they were not.
    pub invalidate_page: PtAddressHook,
    /// Drops everything that is not global, paging-structure caches included. x86: loads CR3 with
    /// its own value.
    pub invalidate_all: PtHook,
    /// Drops everything, global pages too. x86: CR4.PGE off and on. If no page is global, as
    /// `invalidate_all`.
    pub invalidate_global: PtHook,
    /// The frames are about to be executable in a tree: called before the entry is written that
    /// lets instructions be fetched, and after the library has written to the frames. Instruction
    /// caches that do not see stores are made to agree here, on all CPUs. The frames need not be
    /// the library's. Not called for pages of a kernel's own tree.
    ///
    /// May be NULL on x86, whose instruction caches see stores; nowhere else.
    pub before_executable: PtFramesHook,
    /// Interrupts the CPU with the number. Its handler calls `pt_cpu_serve`. May be NULL if there
    /// is one CPU.
    pub send_ipi: PtNumberHook,
    /// One turn, counted from 1, of a wait for other CPUs. May be NULL. A watchdog belongs here:
    /// the library waits for ever.
    pub wait: PtNumberHook,
    /// See `pt_panic_hook`.
    pub panic: PtPanicHook,
}

impl PtHooks {
    /// Returns whether all are there that `cpus` CPUs need.
    pub(crate) fn are_complete(&self, cpus: u32) -> bool {
        self.load_root.is_some()
            && self.invalidate_page.is_some()
            && self.invalidate_all.is_some()
            && self.invalidate_global.is_some()
            && self.panic.is_some()
            && (IS_X86 || self.before_executable.is_some())
            && (cpus == 1 || self.send_ipi.is_some())
    }
}

/// The MMU and the interrupts of the machine.
pub struct Hardware {
    hooks: PtHooks,
    /// Where the kernel's own root is.
    kernel_root: u64,
}

// SAFETY: the context is for the kernel's functions alone, which the kernel has called on all CPUs.
unsafe impl Send for PtHooks {}
// SAFETY: as above.
unsafe impl Sync for PtHooks {}

/// Runs a hook.
macro_rules! call {
    ($hook:expr, $($argument:expr),*) => {
        if let Some(hook) = $hook {
            // SAFETY: the kernel handed over functions that may be called with these arguments
            // (contract of `pt_machine_init`).
            unsafe { hook($($argument),*) }
        }
    };
}

impl Hardware {
    pub(crate) fn new(hooks: PtHooks, kernel_root: u64) -> Self {
        Hardware { hooks, kernel_root }
    }

    fn load_root(&self, cpu: u32, root: u64) {
        call!(self.hooks.load_root, self.hooks.context, cpu, root);
    }

    /// Tells the kernel of frames that instructions may be fetched from soon.
    pub(crate) fn before_executable(&self, pin: &Pinned<'_>, first: Pfn, frames: u64) {
        call!(self.hooks.before_executable, self.hooks.context, number(pin), first.addr().0, frames);
    }

    fn pages(&self, cpu: u32, pages: impl Iterator<Item = u64>) {
        pages.for_each(|va| call!(self.hooks.invalidate_page, self.hooks.context, cpu, va));
    }
}

#[inline]
fn number(pin: &Pinned<'_>) -> u32 {
    u32::from(pin.cpu().0)
}

// SAFETY: by the contract of `PtHooks`: 1. `invalidate_page` drops a page, and the links in
// paging-structure caches that `STRUCTURES` says; `invalidate_all` drops everything that is not
// global, as no page of a space is. Walks find the CPU's earlier stores. On PAE a root whose
// entries have changed is loaded anew. 2. `invalidate_page` drops global pages too, and
// `invalidate_global` everything. 3. `load_root` leaves global translations only. 4. The kernel's
// own root has no user entries (contract of `pt_machine_init`). 5. No broadcast is relied on, all
// of these walk tables, and all but x86 may cache an entry that is not valid, or one that denies.
// 6. No state is kept. 7. No function unwinds.
unsafe impl Mmu for Hardware {
    const FORMATS: Formats = Formats::of::<Entries>();
    const STRUCTURES: Structures = if IS_X86 {
        Structures::AnyInvalidation
    } else if cfg!(target_arch = "aarch64") {
        Structures::Tagged
    } else {
        Structures::WholeSpace
    };
    const NEEDS_ENTRY_VALID: bool = !IS_X86;
    const HAS_READERS: bool = false;
    const PARKS: bool = false;
    const HAS_ASIDS: bool = false;
    const HAS_SLOTS: bool = cfg!(target_arch = "x86");

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        match what.scope.pages() {
            Some(pages) if !what.reload_root => self.pages(number(pin), pages),
            _ => call!(self.hooks.invalidate_all, self.hooks.context, number(pin)),
        }
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        match scope.pages() {
            Some(pages) => self.pages(number(pin), pages),
            None => call!(self.hooks.invalidate_global, self.hooks.context, number(pin)),
        }
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        self.load_root(number(pin), root.at.0);
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.load_root(number(pin), self.kernel_root);
    }

    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        // No page names a link of tables.
        if cfg!(target_arch = "riscv64") && entry.linked > 0 {
            call!(self.hooks.invalidate_all, self.hooks.context, number(pin));
            return;
        }
        self.pages(number(pin), (0..entry.pages).map(|page| entry.va + (page << entry.shift)));
    }
}

impl Ipi for Hardware {
    fn send(&self, pin: &Pinned<'_>, cpus: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {
        for cpu in cpus.iter() {
            call!(self.hooks.send_ipi, self.hooks.context, number(pin), u32::from(cpu.0));
        }
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        match self.hooks.wait {
            // SAFETY: as in `call`.
            Some(wait) => unsafe { wait(self.hooks.context, number(pin), turn) },
            None => core::hint::spin_loop(),
        }
    }
}
