//! Runs a small kernel on the sanitizer: spaces, frames that are used again dirty, random work by
//! seed. It is correct; an exhibit puts its own step into it.
use super::format::Format;
use ptsan::{
    Access, Adversary, Arch, Barrier, Config, Content, DeviceEntry, Entry, Errata, Fault, Flush, Guard, Hold,
    Operation, Reader, Sanitizer, Target, Translation,
};
use std::collections::BTreeMap;

pub const PAGE: u64 = 4096;
/// What a directory's entry maps as one page.
pub const LARGE: u64 = 2 << 20;
const FRAMES: u64 = 192;
/// Memory: the frames that are handed out lie below the first block, the rest is for exhibits.
const BYTES: u64 = 2 * LARGE;
/// The lock of all trees.
const TREE: u64 = 1;
/// Where random work has its pages, and where exhibits have theirs.
const WORK: u64 = 0x1000_0000;
const ADDRESSES: u64 = 0x2000_0000;

/// The machine that an exhibit needs.
#[derive(Clone, Copy)]
pub struct Setup {
    pub format: Format,
    pub cpus: usize,
    /// Entries survive a switch to another space.
    pub asids: bool,
    /// A root points at itself.
    pub recursive: bool,
    /// Devices that walk the tables as well.
    pub devices: usize,
    /// Barriers are told.
    pub barriers: bool,
    /// Locks are told: one for each tree, and those of an exhibit.
    pub locks: bool,
    pub errata: fn() -> Errata,
    /// CPUs keep entries that were not valid, where the format allows it. Programs have a handler
    /// that flushes then, the kernel has none.
    pub keeps_invalid: bool,
}

/// A machine of four CPUs without address-space numbers.
pub const fn four(format: Format) -> Setup {
    let (asids, recursive, devices, barriers, locks) = (false, false, 0, false, false);
    let (errata, keeps_invalid) = (Errata::default, false);
    Setup { format, cpus: 4, asids, recursive, devices, barriers, locks, errata, keeps_invalid }
}

struct Space {
    root: u64,
    /// Pages of random work, by address.
    pages: BTreeMap<u64, u64>,
}

pub struct Machine {
    pub ram: Vec<u8>,
    pub san: Sanitizer,
    pub format: Format,
    arch: Arch,
    /// Frames to hand out; the last that was freed comes first.
    free: Vec<u64>,
    /// What is in a frame that is handed out.
    dirt: Option<u64>,
    spaces: BTreeMap<u64, Space>,
    /// The space that each CPU has loaded.
    loaded: Vec<Option<u64>>,
    devices: usize,
    barriers: bool,
    /// The locks that a store takes, if locks are told.
    locks: Vec<u64>,
    /// The step has taken them.
    holds: bool,
    /// An invalidation has to be repeated.
    repeats: bool,
    tables: Vec<u64>,
    /// First address of the half that the root translates.
    base: u64,
    random: u64,
    /// The hooks of the step that is under way.
    steps: Option<Vec<&'static str>>,
    hooks: Vec<&'static str>,
}

impl Machine {
    pub fn new(setup: Setup, seed: u64, backtraces: bool) -> Self {
        let arch = setup.format.arch();
        let config = Config {
            cpus: setup.cpus,
            asids: setup.asids,
            recursive: setup.recursive,
            devices: setup.devices,
            barriers: setup.barriers,
            locks: setup.locks,
            errata: (setup.errata)(),
            keeps_invalid: setup.keeps_invalid,
            adversary: Some(Adversary::new(seed)),
            backtraces,
            ..Config::new(arch.clone())
        };
        let config = config.harness("tests/museum/exhibits/machine.rs");
        let dirt = [None, Some(0x5555_5555_5555_5555), Some(setup.format.table(0x7000))][seed as usize % 3];
        Self {
            ram: vec![0; BYTES as usize],
            san: Sanitizer::new(config),
            format: setup.format,
            arch,
            free: (1..FRAMES).rev().map(|n| n * PAGE).collect(),
            dirt,
            spaces: BTreeMap::new(),
            loaded: vec![None; setup.cpus],
            devices: setup.devices,
            barriers: setup.barriers,
            locks: if setup.locks { vec![TREE] } else { Vec::new() },
            holds: false,
            repeats: (setup.errata)().dsb_misses_stores,
            tables: Vec::new(),
            base: setup.format.base(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d,
            steps: None,
            hooks: Vec::new(),
        }
    }

    /// Returns a number below `n` that follows from the seed.
    pub fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % n
    }

