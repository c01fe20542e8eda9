//! The software MMUs of a host's CPUs, driven by the library's invalidations.
use crate::block::HashMemory;
use crate::memory::HostMemory;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::hosted::Host;
use ptarmigan::page::{Level, MAX_LEVELS};
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures};
use ptsan::{Config, Flush, Sanitizer, Target};
use std::sync::{Mutex, MutexGuard};

/// A sanitizer that watches one host.
pub struct SoftMmu<'h, F: Format> {
    host: &'h Host<F>,
    hash: Option<HashMemory>,
    /// TLBs keep spaces apart by numbers.
    asids: bool,
    state: Mutex<State>,
}

struct State {
    sanitizer: Sanitizer,
    /// The space whose root each CPU has loaded.
    loaded: Vec<Option<SpaceId>>,
    /// By level, findings about tables that came back.
    freed_wrong: [u64; MAX_LEVELS],
}

impl<'h, F: Format> SoftMmu<'h, F> {
    /// Connects a new sanitizer to a host.
    pub fn new(host: &'h Host<F>, config: Config) -> Self {
        Self::make(host, config, None)
    }

    /// Connects a new sanitizer to a host whose CPUs look pages up in a hash table in `memory`
    /// ([`HashedMmu::watched_by`](crate::HashedMmu::watched_by)).
    pub fn with_hash_table(host: &'h Host<F>, config: Config, memory: HashMemory) -> Self {
        Self::make(host, config, Some(memory))
    }

    fn make(host: &'h Host<F>, config: Config, hash: Option<HashMemory>) -> Self {
        let (asids, loaded) = (config.asids, vec![None; config.cpus]);
        let sanitizer = Sanitizer::new(config);
        let state = State { sanitizer, loaded, freed_wrong: [0; MAX_LEVELS] };
        SoftMmu { host, hash, asids, state: Mutex::new(state) }
    }

    /// Returns the host.
    pub fn host(&self) -> &'h Host<F> {
        self.host
    }

    /// Calls `f` with the sanitizer and the memory that it reads. The sanitizer is locked
    /// meanwhile: no CPU invalidates translations.
    pub fn with<R>(&self, f: impl FnOnce(&mut Sanitizer, &HostMemory<'h, F>) -> R) -> R {
        f(&mut self.lock().sanitizer, &self.memory())
    }

    /// Reports a table of `level` that comes back.
    pub(crate) fn table_freed(&self, level: Level, at: PhysAddr, bytes: u64) {
        let memory = self.memory();
        let mut state = self.lock();
        let before = state.sanitizer.total();
        state.sanitizer.table_freed(&memory, at.0, bytes);
        let findings = state.sanitizer.total() - before;
        state.freed_wrong[level.at()] += findings;
    }

    /// Returns the name of each level of the format's tables, the root last, with the number of
    /// findings that were raised as a table of that level came back.
    pub fn findings_by_level(&self) -> impl Iterator<Item = (&'static str, u64)> + use<F> {
        let found = self.lock().freed_wrong;
        F::LEVEL_NAMES.iter().copied().zip(found)
    }

    fn memory(&self) -> HostMemory<'h, F> {
        HostMemory { host: self.host, hash: self.hash.clone() }
    }

    /// Returns the memory of the hash table, if there is one.
    pub fn hash_memory(&self) -> Option<HashMemory> {
        self.hash.clone()
    }

    /// Returns the space that a CPU has loaded.
    pub(crate) fn loaded(&self, cpu: usize) -> Option<SpaceId> {
        self.lock().loaded.get(cpu).copied().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn cpu(pin: &Pinned<'_>) -> usize {
    usize::from(pin.cpu().0)
}

// SAFETY: 1. and 2. the CPU's software MMU forgets what the scope covers. Any invalidation drops
// its paging-structure caches, as on x86. 3. `load` switches the software MMU, which uses nothing
// of another space, and forgets first what is not to be kept. 4. `unload` takes the CPU's root
// away. 5. A flush reaches one CPU, and CPUs walk tables by themselves. 6. No root is kept beyond
// the call, only its space's number. 7. `load` finds no translations.
unsafe impl<F: Format> Mmu for &SoftMmu<'_, F> {
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (cpu, space) = (cpu(pin), what.space.number());
        self.with(|sanitizer, memory| match (&what.scope, what.scope.runs()) {
            (Scope::Page(va), _) => sanitizer.flush(memory, cpu, Flush::page(space, *va)),
            (_, Some(runs)) => runs.for_each(|(start, end, stride)| {
                sanitizer.flush(memory, cpu, Flush::range(space, start, end, 1 << stride));
            }),
            (_, None) => sanitizer.flush(memory, cpu, Flush::space(space)),
        });
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let cpu = cpu(pin);
        self.with(|sanitizer, memory| match scope.runs() {
            Some(runs) => runs.for_each(|(start, end, stride)| {
                let target = Target::EverySpace { start, end, stride: 1 << stride };
                sanitizer.flush(memory, cpu, Flush { target, leaf_only: false });
            }),
            None => sanitizer.flush(memory, cpu, Flush::all()),
        });
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let (cpu, space, memory) = (cpu(pin), root.space.number(), self.memory());
        let mut state = self.lock();
        if root.forget_all {
            state.sanitizer.flush(&memory, cpu, Flush::all());
        }
        state.sanitizer.switch(&memory, cpu, root.at.0, space);
        if self.asids && !root.keep {
            state.sanitizer.flush(&memory, cpu, Flush::space(space));
        }
        state.loaded[cpu] = Some(root.space);
    }

    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        let mut state = self.lock();
        if state.loaded[cpu(pin)] == Some(space) {
            state.sanitizer.lazy(cpu(pin));
        }
    }

    fn resume(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.lock().sanitizer.resume(cpu(pin));
    }

    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        let mut state = self.lock();
        if state.loaded[cpu(pin)] == Some(space) {
            state.sanitizer.leave(cpu(pin));
            state.loaded[cpu(pin)] = None;
        }
    }
}
