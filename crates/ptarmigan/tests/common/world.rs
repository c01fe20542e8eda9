//! A world of several address spaces on several CPUs, and a model of it page by page.
//!
//! The model knows the required content of each page of each space: zeroes, the backing object, or
//! a word of its own. Programs really read and write through the sanitizer's software MMUs, so
//! sharing, copy-on-write, stale translations and lost pages all show as a wrong word.
use super::*;
use fastrand::Rng;
use ptarmigan::space::{
    Access as Touch, Advice, Area, AreaError, AreaFlags, FaultError, SpaceMachine, SpaceMut,
};
use std::collections::BTreeSet;

const PAGE: u64 = 4096;
const STACK: u64 = 24;

/// The content of a page of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// No private content: zeroes, or the backing object.
    Default,
    /// A private page with this word.
    Own(u64),
}

#[derive(Clone, Copy, Debug)]
struct Page {
    flags: AreaFlags,
    shows: Shows,
}

#[derive(Clone, Default)]
struct Model {
    pages: BTreeMap<u64, Page>,
    /// First page of the heap, and its end.
    heap: Option<(u64, u64)>,
}

impl Model {
    fn clear(&mut self, start: u64, end: u64) {
        let gone: Vec<u64> = self.pages.range(start..end).map(|p| *p.0).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    fn is_free(&self, start: u64, end: u64) -> bool {
        self.pages.range(start..end).next().is_none()
    }
}

struct Process<F: Format> {
    id: u32,
    space: Space<F>,
    model: Model,
}

/// Why no call is refused.
const OURS: &str = "a space of this machine";

impl<F: Format> Process<F> {
    fn edit<'a, M: SpaceMachine>(&'a mut self, here: On<'a, M>) -> SpaceMut<'a, F, M> {
        self.space.edit(here).expect(OURS)
    }
}

/// The space that a CPU has loaded.
#[derive(Clone, Copy, PartialEq)]
enum Loaded {
    Nothing,
    Active(u32),
    Lazy(u32),
}

/// The world.
pub struct World<'a, 'w, 'h, F: Watchable, P: Policy> {
    host: &'h Host<F>,
    watch: &'w Watch<'h, F>,
    m: &'a Watched<'w, 'h, F, P>,
    slots: &'a [CpuSlot],
    rng: Rng,
    processes: Vec<Process<F>>,
    loaded: Vec<Loaded>,
    next_id: u32,
    next_word: u64,
    /// The content of the object behind all files and shared areas.
    backing: u64,
    /// Calls are made with hardly any memory left: they may fail.
    tight: bool,
    /// The policy respects the TLB: the sanitizer must have no finding.
    sound: bool,
    /// Calls that failed for lack of memory.
    pub failures: u64,
}

type Outcome = Result<(), NoFrame>;

fn no_frame(e: AreaError) -> Outcome {
    match e {
        AreaError::NoFrame(e) => Err(e),
        e => panic!("{e}"),
    }
}

impl<'a, 'w, 'h, F: Watchable, P: Policy> World<'a, 'w, 'h, F, P> {
    pub fn new(
        watch: &'w Watch<'h, F>,
        m: &'a Watched<'w, 'h, F, P>,
        slots: &'a [CpuSlot],
        seed: u64,
        tight: bool,
        sound: bool,
    ) -> Self {
        let host = m.host();
        let space = Space::new(on(m, &slots[0].pin())).expect("there is memory at first");
        let first = Process { id: 1, space, model: Model::default() };
        poke(host, host.backing_frame().addr().0, 1);
        World {
            host,
            watch,
            m,
            slots,
            rng: Rng::with_seed(seed),
            processes: vec![first],
            loaded: vec![Loaded::Nothing; slots.len()],
            next_id: 2,
            next_word: 2,
            backing: 1,
            tight,
            sound,
            failures: 0,
        }
    }

    /// Takes `steps` random steps; returns the shapes of all spaces now and then.
    pub fn run(&mut self, steps: usize) -> Vec<Vec<Shape>> {
        let mut looks = Vec::new();
        for step in 0..steps {
            self.step();
            if step % 64 == 63 || self.tight {
                self.verify();
            }
            if step % 64 == 63 {
                let spaces: Vec<&Space<F>> = self.processes.iter().map(|p| &p.space).collect();
                let pin = self.slots[0].pin();
                looks.push(shapes(self.host, on(self.m, &pin), &spaces));
            }
        }
        looks
    }