    pub fn cpus(&self) -> usize {
        self.loaded.len()
    }

    /// Returns two different CPUs.
    pub fn two_cpus(&mut self) -> (usize, usize) {
        let n = self.cpus() as u64;
        let (one, step) = (self.below(n), 1 + self.below(n - 1));
        (one as usize, ((one + step) % n) as usize)
    }

    /// Runs the step in which the defect lies, and keeps the names of its hooks.
    pub fn step(&mut self, body: impl FnOnce(&mut Self)) {
        self.steps = Some(Vec::new());
        body(self);
        self.hooks.extend(self.steps.take().unwrap_or_default());
    }

    /// Returns the hooks of the step, each run of the same as one.
    pub fn sequence(&self) -> Vec<&'static str> {
        let mut names = self.hooks.clone();
        names.dedup();
        names
    }

    fn called(&mut self, hook: &'static str) {
        if let Some(steps) = &mut self.steps {
            steps.push(hook);
        }
    }

    // Memory.

    pub fn get(&self, at: u64) -> u64 {
        let bytes = self.ram.get(at as usize..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Stores without a hook: to data, or to a table that nobody can reach yet.
    pub fn poke(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
    }

    /// Stores an entry.
    pub fn write(&mut self, at: u64, raw: u64) {
        self.called("entry_written");
        self.poke(at, raw);
        self.locked(|m| m.san.entry_written(&m.ram, at));
    }

    /// Exchanges an entry by an atomic instruction, and returns the old one.
    pub fn exchange(&mut self, at: u64, raw: u64) -> u64 {
        self.called("entry_exchanged");
        let old = self.get(at);
        self.poke(at, raw);
        self.locked(|m| m.san.entry_exchanged(&m.ram, at));
        old
    }

    // Locks.

    /// Gives a table a lock of its own, which is held until the flush is over.
    pub fn guard(&mut self, table: u64) {
        let lock = TREE + self.locks.len() as u64;
        self.locks.push(lock);
        self.san.lock_guards(table, Guard { lock, flush_first: true });
    }

    pub fn take_locks(&mut self) {
        self.called("lock_taken");
        self.holds = true;
        self.locks.iter().for_each(|&lock| self.san.lock_taken(0, lock, Hold::Exclusive));
    }

    pub fn release_locks(&mut self) {
        self.called("lock_released");
        self.holds = false;
        self.locks.iter().rev().for_each(|&lock| self.san.lock_released(&self.ram, 0, lock));
    }

    /// Runs a store under the locks, if the step has not taken them.
    fn locked(&mut self, store: impl FnOnce(&mut Self)) {
        if self.holds || self.locks.is_empty() {
            return store(self);
        }
        let steps = self.steps.take();
        self.san.running_on(0);
        self.take_locks();
        store(self);
        self.release_locks();
        self.steps = steps;
    }

    /// Hands out a frame, with whatever is in it.
    pub fn frame(&mut self) -> u64 {
        let phys = self.free.pop().expect("no exhibit needs so many frames");
        if let Some(dirt) = self.dirt {
            for at in (phys..phys + PAGE).step_by(512) {
                self.poke(at, dirt);
            }
        }
        phys
    }

    /// Hands out frames for data that lie one after the other, outside memory.
    pub fn large_frame(&mut self) -> u64 {
        (1 << 30) + self.below(64) * LARGE
    }

    /// Frees a data frame.
    pub fn free_frame(&mut self, phys: u64) {
        self.called("frame_freed");
        self.san.frame_freed(&self.ram, phys, PAGE);
        if phys < FRAMES * PAGE {
            self.free.push(phys);
        }
    }

    /// Gives a data frame to somebody else, without a free.
    pub fn reuse_frame(&mut self, phys: u64) {
        self.called("frame_reused");
        self.san.frame_reused(&self.ram, phys, PAGE);
    }

    /// Allocates a table in a frame and leaves its content there.
    pub fn dirty_table_in(&mut self, phys: u64, level: u8) {
        self.called("table_allocated");
        self.san.table_allocated(&self.ram, phys, PAGE, Some(level), Content::Unknown);
        self.tables.push(phys);
    }

    /// Clears a table that nobody can reach yet.
    pub fn clear(&mut self, table: u64) {
        self.ram[table as usize..][..PAGE as usize].fill(0);
    }

    /// Allocates a table and clears it.
    pub fn table(&mut self, level: u8) -> u64 {
        let table = self.frame();
        self.dirty_table_in(table, level);
        self.clear(table);
        table
    }

    pub fn free_table(&mut self, table: u64) {
        self.called("table_freed");
        self.san.table_freed(&self.ram, table, PAGE);
        self.tables.retain(|&t| t != table);
        self.free.push(table);
    }

    // Spaces and CPUs.

    /// Makes a space and returns its number.
    pub fn space(&mut self) -> u64 {
        let root = self.table(self.top());
        if !self.locks.is_empty() {
            self.san.lock_guards(root, Guard { lock: TREE, flush_first: false });
        }
        let space = self.spaces.len() as u64 + 1;
        self.san.space_created(space);
        self.spaces.insert(space, Space { root, pages: BTreeMap::new() });
        space
    }

    /// Returns the level of roots.
    pub fn top(&self) -> u8 {
        self.arch.levels.len() as u8 - 1
    }

    pub fn root(&self, space: u64) -> u64 {
        self.spaces[&space].root
    }

    /// Loads a space; with numbers, its entries stay valid.
    pub fn switch(&mut self, cpu: usize, space: u64) {
        self.switch_to(cpu, self.root(space), space);
    }

    pub fn switch_to(&mut self, cpu: usize, root: u64, space: u64) {
        self.called("switch");
        self.san.switch(&self.ram, cpu, root, space);
        self.loaded[cpu] = Some(space);
        if self.barriers {
            self.order();
            self.san.barrier(cpu, Barrier::Instruction);
        }
    }

    /// Loads a space on all CPUs.
    pub fn everywhere(&mut self, space: u64) {
        (0..self.cpus()).for_each(|cpu| self.switch(cpu, space));
    }

    pub fn lazy(&mut self, cpu: usize) {
        self.called("lazy");
        self.san.lazy(cpu);
    }

    pub fn resume(&mut self, cpu: usize) {
        self.called("resume");
        self.san.resume(cpu);
    }

    /// A CPU invalidates.
    pub fn flush(&mut self, cpu: usize, flush: Flush) {
        self.called(match flush.target {
            Target::Page { .. } if flush.level.is_some() => "flush of a page of a level",
            Target::Page { .. } => "flush of a page",
            Target::Range { .. } => "flush of a range",
            Target::EverySpace { .. } => "flush of a page in every space",
            Target::Space(_) => "flush of a space",
            Target::All => "flush of everything",
        });
        self.san.flush(&self.ram, cpu, flush);
    }

    pub fn flush_everywhere(&mut self, flush: Flush) {
        (0..self.cpus()).for_each(|cpu| self.flush(cpu, flush));
    }

    /// Waits until stores and invalidations have taken effect, where the format needs it.
    pub fn order(&mut self) {
        if self.barriers {
            self.called("barrier");
            self.san.barrier(0, Barrier::Data);
        }
    }

    /// Flushes everybody in the right way: with barriers, devices too, and as errata ask for.
    fn shootdown(&mut self, flush: Flush) {
        for _ in 0..1 + usize::from(self.repeats) {
            self.order();
            self.flush_everywhere(flush);
            self.order();
        }
        self.flush_devices(flush);
    }

    // Devices.

    /// Lets all devices walk the tables of a space.
    pub fn attach_all(&mut self, space: u64) {
        (0..self.devices).for_each(|device| self.attach(device, self.root(space), space));
    }

    /// Lets a device walk the tables below a root.
    pub fn attach(&mut self, device: usize, root: u64, number: u64) {
        self.called("attach");
        self.san.switch(&self.ram, self.san.device(device), root, number);
    }

    /// All devices read.
    pub fn touch_by_devices(&mut self, va: u64) {
        for device in 0..self.devices {
            self.called("translate of a device");
            let _ = self.san.translate(&self.ram, self.san.device(device), va, Access::READ);
        }
    }

    /// A device invalidates, and the caller waits for it.
    pub fn flush_device(&mut self, device: usize, flush: Flush) {
        self.called(match flush.target {
            Target::Range { .. } => "flush of a range of a device",
            _ => "flush of a device",
        });
        self.san.flush(&self.ram, self.san.device(device), flush);
    }

    pub fn flush_devices(&mut self, flush: Flush) {
        (0..self.devices).for_each(|device| self.flush_device(device, flush));
    }

    /// Puts an invalidation into the queue of a device.
    pub fn queue(&mut self, device: usize, flush: Flush) {
        self.called("flush_queued");
        self.san.flush_queued(self.san.device(device), flush);
    }

    /// Waits for all that is in the queue of a device.
    pub fn wait_for(&mut self, device: usize) {
        self.called("queue_completed");
        self.san.queue_completed(&self.ram, self.san.device(device));
    }

    /// Tells of an entry of two words in a table of a device.
    pub fn device_entry(&mut self, device: usize, at: u64) {
        self.san.device_entry(&self.ram, self.san.device(device), at, DeviceEntry::new(16));
    }

    /// Stores a word of such an entry.
    pub fn write_word(&mut self, at: u64, value: u64) {
        self.called("device_entry_written");
        self.poke(at, value);
        self.san.device_entry_written(&self.ram, at);
    }

    /// A device forgets such an entry.
    pub fn flush_device_entry(&mut self, device: usize, at: u64) {
        self.called("device_entries_flushed");
        self.san.device_entries_flushed(self.san.device(device), Some(at));
    }

    // Software that walks without a lock.

    pub fn reader(&mut self, space: u64) -> Reader {
        self.called("reader_begins");
        self.san.reader_begins(&self.ram, self.root(space))
    }

    pub fn reader_ends(&mut self, reader: Reader) {
        self.called("reader_ends");
        self.san.reader_ends(reader);
    }

    // Programs.

    /// A program reads.
    ///
    /// # Errors
    /// Returns the fault.
    pub fn touch(&mut self, cpu: usize, va: u64) -> Result<Translation, Fault> {
        self.touch_as(cpu, va, Access::READ)
    }

    /// A program or the kernel makes any access.
    ///
    /// # Errors
    /// Returns the fault.
    pub fn touch_as(&mut self, cpu: usize, va: u64, access: Access) -> Result<Translation, Fault> {
        self.called("translate");
        let spurious = self.san.stats().spurious_faults;
        let found = self.san.translate(&self.ram, cpu, va, access);
        // The handler of a program's fault finds a good entry.
        if access.user && found.is_err() && self.san.stats().spurious_faults > spurious {
            self.flush(cpu, Flush::all());
            return self.san.translate(&self.ram, cpu, va, access);
        }
        found
    }

    /// A program reads on each CPU that has the space loaded.
    pub fn touch_everywhere(&mut self, space: u64, va: u64) {
        for cpu in 0..self.cpus() {
            if self.loaded[cpu] == Some(space) {
                let _ = self.touch(cpu, va);
            }
        }
    }

    pub fn begin(&mut self) -> Operation {
        self.called("operation_begins");
        self.san.operation_begins()
    }

    pub fn end(&mut self, operation: Operation) {
        self.called("operation_ends");
        self.san.operation_ends(&self.ram, operation);
    }

    // Tables.

    /// Returns where the entry for `va` stands at a level, and makes the tables on the way.
    pub fn entry(&mut self, space: u64, va: u64, level: u8) -> u64 {
        self.entry_below(self.root(space), va, level)
    }

    /// The same below any root.
    pub fn entry_below(&mut self, root: u64, va: u64, level: u8) -> u64 {
        let mut table = root;
        for at_level in (level + 1..self.arch.levels.len() as u8).rev() {
            let at = self.at(table, at_level, va);
            table = match (self.arch.decode)(at_level, self.get(at)) {
                Entry::Table { phys, .. } => phys,
                _ => {
                    let below = self.table(at_level - 1);
                    self.write(at, self.format.table(below));
                    below
                }
            };
        }
        self.at(table, level, va)
    }

    /// Returns where the entry for `va` stands in a table.
    pub fn at(&self, table: u64, level: u8, va: u64) -> u64 {
        table + self.arch.levels[usize::from(level)].index(va) * 8
    }

    /// Maps a new frame at `va`, and returns it.
    pub fn map(&mut self, space: u64, va: u64) -> u64 {
        let phys = self.frame();
        let at = self.entry(space, va, 0);
        self.write(at, self.format.page(phys));
        phys
    }

    /// Unmaps a page and frees its frame, in the right order.
    pub fn unmap(&mut self, space: u64, va: u64, phys: u64) {
        let operation = self.begin();
        let at = self.entry(space, va, 0);
        self.exchange(at, 0);
        // No instruction invalidates by the address of a guest's memory.
        let whole = self.format == Format::Ept;
        self.shootdown(if whole { Flush::space(space) } else { Flush::page(space, va) });
        self.free_frame(phys);
        self.end(operation);
    }

    /// Returns an address for an exhibit, one of 4,096 pages that random work leaves alone. There
    /// are no tables for it yet.
    pub fn address(&mut self) -> u64 {
        self.two_addresses().0
    }

    /// Returns two such addresses, in blocks of different directory entries.
    pub fn two_addresses(&mut self) -> (u64, u64) {
        let (block, step) = (self.below(64), 1 + self.below(63));
        let base = self.base + ADDRESSES;
        let one = base + block * LARGE + self.below(64) * PAGE;
        (one, base + (block + step) % 64 * LARGE + self.below(64) * PAGE)
    }

    /// Does random work that is correct: maps, unmaps and reads other pages of the spaces.
    pub fn work(&mut self) {
        let (steps, base) = (4 + self.below(8), self.base);
        for _ in 0..steps {
            let space = 1 + self.below(self.spaces.len() as u64);
            let va = base + WORK + self.below(2) * LARGE + self.below(16) * PAGE;
            let known = self.spaces[&space].pages.get(&va).copied();
            match (self.below(3), known) {
                (0, Some(phys)) => {
                    self.unmap(space, va, phys);
                    self.spaces.get_mut(&space).expect("it is there").pages.remove(&va);
                }
                (1, None) => {
                    let phys = self.map(space, va);
                    self.spaces.get_mut(&space).expect("it is there").pages.insert(va, phys);
                }
                _ => self.touch_everywhere(space, va),
            }
        }
    }

    /// Ends all spaces: every CPU leaves, flushes, and all tables are freed.
    pub fn finish(&mut self) {
        self.san.flushes_done(&self.ram);
        for reader in 0..self.cpus() + self.devices {
            self.san.leave(reader);
        }
        self.shootdown(Flush::all());
        for table in std::mem::take(&mut self.tables).into_iter().rev() {
            self.san.table_freed(&self.ram, table, PAGE);
        }
        self.san.finish_with(&self.ram);
    }
}
