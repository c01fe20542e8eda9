//! A page-table format of the test's own: two levels of four entries, so that few steps fill and
//! empty a table.
use ptsan::{Arch, Canonical, Config, Entry, Level, Perms};

pub const PAGE: u64 = 4096;
/// The bytes of a table.
pub const TABLE: u64 = 32;

pub fn config(cpus: usize) -> Config {
    let level = |shift| Level { index_bits: 2, shift, entry_bytes: 8, table_bytes: TABLE as u32 };
    let arch = Arch {
        name: "two levels of four entries",
        level_names: &[],
        levels: vec![level(12), level(14)],
        va_bits: 16,
        canonical: Canonical::ZeroExtended,
        hardware_bits: None,
        used: None,
        decode,
        ..Arch::x86_64()
    };
    Config { cpus, ..Config::new(arch) }
}

fn decode(level: u8, raw: u64) -> Entry {
    let perms = Perms::ALL;
    match (raw & 1, level) {
        (0, _) => Entry::Empty,
        (_, 0) => Entry::Leaf { phys: raw & !1, perms, global: false, accessed: true, memory_type: 0 },
        (_, _) => Entry::Table { phys: raw & !1, perms },
    }
}
