//! Graphics devices, whose engines have TLBs.
use super::Exhibit;
use super::format::Format;
use super::machine::{Machine, Setup, four};
use ptsan::{Flush, Kind, Rule};

/// The engines of a device.
const ENGINES: usize = 4;

pub const NO_FLUSH: Exhibit = Exhibit {
    name: "i915-no-flush",
    numbers: "CVE-2022-0330, 7938d61591d3",
    project: "Linux (i915)",
    year: 2022,
    pattern: true,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "debts of pages that were mapped elsewhere, due at frame_freed",
    setup: Setup { devices: ENGINES, ..four(Format::X86) },
    model: no_flush,
};

/// An object is unbound: its entries point at the scratch page, and its pages go back to the
/// system. No engine is told.
fn no_flush(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.attach_all(space);
    m.work();
    let va = m.address();
    let (object, scratch) = (m.map(space, va), m.frame());
    let at = m.entry(space, va, 0);
    m.touch_by_devices(va);
    m.step(|m| {
        m.write(at, m.format.page(scratch));
        if !broken {
            m.flush_devices(Flush::page(space, va));
        }
        m.free_frame(object);
    });
    m.work();
}

pub const MASKED_REGISTER: Exhibit = Exhibit {
    name: "i915-masked-register",
    numbers: "CVE-2022-4139, 04aa64375f48",
    project: "Linux (i915)",
    year: 2022,
    pattern: true,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of pages of those devices that a flush did not reach, due at operation_ends",
    setup: Setup { devices: ENGINES, ..four(Format::X86) },
    model: masked_register,
};

/// The register by which an engine is told to flush.
#[derive(Clone, Copy)]
enum Register {
    Plain,
    /// A bit is written only if the same bit of the upper half is set.
    Masked,
}

impl Register {
    /// Returns whether the engine flushes after a store to the register.
    fn takes(self, value: u32) -> bool {
        match self {
            Self::Plain => value & 1 != 0,
            Self::Masked => value & 1 != 0 && value >> 16 & 1 != 0,
        }
    }
}

/// The driver stores the request to every engine. Engines whose register is masked ignore it.
fn masked_register(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.attach_all(space);
    m.work();
    let va = m.address();
    let object = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_by_devices(va);
    let mut engines = [Register::Plain; ENGINES];
    let video = m.below(ENGINES as u64) as usize;
    engines[video] = Register::Masked;
    m.step(|m| {
        let request = if broken { 1 } else { 1 << 16 | 1 };
        let unbinding = m.begin();
        m.exchange(at, 0);
        for (engine, register) in engines.iter().enumerate() {
            if register.takes(request) {
                m.flush_device(engine, Flush::page(space, va));
            }
        }
        m.end(unbinding);
    });
    m.free_frame(object);
    m.work();
}

pub const GART: Exhibit = Exhibit {
    name: "amdgpu-gart",
    numbers: "CVE-2026-53374, d9af8263b82b",
    project: "Linux (amdgpu)",
    year: 2026,
    pattern: true,
    kind: Kind::LinkedBeforeCleared,
    rules: &[Rule::OldContent],
    check: "entries from before the allocation in a root that is loaded",
    setup: Setup { devices: ENGINES, ..four(Format::X86) },
    model: gart,
};

/// The device's table is allocated, entered where it is used, and given to the device. The other
/// entries hold what was in memory before.
fn gart(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.attach_all(space);
    m.work();
    let (va, device) = (m.address(), m.below(ENGINES as u64) as usize);
    let root = m.frame();
    for _ in 0..1 + m.below(8) {
        // Not the entry that will be stored.
        let at = root + (8 + m.below(504)) * 8;
        m.poke(at, m.format.table(0x7000));
    }
    let below = m.entry(space, va, 3);
    let shared = m.get(below);
    m.step(|m| {
        m.dirty_table_in(root, m.top());
        if !broken {
            m.clear(root);
        }
        m.write(root, shared);
        m.attach(device, root, 100);
    });
    m.touch_by_devices(va);
}
