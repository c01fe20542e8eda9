//! The replay's MMU: ptsan told of everything, and asked to translate every address that was
//! faulted in.
use crate::replay::workers::watch::Watch;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::hosted::Host;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan::space::Access;
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId};
use ptsan::{Content, Flush, Memory, Operation, Sanitizer, Target};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// A sanitizer and the memory that it reads.
pub struct SoftMmu<'h, F: Format> {
    host: &'h Host<F>,
    sanitizer: Mutex<Sanitizer>,
    /// Pages that could not be used right after their fault.
    unserved: AtomicU64,
}

struct HostMemory<'h, F: Format>(&'h Host<F>);

impl<F: Format> Memory for HostMemory<'_, F> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        // SAFETY: 1. the walkers are led by entries to tables, which are written as such.
        unsafe { self.0.read(PhysAddr(phys), usize::from(bytes)) }
    }
}

impl<'h, F: Format> SoftMmu<'h, F> {
    /// Connects a sanitizer to the memory of a host.
    pub fn new(host: &'h Host<F>, sanitizer: Sanitizer) -> Self {
        SoftMmu { host, sanitizer: Mutex::new(sanitizer), unserved: AtomicU64::new(0) }
    }

    /// Locks the sanitizer.
    pub fn sanitizer(&self) -> MutexGuard<'_, Sanitizer> {
        self.sanitizer.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns how many pages could not be used right after their fault. These are findings, though
    /// not the sanitizer's.
    pub fn unserved(&self) -> u64 {
        self.unserved.load(Relaxed)
    }

    /// Returns the observer of one worker. With `several` workers, other CPUs may use old
    /// translations until an operation ends.
    pub fn watcher(&self, several: bool) -> Watcher<'_, 'h, F> {
        Watcher { mmu: self, several, operation: None }
    }

    fn memory(&self) -> HostMemory<'h, F> {
        HostMemory(self.host)
    }

    fn size(level: Level) -> u64 {
        1 << F::LAYOUT.table_shift[level.at()]
    }
}

fn cpu(pin: &Pinned<'_>) -> usize {
    usize::from(pin.cpu().0)
}

// SAFETY: 1. and 2. the CPU's software TLB is flushed. 3. `load` tells the sanitizer of a switch,
// which drops what the CPU held of other spaces. 4. `unload` tells it that the root is gone. 5. A
// flush reaches one CPU, and CPUs walk tables.
unsafe impl<F: Format> Mmu for &SoftMmu<'_, F> {
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (memory, cpu, space) = (self.memory(), cpu(pin), what.space.number());
        let mut sanitizer = self.sanitizer();
        match (&what.scope, what.scope.runs()) {
            (Scope::Page(va), _) => sanitizer.flush(&memory, cpu, Flush::page(space, *va)),
            (_, Some(runs)) => runs.for_each(|(start, end, stride)| {
                sanitizer.flush(&memory, cpu, Flush::range(space, start, end, 1 << stride));
            }),
            (_, None) => sanitizer.flush(&memory, cpu, Flush::space(space)),
        }
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let (memory, cpu) = (self.memory(), cpu(pin));
        let mut sanitizer = self.sanitizer();
        match scope.runs() {
            Some(runs) => runs.for_each(|(start, end, stride)| {
                let target = Target::EverySpace { start, end, stride: 1 << stride };
                sanitizer.flush(&memory, cpu, Flush { target, leaf_only: false });
            }),
            None => sanitizer.flush(&memory, cpu, Flush::all()),
        }
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let (cpu, space) = (cpu(pin), root.space.number());
        let mut sanitizer = self.sanitizer();
        sanitizer.switch(&self.memory(), cpu, root.at.0, space);
        if root.asid != 0 && !root.keep {
            sanitizer.flush(&self.memory(), cpu, Flush::space(space));
        }
    }

    fn lazy(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.sanitizer().lazy(cpu(pin));
    }

    fn resume(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.sanitizer().resume(cpu(pin));
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.sanitizer().leave(cpu(pin));
    }
}

/// The observer of one worker.
pub struct Watcher<'a, 'h, F: Format> {
    mmu: &'a SoftMmu<'h, F>,
    several: bool,
    operation: Option<Operation>,
}

impl<F: Format> Watch for Watcher<'_, '_, F> {
    fn begins(&mut self) {
        if self.several {
            self.operation = Some(self.mmu.sanitizer().operation_begins());
        }
    }

    fn served(&mut self, cpu: usize, va: u64, access: Access) {
        let access = match access {
            Access::Read => ptsan::Access::READ,
            Access::Write => ptsan::Access::WRITE,
            Access::Exec => ptsan::Access::EXEC,
        };
        let mut sanitizer = self.mmu.sanitizer();
        let used = sanitizer.translate(&self.mmu.memory(), cpu, va, access);
        // A page that is unusable right after its fault is a defect of the library, which the
        // sanitizer cannot see. With other workers, the page may be moving to another frame, and
        // the program would fault again.
        if used.is_err() && sanitizer.operations() <= 1 {
            self.mmu.unserved.fetch_add(1, Relaxed);
        }
    }

    fn done(&mut self, _at: usize) {
        if let Some(operation) = self.operation.take() {
            self.mmu.sanitizer().operation_ends(&self.mmu.memory(), operation);
        }
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<F: Format, P: Policy> Layer<P> for &SoftMmu<'_, F> {
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
        // Root tables hold the kernel's entries already.
        let content = if level == F::LAYOUT.root() { Content::Unchecked } else { Content::Zero };
        let (at, size) = (page.addr().0, SoftMmu::<F>::size(level));
        self.sanitizer().table_allocated(&self.memory(), at, size, Some(level.0), content);
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.sanitizer().table_freed(&self.memory(), at.0, SoftMmu::<F>::size(level));
    }
}
