//! Files of processes in `/proc`: their areas, the sizes of their memory, their state.

use core::fmt::{self, Write};

use ptarmigan::addr::{FRAME_SHIFT, FRAME_SIZE, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::space::{Area, AreaFlags, SpaceMachine, SpaceMut};

use super::proc::Text;
use super::tree::Own;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::Machine;
use crate::signal::action::{DEFAULT, IGNORE};
use crate::signal::number::SIGNALS;
use crate::syscall::Sys;
use crate::task::Doing;

pub(super) type Space<'e, A> = SpaceMut<'e, <A as Arch>::Format, Machine<A>>;

/// Pages of one area that have frames.
#[derive(Clone, Copy, Default)]
struct Resident {
    /// All of them, but for those that show the frame of zeroes.
    all: u64,
    /// Of them, those that are not an object's.
    own: u64,
    /// Of those, the ones in large pages.
    large: u64,
}

/// Sizes of a process's memory, in pages.
#[derive(Clone, Copy, Default)]
struct Sizes {
    areas: u64,
    resident: u64,
    /// Resident pages of private memory.
    own: u64,
    /// Resident pages of shared memory without a file.
    shared: u64,
    /// Private memory that can be written, without stacks.
    data: u64,
    stack: u64,
    /// Pages of areas that are locked (`mlock`).
    locked: u64,
    /// Code of the program.
    code: u64,
    /// Code of other files.
    library: u64,
    tables: u64,
}

fn pages(area: &Area) -> u64 {
    area.range().len() / FRAME_SIZE as u64
}

fn kib(pages: u64) -> u64 {
    pages * (FRAME_SIZE as u64 / 1024)
}

/// Counts the pages of an area that have frames.
fn resident<A: Arch>(on: On<'_, Machine<A>>, space: &Space<'_, A>, area: &Area) -> Resident {
    let machine = A::kernel().machine.get();
    let (zero, mut found) = (machine.zero_frame(), Resident::default());
    // The space is of the one machine that there is.
    let _ = space.tree().walk_leaves(on, area.range(), |leaf| {
        let range = leaf.range().and(area.range());
        let count = range.len() / FRAME_SIZE as u64;
        if leaf.frame == zero && count == 1 {
            return;
        }
        found.all += count;
        let at = area.offset_at(range.start) >> FRAME_SHIFT;
        if area.object == 0 || machine.objects().page(area.object, at) != Some(leaf.frame) {
            found.own += count;
            found.large += if leaf.level > Level(0) { count } else { 0 };
        }
    });
    found
}

impl<A: Arch> Sys<'_, A> {
    /// Calls `f` with the space of a process; `None` without one, or if it may be running
    /// elsewhere.
    pub(super) fn with_space<R>(
        &mut self,
        process: usize,
        f: impl FnOnce(On<'_, Machine<A>>, &Self, &Space<'_, A>) -> R,
    ) -> Option<R> {
        let on = self.on();
        // The closure gets the caller without its body, which is put back.
        if process == self.process_slot() {
            let mut space = core::mem::replace(&mut self.body.space, crate::memory::TaskSpace::None);
            let result = space.edit(on, |edit| f(on, self, &edit));
            self.body.space = space;
            return result.ok();
        }
        let tasks = &self.state.tasks;
        let slot = tasks.threads(process).next()?;
        if matches!(tasks.get(slot).doing, Doing::Running(_)) {
            return None;
        }
        // SAFETY: 1. The kernel lock is held (`state`), and the task does not run. 2. It is not the
        // caller, whose process is another one; the reference ends here. 3. It has not ended.
        let body = unsafe { self.kernel.body(slot) };
        body.space.edit(on, |edit| f(on, self, &edit)).ok()
    }

    /// Returns the text of a file of the process with a number, from byte `from` on.
    ///
    /// # Errors
    ///
    /// [`Errno::ESRCH`] if the process has gone; [`Errno::EACCES`] for the areas of a process that
    /// runs on another CPU.
    pub(super) fn own_text(
        &mut self,
        own: Own,
        number: i32,
        from: u64,
        mark: &mut (u64, u64),
    ) -> Result<Text, Errno> {
        let process = self.state.tasks.find_process(number).ok_or(Errno::ESRCH)?;
        let mut text = Text::from(from);
        match own {
            Own::Name => {
                self.put_name(&mut text, process);
                text.put(b"\n");
            }
            Own::Arguments => self.put_arguments(&mut text, process, from)?,
            Own::Maps | Own::Smaps => {
                if mark.0 > from {
                    *mark = (0, 0);
                }
                text = Text::resume(mark.0, from);
                self.put_areas(&mut text, process, own == Own::Smaps, from, mark)?;
            }
            Own::PageMap => self.put_page_map(&mut text, process, from)?,
            // Texts do not fail.
            Own::Stat => self.put_stat(&mut text, process).unwrap_or(()),
            Own::Statm => self.put_sizes(&mut text, process).unwrap_or(()),
            Own::Status => self.put_status(&mut text, process).unwrap_or(()),
        }
        Ok(text)
    }

    /// Adds the name of a process's program, 15 bytes at the most.
    fn put_name(&self, text: &mut Text, process: usize) {
        let name = self.state.tree.get(self.state.tasks.process(process).program).name();
        text.put(&name[..name.len().min(15)]);
    }

    /// Adds the caller's arguments, as its memory has them now; of another process the name.
    fn put_arguments(&mut self, text: &mut Text, process: usize, from: u64) -> Result<(), Errno> {
        if process != self.process_slot() {
            if self.state.tasks.process(process).threads > 0 {
                self.put_name(text, process);
                text.put(b"\0");
            }
            return Ok(());
        }
        let arguments = self.record().arguments;
        *text = Text::from(0);
        let mut at = arguments.start + from.min(arguments.len());
        while at < arguments.end && !text.is_full() {
            let mut bytes = [0; 64];
            let n = (arguments.end - at).min(64) as usize;
            self.read_bytes(at, &mut bytes[..n])?;
            text.put(&bytes[..n]);
            at += n as u64;
        }
        Ok(())
    }

    /// Adds a line for each area from that of `mark` on, and with `with_pages` lines for its pages.
    /// Moves the mark to the last area whose part does not begin behind byte `from`.
    fn put_areas(
        &mut self,
        text: &mut Text,
        process: usize,
        with_pages: bool,
        from: u64,
        mark: &mut (u64, u64),
    ) -> Result<(), Errno> {
        if self.state.tasks.process(process).threads == 0 {
            return Ok(());
        }
        let number = self.state.tasks.process(process).space;
        let record = self.state.tasks.space(number);
        let heap = VirtRange::new(record.heap, record.heap_end)?;
        let put = |on: On<'_, Machine<A>>, sys: &Self, space: &Space<'_, A>| {
            let Ok(all) = VirtRange::new(mark.1, A::Format::USER_END) else { return };
            let _ = space.areas().each(on, all, |area| {
                if text.is_full() {
                    return;
                }
                if text.written() <= from {
                    *mark = (text.written(), area.start);
                }
                let _ = sys.put_area(text, area, heap);
                if with_pages {
                    let _ = put_pages(text, area, resident::<A>(on, space, area));
                }
            });
        };
        self.with_space(process, put).ok_or(Errno::EACCES)
    }

    fn put_area(&self, text: &mut Text, area: &Area, heap: VirtRange) -> fmt::Result {
        let flag = |flag, letter| if area.flags.has(flag) { letter } else { '-' };
        let (read, write) = (flag(AreaFlags::READ, 'r'), flag(AreaFlags::WRITE, 'w'));
        let exec = flag(AreaFlags::EXEC, 'x');
        let shared = if area.flags.has(AreaFlags::SHARED) { 's' } else { 'p' };
        let file = if area.object == 0 { None } else { self.state.tree.file_of(area.object) };
        let offset = if area.object == 0 { 0 } else { area.offset_at(area.start) };
        let (device, inode) = if area.object == 0 { (0, 0) } else { (1, file.unwrap_or(0)) };
        let begin = text.written();
        write!(
            text,
            "{:08x}-{:08x} {read}{write}{exec}{shared} {offset:08x} 00:{device:02x} {inode} ",
            area.start, area.end
        )?;
        let is_heap = area.object == 0 && area.start < heap.end && area.end > heap.start;
        let is_stack = area.flags.has(AreaFlags::GROWS_DOWN) && area.end == A::STACK_END;
        if area.object != 0 || is_heap || is_stack {
            // The name begins in a column.
            while text.written() < begin + 25 + 6 * A::ABI.word() as u64 {
                text.put(b" ");
            }
        }
        match file {
            Some(file) => self.put_path(text, file),
            None if area.object != 0 => text.put(b"/dev/zero (deleted)"),
            None if is_heap => text.put(b"[heap]"),
            None if is_stack => text.put(b"[stack]"),
            None => {}
        }
        text.put(b"\n");
        Ok(())
    }

    /// Returns the sizes of a process's memory; `None` if it has ended, or runs on another CPU.
    fn sizes(&mut self, process: usize) -> Option<Sizes> {
        let program = self.state.tree.object_of(self.state.tasks.process(process).program);
        self.with_space(process, |on, sys, space| {
            let mut sizes = Sizes { tables: space.tree().tables_below_root().into(), ..Sizes::default() };
            let all = VirtRange::up_to(A::Format::USER_END);
            let _ = space.areas().each(on, all, |area| {
                let (count, found) = (pages(area), resident::<A>(on, space, area));
                let is_shared = area.flags.has(AreaFlags::SHARED);
                sizes.areas += count;
                sizes.locked += if area.tag & crate::syscall::LOCKED != 0 { count } else { 0 };
                sizes.resident += found.all;
                sizes.own += if is_shared { 0 } else { found.own };
                if is_shared && sys.state.tree.file_of(area.object).is_none() {
                    sizes.shared += found.all;
                }
                if area.flags.has(AreaFlags::GROWS_DOWN) {
                    sizes.stack += count;
                } else if area.flags.has(AreaFlags::WRITE) && !is_shared {
                    sizes.data += count;
                } else if area.flags.has(AreaFlags::EXEC) && Some(area.object) == program {
                    sizes.code += count;
                } else if area.flags.has(AreaFlags::EXEC) && area.object != 0 {
                    sizes.library += count;
                }
            });
            sizes
        })
    }

    fn put_sizes(&mut self, text: &mut Text, process: usize) -> fmt::Result {
        let sizes = self.sizes(process).unwrap_or_default();
        let Sizes { areas, resident, own, code, data, stack, .. } = sizes;
        writeln!(text, "{areas} {resident} {} {code} 0 {} 0", resident - own, data + stack)
    }

    /// Returns a letter for the state of a process, and its name.
    fn state_of(&self, process: usize) -> (char, &'static str) {
        let tasks = &self.state.tasks;
        let runs = |slot| matches!(tasks.get(slot).doing, Doing::Ready | Doing::Running(_));
        if tasks.process(process).threads == 0 {
            ('Z', "zombie")
        } else if tasks.threads(process).any(runs) {
            ('R', "running")
        } else {
            ('S', "sleeping")
        }
    }

    /// Returns the number of a process's parent.
    fn parent_of(&self, process: usize) -> i32 {
        let parent = self.state.tasks.process(process).parent;
        if process == crate::task::INIT { 0 } else { self.state.tasks.process(parent).pid }
    }

    /// Returns the signals that a process ignores, and those that it handles.
    fn actions_of(&self, process: usize) -> (u64, u64) {
        let actions = &self.state.tasks.process(process).actions;
        let (mut ignored, mut handled) = (0, 0);
        for signal in 1..=SIGNALS as u8 {
            let bit = 1 << (signal - 1);
            match actions.get(signal).handler {
                IGNORE => ignored |= bit,
                DEFAULT => {}
                _ => handled |= bit,
            }
        }
        (ignored, handled)
    }

    fn put_stat(&mut self, text: &mut Text, process: usize) -> fmt::Result {
        /// Ticks of the clock in a second, as programs are told.
        const TICK: u64 = 10_000_000;
        let sizes = self.sizes(process).unwrap_or_default();
        let (letter, parent) = (self.state_of(process).0, self.parent_of(process));
        let shared = self.state.tasks.process(process);
        write!(text, "{} (", shared.pid)?;
        self.put_name(text, process);
        write!(text, ") {letter} {parent} {} {} 0 -1 0 ", shared.group, shared.session)?;
        // Faults and times are not charged to processes.
        write!(text, "0 0 0 0 0 0 0 0 20 0 {} 0 {} ", shared.threads, shared.started / TICK)?;
        let bytes = sizes.areas * FRAME_SIZE as u64;
        write!(text, "{bytes} {} {} 0 0 0 0 0 ", sizes.resident, u64::MAX)?;
        let (ignored, handled) = self.actions_of(process);
        let signals = &self.state.tasks.get(process).signals;
        let (pending, blocked) = (signals.pending.set() as u32, signals.blocked as u32);
        write!(text, "{pending} {blocked} {} {} 0 0 0 17 0 0 0 0 0 0 ", ignored as u32, handled as u32)?;
        let record = self.state.tasks.space(shared.space);
        writeln!(
            text,
            "0 0 {} {} {} 0 0 {}",
            record.heap,
            record.arguments.start,
            record.arguments.end,
            shared.status.unwrap_or(0)
        )
    }

    fn put_status(&mut self, text: &mut Text, process: usize) -> fmt::Result {
        let sizes = self.sizes(process);
        text.put(b"Name:\t");
        self.put_name(text, process);
        let (letter, state) = self.state_of(process);
        let parent = self.parent_of(process);
        let shared = self.state.tasks.process(process);
        writeln!(text, "\nUmask:\t{:04o}\nState:\t{letter} ({state})", shared.umask)?;
        writeln!(text, "Tgid:\t{0}\nNgid:\t0\nPid:\t{0}\nPPid:\t{parent}\nTracerPid:\t0", shared.pid)?;
        // As under Linux, the table grows by powers of two.
        let table = shared.files.end().next_power_of_two().max(64);
        writeln!(text, "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t{table}\nGroups:\t0 ")?;
        if let Some(sizes) = sizes {
            let files = sizes.resident - sizes.own - sizes.shared;
            for (name, pages) in [
                ("VmSize", sizes.areas),
                ("VmLck", sizes.locked),
                ("VmRSS", sizes.resident),
                ("RssAnon", sizes.own),
                ("RssFile", files),
                ("RssShmem", sizes.shared),
                ("VmData", sizes.data),
                ("VmStk", sizes.stack),
                ("VmExe", sizes.code),
                ("VmLib", sizes.library),
                ("VmPTE", sizes.tables),
                ("VmSwap", 0),
            ] {
                writeln!(text, "{name}:\t{:8} kB", kib(pages))?;
            }
        }
        let (ignored, handled) = self.actions_of(process);
        let shared = self.state.tasks.process(process);
        let signals = &self.state.tasks.get(process).signals;
        writeln!(text, "Threads:\t{}", shared.threads)?;
        for (name, set) in [
            ("SigPnd", signals.pending.set()),
            ("ShdPnd", shared.pending.set()),
            ("SigBlk", signals.blocked),
            ("SigIgn", ignored),
            ("SigCgt", handled),
        ] {
            writeln!(text, "{name}:\t{set:016x}")?;
        }
        self.put_cpus(text, process)
    }

    /// Adds the CPUs that a process's first task may run on: a number, and ranges.
    fn put_cpus(&self, text: &mut Text, process: usize) -> fmt::Result {
        let count = self.kernel.cpu_count();
        let bits = self.state.tasks.get(process).cpus.bits(count);
        write!(text, "Cpus_allowed:\t{bits:0width$x}\nCpus_allowed_list:\t", width = count.div_ceil(4))?;
        let has = |cpu: usize| bits & 1 << cpu != 0;
        let mut comma = "";
        for first in (0..count).filter(|cpu| has(*cpu) && (*cpu == 0 || !has(cpu - 1))) {
            let last = (first..count).take_while(|cpu| has(*cpu)).last().unwrap_or(first);
            write!(text, "{comma}{first}")?;
            if last > first {
                write!(text, "-{last}")?;
            }
            comma = ",";
        }
        text.write_str("\n")
    }
}

