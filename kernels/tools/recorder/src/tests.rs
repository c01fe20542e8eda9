//! A guest that is played by the test: memory that is a file, messages, stores, instructions.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ptarmigan_kernel_mailbox::{COUNTED, COUNTS, code};
use ptsan_log::{AccessKind, Content, Reader, Record, Scope};

use crate::decode::{InstructionEffect, RecordedArch};
use crate::recorder::{Access, Recorder};
use crate::setup::Setup;

const MAILBOX: u64 = 0x1000;
const BASE: u64 = 0x8000_0000;
const KERNEL: u64 = 0xffff_ffff_8000_0000;

struct RecordedGuest {
    recorder: Recorder,
    files: [PathBuf; 2],
}

impl RecordedGuest {
    fn new(arch: RecordedArch) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let files = ["ram", "log"].map(|name| {
            std::env::temp_dir().join(format!("kernel-recorder-{}-{made}-{name}", std::process::id()))
        });
        fs::write(&files[0], vec![0; 0x10000]).expect("a file");
        let setup = Setup {
            arch,
            cpus: 2,
            mailbox: BASE + MAILBOX,
            ram: files[0].display().to_string(),
            base: BASE,
            out: files[1].display().to_string(),
            accesses: true,
        };
        RecordedGuest { recorder: Recorder::new(setup).unwrap_or_else(|e| panic!("{e}")), files }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let ram = OpenOptions::new().write(true).open(&self.files[0]).expect("the file");
        ram.write_all_at(bytes, at).expect("room");
    }

    fn store(&mut self, cpu: u16, pc: u64, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
        self.recorder.stored(Access { cpu, pc, at: KERNEL + at, store: true }, BASE + at, 8);
    }

    fn send(&mut self, cpu: u16, code: u64, arguments: [u64; 4]) {
        let slot = MAILBOX + u64::from(cpu) * 64;
        for (word, value) in (1..).zip(arguments) {
            self.store(cpu, KERNEL, slot + word * 8, value);
        }
        self.store(cpu, KERNEL, slot, code);
    }

    fn begin(&mut self) {
        (1..=COUNTS).for_each(|n| self.store(0, KERNEL, MAILBOX + COUNTED as u64 * 8, n));
        self.send(0, code::BEGIN, [0; 4]);
    }

    fn table(&mut self, at: u64, level: u64) {
        self.send(0, code::ALLOCATED, [BASE + at, 4096, level, 1]);
    }

    /// Ends the guest; returns the lines of the log that `seen` picks.
    fn records<T>(mut self, mut seen: impl FnMut(&Record<'_>, u64) -> Option<T>) -> Vec<T> {
        self.recorder.end().unwrap_or_else(|e| panic!("{e}"));
        let bytes = fs::read(&self.files[1]).expect("a log");
        let mut reader = Reader::new(&bytes[..]).unwrap_or_else(|e| panic!("{e}"));
        let mut all = Vec::new();
        while let Some(entry) = reader.next().unwrap_or_else(|e| panic!("{e}")) {
            all.extend(seen(&entry.record, entry.pc.unwrap_or(0)));
        }
        all
    }
}

impl Drop for RecordedGuest {
    fn drop(&mut self) {
        self.files.iter().for_each(|file| _ = fs::remove_file(file));
    }
}

#[test]
fn only_stores_to_tables_are_recorded_with_values() {
    let mut guest = RecordedGuest::new(RecordedArch::Riscv64);
    guest.store(0, KERNEL, 0x4000, 1);
    guest.begin();
    guest.store(0, KERNEL, 0x4008, 2);
    guest.table(0x4000, 1);
    guest.store(1, KERNEL + 4, 0x4010, 3);
    guest.store(0, KERNEL + 8, 0x4018, 4);
    guest.store(0, KERNEL + 8, 0x5000, 5);
    guest.send(0, code::FREED, [BASE + 0x4000, 4096, 0, 0]);
    guest.store(0, KERNEL + 8, 0x4020, 6);
    let seen = guest.records(|record, pc| match *record {
        Record::Memory { phys, bytes } => Some(format!("{phys:x} holds {bytes:?}")),
        Record::Store { phys, value, bytes: 8 } => Some(format!("{phys:x} = {value} at {:x}", pc - KERNEL)),
        Record::TableAllocated { phys, size: 0, level: Some(1), content: Content::Zero } => {
            Some(format!("+{phys:x}"))
        }
        Record::TableFreed { phys, size: 0 } => Some(format!("-{phys:x}")),
        Record::Mark { .. } | Record::End { .. } => None,
        ref other => Some(format!("{other:?}")),
    });
    assert_eq!(
        seen,
        [
            "80004000 holds [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]",
            "+80004000",
            "80004010 = 3 at 4",
            "80004018 = 4 at 8",
            "-80004000",
        ]
    );
}

