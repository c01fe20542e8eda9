//! The records of a log: one for each event.
use crate::coding::{
    ADDRESS_CHOICE, Above, Bytes, Entry, Exchanged, Extent, Filled, Flag, Level, Levels, Mode, NUMBER_CHOICE,
    Number, Shape, Stored, Whole, Words,
};
use crate::parts::{AccessKind, BarrierKind, Content, ExceptionLevel, Scope};
use crate::wire::{Bad, Fields, Payload};

records! {
    /// Something that happened. Addresses are physical unless they are called `va`.
    ///
    /// A device is named by a number behind those of the CPUs ([`Header::device`]). The records
    /// [`RootLoaded`](Self::RootLoaded) (a device is attached), [`Leave`](Self::Leave) (it is
    /// detached), [`Invalidate`](Self::Invalidate) and [`Access`](Self::Access) take a device in
    /// place of a CPU.
    ///
    /// [`Header::device`]: crate::Header::device
    pub enum Record<'a> {
        /// Memory was allocated to hold a table.
        TableAllocated = 0x01 "table-allocated" {
            /// Where.
            phys: u64 = Number "address";
            /// Bytes; 0 is the usual size of the header.
            size: u64 = Number "size" " in bytes, 0 for the usual one";
            /// The level, if it is known. Level 0 has the smallest pages.
            level: Option<u8> = Level "level" " + 1, or 0 if it is not known";
            /// Its content.
            content: Content = Number "content" ": 0 promised to be zero, 1 unknown, 2 unchecked";
        }

        /// A table was given back: from now on it may be allocated again.
        TableFreed = 0x02 "table-freed" {
            /// Where.
            phys: u64 = Number "address";
            /// Bytes; 0 is the usual size of the header.
            size: u64 = Number "size" " in bytes, 0 for the usual one";
        }

        /// Code stored to memory that holds tables.
        Store = 0x03 "store" {
            /// Where: a multiple of `bytes`.
            phys: u64,
            /// 1, 2, 4 or 8.
            bytes: u8 = Entry "address, a multiple of the bytes; bytes: 1, 2, 4 or 8";
            /// The new content.
            value: u64 = Number "value";
            = Stored
                "exchanged"
                ", optional: 1 if it was an atomic exchange, else 0. With 1 it is called \
                 `exchange`";
        }

        /// Code exchanged an entry: an atomic instruction stored to it and returned the old
        /// content, with the bits that hardware had set. On the wire it is a store with a field
        /// more.
        Exchange = 0x03 "exchange" {
            /// Where: a multiple of `bytes`.
            phys: u64,
            /// 1, 2, 4 or 8.
            bytes: u8 = Entry "";
            /// The new content.
            value: u64 = Number "value";
            = Exchanged "exchanged";
        }

        /// Code stored the same value several times, as a loop that clears a table does.
        Fill = 0x04 "fill" {
            /// Where: a multiple of 8.
            phys: u64,
            /// How many bytes: a multiple of 8, at most [`MAX_FILL`](crate::MAX_FILL).
            bytes: u64 = Filled "address and bytes, multiples of 8, at most 65,536 bytes";
            /// The new content, 8 bytes each.
            value: u64 = Number "value" " of each 8 bytes";
        }

        /// The content of memory, without a store: the content of a table that is about to be
        /// announced.
        Memory = 0x05 "memory" {
            /// Where.
            phys: u64,
            /// The bytes, at most [`MAX_BYTES`](crate::MAX_BYTES).
            bytes: &'a [u8] = Bytes
                "address; then the bytes themselves, at most 200. Known without a store";
        }

        /// A CPU loaded a root.
        RootLoaded = 0x06 "root-loaded" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// Where the root is.
            root: u64 = Number "root";
            /// The address space, or its hardware number.
            space: u64 = Number "space";
            /// Whether the load also dropped the CPU's entries for the space.
            flushes: bool = Flag
                "flags"
                ": 1 if the load also drops the CPU's translations of the space, else 0";
        }

        /// A CPU runs kernel code and keeps its root loaded.
        Lazy = 0x07 "lazy" {
            /// The CPU.
            cpu: u16 = Number "CPU";
        }

        /// A lazy CPU runs in its space again, without a new load of the root.
        Resume = 0x08 "resume" {
            /// The CPU.
            cpu: u16 = Number "CPU";
        }

        /// A CPU loaded a root of the kernel alone.
        Leave = 0x09 "leave" {
            /// The CPU.
            cpu: u16 = Number "CPU";
        }

        /// A CPU carried out an invalidation.
        Invalidate = 0x0a "invalidate" {
            /// The CPU; `None` is all of them, as an instruction that broadcasts does.
            cpu: Option<u16> = Above "CPU" " + 1, or 0 for all CPUs at once";
            /// Its extent.
            scope: Scope,
            /// Whether it spares paging-structure caches.
            leaf_only: bool = Extent
                "scope"
                ", a byte, and 128 if it spares paging-structure caches; then the fields of the \
                 scope";
            /// The level of the pages, if it names one: it drops no others, and no tables.
            level: Option<u8>,
            /// The exception level, if it names one: it spares tables of another
            /// ([`Header::exception_level`]).
            ///
            /// [`Header::exception_level`]: crate::Header::exception_level
            exception_level: Option<ExceptionLevel> = Levels
                "optional: 1 more than the level of the pages that it names (AArch64 with \
                 FEAT_TTL), or 0: it drops no pages of another level and no tables; optional: the \
                 exception level that it names, 1 to 3 (AArch64: `TLBI VAE2` names 2), or 0: it \
                 spares tables of another";
        }

        /// An address space begins to be used, and may be flushed before it is loaded.
        SpaceCreated = 0x0b "space-created" {
            /// Its number.
            space: u64 = Number "space";
        }

        /// An address space is gone, and its number will not stand for another.
        SpaceDestroyed = 0x0c "space-destroyed" {
            /// Its number.
            space: u64 = Number "space";
        }

        /// A page was mapped: each CPU that has the space loaded may walk for it. Not needed where
        /// stores are told.
        DataMapped = 0x42 "data-mapped" {
            /// The address space.
            space: u64 = Number "space";
            /// An address in the page.
            va: u64 = Number "virtual address" ": a page was mapped there, for logs without stores";
        }

        /// Memory that was mapped as data was given back by its last user. No CPU may translate to
        /// it.
        DataFreed = 0x0d "data-freed" {
            /// Where.
            phys: u64 = Number "address";
            /// Bytes.
            size: u64 = Number "size" " in bytes: data, given back by its last user";
        }

        /// Memory that was data once is used for something else now.
        DataReused = 0x0e "data-reused" {
            /// Where.
            phys: u64 = Number "address";
            /// Bytes.
            size: u64 = Number
                "size"
                " in bytes: used for something else now. Not needed after `data-freed`, nor \
                 before `table-allocated`";
        }

        /// A CPU carried out a barrier. Checked if the header says that barriers are recorded.
        Barrier = 0x40 "barrier" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// Which.
            kind: BarrierKind = Number
                "barrier"
                ": 0 AArch64 `DSB`, 1 AArch64 `ISB`, 2 RISC-V `FENCE RW, RW`; version 2: 3 \
                 AArch64 `DSB ISHST`, which orders stores and completes no invalidation";
        }

        /// All pages that were unmapped, remapped or restricted so far have been flushed, except
        /// pages that an operation under way changed.
        FlushesDone = 0x41 "flushes-done"

        /// The stores that follow are those of this CPU.
        Running = 0x43 "running" {
            /// The CPU. It is CPU 0 before the first of these records.
            cpu: u16 = Number "CPU" ": the stores that follow are its";
        }

        /// A CPU invalidated all that it has cached of stage 1 for the guest that it runs, and with
        /// it all combined translations. For logs of stage 2 whose header says two stages.
        Stage1Flushed = 0x44 "stage1-flushed" {
            /// The CPU.
            cpu: u16 = Number
                "CPU"
                ": it invalidated all of stage 1, and all combined translations";
        }

        /// An operation that changes tables begins. Until it ends, CPUs may use entries that they
        /// hold.
        OperationBegins = 0x0f "operation-begins" {
            /// A number that no other operation under way has.
            id: u64 = Number "operation" ": a number that no other one under way has";
        }

        /// The operation ends: its changes have been flushed everywhere.
        OperationEnds = 0x10 "operation-ends" {
            /// Its number.
            id: u64 = Number "operation";
        }

        /// A CPU accessed memory through its tables.
        Access = 0x11 "access" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// The address.
            va: u64 = Number "virtual address";
            /// Load, store or fetch.
            kind: AccessKind,
            /// Whether in user mode.
            user: bool = Mode "access" ": 0 load, 1 store, 2 fetch, and 4 more in user mode";
        }

        /// An invalidation was put into the queue of a device. Nothing has waited for it yet.
        FlushQueued = 0x14 "flush-queued" {
            /// The device.
            device: u16 = Number "device";
            /// The extent of the invalidation.
            scope: Scope,
            /// Whether it spares paging-structure caches.
            leaf_only: bool = Extent "scope" " and its fields, as in `invalidate`";
            /// The level of the pages, if it names one: it drops no others, and no tables.
            level: Option<u8>,
            /// The exception level, if it names one: it spares tables of another
            /// ([`Header::exception_level`]).
            ///
            /// [`Header::exception_level`]: crate::Header::exception_level
            exception_level: Option<ExceptionLevel> = Levels "levels" ", as there";
        }

        /// The kernel waited until a device had carried out all that is in its queue.
        QueueCompleted = 0x15 "queue-completed" {
            /// The device.
            device: u16 = Number "device";
        }

        /// A device reads an entry of several words from now on: a context entry, a PASID entry, a
        /// device-table entry, a stream-table entry. [`Memory`](Self::Memory) before it gives its
        /// content.
        DeviceEntry = 0x16 "device-entry" {
            /// The device.
            device: u16 = Number "device";
            /// Where: a multiple of `bytes`.
            phys: u64,
            /// 8, 16, 32 or 64.
            bytes: u8,
            /// The word of 8 bytes, counted from 0, that says whether the entry is valid.
            word: u8,
            /// The bits of that word of which any makes the entry valid. Not 0.
            valid: u64 = Shape
                "address, a multiple of the bytes; bytes: 8, 16, 32 or 64; the word of 8 bytes, \
                 counted from 0, that has valid bits; these bits, of which any makes the entry \
                 valid";
        }

        /// One instruction stored to an entry that a device reads.
        DeviceEntryWritten = 0x17 "device-entry-written" {
            /// Where: a multiple of the number of bytes.
            phys: u64,
            /// The bytes that were stored: 1, 2, 4, 8, 16, 32 or [`MAX_ENTRY`](crate::MAX_ENTRY) of
            /// them.
            bytes: &'a [u8] = Whole
                "address, a multiple of the bytes; bytes: 1, 2, 4, 8, 16, 32 or 64; then the \
                 bytes themselves, as one instruction stored them";
        }

        /// A device forgot an entry, or all of its entries: the invalidation was waited for.
        DeviceEntriesFlushed = 0x18 "device-entries-flushed" {
            /// The device.
            device: u16 = Number "device";
            /// An address in the entry; `None` is all entries of the device.
            phys: Option<u64> = ADDRESS_CHOICE
                "one entry"
                ", a choice: an address in it; 0 is all entries of the device";
        }

        /// Software begins to walk tables without their lock.
        ReaderBegins = 0x19 "reader-begins" {
            /// A number that no other reader under way has.
            id: u64 = Number "reader" ": a number that no other one under way has";
            /// The root.
            root: u64 = Number "root";
        }

        /// A reader reads an entry of a table.
        ReaderReads = 0x1a "reader-reads" {
            /// Its number.
            id: u64 = Number "reader";
            /// The table.
            table: u64 = Number "table" ": its address";
        }

        /// A reader has ended.
        ReaderEnds = 0x1b "reader-ends" {
            /// Its number.
            id: u64 = Number "reader";
        }

        /// A lock guards a table, and all tables below it that have no lock of their own. Checked
        /// if the header says that locks are recorded.
        LockGuards = 0x1c "lock-guards" {
            /// The table.
            table: u64 = Number "table" ": its address";
            /// The lock, by any number.
            lock: u64 = Number "lock" ", any number";
            /// Whether flushes of changes under the lock have to be over when it is released.
            flush_first: bool = Flag
                "flags"
                ": 1 if flushes of changes under it are over before it is released, else 0. The \
                 lock is that of all tables below that have none of their own";
        }

        /// A CPU has taken a lock.
        LockTaken = 0x1d "lock-taken" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// The lock.
            lock: u64 = Number "lock";
            /// Whether with others; else alone.
            shared: bool = Flag "shared" ": 1 with others, else 0";
        }

        /// A CPU is about to release a lock.
        LockReleased = 0x1e "lock-released" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// The lock.
            lock: u64 = Number "lock";
        }

        /// The tables at a root were given the number of a space, in place of the one that they
        /// had.
        NumberGiven = 0x1f "number-given" {
            /// The root.
            root: u64 = Number "root";
            /// The number.
            space: u64 = Number "space";
        }

        /// All numbers were taken back, except those of roots that CPUs have loaded.
        NumbersTakenBack = 0x20 "numbers-taken-back"

        /// A CPU invalidated a part of what it has cached of stage 1 for the guest that it runs.
        Stage1PartFlushed = 0x21 "stage1-part-flushed" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// The guest's number of the space; `None` is all spaces.
            number: Option<u64> = NUMBER_CHOICE "one space" ", a choice: the guest's number of it";
            /// An address of the guest; `None` is all addresses.
            va: Option<u64> = ADDRESS_CHOICE "one address" ", a choice: the virtual address";
        }

        /// A guest accessed memory through both stages. The CPU may cache the combined translation.
        AccessCombined = 0x22 "access-combined" {
            /// The CPU.
            cpu: u16 = Number "CPU";
            /// The guest's number of its space.
            number: u64 = Number "number" " of the guest's space";
            /// The address that the guest accessed.
            va: u64 = Number "virtual address";
            /// The guest-physical address that stage 1 translates it to.
            gpa: u64 = Number "guest-physical address" " that stage 1 translates it to";
            /// Load, store or fetch.
            kind: AccessKind = Number "access" ": 0 load, 1 store, 2 fetch";
        }

        /// A text for readers of the log.
        Mark = 0x12 "mark" {
            /// The text, at most [`MAX_TEXT`](crate::MAX_TEXT) bytes.
            text: &'a str = Words "UTF-8, at most 200 bytes, for readers of a dump";
        }

        /// The log is complete.
        End = 0x13 "end" {
            /// Whether tables that are still allocated are leaks.
            all_freed: bool = Flag
                "flags"
                ": 1 if tables that are still allocated are leaks and all has been flushed, else 0";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns the rows of the document's tables of records. Those of scopes have no number.
    fn rows() -> BTreeSet<&'static str> {
        include_str!("../ptsan-log.md")
            .split("\n| kind | name | fields |\n")
            .skip(1)
            .flat_map(|table| table.lines().skip(1).take_while(|line| line.starts_with('|')))
            .filter(|line| !line.starts_with("| |"))
            .collect()
    }

    #[test]
    fn the_document_has_the_table_of_the_code() {
        let exchange = |row: &&(u8, &str, _)| row.1 != "exchange";
        let line = |(kind, name, fields): &(u8, &str, &[&str])| {
            let fields = if fields.is_empty() { "–".to_owned() } else { fields.join("; ") };
            format!("| `{kind:02x}` | `{name}` | {fields} |")
        };
        let (found, expected) = (rows(), Record::ROWS.iter().filter(exchange).map(line));
        let expected: BTreeSet<_> = expected.collect();
        let missing: Vec<_> = expected.iter().filter(|row| !found.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "{missing:#?}");
        assert_eq!(found.len(), expected.len(), "the document has no other kinds");
    }
}