    /// Everything ends, on whatever CPU.
    pub fn end(mut self) {
        self.verify();
        while let Some(process) = self.processes.pop() {
            let cpu = self.rng.usize(..self.slots.len());
            process.space.end(on(self.m, &self.slots[cpu].pin())).expect(OURS);
        }
        self.m.drain(self.slots);
    }

    /// An address where tables of several levels begin and end.
    fn somewhere(&mut self) -> u64 {
        let bases = [0x10_0000, 0x1f_c000, 0x3fff_8000, F::USER_END - (8 << 20)];
        let base = bases[self.rng.usize(..4)] / PAGE;
        base + if self.rng.u64(..8) == 0 { self.rng.u64(..1200) } else { self.rng.u64(..24) }
    }

    fn length(&mut self) -> u64 {
        match self.rng.u64(..12) {
            0 => 512 + self.rng.u64(..600),
            1 => 512,
            _ => 1 + self.rng.u64(..20),
        }
    }

    fn permissions(&mut self) -> AreaFlags {
        // No access, r, rw, rx, rwx; rw is the usual.
        AreaFlags([0, 1, 3, 3, 3, 3, 5, 7][self.rng.usize(..8)])
    }

    fn bytes(start: u64, end: u64) -> VirtRange {
        VirtRange::new(start * PAGE, end * PAGE).unwrap()
    }

    /// A page that is mapped, or nearly.
    fn some_page(&mut self, at: usize) -> u64 {
        let pivot = self.somewhere();
        let pages = &self.processes[at].model.pages;
        if self.rng.u64(..16) == 0 {
            return pivot;
        }
        let mut near = pages.range(pivot..).next().or_else(|| pages.iter().next());
        for _ in 0..self.rng.u64(..6) {
            near = near.and_then(|p| pages.range(p.0 + 1..).next()).or(near);
        }
        near.map_or(pivot, |p| *p.0)
    }

    /// Brings a space onto a CPU, in one of the ways a scheduler has.
    fn schedule(&mut self, cpu: usize, at: usize) {
        let id = self.processes[at].id;
        let pin = self.slots[cpu].pin();
        match self.loaded[cpu] {
            Loaded::Active(now) if now == id => return,
            Loaded::Active(other) => {
                let lazily = self.rng.bool();
                let other = self.processes.iter().find(|p| p.id == other).expect("active spaces exist");
                let here = on(self.m, &pin);
                let left = if lazily { other.space.rest(here) } else { other.space.deactivate(here) };
                left.expect(OURS);
            }
            Loaded::Lazy(_) | Loaded::Nothing => {}
        }
        activate(self.m, self.watch, &self.slots[cpu], &self.processes[at].space);
        self.loaded[cpu] = Loaded::Active(id);
    }

    fn step(&mut self) {
        if self.processes.is_empty() {
            let id = self.fresh_id();
            let space = Space::new(on(self.m, &self.slots[0].pin())).expect("all memory is free");
            self.processes.push(Process { id, space, model: Model::default() });
        }
        let at = self.rng.usize(..self.processes.len());
        let cpu = self.rng.usize(..self.slots.len());
        // Now and then a call comes from a CPU that runs something else.
        if self.rng.u64(..8) != 0 {
            self.schedule(cpu, at);
        }
        let starved = (self.tight && self.rng.bool()).then(|| {
            self.m.drain(self.slots);
            Starved::new(self.host, self.rng.usize(..10))
        });
        let outcome = match self.rng.u64(..100) {
            0..=9 => self.mmap(cpu, at),
            10..=15 => self.munmap(cpu, at),
            16..=21 => self.mprotect(cpu, at),
            22..=27 => self.mremap(cpu, at),
            28..=30 => self.brk(cpu, at),
            31..=33 => self.dont_need(cpu, at),
            34..=35 => self.mark(cpu, at),
            36..=39 => self.fork(cpu, at),
            40..=41 => self.exec(cpu, at),
            42..=43 => self.exit(cpu, at),
            44..=46 => self.pause(cpu),
            47 => self.populate(cpu, at),
            _ => {
                let n = 1 + self.rng.u64(..6);
                (0..n).try_for_each(|_| {
                    let page = self.some_page(at);
                    let touch = if self.rng.bool() { Touch::Read } else { Touch::Write };
                    self.touch(cpu, at, page, touch)
                })
            }
        };
        drop(starved);
        if let Err(e) = outcome {
            assert!(self.tight, "{e}");
            self.failures += 1;
        }
    }

    fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn default_word(&self, flags: AreaFlags) -> u64 {
        let backed = flags.has(AreaFlags::BACKED) || flags.has(AreaFlags::SHARED);
        if backed { self.backing } else { 0 }
    }

    fn word(&self, page: &Page) -> u64 {
        match page.shows {
            Shows::Own(word) => word,
            Shows::Default => self.default_word(page.flags),
        }
    }

    fn mmap(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.somewhere();
        let end = (start + self.length()).min(F::USER_END / PAGE);
        let kind = [
            AreaFlags(0),
            AreaFlags(0),
            AreaFlags(0),
            AreaFlags::BACKED,
            AreaFlags::BACKED.with(AreaFlags::SHARED),
            AreaFlags::SHARED,
        ][self.rng.usize(..6)];
        let flags = self.permissions().with(kind);
        let object = u32::from(kind != AreaFlags(0));
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let done = process.edit(here).mmap(Self::bytes(start, end), flags, object);
        if let Err(e) = done {
            // The old areas may be gone, all of them or not at all.
            if process.space.areas().at_or_after(here, start * PAGE).is_none_or(|a| a.start >= end * PAGE) {
                process.model.clear(start, end);
            }
            return no_frame(e);
        }
        process.model.clear(start, end);
        for page in start..end {
            process.model.pages.insert(page, Page { flags, shows: Shows::Default });
        }
        Ok(())
    }

