//! Models low memory on 32-bit x86 with PAE: the parts for tables, page records and the kernel.
//!
//! # The model
//!
//! Of L bytes of low memory, these are taken whatever `userpte=` says: the records of all page
//! frames, the kernel's own memory, and for each space its root and the middle tables, which exist
//! from its start. The *room* that is left is for leaf tables in low memory.
//!
//! Leaf tables take `mapped * S / (512 * d)` bytes: S is how often a frame is mapped on average,
//! and d the used share of the entries of a table. An entry has 8 bytes, 1/512 of a page.
//!
//! # When high tables pay
//!
//! Below some S, all high memory can be mapped by tables in low memory. Above it, low memory runs
//! out while high memory is left, which high tables use. That S is where the tables that map all of
//! high memory fill the room.
use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Format, FormatExt, X86Pae};
use ptarmigan::frames::{Frames, MemoryRun, MemorySize, ZoneClass};
use ptarmigan::page::Level;
use ptarmigan::params::AutoParams;

/// The most memory that PAE has as Linux uses it.
pub(super) const MOST_MEMORY: u64 = 64 << 30;
/// Bytes of a page record (`struct page`) of Linux on i386.
const LINUX_RECORD: u64 = 32;
/// Bytes of a frame.
pub(super) const FRAME: u64 = FRAME_SIZE as u64;

/// Bytes that a leaf table maps.
pub(super) fn span() -> u64 {
    1 << X86Pae::shift(Level(1))
}

/// Entries of a leaf table.
pub(super) fn entries() -> u64 {
    X86Pae::entries(Level::PTE) as u64
}

/// Leaf tables of a space that has something in every one.
pub(super) fn most_leaf_tables() -> u64 {
    X86Pae::USER_END / span()
}

/// Bytes of a root.
pub(super) fn root_bytes() -> u64 {
    X86Pae::LAYOUT.table_bytes(X86Pae::LAYOUT.root())
}

/// Tables between root and leaves that each space has from its start.
pub(super) fn middle_tables() -> u64 {
    X86Pae::USER_END >> X86Pae::shift(X86Pae::LAYOUT.root())
}

/// Bytes of low memory that a space takes wherever its leaf tables are.
pub(super) fn upper_bytes() -> u64 {
    root_bytes() + middle_tables() * FRAME
}

/// Returns the bytes of the leaf tables that map `mapped` bytes, each frame `sharing` times, with
/// the share `used` of their entries in use.
pub(super) fn leaf_bytes(mapped: f64, sharing: f64, used: f64) -> f64 {
    mapped * sharing / (entries() as f64 * used)
}

/// Returns the sharing at which leaf tables take `bytes`: the inverse of [`leaf_bytes`].
pub(super) fn sharing_of(bytes: f64, mapped: f64, used: f64) -> f64 {
    bytes.max(0.0) * entries() as f64 * used / mapped
}

/// Whose page records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    /// 32 bytes a frame.
    Linux,
    /// As the library counts those of its own.
    Library,
}

impl Records {
    /// Both.
    pub const ALL: [Records; 2] = [Records::Linux, Records::Library];

    /// Returns the name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Records::Linux => "linux",
            Records::Library => "ptarmigan",
        }
    }

    /// Returns the size of the records of a machine, in bytes.
    pub fn bytes(self, ram: u64, low: u64) -> u64 {
        let frames = ram / FRAME;
        match self {
            Records::Linux => frames * LINUX_RECORD,
            Records::Library => {
                let low = low.min(ram) / FRAME;
                let run = |start: u64, end: u64, class| MemoryRun {
                    start: Pfn(start as u32),
                    frames: (end - start) as u32,
                    node: NodeId(0),
                    class,
                };
                let runs = [run(0, low, ZoneClass::Low), run(low, frames, ZoneClass::High)];
                Frames::bytes(&MemorySize::of(runs.iter().filter(|run| run.frames > 0))) as u64
            }
        }
    }
}

/// Low memory, and the part of it that is taken on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LowMemory {
    /// All of it, in bytes.
    pub bytes: u64,
    /// The kernel's code and data, and its slabs, in bytes.
    pub kernel: u64,
    /// Spaces.
    pub spaces: u64,
    /// The mapped memory, in percent of all memory; `None`: all high memory.
    pub mapped: Option<u32>,
}

impl LowMemory {
    /// Returns the high memory of a machine, in bytes.
    pub fn high(&self, ram: u64) -> u64 {
        ram.saturating_sub(self.bytes)
    }

    /// Returns the bytes that are mapped; 0 if that is all high memory and the machine has no high
    /// memory.
    pub fn mapped(&self, ram: u64) -> f64 {
        match self.mapped {
            Some(percent) => ram as f64 * f64::from(percent) / 100.0,
            None => self.high(ram) as f64,
        }
    }

    /// Returns the room for leaf tables in low memory, in bytes. It is negative where the rest does
    /// not fit.
    pub fn room(&self, ram: u64, records: Records) -> f64 {
        self.before_spaces(ram, records) - (self.spaces * upper_bytes()) as f64
    }

    fn before_spaces(&self, ram: u64, records: Records) -> f64 {
        self.bytes as f64 - (records.bytes(ram, self.bytes) + self.kernel) as f64
    }

    /// Returns how many spaces exhaust low memory if all their leaf tables are in high memory.
    pub fn most_spaces(&self, ram: u64, records: Records) -> f64 {
        (self.before_spaces(ram, records).max(0.0) / upper_bytes() as f64).floor()
    }

