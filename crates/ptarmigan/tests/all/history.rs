//! Compares the library's versions of Linux's code with plain models of its rules (docs/linux.md):
//! quicklists in all versions, and PowerPC's hash table. Random operations; each answer is
//! compared.
//!
//! A short run is part of every test run. Runs of a million operations are ignored, and have a step
//! of their own in the job `history`.
use crate::common;
use common::At;
use fastrand::Rng;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, MemoryRun, MemorySize, Request, ZoneClass};
use ptarmigan::page::{Clean, Construct, Level};
use ptarmigan::quicklist::{Policy, Source};
use ptarmigan::tlb::hash::{HashTable, Hashed32, Inserted, Mapping, Refill, Tag};
use ptarmigan::window::DirectMap;
use ptarmigan_linux::{Historic, HistoricError, ListsRefused, Rules, Trim};
use std::collections::{BTreeSet, HashSet};
use std::ptr::NonNull;
use std::sync::Mutex;

const ROOT: Level = Level(3);
/// The word that a constructed root has last, and a root alone.
const MARK: u64 = 0x6b65_726e_656c_0001;

/// Memory from frame 0 on.
#[derive(Clone, Copy)]
struct Words(NonNull<u64>);

// SAFETY: a test has one thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    fn of(self, page: u64) -> *mut u64 {
        // SAFETY: callers name pages of low memory, which the block holds.
        unsafe { self.0.as_ptr().add(page as usize / 8) }
    }

    fn read(self, page: u64, word: usize) -> u64 {
        // SAFETY: as in `of`, and a page has 512 words.
        unsafe { self.of(page).add(word).read() }
    }
}

/// Marks roots, and notes each call.
struct Marks {
    words: Words,
    calls: Mutex<Vec<(bool, u64)>>,
}

impl Marks {
    fn call(&self, constructs: bool, root: u64) {
        // SAFETY: a root is a page of low memory, which the caller owns.
        unsafe { self.words.of(root).add(511).write(if constructs { MARK } else { 0 }) };
        self.calls.lock().unwrap().push((constructs, root));
    }
}

// SAFETY: 1. the lower half stays zero. 2. the mark goes, so that all is zero. 3. no reference to
// an ended root is kept.
unsafe impl Construct for &Marks {
    unsafe fn construct(&self, _: &Frames, root: PhysAddr) {
        self.call(true, root.0);
    }
    unsafe fn destruct(&self, _: &Frames, root: PhysAddr) {
        self.call(false, root.0);
    }
}

/// The rules of each version, written a second time.
struct Model {
    rules: Rules,
    lists: usize,
    /// The node of each CPU, and whether it is online.
    cpus: Vec<(u8, bool)>,
    /// The pages of each list of each CPU, the next one last.
    pages: Vec<[Vec<u64>; 3]>,
    watermark: usize,
    calls: Vec<(bool, u64)>,
}

impl Model {
    fn list(&self, level: Level) -> Option<usize> {
        if self.rules == Rules::V2004 {
            return (level != Level::PTE).then(|| usize::from(level != ROOT));
        }
        Some(match (self.lists, level) {
            (1, _) | (_, ROOT) => 0,
            (3, Level::PTE) => 2,
            _ => 1,
        })
    }

    /// The page that an allocation finds on a list.
    fn alloc(&mut self, cpu: usize, level: Level) -> Option<u64> {
        let list = self.list(level)?;
        let page = self.pages[cpu][list].pop()?;
        if level == ROOT && self.lists == 1 {
            self.calls.push((true, page));
        }
        Some(page)
    }

    /// Whether a page that is freed goes on a list.
    fn free(&mut self, cpu: usize, level: Level, page: u64, node: u8) -> bool {
        let stays = !self.rules.node_test || node == self.cpus[cpu].0;
        let list = self.list(level).filter(|_| stays);
        if level == ROOT && (list.is_none() || self.lists == 1) {
            self.calls.push((false, page));
        }
        list.inspect(|list| self.pages[cpu][*list].push(page)).is_some()
    }

