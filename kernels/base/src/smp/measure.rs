//! Measures the stack that the library's calls take, on one CPU before the others start.

use ptarmigan::format::Access;

use super::{PAGE, STACK_END, irq, stack};
use crate::tasks::{CallRefused, Port, Tasks};
use crate::{fail, say};

const BASE: u64 = 0x20_0000_0000;
const LEN: u64 = 64 << 20;

fn must<T>(what: &str, result: Result<T, CallRefused>) -> T {
    match result {
        Ok(value) => value,
        Err(CallRefused) => fail(format_args!("{what} was refused")),
    }
}

fn measured<T>(what: &str, call: impl FnOnce() -> Result<T, CallRefused>) -> (usize, T) {
    let (bytes, result) = stack::used(call);
    (bytes, must(what, result))
}

/// Prints the stack that calls take, each the largest of several situations. `program` is the bytes
/// of the image's program, `set_up` the stack that set-up has taken.
pub fn calls<P: Port>(tasks: &'static Tasks<P>, program: u64, set_up: usize) {
    let _masked = irq::Masked::new();
    let (program, space) =
        measured("a space", || tasks.spaces.program((0x10_0000_0000, program), (STACK_END, 4 * PAGE)));
    space.switch_to();
    let mut mmap = measured("mmap", || space.mmap(BASE, LEN, 3)).0;
    // A first page of each kind, with new tables; then one beside it.
    let mut fault = 0;
    for at in (BASE..BASE + LEN).step_by(3 << 20).flat_map(|at| [at, at + PAGE]) {
        fault = fault.max(measured("a read", || space.fault(at, Access::Read, false)).0);
        fault = fault.max(measured("a write", || space.fault(at, Access::Write, false)).0);
    }
    let mut fork = 0;
    for _ in 0..2 {
        let (bytes, child) = measured("fork", || space.fork());
        fork = fork.max(bytes);
        let copy = measured("a write after fork", || space.fault(BASE, Access::Write, false)).0;
        fault = fault.max(copy);
        child.close();
        fault = fault.max(
            measured("a page that is the last user's", || space.fault(BASE + PAGE, Access::Write, false)).0,
        );
    }
    // Over existing pages, in the middle of an area, and over all of it.
    mmap = mmap.max(measured("mmap", || space.mmap(BASE + (4 << 20), 8 << 20, 3)).0);
    let protect = measured("mprotect", || space.mprotect(BASE + (20 << 20), 1 << 20, 1)).0;
    let mut munmap = measured("munmap", || space.munmap(BASE + (30 << 20), 2 << 20)).0;
    munmap = munmap.max(measured("munmap", || space.munmap(BASE, LEN)).0);
    let (end, ()) = stack::used(|| space.close());
    say!(
        "stack: set-up {set_up}, program {program}, mmap {mmap}, munmap {munmap}, mprotect {protect}, fault {fault}, \
         fork {fork}, end {end} bytes"
    );
}
