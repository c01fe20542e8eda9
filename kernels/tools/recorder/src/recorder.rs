//! Decides which records are written, and when.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use ptarmigan_kernel_mailbox::{COUNTED, COUNTS, CPUS, WORDS, code};
use ptsan_log::{AccessKind, Architecture, Content, Encoder, Header, Record, Scope, Written};

use crate::decode::{InstructionEffect, RecordedArch};
use crate::runs::stores;
use crate::setup::Setup;
use crate::tables::{PAGE, RecordedTables};

const WORD: u64 = 8;

/// An access of the guest's.
#[derive(Clone, Copy)]
pub struct Access {
    /// The CPU.
    pub cpu: u16,
    /// The address of the instruction.
    pub pc: u64,
    /// The virtual address.
    pub at: u64,
    /// Whether it is a store.
    pub store: bool,
}

/// Stores of one instruction to consecutive addresses.
struct StoreRun {
    pc: u64,
    bytes: Range<u64>,
}

/// The state of a CPU.
#[derive(Default)]
struct RecordedCpu {
    operands: Option<[u64; 2]>,
    /// It has a root loaded that was announced.
    runs: bool,
    in_operation: bool,
    /// Pages that it has accessed since the last record of another kind.
    seen: HashSet<(u64, bool)>,
}

/// Writes the log.
pub struct Recorder {
    setup: Setup,
    ram: File,
    log: Encoder<Written<BufWriter<File>>>,
    cpus: Vec<RecordedCpu>,
    tables: RecordedTables,
    spaces: HashSet<u64>,
    run: Option<StoreRun>,
    /// Between the guest's messages that it begins and ends.
    on: bool,
    /// How often the word that is counted had been stored when the plugin was called, and how often
    /// it was called.
    counted: (u64, u64),
    failure: Option<String>,
}

impl Recorder {
    /// Creates the log.
    ///
    /// # Errors
    ///
    /// The file of the memory cannot be opened, or the log cannot be made.
    pub fn new(setup: Setup) -> Result<Self, String> {
        let ram = File::open(&setup.ram).map_err(|e| format!("{}: {e}", setup.ram))?;
        let out = File::create(&setup.out).map_err(|e| format!("{}: {e}", setup.out))?;
        let header = match setup.arch {
            RecordedArch::X86_64 => Header::new(Architecture::X86_64, setup.cpus),
            RecordedArch::Riscv64 => Header { asids: true, ..Header::new(Architecture::Sv39, setup.cpus) },
        };
        let log = Encoder::new(Written(BufWriter::new(out)), &header);
        let log = log.map_err(|e| format!("{}: {e}", setup.out))?;
        let cpus = (0..setup.cpus).map(|_| RecordedCpu::default()).collect();
        Ok(Self {
            setup,
            ram,
            log,
            cpus,
            tables: RecordedTables::default(),
            spaces: HashSet::new(),
            run: None,
            on: false,
            counted: (0, 0),
            failure: None,
        })
    }

    /// Returns the set-up.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The guest has stored `size` bytes at the physical address `phys`.
    pub fn stored(&mut self, access: Access, phys: u64, size: u64) {
        let in_mailbox = phys.wrapping_sub(self.setup.mailbox);
        if in_mailbox < (CPUS * WORDS) as u64 * WORD {
            match in_mailbox / WORD % WORDS as u64 {
                0 => self.message(access, phys),
                word if word == COUNTED as u64 => self.count(phys),
                _ => {}
            }
        } else if self.on && self.tables.is_live(phys) {
            self.table_stored(access, phys, size);
        }
    }

    /// The guest has used an address of the lower half.
    pub fn accessed(&mut self, access: Access) {
        let Some(cpu) = self.cpus.get_mut(usize::from(access.cpu)) else { return };
        if !self.on || !cpu.runs || self.setup.arch.is_firmware(access.pc) {
            return;
        }
        if !cpu.seen.insert((access.at / PAGE, access.store)) {
            return;
        }
        let kind = if access.store { AccessKind::Write } else { AccessKind::Read };
        let user = access.pc < self.setup.arch.kernel_start();
        self.end_run();
        self.write(access.pc, &Record::Access { cpu: access.cpu, va: access.at, kind, user });
    }