    /// Takes `n` pages off a list, which go back to the allocator.
    fn drop_pages(&mut self, cpu: usize, list: usize, n: usize, gone: &mut Vec<u64>) {
        for _ in 0..n {
            let page = self.pages[cpu][list].pop().expect("no more go than there are");
            if list == 0 && self.lists > 1 {
                self.calls.push((false, page));
            }
            gone.push(page);
        }
    }

    /// A trim on a node with so many free frames; `free` gives the new number after some have gone.
    fn trim(&mut self, cpu: usize, free: impl Fn(&[u64]) -> (usize, usize)) -> Vec<u64> {
        let mut gone = Vec::new();
        let (min, max) = match self.rules.trim {
            Trim::Share { min_pages, max_free } => (min_pages, max_free),
            Trim::Watermarks { low, .. } => {
                let held = |model: &Model| model.pages[cpu].iter().map(Vec::len).sum::<usize>();
                if held(self) > self.watermark {
                    while held(self) > low {
                        for list in 0..3 {
                            let n = self.pages[cpu][list].len().min(1);
                            self.drop_pages(cpu, list, n, &mut gone);
                        }
                    }
                }
                return gone;
            }
        };
        for list in 0..self.lists {
            let (low, high) = free(&gone);
            let of_node = if self.rules.counts_high { low + high } else { low };
            let node = self.cpus[cpu].0;
            let sharing = self.cpus.iter().filter(|(of, online)| *of == node && *online).count();
            let share = of_node / 16 / if self.rules.divides_by_cpus { sharing.max(1) } else { 1 };
            let len = self.pages[cpu][list].len();
            let n = if len > min { len.saturating_sub(share.max(min)).min(max) } else { 0 };
            self.drop_pages(cpu, list, n, &mut gone);
        }
        gone
    }

    fn total(&self) -> usize {
        let online = self.cpus.iter().zip(&self.pages).filter(|((_, online), _)| *online);
        online.flat_map(|(_, lists)| lists).map(Vec::len).sum()
    }
}

/// Leaked memory, all zero. Tests are short.
fn memory(bytes: usize) -> NonNull<u64> {
    NonNull::from(Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice())).cast()
}