    /// Returns the sharing at which leaf tables in low memory exhaust it. `None` without high
    /// memory: high tables are no help there.
    pub fn exhausted_at(&self, ram: u64, records: Records, used: f64) -> Option<f64> {
        self.sharing(ram, self.room(ram, records), used)
    }

    /// Returns the sharing from which on `userpte=auto` makes high tables, whatever accesses to
    /// them cost.
    pub fn auto_from(&self, ram: u64, records: Records, used: f64, auto: &AutoParams) -> Option<f64> {
        let part = |percent: u8| self.bytes as f64 * f64::from(percent) / 100.0;
        let by_tables = part(auto.beta) - (self.spaces * upper_bytes()) as f64;
        let by_free = self.room(ram, records) - part(auto.reserve);
        self.sharing(ram, by_tables.min(by_free), used)
    }

    fn sharing(&self, ram: u64, bytes: f64, used: f64) -> Option<f64> {
        (self.high(ram) > 0).then(|| sharing_of(bytes, self.mapped(ram), used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const LOW: u64 = 768 * MIB;
    /// As in the argument of 2010: only tables and records.
    const BARE: LowMemory = LowMemory { bytes: LOW, kernel: 0, spaces: 0, mapped: Some(100) };

    #[test]
    fn low_memory_of_tables_maps_384_gib_or_a_tenth_sparsely() {
        let tables = LOW / FRAME;
        assert_eq!(tables, 196_608);
        assert_eq!((span(), entries()), (2 * MIB, 512));
        assert_eq!(tables * span(), 384 * GIB);
        // A tenth: 38.4 GiB, above the 32 GiB that the mail takes for the most.
        let mapped = sharing_of(LOW as f64, 1.0, 0.1);
        assert!((mapped / GIB as f64 - 38.4).abs() < 1e-9, "{mapped}");
        assert_eq!(leaf_bytes(384.0 * GIB as f64, 1.0, 1.0), LOW as f64);
    }

    #[test]
    fn page_records_take_4_times_dense_tables_and_leave_128_mib() {
        // RAM, dense tables, their share of low memory in tenths of a percent, records, the rest of
        // low memory, and the sharing at which tables take a quarter of it.
        for (ram, dense, share, records, left, quarter) in [
            (4, 8, 10, 32, 728, 24.0),
            (8, 16, 21, 64, 688, 12.0),
            (16, 32, 42, 128, 608, 6.0),
            (32, 64, 83, 256, 448, 3.0),
            (64, 128, 167, 512, 128, 1.5),
        ] {
            let ram = ram * GIB;
            let tables = leaf_bytes(BARE.mapped(ram), 1.0, 1.0);
            assert_eq!(tables, (dense * MIB) as f64);
            assert_eq!((1000.0 * tables / LOW as f64).round(), f64::from(share));
            assert_eq!(Records::Linux.bytes(ram, LOW), records * MIB);
            assert_eq!(BARE.room(ram, Records::Linux) - tables, (left * MIB) as f64);
            assert_eq!(sharing_of(LOW as f64 / 4.0, BARE.mapped(ram), 1.0), quarter);
        }
    }

    #[test]
    fn spaces_pin_1536_tables_and_128_spaces_exhaust_low_memory() {
        assert_eq!(most_leaf_tables(), 1536);
        assert_eq!(most_leaf_tables() * FRAME, 6 * MIB, "a page in each");
        assert_eq!(128 * most_leaf_tables(), LOW / FRAME);
        assert!(127 * most_leaf_tables() < LOW / FRAME);
        // One entry of 512 in use: 768 MiB of tables for 768 MiB that are mapped once.
        assert_eq!(leaf_bytes((128 * 6 * MIB) as f64, 1.0, 1.0 / 512.0), LOW as f64);
    }

    #[test]
    fn a_space_has_a_root_of_32_bytes_and_three_middle_tables() {
        assert_eq!((root_bytes(), middle_tables()), (32, 3));
        assert_eq!(upper_bytes(), 12 * 1024 + 32);
        assert_eq!(BARE.most_spaces(64 * GIB, Records::Linux), ((256 * MIB) / upper_bytes()) as f64);
    }

    #[test]
    fn tables_of_high_memory_fill_the_room_at_exhausting_sharing() {
        let low = LowMemory { bytes: LOW, kernel: 80 * MIB, spaces: 128, mapped: None };
        for ram in [1, 2, 4, 8, 16, 32, 64].map(|gib| gib * GIB) {
            for records in Records::ALL {
                for used in [1.0, 0.1, 1.0 / 512.0] {
                    let sharing = low.exhausted_at(ram, records, used).expect("there is high memory");
                    let tables = leaf_bytes(low.high(ram) as f64, sharing, used);
                    assert!((tables - low.room(ram, records)).abs() < 1.0, "{ram} {records:?} {used}");
                    let auto = low.auto_from(ram, records, used, &AutoParams::default());
                    assert!(auto.is_some_and(|auto| auto < sharing), "auto acts before that");
                }
            }
        }
        assert_eq!(low.exhausted_at(LOW, Records::Linux, 1.0), None, "there is no high memory");
        assert!(low.room(128 * GIB, Records::Linux) < 0.0);
        assert_eq!(low.exhausted_at(128 * GIB, Records::Linux, 1.0), Some(0.0));
    }

    #[test]
    fn the_librarys_records_take_half_of_what_those_of_linux_do() {
        for ram in [4 * GIB, 64 * GIB] {
            let (linux, own) = (Records::Linux.bytes(ram, LOW), Records::Library.bytes(ram, LOW));
            assert!(own >= linux / 2 && own < linux / 2 + linux / 100, "{own} of {linux}");
        }
    }
}
