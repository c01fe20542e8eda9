//! Small defects that the kernel of the matrix has no place for, each with a correct twin.
use super::machine::Machine;
use ptsan::{
    Access, Adversary, Arch, Config, Content, Entry, ExceptionLevel, Flush, Granule, Kind, Memory, Sanitizer,
};

/// Frames are as large as the largest table.
const FRAME: u64 = 1 << 16;
const FRAMES: u64 = 48;
pub const BYTES: u64 = FRAMES * FRAME;
const SPACE: u64 = 3;

/// A defect, in the formats that can have it.
pub struct Scene {
    pub name: &'static str,
    pub kind: Kind,
    pub formats: &'static [fn() -> Arch],
    config: fn(Config, u64) -> Config,
    run: fn(&mut Stage, bool),
}

pub const ALL: &[Scene] = &[
    Scene {
        name: "a table freed after an IOMMU forgot the last level alone",
        kind: Kind::FreeBeforeFlush,
        formats: &[
            Arch::x86_64,
            Arch::x86_64_la57,
            Arch::ept,
            Arch::npt,
            || Arch::aarch64_4k(48),
            || Arch::aarch64_16k(47),
            || Arch::aarch64_64k(48),
            || Arch::aarch64_stage2(Granule::K4, 39, 1),
        ],
        config: |config, _| Config { devices: 1, ..config },
        run: |stage, broken| {
            let va = stage.address();
            let (page, entry) = stage.map(va);
            let device = stage.hook(|san, _| san.device(0));
            let root = stage.root;
            stage.hook(|san, ram| san.switch(ram, device, root, SPACE));
            let _ = stage.hook(|san, ram| san.translate(ram, device, va, Access::READ));
            let above = stage.entry(va, 1);
            stage.machine.exchange(entry, 0);
            stage.machine.exchange(above, 0);
            stage.flush_cpus(Flush::space(SPACE));
            let flush = Flush::page(SPACE, va);
            let flush = if broken { flush.leaf_only() } else { flush };
            // Waited for at once, or in the queue.
            if stage.below(2) == 0 {
                stage.hook(|san, ram| san.flush(ram, device, flush));
            } else {
                stage.hook(|san, _| san.flush_queued(device, flush));
                stage.hook(|san, ram| san.queue_completed(ram, device));
            }
            stage.hook(|san, ram| san.frame_freed(ram, page, 4096));
            stage.free_table_of(entry);
            stage.hook(|san, ram| san.flush(ram, device, Flush::space(SPACE)));
            stage.hook(|san, _| san.leave(device));
        },
    },
    Scene {
        name: "an invalidation for another exception level",
        kind: Kind::DataFreedBeforeFlush,
        formats: &[|| Arch::aarch64_4k(48), || Arch::aarch64_16k(47), || Arch::aarch64_64k(42)],
        config: |config, seed| Config { exception_level: level(seed), ..config },
        run: |stage, broken| {
            let va = stage.address();
            let (page, entry) = stage.map(va);
            stage.touch(va);
            stage.machine.exchange(entry, 0);
            let named = level(stage.seed + u64::from(broken));
            let flush = match stage.below(3) {
                0 => Flush::page(SPACE, va),
                1 => Flush::space(SPACE),
                _ => Flush::all(),
            };
            stage.flush_cpus(flush.of(named));
            stage.hook(|san, ram| san.frame_freed(ram, page, 4096));
        },
    },
];

fn level(seed: u64) -> ExceptionLevel {
    [ExceptionLevel::El1, ExceptionLevel::El2, ExceptionLevel::El3][seed as usize % 3]
}

impl Scene {
    pub fn config(&self, arch: Arch, seed: u64) -> Config {
        let adversary = Some(Adversary::new(seed));
        (self.config)(Config { cpus: 3, asids: true, adversary, ..Config::new(arch) }, seed)
    }

    /// Plays it, with the defect or without, and ends the run.
    pub fn play(&self, machine: Box<dyn Machine>, arch: Arch, seed: u64, broken: bool) {
        let mut stage = Stage::new(machine, arch, seed);
        stage.work();
        (self.run)(&mut stage, broken);
        stage.work();
        stage.finish();
    }
}

/// Tables of one space, which all CPUs have loaded.
struct Stage {
    machine: Box<dyn Machine>,
    arch: Arch,
    seed: u64,
    random: u64,
    free: Vec<u64>,
    tables: Vec<(u64, u64)>,
    root: u64,
}

