//! QEMU's interface for plugins, version 1 (QEMU 4.2 to 8.2): the parts that are used. From its
//! manual, "QEMU TCG Plugins".

use core::ffi::{c_char, c_int, c_uint, c_void};

/// Names a loaded plugin.
pub type Id = u64;

/// A block of instructions that is being translated.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// One instruction of it.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// Does not read registers.
pub const NO_REGISTERS: c_int = 0;
/// Loads and stores.
pub const LOADS_AND_STORES: c_int = 3;
/// The one operation that is compiled into the guest's code: an addition to 64 bits.
pub const ADD: c_int = 0;

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, translated: extern "C" fn(Id, *mut Block));

    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Instruction,
        operation: c_int,
        to: *mut c_void,
        value: u64,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        executed: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        accessed: extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(access: u32) -> bool;
}

/// QEMU's description of the machine for a plugin; not used.
#[repr(C)]
pub struct Machine {
    _opaque: [u8; 0],
}

/// An argument of the plugin.
pub type Argument = *const c_char;
