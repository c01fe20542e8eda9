//! Large pages: a collapse, a split, and promotions in place.
use super::{CPUS, Defect, FRAMES, Format, Kernel, LARGE, PAGE};
use ptsan::{Access, Flush, GuestPage};

/// The bytes of a large page.
const BYTES: u64 = 512 * PAGE;

impl Kernel {
    /// Maps 512 pages, then one page of 2 MiB in their place, then 512 again, and unmaps all.
    pub fn collapse_and_split(&mut self, by: usize, space: u64) {
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let large = FRAMES * PAGE;
        let large = large.next_multiple_of(0x20_0000);
        let table = self.table(0);
        let small = large + 0x20_0000;
        for i in 0..512 {
            self.put(table + i * 8, self.format.page(small + i * PAGE, true, false));
        }
        let at = self.entry(space, LARGE, 1);
        self.put(at, self.format.table(table));
        self.end(op);
        let op = self.hook(|san, _| san.operation_begins());
        // Collapse: break, flush, make.
        let whole = Flush::range(space, LARGE, LARGE + 0x20_0000, PAGE);
        self.exchange(at, 0);
        let flush = if self.has(Defect::CollapseOnePage) { Flush::page(space, LARGE) } else { whole };
        self.shootdown(by, space, flush, true);
        self.put(at, self.format.page(large, true, true));
        self.free_table(table);
        self.end(op);
        let op = self.hook(|san, _| san.operation_begins());
        // Split.
        let table = self.table(0);
        for i in 0..512 {
            self.put(table + i * 8, self.format.page(large + i * PAGE, true, false));
        }
        if self.format.is_arm() && !self.has(Defect::SplitWithoutBreak) {
            self.exchange(at, 0);
            self.shootdown(by, space, Flush::page(space, LARGE), true);
        }
        self.exchange(at, self.format.table(table));
        if !self.has(Defect::SplitWithoutBreak) {
            self.shootdown(by, space, Flush::page(space, LARGE), true);
        }
        self.end(op);
        let op = self.hook(|san, _| san.operation_begins());
        self.exchange(at, 0);
        self.shootdown(by, space, whole, true);
        self.free_table(table);
        self.end(op);
    }

    /// Makes one page of 2 MiB of 512 clean ones in place, while a CPU writes one of them, and
    /// unmaps it. Afterwards the dirty bit is in the large page, or the CPU was kept from writing.
    pub fn promote(&mut self, by: usize, space: u64) {
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let large = (FRAMES * PAGE).next_multiple_of(BYTES);
        let table = self.table(0);
        for i in 0..512 {
            self.put(table + i * 8, self.format.page(large + i * PAGE, true, false));
        }
        let at = self.entry(space, LARGE, 1);
        self.put(at, self.format.table(table));
        self.end(op);
        let uses = |cpu: &usize| *cpu != by && self.cpus[*cpu] == Some(space) && !self.lazy.contains(cpu);
        let user = (0..CPUS).find(uses);
        let page = self.below(512);
        user.into_iter().for_each(|user| self.touch(user, LARGE + page * PAGE));
        let op = self.hook(|san, _| san.operation_begins());
        let whole = Flush::range(space, LARGE, LARGE + BYTES, PAGE);
        let breaks = matches!(self.format, Format::Arm | Format::Stage2);
        if !breaks && !self.has(Defect::PromotedClean) {
            for i in 0..512 {
                self.exchange(table + i * 8, self.format.page(large + i * PAGE, false, false));
            }
            self.shootdown(by, space, whole, false);
        }
        // The code has compared all entries: they are clean.
        let mut dirty = self.is_dirty(table);
        if let Some(user) = user {
            self.write(user, page, table);
        }
        if breaks {
            self.exchange(at, 0);
            self.shootdown(by, space, whole, true);
            if !self.has(Defect::PromotedUnread) {
                dirty = self.is_dirty(table);
            }
            let new = self.format.page(large, true, true);
            self.put(at, if dirty { self.written(1, new) } else { new });
        } else {
            self.exchange(at, self.format.page(large, self.has(Defect::PromotedClean), true));
            self.shootdown(by, space, whole, true);
        }
        self.free_table(table);
        self.end(op);
        let op = self.hook(|san, _| san.operation_begins());
        self.exchange(at, 0);
        self.shootdown(by, space, Flush::page(space, LARGE), true);
        self.end(op);
    }

    /// Writes to a page of the table, and does what hardware does then.
    fn write(&mut self, cpu: usize, page: u64, table: u64) {
        let (va, entry) = (LARGE + page * PAGE, table + page * 8);
        let guest = GuestPage { number: 1, va };
        let done = match self.format.is_second_stage() {
            true => self.hook(|san, ram| san.translate_combined(ram, cpu, guest, va, Access::WRITE)),
            false => self.hook(|san, ram| san.translate(ram, cpu, va, Access::WRITE)),
        };
        if done.is_ok() {
            let raw = self.written(0, self.get(entry));
            self.machine.hardware(entry, raw);
        }
    }

    /// Returns an entry as hardware leaves it after a write.
    fn written(&self, level: u8, raw: u64) -> u64 {
        self.arch.used.map_or(raw, |used| used(level, raw, true))
    }

    fn is_dirty(&self, table: u64) -> bool {
        let bits = self.arch.hardware_bits.expect("every format here has them");
        (0..512).any(|i| bits(0, self.get(table + i * 8)).dirty)
    }
}
