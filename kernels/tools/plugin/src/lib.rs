//! QEMU's interface for plugins, version 1 (QEMU 4.2 to 8.2): the parts that are used. From its
//! manual, "QEMU TCG Plugins".

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Names a loaded plugin.
pub type Id = u64;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! {
    /// A block of instructions that is being translated.
    Block;
    /// One instruction of it.
    Instruction;
    /// The place of an access.
    Place;
    /// QEMU's description of the machine for a plugin; not used.
    Machine;
}

/// An argument of the plugin.
pub type Argument = *const c_char;

/// Does not read registers.
pub const NO_REGISTERS: c_int = 0;
/// Stores.
pub const STORES: c_int = 2;
/// Loads and stores.
pub const LOADS_AND_STORES: c_int = 3;
/// The one operation that is compiled into the guest's code: an addition to 64 bits.
pub const ADD: c_int = 0;

unsafe extern "C" {
    /// Has a function called for each block that is translated.
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, translated: extern "C" fn(Id, *mut Block));
    /// Has a function called when the guest ends.
    pub fn qemu_plugin_register_atexit_cb(id: Id, ends: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    /// Returns the number of instructions in a block.
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    /// Returns an instruction of a block.
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    /// Returns the bytes of an instruction.
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    /// Returns how many they are.
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    /// Returns the address of an instruction.
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    /// Returns where an instruction is in QEMU's own memory; null if it is in none.
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *const c_void;
    /// Has an operation carried out before each execution of an instruction.
    pub fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Instruction,
        operation: c_int,
        to: *mut c_void,
        value: u64,
    );
    /// Has a function called before each execution of an instruction.
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        executed: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    /// Has a function called after each access of an instruction.
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        accessed: extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    /// Returns the binary logarithm of an access's bytes.
    pub fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
    /// Returns whether an access is a store.
    pub fn qemu_plugin_mem_is_store(access: u32) -> bool;
    /// Returns the place of an access.
    pub fn qemu_plugin_get_hwaddr(access: u32, at: u64) -> *mut Place;
    /// Returns whether it is a device's.
    pub fn qemu_plugin_hwaddr_is_io(place: *const Place) -> bool;
    /// Returns its physical address.
    pub fn qemu_plugin_hwaddr_phys_addr(place: *const Place) -> u64;
}

/// Returns the texts of a plugin's arguments.
///
/// # Safety
///
/// 1. `arguments` leads to `count` pointers to texts that end with a zero and may be read.
pub unsafe fn texts(count: c_int, arguments: *const Argument) -> Vec<String> {
    let text = |index| {
        // SAFETY: 1. Point 1 of the caller's: the text is there, and ends with a zero.
        unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy().into_owned()
    };
    (0..usize::try_from(count).unwrap_or(0)).map(text).collect()
}

/// Returns the instructions of a block, each with its address and its bytes.
///
/// # Safety
///
/// 1. QEMU has passed the block to a call that has not returned as long as the result is used.
pub unsafe fn instructions<'b>(
    block: *const Block,
) -> impl Iterator<Item = (*mut Instruction, u64, &'b [u8])> {
    // SAFETY: 1. The block is there (point 1).
    let number = unsafe { qemu_plugin_tb_n_insns(block) };
    // SAFETY: 1. The block is there (point 1), and has instructions below their number; each has as
    // many bytes as it says.
    (0..number).map(move |index| unsafe {
        let instruction = qemu_plugin_tb_get_insn(block, index);
        let (data, size) = (qemu_plugin_insn_data(instruction), qemu_plugin_insn_size(instruction));
        (instruction, qemu_plugin_insn_vaddr(instruction), core::slice::from_raw_parts(data, size))
    })
}