#[test]
fn an_executed_instruction_is_recorded_with_its_operands() {
    let mut guest = RecordedGuest::new(RecordedArch::Riscv64);
    guest.begin();
    guest.table(0x4000, 2);
    let operands =
        |guest: &mut RecordedGuest, cpu, first, second| guest.send(cpu, code::OPERAND, [first, second, 0, 0]);
    operands(&mut guest, 0, BASE + 0x4000, 7);
    // One that is left out, on the other CPU.
    operands(&mut guest, 1, 0xdead, 9);
    guest.recorder.executes(0, KERNEL, InstructionEffect::LoadsRoot);
    for kind in [
        InstructionEffect::Page,
        InstructionEffect::PageInSpace,
        InstructionEffect::Space,
        InstructionEffect::All,
    ] {
        operands(&mut guest, 0, 0x5000, 8);
        guest.recorder.executes(0, KERNEL, kind);
    }
    operands(&mut guest, 0, BASE + 0x9000, 0);
    guest.recorder.executes(0, KERNEL, InstructionEffect::LoadsRoot);
    // Operands are used once.
    guest.recorder.executes(0, KERNEL, InstructionEffect::Page);
    let seen = guest.records(|record, _| match record {
        Record::RootLoaded { .. }
        | Record::Invalidate { .. }
        | Record::Leave { .. }
        | Record::SpaceCreated { .. } => Some(format!("{record:?}")),
        Record::Mark { text } if text.starts_with("not recorded") => Some("a mark".into()),
        _ => None,
    });
    let flush = |scope| {
        format!(
            "{:?}",
            Record::Invalidate { cpu: Some(0), scope, leaf_only: false, level: None, exception_level: None }
        )
    };
    let root = Record::RootLoaded { cpu: 0, root: BASE + 0x4000, space: 7, flushes: false };
    assert_eq!(
        seen,
        [
            format!("{root:?}"),
            flush(Scope::EverySpace { start: 0x5000, end: 0x5001, stride: 4096 }),
            format!("{:?}", Record::SpaceCreated { space: 8 }),
            flush(Scope::Page { space: 8, va: 0x5000 }),
            flush(Scope::Space(8)),
            flush(Scope::All),
            format!("{:?}", Record::Leave { cpu: 0 }),
            "a mark".into(),
        ]
    );
}

#[test]
fn an_access_is_recorded_again_only_when_something_has_happened() {
    let mut guest = RecordedGuest::new(RecordedArch::X86_64);
    guest.begin();
    guest.table(0x4000, 3);
    let load = Access { cpu: 0, pc: KERNEL, at: 0x7008, store: false };
    guest.recorder.accessed(load);
    guest.send(0, code::OPERAND, [BASE + 0x4000, 0, 0, 0]);
    guest.recorder.executes(0, KERNEL, InstructionEffect::LoadsRoot);
    guest.recorder.accessed(load);
    guest.recorder.accessed(Access { at: 0x7010, ..load });
    guest.recorder.accessed(Access { store: true, pc: 0x400, ..load });
    guest.store(0, KERNEL, 0x4000, 0);
    guest.recorder.accessed(load);
    let seen = guest.records(|record, _| match *record {
        Record::Access { va, kind, user, .. } => Some((va, kind, user)),
        _ => None,
    });
    use AccessKind::{Read, Write};
    assert_eq!(seen, [(0x7008, Read, false), (0x7008, Write, true), (0x7008, Read, false)]);
}

#[test]
fn accesses_of_the_firmware_are_not_recorded() {
    let mut guest = RecordedGuest::new(RecordedArch::Riscv64);
    guest.begin();
    guest.table(0x4000, 2);
    guest.send(0, code::OPERAND, [BASE + 0x4000, 7, 0, 0]);
    guest.recorder.executes(0, KERNEL, InstructionEffect::LoadsRoot);
    for pc in [0x8000_040c, 0x801f_fffe, 0x8020_0000, 0x10_0000_0000, KERNEL] {
        guest.recorder.accessed(Access { cpu: 0, pc, at: pc & 0xffff_f000, store: false });
    }
    let seen = guest.records(|record, pc| matches!(record, Record::Access { .. }).then_some(pc));
    assert_eq!(seen, [0x8020_0000, 0x10_0000_0000, KERNEL]);
}

#[test]
fn a_plugin_that_is_called_before_the_store_records_nothing() {
    let mut guest = RecordedGuest::new(RecordedArch::X86_64);
    for n in 1..=COUNTS {
        let at = MAILBOX + COUNTED as u64 * 8;
        guest.recorder.stored(Access { cpu: 0, pc: KERNEL, at: KERNEL, store: true }, BASE + at, 8);
        guest.write(at, &n.to_le_bytes());
    }
    guest.send(0, code::BEGIN, [0; 4]);
    assert!(guest.recorder.end().is_err_and(|e| e.contains("of 64 stores, 0 were visible")));
    let mut silent = RecordedGuest::new(RecordedArch::X86_64);
    assert!(silent.recorder.end().is_err_and(|e| e.contains("announce")));
}
