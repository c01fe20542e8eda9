//! The software MMUs of a host's CPUs, driven by the library's invalidations.
//!
//! ```text
//!  library ── store to an entry ── told ───────> entry_written ─┐
//!          ── Mmu::invalidate, load ───────────> flush, switch ─┼─> sanitizer (one lock)
//!  test    ── access(cpu, va) ─────────────────> translate ─────┘   findings
//! ```
//!
//! # Why
//!
//! A test on a host has no MMU, so that a missing flush would have no effect. Here the `Mmu` of the
//! machine is the sanitizer's: it forgets exactly the translations that the library asks it to
//! forget, and caches all that the architecture allows. All CPUs are behind one lock, because the
//! sanitizer judges one order of events. A barrier is told where a machine that broadcasts would
//! need one. Otherwise code that leaves it out would pass.
use crate::block::HashMemory;
use crate::memory::HostMemory;
use crate::store_hook;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Format, Formats};
use ptarmigan::page::{Level, MAX_LEVELS};
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::Host;
use ptarmigan_hosted::test::{Interrupting, MmuTraits};
use ptsan::{Access, Barrier, ByGuestAddress, Config, Content, Flush, Sanitizer, Target};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

/// A sanitizer that watches one host.
///
/// The software MMUs cache everything that the architecture of the sanitizer's configuration
/// allows. `T` describes them to the library, and so decides which translations the library asks
/// them to forget.
pub struct SoftMmu<'h, F: Format, T = Interrupting> {
    host: &'h Host<F>,
    hash: Option<HashMemory>,
    /// TLBs keep spaces apart by numbers.
    asids: bool,
    /// Whether there is no invalidation of an address.
    by_guest: bool,
    /// CPUs keep entries that were not valid.
    keeps_invalid: bool,
    state: Mutex<State>,
    traits: PhantomData<fn() -> T>,
}

struct State {
    sanitizer: Sanitizer,
    /// The space whose root each CPU has loaded, and that root.
    loaded: Vec<Option<(SpaceId, PhysAddr)>>,
    /// By level, findings about tables that came back.
    freed_wrong: [u64; MAX_LEVELS],
}

impl<'h, F: Format> SoftMmu<'h, F> {
    /// Connects a new sanitizer to a host whose CPUs interrupt each other, as those of x86 do.
    pub fn new(host: &'h Host<F>, config: Config) -> Self {
        Self::make(host, config, None)
    }

    /// Connects a new sanitizer to a host whose CPUs look pages up in a hash table in `memory`
    /// ([`HashedMmu::watched_by`](crate::HashedMmu::watched_by)).
    pub fn with_hash_table(host: &'h Host<F>, config: Config, memory: HashMemory) -> Self {
        Self::make(host, config, Some(memory))
    }
}

impl<'h, F: Format, T: MmuTraits> SoftMmu<'h, F, T> {
    /// Connects a new sanitizer to a host whose MMUs are like `T`:
    /// `SoftMmu::<_, Broadcasting>::like(&host, config)`.
    pub fn like(host: &'h Host<F>, config: Config) -> Self {
        Self::make(host, config, None)
    }

    /// The number by which the sanitizer knows a space: where TLBs are told numbers that all CPUs
    /// share, that number, so that one which comes round is seen as it would be by hardware.
    fn number(&self, space: SpaceId, asid: u16) -> u64 {
        if T::BROADCASTS && self.asids { asid.into() } else { space.number() }
    }

    /// Has the CPU carry invalidations out, all CPUs if they are broadcast, with the barriers
    /// around them that such a machine needs.
    fn flush(&self, cpu: usize, flushes: impl Iterator<Item = Flush>) {
        let flushes = flushes.map(|flush| self.possible(flush));
        self.with(|sanitizer, memory| {
            if !T::BROADCASTS {
                flushes.for_each(|flush| sanitizer.flush(memory, cpu, flush));
                return;
            }
            sanitizer.barrier(cpu, Barrier::Data);
            flushes.for_each(|flush| sanitizer.flush_everywhere(memory, flush));
            sanitizer.barrier(cpu, Barrier::Data);
            sanitizer.barrier(cpu, Barrier::Instruction);
        });
    }

    /// Returns the invalidation that a machine carries out for one by address: of the whole guest,
    /// where there is none of a guest-physical address (`INVEPT`, `TLB_CONTROL`).
    fn possible(&self, flush: Flush) -> Flush {
        match flush.target {
            Target::Page { space, .. } | Target::Range { space, .. } if self.by_guest => Flush::space(space),
            Target::EverySpace { .. } if self.by_guest => Flush::all(),
            _ => flush,
        }
    }

    fn make(host: &'h Host<F>, config: Config, hash: Option<HashMemory>) -> Self {
        let second = config.arch.second_stage;
        let by_guest = second.is_some_and(|second| second.by_address == ByGuestAddress::Never);
        let (asids, keeps_invalid) = (config.asids, config.keeps_invalid);
        let loaded = vec![None; config.cpus];
        let sanitizer = Sanitizer::new(config);
        let state = State { sanitizer, loaded, freed_wrong: [0; MAX_LEVELS] };
        SoftMmu { host, hash, asids, by_guest, keeps_invalid, state: Mutex::new(state), traits: PhantomData }
    }