    fn munmap(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at).saturating_sub(self.rng.u64(..3));
        let end = (start + self.length()).min(F::USER_END / PAGE);
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        process.edit(here).munmap(Self::bytes(start, end)).or_else(no_frame)?;
        process.model.clear(start, end);
        Ok(())
    }

    fn mprotect(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at);
        let end = (start + self.length()).min(F::USER_END / PAGE);
        let permissions = self.permissions();
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let empty = process.model.is_free(start, end);
        match process.edit(here).mprotect(Self::bytes(start, end), permissions) {
            Err(AreaError::NoArea(_)) if empty => return Ok(()),
            done => done.or_else(no_frame)?,
        }
        assert!(!empty);
        for (_, page) in process.model.pages.range_mut(start..end) {
            page.flags = page.flags.without(AreaFlags::PERMISSIONS).with(permissions);
        }
        Ok(())
    }

    fn mremap(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at);
        let most = self.length();
        let model = &self.processes[at].model;
        let Some(first) = model.pages.get(&start).copied() else { return Ok(()) };
        let mut end = start;
        while end - start < most && model.pages.get(&end).is_some_and(|p| p.flags == first.flags) {
            end += 1;
        }
        let len = match self.rng.u64(..4) {
            0 => 1 + self.rng.u64(..end - start),
            1 => end - start + self.rng.u64(..8),
            _ => end - start,
        };
        let stay = self.rng.u64(..4) == 0;
        // Alike within their tables, so that whole tables can move.
        let aligned = self.rng.bool();
        let to = match (stay, aligned) {
            (true, _) => start,
            (false, true) => (self.somewhere() & !511) + (start & 511),
            (false, false) => self.somewhere(),
        };
        let in_place = to == start;
        let (from, new) = (Self::bytes(start, end), Self::bytes(to, to + len));
        if new.end > F::USER_END {
            return Ok(());
        }
        let overlap = !in_place && start < to + len && to < end;
        let keep = !in_place && len == end - start && self.rng.u64(..4) == 0;
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let result = process.edit(here).mremap(from, new, keep);
        if matches!(result, Err(AreaError::NoArea(_))) {
            // Neighbours that look alike show different parts of their objects, or have private
            // pages of different histories.
            let behind = first.flags.has(AreaFlags::BACKED) || first.flags.has(AreaFlags::SHARED);
            let (mut areas, mut histories) = (0, BTreeSet::new());
            let each = |area: &Area| {
                areas += 1;
                histories.extend((area.history != 0).then_some(area.history));
            };
            process.space.areas().each(here, from, each).expect(OURS);
            assert!(areas > 1 && (behind || histories.len() > 1), "{result:?}");
            // A move that shrinks has cut the tail nevertheless.
            process.model.clear((start + len).min(end), end);
            return Ok(());
        }
        if overlap {
            assert_eq!(result, Err(AreaError::BadRange(new)), "one place cannot move onto itself");
            return Ok(());
        }
        let grown = len.saturating_sub(end - start);
        if in_place {
            if grown > 0 && !process.model.is_free(end, end + grown) {
                assert!(matches!(result, Err(AreaError::Overlap(_))), "{result:?}");
                return Ok(());
            }
            result.or_else(no_frame)?;
            process.model.clear(start + len, end.max(start + len));
            for page in end..end + grown {
                process.model.pages.insert(page, Page { flags: first.flags, shows: Shows::Default });
            }
            return Ok(());
        }
        if let Err(e) = result {
            // The place that was to be taken is empty or as it was, and so is the tail of a move
            // that shrinks.
            let space = &process.space;
            for page in (to..to + len).chain(start + len..end) {
                if space.areas().find(here, page * PAGE).is_none() {
                    process.model.pages.remove(&page);
                }
            }
            return no_frame(e);
        }
        let old: Vec<Page> = (start..end).map(|p| process.model.pages[&p]).collect();
        process.model.clear(to, to + len);
        if keep {
            for page in start..end {
                process.model.pages.insert(page, Page { flags: first.flags, shows: Shows::Default });
            }
        } else {
            process.model.clear(start, end);
        }
        for i in 0..len {
            let moved = old.get(i as usize).copied();
            let page = moved.unwrap_or(Page { flags: first.flags, shows: Shows::Default });
            process.model.pages.insert(to + i, page);
        }
        Ok(())
    }

    fn brk(&mut self, cpu: usize, at: usize) -> Outcome {
        let base = 0x60_0000 / PAGE;
        let target = match self.processes[at].model.heap {
            None => base + self.rng.u64(..4),
            Some((start, _)) => (start + self.rng.u64(..40)).saturating_sub(self.rng.u64(..3)),
        };
        let unaligned = target * PAGE - self.rng.u64(..2) * 7;
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let result = process.edit(here).brk(VirtAddr(unaligned));
        let Some((start, end)) = process.model.heap else {
            process.model.heap = Some((target, target));
            return result.or_else(no_frame);
        };
        if target > end && !process.model.is_free(end, target) {
            assert!(matches!(result, Err(AreaError::Overlap(_))), "{result:?}");
            return Ok(());
        }
        result.or_else(no_frame)?;
        if target < start {
            return Ok(());
        }
        process.model.clear(target, end.max(target));
        for page in end..target {
            let flags = AreaFlags::READ.with(AreaFlags::WRITE);
            process.model.pages.insert(page, Page { flags, shows: Shows::Default });
        }
        process.model.heap = Some((start, target));
        Ok(())
    }

    fn dont_need(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at);
        let end = (start + self.length()).min(F::USER_END / PAGE);
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let range = Self::bytes(start, end);
        process.edit(here).madvise(range, Advice::DontNeed).or_else(no_frame)?;
        for (_, page) in process.model.pages.range_mut(start..end) {
            page.shows = Shows::Default;
        }
        Ok(())
    }

    fn mark(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at);
        let end = (start + self.length()).min(F::USER_END / PAGE);
        let set = self.rng.bool();
        let (advice, flag) = if self.rng.bool() {
            (Advice::DontFork(set), AreaFlags::NO_FORK)
        } else {
            (Advice::WipeOnFork(set), AreaFlags::WIPE_ON_FORK)
        };
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        process.edit(here).madvise(Self::bytes(start, end), advice).or_else(no_frame)?;
        // Shared areas are not emptied by fork.
        let refused = |flags: AreaFlags| flag == AreaFlags::WIPE_ON_FORK && flags.has(AreaFlags::SHARED);
        for (_, page) in process.model.pages.range_mut(start..end) {
            if !refused(page.flags) {
                page.flags = if set { page.flags.with(flag) } else { page.flags.without(flag) };
            }
        }
        Ok(())
    }

    fn populate(&mut self, cpu: usize, at: usize) -> Outcome {
        let start = self.some_page(at);
        let end = (start + self.rng.u64(..30) + 1).min(F::USER_END / PAGE);
        let access = if self.rng.bool() { Touch::Read } else { Touch::Write };
        // Stacks that grow are the business of `touch`.
        let model = &self.processes[at].model;
        if (start..end).any(|p| !model.pages.contains_key(&p)) {
            return Ok(());
        }
        let pin = self.slots[cpu].pin();
        let range = Self::bytes(start, end);
        let here = on(self.m, &pin);
        let result = self.processes[at].edit(here).madvise(range, Advice::Populate(access));
        // Up to where it came. Private copies show the content at that time, and do not follow
        // later changes.
        for page in start..end {
            let mapped = self.processes[at].space.tree().query(here, VirtAddr(page * PAGE));
            if mapped.is_some_and(|(_, attr)| !attr.has(Attr::SPECIAL)) {
                self.note_write(at, page, Touch::Write);
            }
        }
        let Ok(()) = result else { return result.or_else(no_frame) };
        let flags: Vec<AreaFlags> =
            self.processes[at].model.pages.range(start..end).map(|p| p.1.flags).collect();
        let writes = access == Touch::Write;
        let allowed = |f: &AreaFlags| f.0 & if writes { 2 } else { 7 } != 0;
        for i in 0..flags.iter().take_while(|f| allowed(f)).count() as u64 {
            let mapped = self.processes[at].space.tree().query(here, VirtAddr((start + i) * PAGE));
            assert!(mapped.is_some(), "page {:#x} was not populated", start + i);
        }
        Ok(())
    }

    fn fork(&mut self, cpu: usize, at: usize) -> Outcome {
        if self.processes.len() >= 6 {
            return self.exit(cpu, at);
        }
        let id = self.fresh_id();
        let pin = self.slots[cpu].pin();
        let parent = &mut self.processes[at];
        let space = match parent.edit(on(self.m, &pin)).fork() {
            Ok(space) => space,
            Err(e) => return no_frame(e),
        };
        let mut model = parent.model.clone();
        model.pages.retain(|_, page| !page.flags.has(AreaFlags::NO_FORK));
        for page in model.pages.values_mut() {
            if page.flags.has(AreaFlags::WIPE_ON_FORK) {
                page.shows = Shows::Default;
            }
        }
        self.processes.push(Process { id, space, model });
        Ok(())
    }

    fn exec(&mut self, cpu: usize, at: usize) -> Outcome {
        let id = self.fresh_id();
        let pin = self.slots[cpu].pin();
        let last = F::USER_END / PAGE - 1;
        let args = 1 + self.rng.u64(..4);
        let here = on(self.m, &pin);
        let mut space = match Space::exec(here, VirtAddr(last * PAGE), args) {
            Ok(space) => space,
            Err(e) => return no_frame(e),
        };
        // The kernel writes the arguments through its own mapping.
        let mut words = Vec::new();
        for page in last - args..last {
            let (pfn, _) = space.tree().query(here, VirtAddr(page * PAGE)).expect("arguments are present");
            self.next_word += 1;
            poke(self.host, pfn.addr().0, self.next_word);
            words.push(self.next_word);
        }
        let end = last - self.rng.u64(..2) * (40 + self.rng.u64(..600));
        let (start, flags) = (end - STACK, AreaFlags::READ.with(AreaFlags::WRITE));
        let moved = space.edit(here).expect(OURS).move_stack(Self::bytes(start, end), flags);
        if let Err(e) = moved {
            space.end(here).expect(OURS);
            return no_frame(e);
        }
        let mut model = Model::default();
        let flags = flags.with(AreaFlags::GROWS_DOWN);
        for page in start..end {
            let shows = match (page + args).checked_sub(end) {
                Some(i) => Shows::Own(words[i as usize]),
                None => Shows::Default,
            };
            model.pages.insert(page, Page { flags, shows });
        }
        let old = std::mem::replace(&mut self.processes[at], Process { id, space, model });
        self.end_space(cpu, old);
        Ok(())
    }

    fn exit(&mut self, cpu: usize, at: usize) -> Outcome {
        if self.processes.len() > 1 {
            let old = self.processes.swap_remove(at);
            self.end_space(cpu, old);
        }
        Ok(())
    }

    fn end_space(&mut self, cpu: usize, old: Process<F>) {
        old.space.end(on(self.m, &self.slots[cpu].pin())).expect(OURS);
        for loaded in &mut self.loaded {
            if *loaded == Loaded::Active(old.id) || *loaded == Loaded::Lazy(old.id) {
                *loaded = Loaded::Nothing;
            }
        }
    }

    /// A CPU idles.
    fn pause(&mut self, cpu: usize) -> Outcome {
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        if let Loaded::Active(id) = self.loaded[cpu] {
            let process = self.processes.iter().find(|p| p.id == id).expect("active spaces exist");
            if self.rng.bool() {
                process.space.rest(here).expect(OURS);
                self.loaded[cpu] = Loaded::Lazy(id);
            } else {
                process.space.deactivate(here).expect(OURS);
                self.loaded[cpu] = Loaded::Nothing;
            }
        }
        here.policy().idle();
        here.clear_ahead(16);
        Ok(())
    }

    /// A program reads or writes the first word of a page, faulting as often as it must.
    fn touch(&mut self, cpu: usize, at: usize, page: u64, touch: Touch) -> Outcome {
        self.schedule(cpu, at);
        let va = page * PAGE;
        let access = if touch == Touch::Read { Access::READ } else { Access::WRITE };
        let first = self.watch.translate(cpu, va, access);
        if first.is_err() || self.rng.u64(..8) == 0 {
            self.fault(cpu, at, page, touch)?;
        }
        let known = self.processes[at].model.pages.get(&page).copied();
        let allowed = known.is_some_and(|p| {
            p.flags.0 & AreaFlags::PERMISSIONS.0 != 0
                && (touch == Touch::Read || p.flags.has(AreaFlags::WRITE))
        });
        match self.watch.translate(cpu, va, access) {
            Ok(to) => {
                assert!(allowed, "{touch:?} of {va:#x} went through, the area does not allow it");
                let page_known = known.expect("allowed pages are known");
                let want = self.word(&page_known);
                let phys = to.phys & !0xfff;
                assert_eq!(peek(self.host, phys), want, "word at {va:#x}, CPU {cpu}");
                if touch == Touch::Write {
                    self.next_word += 1;
                    poke(self.host, phys, self.next_word);
                    if page_known.flags.has(AreaFlags::SHARED) {
                        self.backing = self.next_word;
                    } else if let Some(p) = self.processes[at].model.pages.get_mut(&page) {
                        p.shows = Shows::Own(self.next_word);
                    }
                }
            }
            Err(fault) => assert!(!allowed, "{touch:?} of {va:#x} must go through: {fault}"),
        }
        Ok(())
    }

    fn fault(&mut self, cpu: usize, at: usize, page: u64, touch: Touch) -> Outcome {
        let offset = self.rng.u64(..512) * 8;
        let pin = self.slots[cpu].pin();
        let here = on(self.m, &pin);
        let process = &mut self.processes[at];
        let result = process.space.fault(here, VirtAddr(page * PAGE + offset), touch);
        let permissions = process.model.pages.get(&page).map(|p| p.flags.0 & AreaFlags::PERMISSIONS.0);
        if permissions.is_none() && process.space.areas().find(here, page * PAGE).is_some() {
            // Only a stack grows into a hole, whatever becomes of the fault.
            let next = process.model.pages.range(page + 1..).next().map(|p| (*p.0, *p.1));
            let (above, stack) = next.expect("something lies above");
            assert!(stack.flags.has(AreaFlags::GROWS_DOWN), "{page:#x} is not below a stack");
            let below = process.model.pages.range(..page).next_back();
            let guarded = below.filter(|(_, p)| {
                p.flags.0 & AreaFlags::PERMISSIONS.0 != 0 && !p.flags.has(AreaFlags::GROWS_DOWN)
            });
            let lowest = guarded.map_or(16, |(below, _)| below + 1 + 256);
            assert!(page >= lowest, "a stack grew to within its guard gap");
            for grown in page..above {
                process.model.pages.insert(grown, Page { flags: stack.flags, shows: Shows::Default });
            }
        }
        let permissions = process.model.pages.get(&page).map(|p| p.flags.0 & AreaFlags::PERMISSIONS.0);
        match (permissions, result) {
            (_, Err(FaultError::NoFrame(e))) => Err(e),
            (None, Err(FaultError::NoArea(_))) => Ok(()),
            (Some(p), Ok(_)) => {
                assert!(
                    if touch == Touch::Write { p & 2 != 0 } else { p != 0 },
                    "a fault that must be denied"
                );
                self.note_write(at, page, touch);
                Ok(())
            }
            (Some(p), Err(FaultError::Denied(_))) => {
                assert!(if touch == Touch::Write { p & 2 == 0 } else { p == 0 }, "denied: permissions {p}");
                Ok(())
            }
            (_, e) => panic!("fault at {page:#x}: {e:?}"),
        }
    }

    /// A write fault makes a private copy, which from then on does not follow the backing object.
    fn note_write(&mut self, at: usize, page: u64, touch: Touch) {
        let backing = self.backing;
        if let Some(p) = self.processes[at].model.pages.get_mut(&page)
            && touch == Touch::Write
            && !p.flags.has(AreaFlags::SHARED)
            && p.shows == Shows::Default
        {
            p.shows = Shows::Own(if p.flags.has(AreaFlags::BACKED) { backing } else { 0 });
        }
    }

    /// Looks at everything: areas, entries, words, and which pages may be written.
    #[track_caller]
    pub fn verify(&self) {
        if self.sound {
            self.watch.assert_clean();
        }
        let pin = self.slots[0].pin();
        let here = on(self.m, &pin);
        let mut writable = BTreeMap::new();
        let mut users: BTreeMap<Pfn, u32> = BTreeMap::new();
        let specials = [self.host.zero_frame(), self.host.backing_frame()];
        for process in &self.processes {
            let mapped = scan(self.host, here, process.space.tree());
            for (va, (pfn, attr)) in &mapped {
                let page = va / PAGE;
                let Some(known) = process.model.pages.get(&page) else {
                    panic!("space {}: {va:#x} is mapped, no area lies there", process.id);
                };
                assert_eq!(peek(self.host, pfn.addr().0), self.word(known), "space {}: {va:#x}", process.id);
                let permissions = known.flags.0 & AreaFlags::PERMISSIONS.0;
                assert!(!attr.has(Attr::READ) || permissions != 0, "{va:#x} can be read: {known:?}");
                assert!(!attr.has(Attr::EXEC) || permissions & 4 != 0, "{va:#x} can be executed: {known:?}");
                if attr.has(Attr::READ | Attr::WRITE) {
                    assert!(known.flags.has(AreaFlags::WRITE), "{va:#x} can be written: {known:?}");
                    writable.insert(*pfn, (process.id, *va));
                }
                if specials.contains(pfn) {
                    assert!(attr.has(Attr::SPECIAL));
                    let shared = known.flags.has(AreaFlags::SHARED);
                    assert!(shared || !attr.has(Attr::WRITE), "{va:#x}: a private write would reach all");
                } else {
                    *users.entry(*pfn).or_default() += 1;
                }
            }
            for (page, known) in &process.model.pages {
                let va = page * PAGE;
                let area = process.space.areas().find(here, va);
                let private = AreaFlags::PRIVATE_PAGES.with(AreaFlags::INHERITED);
                let flags = area.map(|a| a.flags.without(private));
                assert_eq!(flags, Some(known.flags), "space {}: the area at {va:#x}", process.id);
                let default = self.word(known) == self.default_word(known.flags);
                assert!(default || mapped.contains_key(&va), "space {}: page {va:#x} is lost", process.id);
            }
            let all = VirtRange::up_to(F::USER_END);
            let mut covered = 0;
            process.space.areas().each(here, all, |a| covered += (a.end - a.start) / PAGE).expect(OURS);
            assert_eq!(covered, process.model.pages.len() as u64, "pages in areas of space {}", process.id);
        }
        for (pfn, (space, va)) in writable {
            if !specials.contains(&pfn) {
                assert_eq!(users[&pfn], 1, "space {space} can write to {pfn} at {va:#x}, which others map");
            }
        }
    }
}
