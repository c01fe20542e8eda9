//! The page tables of `hyperlight-common` (`hyperlight_common::vmem`) under `ptsan`: its trait
//! `TableOps` on the memory of a [`Machine`].
//!
//! ```
//! use hyperlight_common::vmem::{self, BasicMapping, Mapping, MappingKind};
//! use ptsan::adapters::Machine;
//! use ptsan::{Access, Arch, Config, Flush};
//! use ptsan_hyperlight::Tables;
//!
//! let machine = Machine::new(Config::new(Arch::x86_64()));
//! let tables = Tables::new(&machine).unwrap();
//! machine.load(0, tables.root(), 1);
//! let kind = MappingKind::Basic(BasicMapping { readable: true, writable: true, executable: false });
//! let mapping = Mapping { phys_base: 1 << 32, virt_base: 0x7000, len: 4096, kind };
//! // SAFETY: the memory is simulated.
//! unsafe { vmem::map(&tables, mapping) };
//! machine.flush_everywhere(Flush::page(1, 0x7000));
//! assert_eq!(machine.access(0, 0x7008, Access::WRITE.kernel()).unwrap().phys, (1 << 32) + 8);
//! ```
//!
//! The crate compiles page tables for the architecture of its target: x86-64 tables on an x86-64
//! host, AArch64 tables on an AArch64 one. It invalidates nothing: its documentation leaves that to
//! the caller.
use hyperlight_common::vmem::{MayMoveTable, MayNotMoveTable, PhysAddr, TableOps, TableReadOps, Void};
use ptsan::Content;
use ptsan::adapters::{FRAME, Machine};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

/// Tables that are changed where they are.
#[derive(Clone, Debug)]
pub struct Tables {
    machine: Machine,
    root: u64,
}

/// Tables of which some belong to a snapshot: a store to one of these copies it first, and goes to
/// the copy. The crate then stores the link to the copy in the table above, which may be copied as
/// well, and so on up to the root.
#[derive(Debug)]
pub struct Snapshot {
    machine: Machine,
    root: Cell<u64>,
    frozen: RefCell<HashSet<u64>>,
    /// The CPUs that load a root that was copied, and their space.
    loads: (Vec<usize>, u64),
}

/// Returns the entry at a physical address.
fn read(machine: &Machine, at: u64) -> u64 {
    // SAFETY: 1. `pointer` returns only memory of the machine, which lives as long as this call.
    // 2. An entry is aligned, as a table and its index are. 3. Any bits are a number.
    unsafe { machine.pointer(at).cast::<u64>().read_volatile() }
}

/// Stores an entry, and tells the sanitizer.
fn write(machine: &Machine, at: u64, entry: u64) {
    // SAFETY: as in `read`; the crate has one writer at a time.
    unsafe { machine.pointer(at).cast::<u64>().write_volatile(entry) };
    machine.sanitizer(|san, memory| san.entry_written(memory, at));
}

/// Allocates a table. The crate has no way to say that there is none.
///
/// # Panics
/// Panics if no frame is left.
fn allocate(machine: &Machine) -> u64 {
    machine.allocate(Content::Zero).expect("no frame is left; give the machine more")
}

impl Tables {
    /// Creates tables without mappings, or returns `None` if no frame is left.
    #[must_use]
    pub fn new(machine: &Machine) -> Option<Self> {
        let root = machine.allocate(Content::Zero)?;
        Some(Self { machine: machine.clone(), root })
    }

    /// Returns the physical address of the root.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Makes the tables part of a snapshot: every table below the root is copied before the first
    /// store to it. The CPUs in `cpus` run in `space`, and load a root that was copied at once.
    #[must_use]
    pub fn freeze(self, cpus: Vec<usize>, space: u64) -> Snapshot {
        let mut frozen = HashSet::new();
        gather(&self.machine, self.root, 4, &mut frozen);
        let root = Cell::new(self.root);
        Snapshot { machine: self.machine, root, frozen: RefCell::new(frozen), loads: (cpus, space) }
    }
}

/// Adds a table of some levels and all below it.
fn gather(machine: &Machine, table: u64, levels: u32, to: &mut HashSet<u64>) {
    if !to.insert(table) || levels == 1 {
        return;
    }
    for at in (table..table + FRAME).step_by(8) {
        let entry = read(machine, at);
        // Present, and no large page.
        if entry & 0x81 == 1 {
            gather(machine, entry & 0x000f_ffff_ffff_f000, levels - 1, to);
        }
    }
}

impl Snapshot {
    /// Returns the physical address of the root, which stores may have moved.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root.get()
    }

    /// Returns whether a table still belongs to the snapshot.
    #[must_use]
    pub fn is_frozen(&self, table: u64) -> bool {
        self.frozen.borrow().contains(&table)
    }
}

impl AsRef<Self> for Tables {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsRef<Self> for Snapshot {
    fn as_ref(&self) -> &Self {
        self
    }
}

macro_rules! read_operations {
    ($name:ty) => {
        impl TableReadOps for $name {
            type TableAddr = u64;

            fn entry_addr(addr: u64, entry_offset: u64) -> u64 {
                addr + entry_offset
            }

            unsafe fn read_entry(&self, addr: u64) -> u64 {
                read(&self.machine, addr)
            }

            fn to_phys(addr: u64) -> PhysAddr {
                addr
            }

            fn from_phys(addr: PhysAddr) -> u64 {
                addr
            }

            fn root_table(&self) -> u64 {
                self.root()
            }
        }
    };
}
read_operations!(Tables);
read_operations!(Snapshot);

impl TableOps for Tables {
    type TableMovability = MayNotMoveTable;

    unsafe fn alloc_table(&self) -> u64 {
        allocate(&self.machine)
    }

    unsafe fn write_entry(&self, addr: u64, entry: u64) -> Option<Void> {
        write(&self.machine, addr, entry);
        None
    }

    unsafe fn update_root(&self, new_root: Void) {
        match new_root {}
    }
}

impl TableOps for Snapshot {
    type TableMovability = MayMoveTable;

    unsafe fn alloc_table(&self) -> u64 {
        allocate(&self.machine)
    }

    unsafe fn write_entry(&self, addr: u64, entry: u64) -> Option<u64> {
        let table = addr / FRAME * FRAME;
        if !self.is_frozen(table) {
            write(&self.machine, addr, entry);
            return None;
        }
        let copy = allocate(&self.machine);
        for offset in (0..FRAME).step_by(8) {
            let old = read(&self.machine, table + offset);
            let new = if table + offset == addr { entry } else { old };
            if new != 0 {
                write(&self.machine, copy + offset, new);
            }
        }
        Some(copy)
    }

    unsafe fn update_root(&self, new_root: u64) {
        self.root.set(new_root);
        let (cpus, space) = &self.loads;
        cpus.iter().for_each(|cpu| self.machine.load(*cpu, new_root, *space));
    }
}