    /// The guest executes an instruction of address translation.
    pub fn executes(&mut self, cpu: u16, pc: u64, kind: InstructionEffect) {
        let Some(state) = self.cpus.get_mut(usize::from(cpu)).filter(|_| self.on) else { return };
        let operands = state.operands.take();
        let (true, Some([first, second])) = (
            kind != InstructionEffect::Unknown,
            operands.or((kind == InstructionEffect::All).then_some([0; 2])),
        ) else {
            // The CPU may have anything loaded now.
            if std::mem::take(&mut state.runs) {
                self.event(pc, &Record::Leave { cpu });
            }
            self.event(pc, &Record::Mark { text: "not recorded: no operands were announced" });
            return;
        };
        let page = Scope::EverySpace { start: first, end: first.saturating_add(1), stride: PAGE };
        let scope = match kind {
            InstructionEffect::LoadsRoot => return self.root_loaded(cpu, pc, first, second),
            InstructionEffect::Page => page,
            InstructionEffect::PageInSpace => Scope::Page { space: second, va: first },
            InstructionEffect::Space => Scope::Space(second),
            InstructionEffect::All | InstructionEffect::Unknown => Scope::All,
        };
        if matches!(kind, InstructionEffect::PageInSpace | InstructionEffect::Space)
            && self.spaces.insert(second)
        {
            self.event(pc, &Record::SpaceCreated { space: second });
        }
        self.event(
            pc,
            &Record::Invalidate {
                cpu: Some(cpu),
                scope,
                leaf_only: false,
                level: None,
                exception_level: None,
            },
        );
    }

    /// The guest has ended.
    ///
    /// # Errors
    ///
    /// The log is not complete, and has no record that ends it.
    pub fn end(&mut self) -> Result<(), String> {
        self.end_run();
        if self.counted.1 == 0 {
            self.failure.get_or_insert_with(|| {
                "the guest has told nothing: was it built with `record`, and booted with `announce`?".into()
            });
        }
        if self.failure.is_none() {
            let done = self.log.end(false);
            self.note(done);
        }
        let flushed = self.log.sink().0.flush();
        self.note(flushed);
        self.failure.take().map_or(Ok(()), Err)
    }

    fn root_loaded(&mut self, cpu: u16, pc: u64, root: u64, asid: u64) {
        let known = self.tables.knows(root);
        if let Some(state) = self.cpus.get_mut(usize::from(cpu)) {
            state.runs = known;
        }
        if !known {
            // The kernel's own root, which maps no page of a space.
            return self.event(pc, &Record::Leave { cpu });
        }
        // Without numbers in hardware, a space is called by its root.
        let space = if self.setup.arch == RecordedArch::X86_64 { root } else { asid };
        self.spaces.insert(space);
        self.event(pc, &Record::RootLoaded { cpu, root, space, flushes: false });
    }

    /// The word that is counted was stored: has it its new value by now?
    fn count(&mut self, phys: u64) {
        let next = self.counted.1 + 1;
        let found = self.read_word(phys);
        self.counted = (self.counted.0 + u64::from(found == Some(next)), next);
    }

    /// The guest has sent a message; its code is at `phys`, its arguments follow.
    fn message(&mut self, access: Access, phys: u64) {
        let Access { cpu, pc, .. } = access;
        let words: [Option<u64>; 5] = std::array::from_fn(|n| self.read_word(phys + n as u64 * WORD));
        let [Some(code), Some(a), Some(b), Some(c), Some(d)] = words else { return };
        let Some(state) = self.cpus.get_mut(usize::from(cpu)) else { return };
        match code {
            code::BEGIN => self.begin(pc),
            _ if !self.on => {}
            code::OPERAND => state.operands = Some([a, b]),
            code::ALLOCATED => self.allocated(pc, a, b, c, d),
            code::FREED => {
                self.event(pc, &Record::TableFreed { phys: a, size: usual(b) });
                (a..a.saturating_add(b)).step_by(PAGE as usize).for_each(|page| self.tables.freed(page));
            }
            code::OPERATION_BEGINS if !state.in_operation => {
                state.in_operation = true;
                self.event(pc, &Record::OperationBegins { id: cpu.into() });
            }
            code::OPERATION_ENDS if state.in_operation => {
                state.in_operation = false;
                self.event(pc, &Record::OperationEnds { id: cpu.into() });
            }
            code::END => {
                self.event(pc, &Record::Mark { text: "the guest is done" });
                self.on = false;
            }
            _ => self.event(pc, &Record::Mark { text: "not recorded: an unknown message" }),
        }
    }

