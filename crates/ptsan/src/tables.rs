//! The hooks of table frames: allocated, linked, freed.
use crate::arch::Entry;
use crate::bbm::{Slot, Told};
use crate::frames::{Frame, FrameRef, Holder, Link, REGISTERS, State};
use crate::history::Happened;
use crate::leftovers::Leftovers;
use crate::memory::Memory;
use crate::mmu::{Cpu, CpuState};
use crate::report::{Kind, Place, Rule};
use crate::sanitizer::Sanitizer;
use crate::walk::GLOBALS;

/// The most bytes that are taken for one allocation of tables.
const MOST_BYTES: u64 = 1 << 28;

/// What a frame holds when it is announced as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zero, as the allocator promised: checked at once ([`Kind::NotZero`]).
    Zero,
    /// Anything; the code under test clears it before it links it. What is there now is remembered, and
    /// compared when the table is linked ([`Kind::LinkedBeforeCleared`]).
    Unknown,
    /// Not looked at: no check, no cost.
    Unchecked,
}

/// Why a table is not out of the hardware's reach.
struct Held {
    rule: Rule,
    cpu: usize,
    space: Option<u64>,
    va: Option<u64>,
    since: Option<u64>,
}

impl Sanitizer {
    /// The `size` bytes at `phys` were handed out to hold a table (or several), of `level` if that is known.
    ///
    /// Call it when the allocator hands the frame out, before the code under test clears it. It reports a frame that
    /// some CPU may still walk as the table it was before ([`Kind::ReuseBeforeFlush`], REQ-4), one that is a table
    /// already ([`Kind::DoubleAllocate`]), and one that breaks the promise of [`Content::Zero`].
    pub fn table_allocated(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        content: Content,
    ) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.allocate(memory, phys, size, level, content);
        });
    }

    fn allocate(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        content: Content,
    ) {
        let place = Place { frame: Some(phys), level, ..Place::default() };
        let bad_level = level.is_some_and(|l| usize::from(l) >= self.config.arch.levels.len());
        if size == 0 || size > MOST_BYTES || phys.checked_add(size).is_none() || bad_level {
            self.misuse(Rule::BadArgument, place);
            return;
        }
        let at = match self.frames.sole_freed(phys, size) {
            Some(at) => {
                self.check_held(memory, at, Kind::ReuseBeforeFlush);
                self.frames.reallocate(at, level, self.event)
            }
            None => self.take_place(memory, phys, size, level, place),
        };
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_owner();
        }
        match content {
            Content::Unchecked => {}
            Content::Zero => match memory.is_zero(phys, size) {
                Some(true) => {}
                Some(false) => self.report(Kind::NotZero, Rule::ZeroPromised, place, String::new),
                None => self.report(Kind::OutsideMemory, Rule::NoMemory, place, String::new),
            },
            Content::Unknown => match memory.is_zero(phys, size) {
                Some(true) => {}
                Some(false) => self.remember_content(memory, at),
                None => self.report(Kind::OutsideMemory, Rule::NoMemory, place, String::new),
            },
        }
    }

    /// The table was given back to an allocator, or to any list from which it may be handed out again.
    ///
    /// By then no CPU may hold it, active or lazy ([`Kind::FreeBeforeFlush`], REQ-4, REQ-5), and no entry that a
    /// walk can reach may point at it ([`Kind::FreeWhileLinked`]). A list from which it is only taken
    /// after a flush is not meant: call this when it leaves that list.
    pub fn table_freed(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.give_back(memory, phys, size);
        });
    }

    fn give_back(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        let place = Place { frame: Some(phys), ..Place::default() };
        let Some(at) = self.frames.find(phys) else {
            self.report(Kind::ForeignFree, Rule::NotATable, place, String::new);
            return;
        };
        let Some(f) = self.frames.get(at) else { return };
        if f.phys != phys {
            let (start, len) = (f.phys, f.size);
            self.report(Kind::ForeignFree, Rule::NotATable, place, || {
                format!("it lies in the table of {len} bytes at {start:#x}")
            });
            return;
        }
        if f.state == State::Freed {
            self.report(Kind::DoubleFree, Rule::AlreadyFree, place, String::new);
            return;
        }
        if f.size != size {
            let announced = f.size;
            self.report(Kind::ForeignFree, Rule::WrongSize, place, || {
                format!("announced with {announced} bytes, given back with {size}")
            });
        }
        self.check_linked(memory, at);
        self.check_held(memory, at, Kind::FreeBeforeFlush);
        self.frames.free(at, self.event);
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_giver();
        }
    }

    /// Entry number `index` of the table at `parent` was made to point at the table at `table`.
    ///
    /// Optional, and the exact moment at which to find a table linked before it was cleared: hardware may walk it
    /// from here on ([`Kind::LinkedBeforeCleared`]).
    pub fn table_linked(&mut self, memory: &(impl Memory + ?Sized), parent: u64, index: u64, table: u64) {
        let bytes = u64::from(self.config.arch.entry_bytes());
        match index.checked_mul(bytes).and_then(|offset| parent.checked_add(offset)) {
            Some(entry) => self.stored_to(memory, entry, Some(table)),
            None => self.hook(|s| {
                s.misuse(Rule::BadArgument, Place { frame: Some(parent), ..Place::default() });
            }),
        }
    }

    /// The entry at physical address `entry` was stored to: like [`Sanitizer::table_linked`], for code that
    /// has one place through which all entries are written. Entries of frames that are no tables, or whose level is
    /// not known yet, are passed over.
    pub fn entry_written(&mut self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.stored_to(memory, entry, None);
    }

    /// The adversary's turn comes after the store has been looked at: its walks see the new entry.
    fn stored_to(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>) {
        self.hook(|s| {
            s.link(memory, entry, told);
            s.adversary_acts(memory);
        });
    }

    fn link(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>) {
        let parent = self.frames.find(entry).filter(|&p| self.is_table(p));
        let level = parent.and_then(|p| self.frames.get(p)).and_then(|f| f.level);
        let decode = self.config.arch.decode;
        let raw = memory.read(entry, self.config.arch.entry_bytes());
        let seen = level.zip(raw).map(|(l, raw)| decode(l, raw));
        if let Some(table) = parent {
            self.forget_leftover(table, entry);
        }
        if let (Some(frame), Some(raw)) = (parent, raw) {
            // A link that is told says nothing of other stores to the entry.
            let before = if told.is_none() { self.told.insert(entry, Told { raw, frame }) } else { None };
            let before = before.filter(|b| b.frame == frame).map(|b| b.raw);
            if let (Some(level), Some(new)) = (level, seen) {
                let slot = Slot { entry, table: frame, level };
                self.stored(memory, slot, before.map(|raw| decode(level, raw)), new);
            }
        }
        let table = match (told, seen) {
            (Some(table), _) => table,
            (None, Some(Entry::Table { phys, .. })) => phys,
            _ => return,
        };
        let place = Place {
            frame: Some(table),
            level: level.and_then(|l| l.checked_sub(1)).or_else(|| self.level_of(table)),
            ..Place::default()
        };
        let link = Link { entry, parent: parent.unwrap_or(FrameRef::UNKNOWN) };
        if let Some(at) = self.frames.find(table) {
            self.check_leftovers(memory, at, place);
            if let Some(f) = self.frames.get_mut(at) {
                f.history.push(self.event, Happened::Linked { entry });
            }
        }
        self.reached(memory, table, Some(link), place, false);
    }

    /// A store to an entry of a table whose level is known.
    fn stored(&mut self, memory: &(impl Memory + ?Sized), slot: Slot, old: Option<Entry>, new: Entry) {
        if let Some(Entry::Table { phys, .. }) = old
            && !matches!(new, Entry::Table { phys: same, .. } if same == phys)
            && let Some(below) = self.frames.find(phys)
            && let Some(f) = self.frames.get_mut(below)
        {
            f.history.push(self.event, Happened::Unhooked { entry: slot.entry });
        }
        if self.config.arch.break_before_make {
            self.check_store(memory, slot, old, new);
        }
        if self.chance.is_some()
            && let Some((_, va)) = self.way_up(memory, slot)
        {
            self.notice(va);
        }
    }

    fn level_of(&self, phys: u64) -> Option<u8> {
        self.frames.find(phys).and_then(|f| self.frames.get(f)).and_then(|f| f.level)
    }

    /// A walk, a load of the root or an entry reached the table at `phys`. Checks that it is one, and keeps the
    /// link.
    pub(crate) fn reached(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        link: Option<Link>,
        place: Place,
        walk: bool,
    ) -> FrameRef {
        let Some(at) = self.frames.find(phys) else {
            let kind = if memory.read(phys, 8).is_some() { Kind::UnknownTable } else { Kind::OutsideMemory };
            // The walk itself will report a read outside memory.
            if kind == Kind::UnknownTable || !walk {
                let rule = if kind == Kind::UnknownTable { Rule::NeverAnnounced } else { Rule::NoMemory };
                self.report(kind, rule, place, || pointed_at_by(link));
            }
            return FrameRef::UNKNOWN;
        };
        // Loading the root makes it reachable, and that moment is known exactly.
        if link.is_none() || self.config.infer_leftovers {
            self.check_leftovers(memory, at, place);
        }
        let recursive = self.config.recursive;
        let levels = &self.config.arch.levels;
        let one =
            place.level.and_then(|l| levels.get(usize::from(l))).map_or(0, |l| u64::from(l.table_bytes));
        let granule = self.config.arch.granule();
        let Some(f) = self.frames.get_mut(at) else { return FrameRef::UNKNOWN };
        f.leftovers = None;
        let freed = f.state == State::Freed;
        let old_level = f.level;
        if !freed {
            // A block that holds several tables has no level of its own, unless one was announced. A small top may
            // have a whole frame to itself.
            let alone = f.size <= one || link.is_none() && f.phys == phys && f.size <= granule;
            f.level = f.level.or(place.level.filter(|_| alone));
            if link.is_some() {
                f.link = link;
            }
        }
        if freed {
            let rule = if walk { Rule::WalkedAfterFree } else { Rule::LinkedAfterFree };
            self.report(Kind::UseAfterFree, rule, place, || pointed_at_by(link));
        } else if let (Some(old), Some(now)) = (old_level, place.level)
            && old != now
            && !recursive
        {
            self.report(Kind::WalkLoop, Rule::TwoLevels, place, || {
                format!("first a table of level {old}, now of level {now}")
            });
        }
        at
    }

    /// Notes that a CPU may hold a table from now on.
    pub(crate) fn hold(&mut self, at: FrameRef, holder: Holder, va: u64) {
        let cpus = &self.cpus;
        let arch = &self.config.arch;
        let Some(f) = self.frames.get_mut(at) else { return };
        let valid = |h: &Holder| generation_of(&cpus[usize::from(h.cpu)], h.context) == Some(h.generation);
        if f.hold(holder, valid) {
            let level = (holder.position & 7) as u8;
            debug_assert!(usize::from(level) < arch.levels.len());
            let walked = Happened::Walked { cpu: usize::from(holder.cpu), level, va };
            f.history.push(holder.since, walked);
        }
    }

    /// Whether the reference still stands for a table.
    pub(crate) fn is_table(&self, at: FrameRef) -> bool {
        self.frames.get(at).is_some_and(|f| f.state == State::Allocated)
    }

    /// Makes room among frames of another shape, or for the first table at this place.
    fn take_place(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        place: Place,
    ) -> FrameRef {
        for other in self.frames.overlapping(phys, size) {
            if self.is_table(other) {
                self.report(Kind::DoubleAllocate, Rule::AlreadyTable, place, String::new);
            } else {
                self.check_held(memory, other, Kind::ReuseBeforeFlush);
            }
            self.frames.remove(other);
        }
        self.frames.insert(phys, size, level, self.event)
    }

    fn remember_content(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        let bytes = self.config.arch.entry_bytes();
        let Some(f) = self.frames.get_mut(at) else { return };
        let entries = (f.size / u64::from(bytes)) as u32;
        let start = f.phys;
        let words = (0..entries).filter_map(|i| {
            let raw = memory.read(start.wrapping_add(u64::from(i) * u64::from(bytes)), bytes)?;
            Some((i, raw))
        });
        f.leftovers = Some(Leftovers::new(words));
    }

    /// Takes an entry that was stored to out of the leftovers of its table: code may store what was there before.
    fn forget_leftover(&mut self, table: FrameRef, entry: u64) {
        let bytes = u64::from(self.config.arch.entry_bytes());
        if let Some(f) = self.frames.get_mut(table)
            && let Some(leftovers) = &mut f.leftovers
        {
            // The most bytes of an allocation are few enough for 32 bits.
            leftovers.overwritten((entry.saturating_sub(f.phys) / bytes) as u32);
        }
    }

    /// Reports entries that are as old as the allocation and that a walk would take for present.
    fn check_leftovers(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef, place: Place) {
        let arch = &self.config.arch;
        let bytes = arch.entry_bytes();
        let Some(f) = self.frames.get_mut(at) else { return };
        let Some(leftovers) = f.leftovers.take() else { return };
        let Some(level) = place.level.or(f.level) else { return };
        let start = f.phys;
        let mut old = leftovers.iter().filter(|&(i, raw)| {
            memory.read(start.wrapping_add(u64::from(i) * u64::from(bytes)), bytes) == Some(raw)
                && (arch.decode)(level, raw) != Entry::Empty
        });
        if let Some((index, raw)) = old.next() {
            let more = old.count();
            self.report(Kind::LinkedBeforeCleared, Rule::OldContent, place, || {
                format!("entry {index} is still {raw:#x}, and {more} more")
            });
        }
    }

    /// Reports the table if some CPU could still walk it, or use what it read from it.
    fn check_held(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef, kind: Kind) {
        let Some(f) = self.frames.get(at) else { return };
        let Some(held) = self.held(memory, at, f) else { return };
        let place = Place {
            frame: Some(f.phys),
            va: held.va,
            cpu: Some(held.cpu),
            level: f.level,
            space: held.space,
        };
        let cpu = &self.cpus[held.cpu];
        let state = match cpu.state {
            CpuState::Active => "active",
            CpuState::Lazy => "lazy",
            CpuState::Away => "away",
        };
        let space = held.space.unwrap_or_default();
        let why = self.explain_flush(held.cpu, space, held.va, Some(held.rule), held.since);
        self.report(kind, held.rule, place, || {
            let since = held.since.map_or_else(String::new, |e| format!(", since event {e}"));
            format!("CPU {} is {state}{since}; {why}", held.cpu)
        });
    }

    /// The first CPU that holds the table. A context that is not loaded does not count: see
    /// [`crate::Config::asids`].
    fn held(&self, memory: &(impl Memory + ?Sized), at: FrameRef, f: &Frame) -> Option<Held> {
        for (cpu, c) in self.cpus.iter().enumerate() {
            if let Some(loaded) = c.loaded.filter(|l| f.contains(l.root) && l.frame == at) {
                let space = Some(loaded.space);
                return Some(Held { rule: Rule::HeldAsRoot, cpu, space, va: None, since: None });
            }
        }
        for (cpu, c) in self.cpus.iter().enumerate() {
            if let Some(flight) = c.flights.iter().find(|f| f.table.frame == at) {
                let space = c.loaded.map(|l| l.space);
                let (va, since) = (Some(flight.va), Some(flight.since));
                return Some(Held { rule: Rule::HeldByWalker, cpu, space, va, since });
            }
        }
        let arch = &self.config.arch;
        f.holders.iter().find_map(|h| {
            let cpu = usize::from(h.cpu);
            let c = &self.cpus[cpu];
            if generation_of(c, h.context) != Some(h.generation) {
                return None;
            }
            let loaded = c.loaded?;
            let start = Some(arch.position_start(h.position));
            let held =
                |rule, va, since| Held { rule, cpu, space: Some(loaded.space), va, since: Some(since) };
            let context = match h.context {
                REGISTERS => return Some(held(Rule::HeldInTopRegister, start, h.since)),
                GLOBALS => &c.globals,
                own if own == loaded.context => &c.contexts[own as usize],
                _ => return None,
            };
            if context.table(h.position).is_some_and(|t| t.frame == at) {
                return Some(held(Rule::HeldInStructureCache, start, h.since));
            }
            let mut read = context.read_from(arch, h.position, at);
            read.find_map(|(va, entry)| {
                let same = self.look(memory, loaded.root, va).is_ok_and(|t| t.phys == entry.phys);
                (!same).then(|| held(Rule::HeldInTlb, Some(va), entry.since))
            })
        })
    }

    /// Reports the table if the entry through which it was last seen still points at it and can be walked.
    fn check_linked(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        let Some(f) = self.frames.get(at) else { return };
        let Some(link) = f.link else { return };
        if self.points_at(memory, link, f) && self.reachable(memory, link.parent, 0) {
            let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
            self.report(Kind::FreeWhileLinked, Rule::StillLinked, place, || pointed_at_by(Some(link)));
        }
    }

    pub(crate) fn points_at(&self, memory: &(impl Memory + ?Sized), link: Link, f: &Frame) -> bool {
        let arch = &self.config.arch;
        let Some(above) = f.level.map(|l| l + 1).filter(|&l| l <= arch.top()) else { return false };
        let Some(raw) = memory.read(link.entry, arch.levels[above as usize].entry_bytes) else {
            return false;
        };
        matches!((arch.decode)(above, raw), Entry::Table { phys, .. } if f.contains(phys))
    }

    /// Whether a walk on some CPU can come to this table: it is a loaded root, or cached, or linked from one that is.
    fn reachable(&self, memory: &(impl Memory + ?Sized), at: FrameRef, depth: u8) -> bool {
        let Some(f) = self.frames.get(at) else { return false };
        if f.state == State::Freed || depth > self.config.arch.top() {
            return false;
        }
        self.held(memory, at, f).is_some_and(|h| h.rule != Rule::HeldInTlb)
            || f.link.is_some_and(|link| {
                self.points_at(memory, link, f) && self.reachable(memory, link.parent, depth + 1)
            })
    }
}

/// The generation of a holder's context, `None` if there is none any more.
pub(crate) fn generation_of(cpu: &Cpu, context: u32) -> Option<u32> {
    match context {
        REGISTERS => Some(cpu.register_generation),
        GLOBALS => Some(cpu.globals.generation),
        own => cpu.contexts.get(own as usize).map(|c| c.generation),
    }
}

fn pointed_at_by(link: Option<Link>) -> String {
    link.map_or_else(String::new, |l| format!("the entry at {:#x} points at it", l.entry))
}
