//! The MMUs of an AArch64 machine under the sanitizer: broadcasts and barriers.
use super::told;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::hosted::Host;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptsan::{AccessKind, Barrier, Config, Content, Flush, Memory, Sanitizer};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory of a host, as walkers read it.
struct Ram<'h, F: Format>(&'h Host<F>);

impl<F: Format> Memory for Ram<'_, F> {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        // SAFETY: 1. Walkers are led here by entries, which are written as such.
        unsafe { self.0.read(PhysAddr(phys), usize::from(bytes)) }
    }
}

/// The MMUs of all CPUs, broadcasting, under a sanitizer.
pub struct Soft<'h, F: Format> {
    host: &'h Host<F>,
    state: Mutex<Sanitizer>,
}

impl<'h, F: Format> Soft<'h, F> {
    /// MMUs of `host`.
    pub fn new(host: &'h Host<F>, config: Config) -> Self {
        Soft { host, state: Mutex::new(Sanitizer::new(config)) }
    }

    /// Tells the sanitizer of all stores to entries by this thread, until the result is dropped.
    pub fn told(&self) -> told::Told<'_> {
        let base = self.host.window().open(PhysAddr(0)).base().addr();
        told::tell(move |slot, exchanged| {
            let (mut san, at) = (self.lock(), (slot - base) as u64);
            match exchanged {
                true => san.entry_exchanged(&Ram(self.host), at),
                false => san.entry_written(&Ram(self.host), at),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sanitizer> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user's access on a CPU.
    pub fn access(&self, cpu: usize, va: u64, kind: AccessKind) -> bool {
        let access = ptsan::Access { kind, user: true };
        self.lock().translate(&Ram(self.host), cpu, va, access).is_ok()
    }

    /// The kernel's access on a CPU.
    pub fn kernel_access(&self, cpu: usize, va: u64, kind: AccessKind) -> bool {
        let access = ptsan::Access { kind, user: false };
        self.lock().translate(&Ram(self.host), cpu, va, access).is_ok()
    }

    /// Loads a kernel tree, which nobody has announced, on CPU 0.
    pub fn run_in_kernel_tree(&self, root: PhysAddr) {
        let (mut san, ram) = (self.lock(), Ram(self.host));
        let level = F::LAYOUT.root();
        let bytes = F::LAYOUT.table_bytes(level);
        san.table_allocated(&ram, root.0, bytes, Some(level.0), Content::Unchecked);
        san.barrier(0, Barrier::Data);
        san.switch(&ram, 0, root.0, 0);
        san.barrier(0, Barrier::Instruction);
    }

    /// Runs `f` on the sanitizer.
    pub fn with<R>(&self, f: impl FnOnce(&mut Sanitizer) -> R) -> R {
        f(&mut self.lock())
    }
}

// SAFETY: 1. and 2. an invalidation reaches the software MMUs of all CPUs, with the links on the
// way to its address if tables were freed, between barriers. 3. `load` forgets what is not kept. 4.
// `unload` takes the root away. 5. a flush reaches all CPUs, which walk tables by themselves. 6. no
// root is kept. 7. `load` finds no translations.
unsafe impl<F: Format> Mmu for &Soft<'_, F> {
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::Tagged;
    const NEEDS_ENTRY_VALID: bool = true;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (cpu, ram) = (usize::from(pin.cpu().0), Ram(self.host));
        let space = u64::from(what.asid);
        let mut san = self.lock();
        san.barrier(cpu, Barrier::Data);
        match what.scope.pages() {
            Some(pages) if what.tables_freed => {
                pages.for_each(|va| san.flush_everywhere(&ram, Flush::page(space, va)));
            }
            Some(pages) => {
                pages.for_each(|va| san.flush_everywhere(&ram, Flush::page(space, va).leaf_only()));
            }
            None => san.flush_everywhere(&ram, Flush::space(space)),
        }
        san.barrier(cpu, Barrier::Data);
        san.barrier(cpu, Barrier::Instruction);
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let (cpu, ram) = (usize::from(pin.cpu().0), Ram(self.host));
        let mut san = self.lock();
        san.barrier(cpu, Barrier::Data);
        match scope.pages() {
            Some(pages) => pages.for_each(|va| san.flush_everywhere(&ram, Flush::page_in_every_space(va))),
            None => san.flush_everywhere(&ram, Flush::all()),
        }
        san.barrier(cpu, Barrier::Data);
        san.barrier(cpu, Barrier::Instruction);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let (cpu, ram) = (usize::from(pin.cpu().0), Ram(self.host));
        let mut san = self.lock();
        san.barrier(cpu, Barrier::Data);
        if root.forget_all {
            san.flush(&ram, cpu, Flush::all());
            san.barrier(cpu, Barrier::Data);
        }
        san.switch(&ram, cpu, root.at.0, root.asid.into());
        san.barrier(cpu, Barrier::Instruction);
        if !root.keep {
            san.flush(&ram, cpu, Flush::all());
            san.barrier(cpu, Barrier::Data);
        }
    }

    fn lazy(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.lock().lazy(usize::from(pin.cpu().0));
    }

    fn resume(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.lock().resume(usize::from(pin.cpu().0));
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.lock().leave(usize::from(pin.cpu().0));
    }

    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        let (cpu, ram) = (usize::from(pin.cpu().0), Ram(self.host));
        let mut san = self.lock();
        san.barrier(cpu, Barrier::Data);
        if entry.was != 0 {
            san.flush(&ram, cpu, Flush::page_in_every_space(entry.va));
            san.barrier(cpu, Barrier::Data);
        }
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<F: Format, P: Policy> Layer<P> for &Soft<'_, F> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.host.frames())
    }

    fn alloc(
        &self,
        _: &P,
        _: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        let bytes = F::LAYOUT.table_bytes(level);
        // Roots with entries of the kernel's hold these already.
        let is_mixed = level == F::LAYOUT.root() && F::USER_ROOT_ENTRIES < F::entries(level);
        let content = if is_mixed { Content::Unchecked } else { Content::Zero };
        self.lock().table_allocated(&Ram(self.host), page.addr().0, bytes, Some(level.0), content);
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.lock().table_freed(&Ram(self.host), at.0, F::LAYOUT.table_bytes(level));
    }
}