impl Stage {
    fn new(machine: Box<dyn Machine>, arch: Arch, seed: u64) -> Self {
        let free = (1..FRAMES).rev().map(|n| n * FRAME).collect();
        let mut stage = Self { machine, arch, seed, random: seed, free, tables: Vec::new(), root: 0 };
        stage.root = stage.table(stage.arch.top());
        let root = stage.root;
        for cpu in 0..3 {
            stage.hook(|san, ram| san.switch(ram, cpu, root, SPACE));
        }
        stage
    }

    fn hook<R>(&mut self, body: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        let (mut body, mut result) = (Some(body), None);
        self.machine.hook(&mut |san, memory| result = body.take().map(|body| body(san, memory)));
        result.expect("it was called")
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % n
    }

    fn link(&self, phys: u64) -> u64 {
        match self.arch.name {
            name if name.starts_with("AArch64") => phys | 3,
            _ => phys | 0x7,
        }
    }

    fn page(&self, phys: u64) -> u64 {
        match self.arch.name {
            "EPT" => phys | 0x337,
            name if name.contains("stage 2") => phys | 0x4c3,
            name if name.starts_with("AArch64") => phys | 0xc43,
            _ => phys | 0x67,
        }
    }

    fn table(&mut self, level: u8) -> u64 {
        let phys = self.free.pop().expect("frames enough");
        let bytes = u64::from(self.arch.levels[usize::from(level)].table_bytes);
        self.hook(|san, ram| san.table_allocated(ram, phys, bytes, Some(level), Content::Unknown));
        self.machine.clear(phys, bytes);
        self.tables.push((phys, bytes));
        phys
    }

    /// Frees the table in which an entry lies.
    fn free_table_of(&mut self, entry: u64) {
        let found = self.tables.iter().position(|(table, bytes)| (*table..table + bytes).contains(&entry));
        let (table, bytes) = self.tables.remove(found.expect("a table"));
        self.hook(|san, ram| san.table_freed(ram, table, bytes));
    }

    /// Returns an address beside those of [`Self::work`].
    fn address(&mut self) -> u64 {
        let l = self.arch.levels[1];
        (1 + self.below(4)) << l.shift | self.below(64) << self.arch.levels[0].shift
    }

    /// Returns the entry for `va` at a level, and makes missing tables.
    fn entry(&mut self, va: u64, level: u8) -> u64 {
        let mut table = self.root;
        for above in (level..=self.arch.top()).rev() {
            let l = self.arch.levels[usize::from(above)];
            let at = table + l.index(va) * u64::from(l.entry_bytes);
            if above == level {
                return at;
            }
            table = match (self.arch.decode)(above, self.machine.get(at)) {
                Entry::Table { phys, .. } => phys,
                _ => {
                    let new = self.table(above - 1);
                    let link = self.link(new);
                    self.machine.put(at, link);
                    new
                }
            };
        }
        table
    }

    /// Maps a page, and returns its frame and its entry.
    fn map(&mut self, va: u64) -> (u64, u64) {
        let phys = BYTES + self.below(16) * FRAME;
        let entry = self.entry(va, 0);
        let page = self.page(phys);
        self.machine.put(entry, page);
        (phys, entry)
    }

    fn touch(&mut self, va: u64) {
        for cpu in 0..3 {
            let _ = self.hook(|san, ram| san.translate(ram, cpu, va, Access::READ));
        }
    }

    fn flush_cpus(&mut self, flush: Flush) {
        self.hook(|san, ram| {
            // Guests are flushed as a whole where there is nothing else.
            (0..3).for_each(|cpu| san.flush(ram, cpu, flush));
        });
    }

    /// Maps pages, reads them, and unmaps them.
    fn work(&mut self) {
        for _ in 0..1 + self.below(6) {
            let va = self.below(16) << self.arch.levels[0].shift;
            let (phys, entry) = self.map(va);
            self.touch(va);
            self.machine.exchange(entry, 0);
            self.flush_cpus(Flush::space(SPACE));
            self.hook(|san, ram| san.frame_freed(ram, phys, 4096));
        }
    }

    fn finish(mut self) {
        for cpu in 0..3 {
            self.hook(|san, _| san.leave(cpu));
            self.hook(|san, ram| san.flush(ram, cpu, Flush::all()));
        }
        for (table, bytes) in std::mem::take(&mut self.tables).into_iter().rev() {
            self.hook(|san, ram| san.table_freed(ram, table, bytes));
        }
        self.hook(|san, ram| san.finish_with(ram));
    }
}
