//! A plugin of QEMU that records a guest's operations on its page tables and TLBs, as a log for
//! `ptsan replay` (`docs/ptsan-log.md`).
//!
//! ```text
//! qemu-system-riscv64 -accel tcg,thread=single \
//!     -object memory-backend-file,id=ram,size=128M,mem-path=RAM,share=on \
//!     -M virt,memory-backend=ram -plugin libkernel_recorder.so,arch=riscv64,cpus=2,\
//! mailbox=0x80212000,ram=RAM,base=0x80000000,out=LOG ...
//! ```
//!
//! # The view of a plugin
//!
//! It is called after each store, with the address and the size. The guest counts a word up when it
//! begins, which shows that it is "after". A plugin is not told the value, nor any register. So
//!
//! * values are read from the guest's memory, which is a file that QEMU and the plugin share;
//! * operands of instructions of address translation come through the mailbox
//!   (`ptarmigan_kernel_mailbox`). The record is made when the instruction itself is executed.
//!
//! All CPUs run in one thread of QEMU, so that the order of records is the order of things.

// Tests are not linked with QEMU, which calls most of this.
#![cfg_attr(test, allow(dead_code))]

mod decode;
#[cfg(not(test))]
mod plugin;
mod recorder;
mod runs;
mod setup;
mod tables;
#[cfg(test)]
mod tests;

pub use recorder::Recorder;