    fn begin(&mut self, pc: u64) {
        let (after, times) = self.counted;
        if (after, times) != (COUNTS, COUNTS) {
            let what = format!(
                "of {times} stores, {after} were visible when the plugin was called; {COUNTS} should be"
            );
            self.failure = Some(what);
            return;
        }
        self.on = true;
        let text = format!("stores visible when seen: {after} of {times}");
        self.event(pc, &Record::Mark { text: &text });
    }

    fn allocated(&mut self, pc: u64, phys: u64, size: u64, level: u64, zero: u64) {
        self.end_run();
        for at in (phys..phys.saturating_add(size)).step_by(PAGE as usize) {
            let mut now = [0; PAGE as usize];
            if let Err(e) = self.ram.read_exact_at(&mut now, at.wrapping_sub(self.setup.base)) {
                self.failure.get_or_insert(format!("a table at {at:#x} is not in {}: {e}", self.setup.ram));
                return;
            }
            let mut done = Ok(());
            let log = &mut self.log;
            self.tables.allocated(at, &now, |offset, bytes| {
                if done.is_ok() {
                    done = log.memory(at + offset as u64, bytes);
                }
            });
            self.note(done);
        }
        let content = if zero == 1 { Content::Zero } else { Content::Unchecked };
        let level = u8::try_from(level).ok();
        self.event(pc, &Record::TableAllocated { phys, size: usual(size), level, content });
    }

    fn table_stored(&mut self, access: Access, phys: u64, size: u64) {
        let mut bytes = [0; 64];
        let size = size.min(64).min(PAGE - phys % PAGE);
        let bytes = &mut bytes[..size as usize];
        if self.ram.read_exact_at(bytes, phys.wrapping_sub(self.setup.base)).is_err() {
            return;
        }
        self.tables.stored(phys, bytes);
        let end = phys + size;
        match &mut self.run {
            // A loop that clears a table, say.
            Some(run) if run.pc == access.pc && run.bytes.end == phys && !phys.is_multiple_of(PAGE) => {
                run.bytes.end = end
            }
            _ => {
                self.end_run();
                self.run = Some(StoreRun { pc: access.pc, bytes: phys..end });
            }
        }
        self.cpus.iter_mut().for_each(|cpu| cpu.seen.clear());
    }

    /// Writes the stores that have not been written.
    fn end_run(&mut self) {
        let Some(StoreRun { pc, bytes: Range { start, end } }) = self.run.take() else { return };
        let content = self.tables.content(start);
        let content = content[..content.len().min((end - start) as usize)].to_vec();
        for record in stores(start, &content) {
            self.write(pc, &record);
        }
    }

    /// Writes a record after the stores before it. Later accesses of CPUs are new.
    fn event(&mut self, pc: u64, record: &Record<'_>) {
        self.end_run();
        self.cpus.iter_mut().for_each(|cpu| cpu.seen.clear());
        self.write(pc, record);
    }

    fn write(&mut self, pc: u64, record: &Record<'_>) {
        if self.failure.is_none() {
            let done = self.log.record_at(pc, record);
            self.note(done);
        }
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(e) = done {
            self.failure.get_or_insert(format!("{}: {e}", self.setup.out));
        }
    }

    fn read_word(&self, phys: u64) -> Option<u64> {
        let mut bytes = [0; WORD as usize];
        self.ram.read_exact_at(&mut bytes, phys.wrapping_sub(self.setup.base)).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// The size as records have it: 0 for a table of usual size.
fn usual(size: u64) -> u64 {
    if size == PAGE { 0 } else { size }
}
