//! The hooks of software that walks tables without a lock.
use crate::handles::{Ptsan, call, hook};
use ptsan::Reader;

/// Tells that software begins to walk the tables at `root` without their lock: a fast
/// `get_user_pages`, a profiler. Until it ends, a table that it may have reached is not to be
/// freed.
///
/// Returns the number of the reader, or 0 if the call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_reader_begins(san: *mut Ptsan, root: u64) -> u64 {
    let begun = call("ptsan_reader_begins", san, |machine| {
        Ok(machine.check(|s, memory| s.reader_begins(memory, root)).number())
    });
    begun.unwrap_or(0)
}

/// Tells that a reader reads an entry of the table at `table`. Only needed where stores are not
/// told.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_reader_reads(san: *mut Ptsan, reader: u64, table: u64) -> i32 {
    hook("ptsan_reader_reads", san, |machine| {
        machine.check(|s, memory| s.reader_reads(memory, Reader::of_number(reader), table));
        Ok(())
    })
}

/// Tells that a reader has ended.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_reader_ends(san: *mut Ptsan, reader: u64) -> i32 {
    hook("ptsan_reader_ends", san, |machine| {
        machine.check(|s, _| s.reader_ends(Reader::of_number(reader)));
        Ok(())
    })
}
