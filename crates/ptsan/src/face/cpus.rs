//! The hooks of CPUs: loads of roots, lazy mode, invalidation.
use crate::arch::Entry;
#[cfg(feature = "watch")]
use crate::arch::{Arch, StructureScope};
use crate::cpu::{Context, CpuState, Flush, Loaded, Register, Strides, Target};
use crate::memory::Memory;
#[cfg(feature = "watch")]
use crate::owed::Cover;
use crate::report::{Happened, Kind, Place, Rule};
use crate::shadow::{Holder, Link, REGISTERS};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Announces an address space that no CPU has loaded yet.
    pub fn space_created(&mut self, space: u64) {
        self.hook(|s| s.spaces.insert(space, ()));
    }

    /// Tells that the address space is gone and its number will not stand for another.
    ///
    /// The sanitizer forgets the entries that CPUs still hold for it. Code that reuses hardware
    /// ASIDs must not call this: without the call, a use of the number with another root finds
    /// entries that were not flushed.
    pub fn space_destroyed(&mut self, space: u64) {
        self.hook(|s| s.forget_space(space));
    }

    fn forget_space(&mut self, space: u64) {
        if self.spaces.remove(&space).is_none() {
            self.misuse(Rule::NoSuchSpace, Place { space: Some(space), ..Place::default() });
        }
        if let Some(cpu) = self.cpus.iter().position(|c| c.runs(space)) {
            let place = Place { space: Some(space), cpu: Some(cpu), ..Place::default() };
            self.misuse(Rule::SpaceLoaded, place);
        } else {
            for cpu in &mut self.cpus {
                cpu.forget(space);
            }
            self.debts.forget(space);
            self.forget_hashed(space);
        }
    }

    /// Tells that the CPU loads `root` (physical address) and runs in `space`. Call it only for
    /// real loads of the root: not for a switch between threads of one space, and not for the
    /// return from lazy mode ([`Sanitizer::resume`]).
    ///
    /// Without ASIDs this drops all entries of the CPU except global translations. With ASIDs it
    /// drops no entry; for a load that also flushes the space, call [`Sanitizer::flush`] with
    /// [`Flush::space`] next.
    /// ```
    /// use ptsan::{Arch, Config, Content, CpuState, Sanitizer};
    ///
    /// let (mut san, memory) = (Sanitizer::new(Config::new(Arch::x86_64())), vec![0u8; 1 << 16]);
    /// san.table_allocated(&memory, 0x1000, 4096, Some(3), Content::Zero);
    /// san.switch(&memory, 0, 0x1000, 1);
    /// san.lazy(0);
    /// assert_eq!(san.cpu_state(0), Some(CpuState::Lazy));
    /// ```
    pub fn switch(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, root: u64, space: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.load_root(memory, cpu, root, space);
            s.settle_deferred(memory);
        });
    }

    fn load_root(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, root: u64, space: u64) {
        if !self.has_cpu(cpu) {
            return;
        }
        self.settle_return(memory, cpu);
        self.spaces.insert(space, ());
        let top = self.config.arch.top();
        let level = self.config.arch.levels[top as usize];
        let place = Place {
            frame: Some(root),
            cpu: Some(cpu),
            level: Some(top),
            space: Some(space),
            ..Place::default()
        };
        let aligned = root.is_multiple_of(u64::from(level.table_bytes.max(1)).next_power_of_two());
        if !aligned || memory.read(root, level.entry_bytes).is_none() {
            self.misuse(Rule::BadRoot, place);
        }
        self.check_number(cpu, root, space);
        let frame = self.reached(memory, root, None, place, false);
        if let Some(f) = self.frames.get_mut(frame) {
            f.history.push(self.event, Happened::RootLoaded { cpu });
        }
        let (asids, event) = (self.is_tagged(cpu), self.event);
        let mapped = memory.is_zero(root, u64::from(level.table_bytes)) == Some(false);
        let device = self.is_device(cpu);
        let c = &mut self.cpus[cpu];
        let context = c.enter(space, asids);
        c.visits.leave(event, asids);
        self.last_departure = event;
        c.other_root = c.visits.other_root(frame, space).filter(|_| asids);
        let frames = &self.frames;
        c.visits.enter(frame, space, |root| frames.get(root).is_some());
        if mapped {
            c.visits.has_entry();
        }
        c.returned = asids.then_some(event);
        c.unsynchronized = self.config.barriers && !device;
        c.load(Loaded { space, root, frame, context }, asids);
        // A device uses the tables as soon as it is attached.
        c.settled |= device;
        if !asids {
            self.debts.root_changed(cpu);
        }
        self.load_registers(memory, cpu);
    }

    /// Tells that the CPU runs kernel code and keeps the root loaded. Its walker may still walk.
    pub fn lazy(&mut self, cpu: usize) {
        self.hook(|s| s.set_state(cpu, CpuState::Lazy));
    }

    /// Tells that a lazy CPU runs in the space again, without a new load of the root.
    pub fn resume(&mut self, cpu: usize) {
        self.hook(|s| s.set_state(cpu, CpuState::Active));
    }

    /// Tells that the CPU loads a root of the kernel alone. Without ASIDs this drops all entries of
    /// the CPU except global translations.
    pub fn leave(&mut self, cpu: usize) {
        self.hook(|s| s.unload(cpu));
    }

    fn unload(&mut self, cpu: usize) {
        if !self.has_cpu(cpu) {
            return;
        }
        let (asids, event) = (self.is_tagged(cpu), self.event);
        let c = &mut self.cpus[cpu];
        c.visits.leave(event, asids);
        self.last_departure = event;
        if let Some(loaded) = c.loaded.take()
            && !asids
        {
            c.contexts[loaded.context as usize].clear();
            self.debts.root_changed(cpu);
        }
        c.returned = None;
        c.flights.clear();
        c.registers.clear();
        c.register_generation = c.register_generation.wrapping_add(1);
        c.state = CpuState::Away;
    }

    /// Returns how the CPU uses its root, or `None` if there is no such CPU.
    #[must_use]
    pub fn cpu_state(&self, cpu: usize) -> Option<CpuState> {
        self.cpus.get(cpu).map(|c| c.state)
    }

    /// Tells that the CPU carries out an invalidation. For a shootdown, call it for each CPU at the
    /// moment at which that CPU does its part. For hardware that broadcasts, call
    /// [`Sanitizer::flush_everywhere`].
    ///
    /// Flushing a space that the CPU does not hold is legal. So is one that was never loaded
    /// anywhere, as kernels do at boot and when numbers roll over. It is counted
    /// ([`crate::Stats::unknown_spaces_flushed`]), because it may also be a wrong number.
    /// ```
    /// use ptsan::{Arch, Config, Flush, Sanitizer, Target};
    ///
    /// let (mut san, memory) = (Sanitizer::new(Config::new(Arch::x86_64())), vec![0u8; 1 << 16]);
    /// san.space_created(1);
    /// san.flush(&memory, 0, Flush::page(1, 0x5000));
    /// san.flush(&memory, 0, Flush::range(1, 0x5000, 0x9000, 4096).leaf_only());
    /// san.flush(&memory, 0, Flush { target: Target::Space(1), ..Flush::all() });
    /// san.assert_clean();
    /// ```
    pub fn flush(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, flush: Flush) {
        self.hook(|s| {
            s.adversary_acts(memory);
            // Right after a flush, walks find entries that should not be there.
            if let Target::Page { va, .. } | Target::Range { start: va, .. } = flush.target {
                s.notice(va);
            }
            s.invalidate(memory, cpu, flush, None);
            s.deferred_flushed(memory, flush);
            if let Some(c) = s.cpus.get_mut(cpu) {
                c.settled = true;
            }
        });
    }

    /// Carries out an invalidation on a CPU or a device. `queued` is the event at which it was
    /// given to a device: later stores are not ordered before it.
    pub(super) fn invalidate(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        flush: Flush,
        queued: Option<u64>,
    ) {
        if !self.has_cpu(cpu) {
            return;
        }
        if self.config.arch.hashed.is_some() {
            return self.invalidate_hashed(memory, cpu, flush);
        }
        if !self.is_possible(cpu, flush) {
            return;
        }
        if self.config.without_effect(flush, self.is_device(cpu)).is_some() {
            self.cpus[cpu].note_flush(self.event, flush);
            return;
        }
        self.flushed(cpu, flush, queued);
        self.drop_invalid(memory, cpu, flush);
        let (asids, event) = (self.is_tagged(cpu), self.event);
        let spares_globals = self.config.spares_globals();
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        c.note_flush(event, flush);
        c.end_flights(arch, flush);
        if let Some(second) = arch.second_stage {
            c.flush_combined(flush, second);
        }
        let mut reload = false;
        let (space, range) = match flush.target {
            Target::All => {
                c.everything().for_each(|context| context.flush_all(arch, &flush));
                self.load_registers(memory, cpu);
                return;
            }
            Target::EverySpace { start, end, stride } => (None, Some(Strides { start, end, stride })),
            Target::Range { space, start, end, stride } => {
                (Some(space), Some(Strides { start, end, stride }))
            }
            Target::Page { space, va } => {
                let drop = |context: &mut Context| context.flush_page(arch, va, &flush);
                // Invalidation by address reaches global translations if the space is the loaded
                // one.
                if c.runs(space) && !spares_globals {
                    drop(&mut c.globals);
                }
                c.context_of(space, asids).into_iter().for_each(drop);
                (Some(space), None)
            }
            Target::Space(space) => {
                c.context_of(space, asids).into_iter().for_each(|context| context.flush_all(arch, &flush));
                reload = c.runs(space);
                (Some(space), None)
            }
        };
        if let Some(range) = range {
            let drop = |context: &mut Context| context.flush_range(arch, range, &flush);
            let Some(space) = space else {
                let c = &mut self.cpus[cpu];
                match spares_globals {
                    true => c.contexts.iter_mut().for_each(drop),
                    false => c.everything().for_each(drop),
                }
                return;
            };
            let c = &mut self.cpus[cpu];
            if c.runs(space) && !spares_globals {
                drop(&mut c.globals);
            }
            c.context_of(space, asids).into_iter().for_each(drop);
        }
        if reload {
            self.load_registers(memory, cpu);
        }
        self.count_unknown(space);
    }

    /// Invalidates one address in one space as `invpcid` of type 0 promises it (Intel SDM vol. 3,
    /// 4.10.4.1): neither global translations nor tables on the way to other addresses.
    #[cfg(feature = "watch")]
    pub(crate) fn flush_address(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, space: u64, va: u64) {
        let flush = Flush::page(space, va);
        self.hook(|s| {
            s.adversary_acts(memory);
            s.notice(va);
            let arch = Arch { structures: StructureScope::Tagged, ..s.config.arch.clone() };
            let (asids, event, two_stages) = (s.config.asids, s.event, s.config.two_stages);
            let Some(c) = s.cpus.get_mut(cpu) else { return };
            // No space is loaded of which the flush would reach global translations.
            let cover = Cover {
                arch: &arch,
                flush,
                loaded: None,
                spares_globals: false,
                before: u64::MAX,
                two_stages,
                device: false,
            };
            s.debts.pay(cpu, cover);
            c.note_flush(event, flush);
            c.end_flights(&arch, flush);
            c.context_of(space, asids).into_iter().for_each(|context| context.flush_page(&arch, va, &flush));
            c.settled = true;
        });
    }

    /// Counts a flush of a space that is not there.
    pub(super) fn count_unknown(&mut self, space: Option<u64>) {
        if space.is_some_and(|space| !self.spaces.contains_key(&space)) {
            self.stats.unknown_spaces_flushed += 1;
        }
    }

    /// Tells that every CPU carries out the invalidation, and no device.
    pub fn flush_everywhere(&mut self, memory: &(impl Memory + ?Sized), flush: Flush) {
        for cpu in 0..self.config.cpus {
            self.flush(memory, cpu, flush);
        }
    }

    fn set_state(&mut self, cpu: usize, state: CpuState) {
        if !self.has_cpu(cpu) {
            return;
        }
        if self.cpus[cpu].loaded.is_none() {
            self.misuse(Rule::NoRoot, Place { cpu: Some(cpu), ..Place::default() });
            return;
        }
        let event = self.event;
        let c = &mut self.cpus[cpu];
        // The debts of a lazy CPU are due when it has come back.
        match (c.state, state) {
            (CpuState::Lazy, CpuState::Active) => c.returned = Some(event),
            (_, CpuState::Active) => {}
            (_, _) => c.returned = None,
        }
        c.state = state;
        c.settled = true;
    }

    /// Reads the root's entries into registers, for formats that have them.
    fn load_registers(&mut self, memory: &(impl Memory + ?Sized), cpu: usize) {
        let arch = &self.config.arch;
        let Some(loaded) = self.cpus[cpu].loaded else { return };
        if !arch.top_registers || arch.top() == 0 {
            return;
        }
        let (top, decode) = (arch.top(), arch.decode);
        let level = arch.levels[top as usize];
        let generation = self.cpus[cpu].register_generation.wrapping_add(1);
        let mut registers = Vec::with_capacity(level.entries());
        for index in 0..level.entries() as u64 {
            let at = loaded.root.wrapping_add(index * u64::from(level.entry_bytes));
            let entry = memory.read(at, level.entry_bytes).map_or(Entry::Empty, |raw| decode(top, raw));
            let va = index << level.shift;
            let place = Place {
                va: Some(va),
                cpu: Some(cpu),
                level: Some(top - 1),
                space: Some(loaded.space),
                ..Place::default()
            };
            registers.push(match entry {
                Entry::Table { phys, perms } => {
                    let link = Some(Link { entry: at, parent: loaded.frame });
                    let place = Place { frame: Some(phys), ..place };
                    let frame = self.reached(memory, phys, link, place, false);
                    let position = self.config.arch.position(top - 1, va);
                    let since = self.event;
                    let holder = Holder { cpu: cpu as u16, context: REGISTERS, generation, position, since };
                    self.hold(frame, holder, va);
                    Register::Table { phys, perms, frame }
                }
                Entry::Empty | Entry::Leaf { .. } => Register::Empty,
                Entry::Malformed => {
                    let place = Place { frame: Some(loaded.root), level: Some(top), ..place };
                    self.report(Kind::MalformedEntry, Rule::Reserved, place, String::new);
                    Register::Empty
                }
            });
        }
        self.cpus[cpu].registers = registers;
        self.cpus[cpu].register_generation = generation;
    }
}