/// Random operations on a random machine, and on the model. Returns the pages that trims gave back.
fn compare(rules: Rules, lists: usize, seed: u64, steps: usize) -> usize {
    let mut rng = Rng::with_seed(seed);
    let nodes = 1 + rng.u32(..4);
    // In 2004 a CPU's lists grow with all memory, so that large machines reach no watermark.
    let is_2004 = matches!(rules.trim, Trim::Watermarks { .. });
    let cpus: Vec<_> = (0..1 + rng.u64(..if is_2004 { 2 } else { 8 }))
        .map(|_| (rng.u64(..u64::from(nodes)) as u8, true))
        .collect();
    let (low, high) = (
        200 + rng.u64(..if is_2004 { 300 } else { 1500 }) as u32,
        rng.u64(..if is_2004 { 100 } else { 1000 }) as u32,
    );
    let wave = 400 + rng.usize(..1200);
    let run = |start, frames, node: u32, class| MemoryRun {
        start: Pfn(start),
        frames,
        node: NodeId(node as u8),
        class,
    };
    let runs: Vec<_> = (0..nodes)
        .map(|node| run(1 + node * low, low, node, ZoneClass::Low))
        .chain((0..nodes).map(|node| run(1 + nodes * low + node * high, high, node, ZoneClass::High)))
        .filter(|run| run.frames > 0)
        .collect();
    let bytes = Frames::bytes(&MemorySize::of(runs.iter().copied()))
        + Historic::<DirectMap, &Marks>::bytes(cpus.len());
    // SAFETY: 1. leaked just now: valid for ever, and nobody else has it.
    let mut boot = unsafe { BootMemory::new(memory(bytes).cast(), bytes) };
    // SAFETY: 1. low frames lie in a block of their own, and no other is touched. 2. it is new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &runs) }.expect("`bytes` suffices");
    let limit = (nodes * low + 1) as usize * FRAME_SIZE;
    let words = Words(memory(limit));
    // SAFETY: 1. low frames lie in the block. 2. leaked just now.
    let window = unsafe { DirectMap::new(words.0.as_ptr().cast(), limit as u64) }.expect("a low block");
    let marks = Marks { words, calls: Mutex::default() };
    // SAFETY: 1. low memory lies in the block. 2. marks are for any frames. 3. the layout is
    // checked. 4. no tree is made.
    let source = unsafe { Source::new(&frames, window, &marks, X86_64::LAYOUT) };
    let on: Vec<_> = cpus.iter().map(|(node, _)| NodeId(*node)).collect();
    // SAFETY: 1. no tree is made.
    let policy = unsafe { Historic::new(&mut boot, rules, &on, lists, source) }.expect("`bytes` suffices");
    // Pages of all memory at boot: a tenth, or one for each 512 and 500 more, and 50 in any case.
    let all = (nodes * (low + high)) as usize;
    let watermark = if is_2004 { (all / 512 + 500).min(all / 10).max(50) } else { 0 };
    assert_eq!(policy.high_watermark(), watermark);
    let mut model = Model {
        rules,
        lists,
        pages: vec![Default::default(); cpus.len()],
        cpus,
        watermark,
        calls: Vec::new(),
    };
    let free =
        |node: u8| (frames.node_free(NodeId(node)) as usize, frames.node_high_free(NodeId(node)) as usize);
    let all_free = || (0..nodes as u8).map(free).collect::<Vec<_>>();
    let home = |page: u64| frames.node_of(PhysAddr(page).pfn()).0;
    let mut live: Vec<(Level, u64)> = Vec::new();
    let mut out = HashSet::new();
    let mut outside: Vec<Frame<Dirty>> = Vec::new();
    let mut trimmed = 0;
    for step in 0..steps {
        let cpu = rng.usize(..model.cpus.len());
        // SAFETY: 1. this thread is all CPUs, one at a time. 2. the lists were made for it.
        let pin = unsafe { Pinned::assume(frames.machine(), CpuId(cpu as u16), NodeId(model.cpus[cpu].0)) };
        let here = policy.at(&pin);
        let mut before = all_free();
        // Waves, so that lists fill and run dry.
        let grows = (step / wave).is_multiple_of(2);
        match rng.u64(..40) {
            0 => {
                let node = model.cpus[cpu].0;
                let gone = model.trim(cpu, |gone| {
                    let (low, high) = free(node);
                    (low + gone.iter().filter(|page| home(**page) == node).count(), high)
                });
                trimmed += gone.len();
                gone.iter().for_each(|page| before[usize::from(home(*page))].0 += 1);
                if rng.bool() { here.idle() } else { here.gather_end() }
            }
            1 => {
                let online = !model.cpus[cpu].1;
                model.cpus[cpu].1 = online;
                policy.set_online(CpuId(cpu as u16), online);
            }
            2..=4 => {
                let class = if rng.bool() { ZoneClass::Low } else { ZoneClass::High };
                let (node, flags) = (NodeId(rng.u64(..u64::from(nodes)) as u8), AllocFlags::NORMAL);
                let request = Request { node, order: 0, zero: false, class, end: End::Low, flags };
                if grows && outside.len() < all / 3 {
                    outside.extend(frames.take(request).map(|frame| frame.dirty()));
                } else if !outside.is_empty() {
                    frames.give(outside.swap_remove(rng.usize(..outside.len())));
                }
                continue;
            }
            n if !live.is_empty() && (n < 18 || !grows) => {
                let (level, page) = live.swap_remove(rng.usize(..live.len()));
                out.remove(&page);
                if !model.free(cpu, level, page, home(page)) {
                    before[usize::from(home(page))].0 += 1;
                }
                // SAFETY: 1. to 3. handed out below, not written to, never linked.
                here.free_unlinked(unsafe { Clean::from_raw(PhysAddr(page), level) });
            }
            _ => {
                let level = Level(rng.u8(..4));
                let misses = policy.counts().levels[level.at()].misses;
                let wanted = model.alloc(cpu, level);
                let Ok(page) = here.alloc(level, AllocFlags::NORMAL) else {
                    assert_eq!(wanted, None, "a listed page was not handed out");
                    continue;
                };
                let page = page.into_raw().0;
                let missed = policy.counts().levels[level.at()].misses - misses;
                assert_eq!(missed, usize::from(wanted.is_none()), "hit or miss");
                if let Some(wanted) = wanted {
                    assert_eq!(page, wanted, "the page");
                } else {
                    before[usize::from(home(page))].0 -= 1;
                    if level == ROOT {
                        model.calls.push((true, page));
                    }
                }
                assert!(out.insert(page), "{page:#x} is handed out twice");
                let last = if level == ROOT { MARK } else { 0 };
                let is_clean =
                    (0..511).all(|word| words.read(page, word) == 0) && words.read(page, 511) == last;
                assert!(is_clean, "the words of {page:#x}");
                live.push((level, page));
            }
        }
        assert_eq!(all_free(), before, "free frames by node");
        assert_eq!(policy.total_size(), model.total(), "the total");
        assert_eq!(*marks.calls.lock().unwrap(), model.calls, "constructor and destructor");
        model.calls.clear();
        marks.calls.lock().unwrap().clear();
        if step.is_multiple_of(64) {
            for list in model.pages.iter().flatten() {
                for (at, page) in list.iter().enumerate() {
                    let next = if at == 0 { 0 } else { list[at - 1] };
                    assert_eq!(words.read(*page, 0), next, "the link of {page:#x}");
                }
            }
        }
    }
    outside.into_iter().for_each(|frame| frames.give(frame));
    trimmed
}

