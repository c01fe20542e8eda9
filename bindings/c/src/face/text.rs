//! Describes errors in text.
use crate::error::PtError;
use core::ffi::{CStr, c_char};

/// Returns the meaning of a function's result and the remedy, as text that ends with 0 and stays.
#[unsafe(no_mangle)]
pub extern "C" fn pt_error_text(code: i32) -> *const c_char {
    const TEXTS: [(PtError, &CStr); 24] = [
        (PtError::Pointer, c"a pointer is NULL or misaligned"),
        (PtError::Object, c"the object is not initialised, was moved, or is to be initialised twice"),
        (PtError::Argument, c"an argument has no meaning; see the function in ptarmigan.h"),
        (PtError::Size, c"config.size is not sizeof(struct pt_config) of the library; take its header"),
        (PtError::BootMemory, c"the boot memory is too small; pt_machine_bytes says how much it takes"),
        (PtError::Runs, c"the runs of memory are not in order or overlap something"),
        (PtError::NoMemory, c"there is no free frame"),
        (PtError::Range, c"an address is out of range or not at the border of a page"),
        (PtError::Mapped, c"something is mapped there already; unmap it first"),
        (PtError::NotMapped, c"nothing is mapped there"),
        (PtError::Foreign, c"the page did not come from the library's function for such pages"),
        (PtError::Freed, c"the page was given back already"),
        (PtError::InUse, c"it is still in use: mapped, loaded, or with parts that have not ended"),
        (PtError::Unflushed, c"the table has been written to; give it to a gather"),
        (PtError::Dirty, c"the table is not zero; tell pt_table_touched of each entry, or clear it"),
        (PtError::Busy, c"this CPU is in the middle of another call; wait for its end"),
        (PtError::Machine, c"the objects are of different machines"),
        (PtError::NoSlot, c"no slot of the window for high memory is free; unmap others"),
        (PtError::MemoryType, c"pages of this architecture cannot have the memory type"),
        (PtError::Differs, c"the pages are not mapped as one large page would map them"),
        (PtError::KernelRoot, c"config.kernel_root is 0, misaligned, or beyond the direct map"),
        (PtError::DirectMap, c"config.direct_map or direct_map_end is not at the border of a page"),
        (PtError::KernelEntry, c"config.kernel_root has an entry that is no link or page of the kernel's; clear it"),
        (
            PtError::WindowShows,
            c"config.kernel_root does not map config.direct_map to the memory of config.runs; give its true place, or the format that the root has; config.hosted is 1 if no hardware walks it",
        ),
    ];
    let text = match TEXTS.iter().find(|(error, _)| error.code() == code) {
        Some((_, text)) => text,
        None if code >= 0 => c"no error",
        None => c"no error of this library",
    };
    text.as_ptr()
}
