//! Every kind of finding fires on its bug and is silent on the same code done right.
use crate::common;
mod flushes;
mod frames;
mod held;
mod hooks;
mod stale;

use common::{Machine, RW, ready};
use ptsan::Arch;

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

fn x86() -> Arch {
    Arch::x86_64()
}

/// Makes space 1 on `cpus` CPUs, with `VA` mapped to `DATA` and read by all of them.
fn mapped(cpus: usize) -> Machine {
    let mut m = ready(x86(), cpus);
    m.map(1, VA, DATA | RW);
    for cpu in 0..cpus {
        assert_eq!(m.read(cpu, VA), Some(DATA));
    }
    m
}

/// Returns the physical address of the entry of `VA` at a level, and the table that holds it.
fn entry(m: &Machine, level: u8) -> (u64, u64) {
    let (_, table, at) = m.path(1, VA).into_iter().find(|p| p.0 == level).unwrap();
    (at, table)
}