    /// Returns the host.
    pub fn host(&self) -> &'h Host<F> {
        self.host
    }

    /// Calls `f` and tells the sanitizer of each store to an entry that this thread makes
    /// meanwhile, if the format's slots tell ([`Told`](crate::Told)). Calls may be nested; the
    /// innermost `SoftMmu` is told then.
    ///
    /// The sanitizer must see all stores or no store: a caller must make all changes to tables
    /// within `f`, on whatever threads.
    pub fn told<R>(&self, f: impl FnOnce() -> R) -> R {
        let base = self.host.window().open(PhysAddr(0)).base().addr();
        let hook = |slot: usize, exchanged| {
            // Entries elsewhere than in the host's memory are no tables of it.
            let Some(at) = slot.checked_sub(base) else { return };
            self.with(|sanitizer, memory| match exchanged {
                true => sanitizer.entry_exchanged(memory, at as u64),
                false => sanitizer.entry_written(memory, at as u64),
            });
        };
        store_hook::tell(&hook, f)
    }

    /// Makes an access on a CPU; returns whether it is let through.
    pub fn access(&self, cpu: usize, va: u64, access: Access) -> bool {
        self.with(|sanitizer, memory| sanitizer.translate(memory, cpu, va, access).is_ok())
    }

    /// Loads the tree of a [`KernelMap`](ptarmigan::table::KernelMap) on a CPU, as a machine does
    /// that has a root for the kernel's half alone. `root` was made before the sanitizer was told
    /// of tables.
    pub fn load_kernel_root(&self, cpu: usize, root: PhysAddr) {
        let level = F::LAYOUT.root();
        self.with(|sanitizer, memory| {
            let bytes = F::LAYOUT.table_bytes(level);
            sanitizer.table_allocated(memory, root.0, bytes, Some(level.0), Content::Unchecked);
            sanitizer.barrier(cpu, Barrier::Data);
            sanitizer.switch(memory, cpu, root.0, 0);
            sanitizer.barrier(cpu, Barrier::Instruction);
        });
    }

    /// Tells the sanitizer of the table that links of the host's kernel lead to, if MMUs read the
    /// whole root when they load it and so come to it: on a host, the page of zeroes.
    /// [`kernel_table_ended`](Self::kernel_table_ended) comes before the sanitizer is finished.
    pub fn kernel_table_begins(&self) {
        if F::ROOT_IN_REGISTERS {
            let (level, at) = (Level(F::LAYOUT.levels - 2), self.host.zero_frame().addr().0);
            let bytes = F::LAYOUT.table_bytes(level);
            self.with(|sanitizer, memory| {
                sanitizer.table_allocated(memory, at, bytes, Some(level.0), Content::Unchecked);
            });
        }
    }

    /// Tells the sanitizer that the table of [`kernel_table_begins`](Self::kernel_table_begins) has
    /// ended, if there was one.
    pub fn kernel_table_ended(&self) {
        if F::ROOT_IN_REGISTERS {
            let bytes = F::LAYOUT.table_bytes(Level(F::LAYOUT.levels - 2));
            let at = self.host.zero_frame().addr().0;
            self.with(|sanitizer, memory| sanitizer.table_freed(memory, at, bytes));
        }
    }

    /// Calls `f` with the sanitizer and the memory that it reads. The sanitizer is locked
    /// meanwhile: no CPU invalidates translations, and no CPU stores to an entry that is
    /// [told](Self::told).
    pub fn with<R>(&self, f: impl FnOnce(&mut Sanitizer, &HostMemory<'h>) -> R) -> R {
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
    pub fn findings_by_level(&self) -> impl Iterator<Item = (&'static str, u64)> + use<F, T> {
        let found = self.lock().freed_wrong;
        F::LEVEL_NAMES.iter().copied().zip(found)
    }

    fn memory(&self) -> HostMemory<'h> {
        HostMemory { words: self.host.words(), hash: self.hash.clone() }
    }

    /// Returns the memory of the hash table, if there is one.
    pub fn hash_memory(&self) -> Option<HashMemory> {
        self.hash.clone()
    }

    /// Returns the space that a CPU has loaded.
    pub(crate) fn loaded(&self, cpu: usize) -> Option<SpaceId> {
        self.lock().loaded.get(cpu).copied().flatten().map(|(space, _)| space)
    }

    /// Returns the root that a CPU has loaded.
    pub fn root(&self, cpu: usize) -> Option<PhysAddr> {
        self.lock().loaded.get(cpu).copied().flatten().map(|(_, root)| root)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn cpu(pin: &Pinned<'_>) -> usize {
    usize::from(pin.cpu().0)
}

/// Returns the level of leaves of 2^`shift` bytes.
fn level_of<F: Format>(shift: u32) -> Option<u8> {
    (0..F::LAYOUT.levels).find(|level| F::LEAF_LEVELS >> level & 1 != 0 && F::shift(Level(*level)) == shift)
}

/// The flushes of a scope that is not of everything. They name the level of the pages if
/// `names_level`.
fn flushes<F: Format>(
    scope: &Scope,
    (leaf_only, names_level): (bool, bool),
    range: impl Fn(u64, u64, u64) -> Target,
) -> Option<impl Iterator<Item = Flush>> {
    let runs = scope.runs()?;
    let level = scope.page_shift().filter(|_| names_level).and_then(level_of::<F>);
    Some(runs.map(move |(start, end, stride)| {
        // Of the last page of the address space, all but a byte is in the range.
        let end = if end == 0 { u64::MAX } else { end };
        Flush { target: range(start, end, 1 << stride), leaf_only, level, ..Flush::all() }
    }))
}

// SAFETY: 1. and 2. the software MMUs forget the translations that the scope covers, with the links
// on the way to its addresses, or more, as the sanitizer's architecture does; where `T` claims more
// than the architecture does, the claim is under test, and the sanitizer reports it: no memory is
// reached through their translations. 3. `load` switches the software MMU, which uses no
// translation of another space, and first forgets those that must not be kept. 4. `unload` takes
// the CPU's root away. 5. A flush reaches one CPU, or all if `T` says so, and CPUs walk tables by
// themselves. 6. No root is kept beyond the call, only its space's number. 7. `load` finds no
// translations.
unsafe impl<F: Format, T: MmuTraits> Mmu for &SoftMmu<'_, F, T> {
    const FORMATS: Formats = Formats::of::<F>().with_any_kernel::<F>();
    const BROADCASTS: bool = T::BROADCASTS;
    const STRUCTURES: Structures = T::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = T::NEEDS_ENTRY_VALID;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (cpu, space) = (cpu(pin), self.number(what.space, what.asid));
        // If any invalidation drops all links, no leaf-only invalidation spares them.
        let leaf_only = !what.tables_freed && T::STRUCTURES != Structures::AnyInvalidation;
        let range = |start, end, stride| match stride {
            1 => Target::Page { space, va: start },
            _ => Target::Range { space, start, end, stride },
        };
        match flushes::<F>(&what.scope, (leaf_only, T::NAMES_LEVELS && !what.tables_freed), range) {
            Some(flushes) => self.flush(cpu, flushes),
            None => self.flush(cpu, [Flush::space(space)].into_iter()),
        }
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let range = |start, end, stride| Target::EverySpace { start, end, stride };
        match flushes::<F>(scope, (false, false), range) {
            Some(flushes) => self.flush(cpu(pin), flushes),
            None => self.flush(cpu(pin), [Flush::all()].into_iter()),
        }
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let (cpu, space, memory) = (cpu(pin), self.number(root.space, root.asid), self.memory());
        let mut state = self.lock();
        if T::BROADCASTS {
            state.sanitizer.barrier(cpu, Barrier::Data);
        }
        if root.forget_all {
            state.sanitizer.flush(&memory, cpu, Flush::all());
        }
        state.sanitizer.switch(&memory, cpu, root.at.0, space);
        if self.asids && !root.keep {
            state.sanitizer.flush(&memory, cpu, Flush::space(space));
        }
        if T::BROADCASTS {
            state.sanitizer.barrier(cpu, Barrier::Data);
            state.sanitizer.barrier(cpu, Barrier::Instruction);
        }
        state.loaded[cpu] = Some((root.space, root.at));
    }

    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        let mut state = self.lock();
        if state.loaded[cpu(pin)].is_some_and(|(loaded, _)| loaded == space) {
            state.sanitizer.lazy(cpu(pin));
        }
    }

    fn resume(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.lock().sanitizer.resume(cpu(pin));
    }

    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        let mut state = self.lock();
        if state.loaded[cpu(pin)].is_some_and(|(loaded, _)| loaded == space) {
            state.sanitizer.leave(cpu(pin));
            state.loaded[cpu(pin)] = None;
        }
    }

    /// Makes the calling CPU forget pages that were valid, and may be cached with the permissions
    /// that they lacked; and those that were not, if CPUs keep such entries, with those on the way
    /// if tables were linked.
    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        let (cpu, stride) = (cpu(pin), 1 << entry.shift);
        let (start, end) = (entry.va, entry.va.wrapping_add(entry.pages << entry.shift));
        let target = match (entry.space, entry.asid) {
            (Some(space), Some(asid)) => {
                Target::Range { space: self.number(space, asid), start, end, stride }
            }
            _ => Target::EverySpace { start, end, stride },
        };
        self.with(|sanitizer, memory| {
            sanitizer.barrier(cpu, Barrier::Data);
            if self.keeps_invalid && entry.linked > 0 {
                let all = entry.space.zip(entry.asid).map(|(space, asid)| self.number(space, asid));
                sanitizer.flush(memory, cpu, all.map_or(Flush::all(), Flush::space));
            } else if self.keeps_invalid || entry.was != 0 && F::is_present(Level::PTE, entry.was) {
                sanitizer.flush(memory, cpu, self.possible(Flush { target, ..Flush::all() }.leaf_only()));
                sanitizer.barrier(cpu, Barrier::Data);
            }
            sanitizer.barrier(cpu, Barrier::Instruction);
        });
    }
}