/// So many operations on each version with each number of lists, on machines of 5,000 operations.
fn compare_all(steps: usize) {
    for (rules, all_lists) in [
        (Rules::LINUX_2_4, 3..=3),
        (Rules::V2004, 2..=2),
        (Rules::V5, 1..=3),
        (Rules::LINUX_2_6_24, 1..=3),
        (Rules::V2008, 1..=3),
        (Rules { trim: Trim::Share { min_pages: 3, max_free: 70 }, ..Rules::V2008 }, 2..=2),
    ] {
        let machines = all_lists.clone().count();
        let mut trimmed = 0;
        for lists in all_lists {
            for seed in 0..steps.div_ceil(machines * 5_000) as u64 {
                trimmed += compare(rules, lists, seed << 8 | lists as u64, (steps / machines).min(5_000));
            }
        }
        assert!(trimmed > 0, "{rules:?} never trimmed a list");
    }
}

#[test]
fn quicklists_do_what_the_rules_say() {
    compare_all(20_000);
}

#[test]
#[ignore = "a million operations of each version: cargo xtask ci history"]
fn quicklists_do_what_the_rules_say_a_million_times() {
    compare_all(1_000_000);
}

#[test]
fn lists_that_a_version_cannot_have_are_refused() {
    use ptarmigan::format::X86Pae;
    use ptarmigan_hosted::{Host, HostError};
    let host = Host::<X86Pae>::new(common::small(1, 1, 16)).unwrap();
    for lists in 2..=3 {
        assert!(common::historic(&host, Rules::V5, lists).is_ok());
    }
    let Err(HostError::Lists(refused)) = common::historic(&host, Rules::V5, 1) else {
        panic!("PMD and PTE pages are mixed")
    };
    assert_eq!(refused, ListsRefused::MixesPmdAndPte);
    assert!(refused.to_string().contains("cannot mix PMD and PTE pages"), "{refused}");
    let host = Host::<X86_64>::new(common::small(1, 1, 16)).unwrap();
    for lists in [0, 4] {
        assert!(
            matches!(common::historic(&host, Rules::V5, lists), Err(HostError::Lists(ListsRefused::Number(n))) if n == lists)
        );
    }
    let refused = common::historic(&host, Rules::V2004, 3).map(|_| ()).expect_err("it has two");
    assert!(refused.to_string().contains("2004 has 2"), "{refused}");
    let _: HistoricError = HistoricError::Lists(ListsRefused::Number(0));
}

/// Entries of the table of a 604, by place: primary group, its complement, eight places each.
struct Htab {
    groups: Vec<[Option<(Tag, bool)>; 8]>,
    /// The place of the last eviction.
    last: usize,
    /// Pages that were put in since they were last taken out: the bit in the software's entry.
    hashed: BTreeSet<Tag>,
}