/// Adds the lines about the pages of an area.
fn put_pages(text: &mut Text, area: &Area, found: Resident) -> fmt::Result {
    for (name, count) in [
        ("Size:", pages(area)),
        ("KernelPageSize:", 1),
        ("MMUPageSize:", 1),
        ("Rss:", found.all),
        ("Anonymous:", if area.flags.has(AreaFlags::SHARED) { 0 } else { found.own }),
        ("AnonHugePages:", if area.flags.has(AreaFlags::SHARED) { 0 } else { found.large }),
        ("Locked:", if area.tag & crate::syscall::LOCKED != 0 { found.all } else { 0 }),
    ] {
        writeln!(text, "{name:<16}{:8} kB", kib(count))?;
    }
    text.put(b"VmFlags:");
    for (flag, name) in [
        (AreaFlags::READ, b" rd"),
        (AreaFlags::WRITE, b" wr"),
        (AreaFlags::EXEC, b" ex"),
        (AreaFlags::SHARED, b" sh"),
        (AreaFlags::GROWS_DOWN, b" gd"),
    ] {
        if area.flags.has(flag) {
            text.put(name);
        }
    }
    if area.tag & crate::syscall::LOCKED != 0 {
        text.put(b" lo");
    }
    text.put(b" \n");
    Ok(())
}