impl Htab {
    fn group(&self, tag: Tag, secondary: bool) -> usize {
        let hash = tag.vsid() ^ u32::from(tag.page());
        (if secondary { !hash } else { hash }) as usize & (self.groups.len() - 1)
    }

    /// Where a page is, and how many entries were looked at.
    fn find(&self, tag: Tag) -> (Option<(usize, usize)>, usize) {
        for secondary in [false, true] {
            let group = self.group(tag, secondary);
            if let Some(at) = self.groups[group].iter().position(|e| *e == Some((tag, secondary))) {
                return (Some((group, at)), usize::from(secondary) * 8 + at + 1);
            }
        }
        (None, 16)
    }

    fn insert(&mut self, tag: Tag) -> (Inserted, usize) {
        let mut probes = 0;
        if !self.hashed.insert(tag) {
            let (found, looked) = self.find(tag);
            probes = looked;
            if found.is_some() {
                return (Inserted::Again, probes);
            }
        }
        for (secondary, how) in [(false, Inserted::Primary), (true, Inserted::Secondary)] {
            let group = self.group(tag, secondary);
            if let Some(at) = self.groups[group].iter().position(Option::is_none) {
                self.groups[group][at] = Some((tag, secondary));
                return (how, probes + at + 1);
            }
            probes += 8;
        }
        self.last = (self.last + 1) % 8;
        let group = self.group(tag, false);
        self.groups[group][self.last] = Some((tag, false));
        (Inserted::Evicted, probes)
    }
}

fn compare_hash(seed: u64, steps: usize) {
    let bytes = 64 << 10;
    let mut rng = Rng::with_seed(seed);
    let block = memory(2 * bytes);
    let base = block.cast::<u8>();
    // SAFETY: the aligned half lies in the block.
    let base = unsafe { base.add(base.as_ptr().align_offset(bytes)) };
    // SAFETY: 1. leaked, and other code only reads it below.
    let table = unsafe { HashTable::<Hashed32>::new(base, bytes as u64) }.expect("a size that there is");
    let mut model = Htab { groups: vec![[None; 8]; bytes / 64], last: 0, hashed: BTreeSet::new() };
    for step in 0..steps {
        // Few groups, so that they are full.
        let page = (rng.u64(..64) << 10 | rng.u64(..4)) as u16;
        let tag = Tag::new(rng.u32(..6) * 0x1357, page);
        let probes = table.counts().probes;
        if rng.u64(..5) < 3 {
            let refill = Refill { entry: Mapping(0x1000), was_hashed: model.hashed.contains(&tag) };
            // SAFETY: 1. no MMU reads the table. 2. the model knows it.
            let how = unsafe { table.insert(tag, refill) };
            assert_eq!((how, table.counts().probes - probes), model.insert(tag), "{tag:?} at step {step}");
        } else {
            let (found, looked) = model.find(tag);
            assert_eq!(table.remove(tag, || ()).is_some(), found.is_some());
            assert_eq!(table.counts().probes - probes, looked, "{tag:?} at step {step}");
            model.hashed.remove(&tag);
            if let Some((group, at)) = found {
                model.groups[group][at] = None;
            }
        }
        if step.is_multiple_of(4096) || step + 1 == steps {
            for (at, entry) in model.groups.iter().flatten().enumerate() {
                // SAFETY: the table has that entry; no other thread is at work.
                let word = unsafe { base.cast::<u32>().add(2 * at).read() };
                let valid = entry.map(|(tag, secondary)| {
                    1 << 31 | tag.vsid() << 7 | u32::from(secondary) << 6 | u32::from(tag.page()) >> 10
                });
                assert_eq!(if word >> 31 == 1 { Some(word) } else { None }, valid, "entry {at}");
            }
        }
    }
}

#[test]
fn the_hash_table_places_entries_as_the_rules_say() {
    compare_hash(1, 30_000);
}

#[test]
#[ignore = "a million operations: cargo xtask ci history"]
fn the_hash_table_places_entries_by_the_rules_a_million_times() {
    compare_hash(2, 1_000_000);
}
