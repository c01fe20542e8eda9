//! The functions that QEMU calls.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard};

use kernel_plugin::{self as api, Argument, Block, Id, LOADS_AND_STORES, Machine, NO_REGISTERS, STORES};

use crate::decode::{InstructionEffect, RecordedArch};
use crate::recorder::{Access, Recorder};
use crate::setup::Setup;

/// The version of the interface that this plugin is written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(|e| e.into_inner())
}

/// An instruction that is recorded when it is executed.
struct Instruction {
    pc: u64,
    kind: InstructionEffect,
}

extern "C" fn executed(cpu: c_uint, data: *mut c_void) {
    // SAFETY: `translated` has passed a pointer to an `Instruction` that is never freed.
    let instruction = unsafe { &*data.cast::<Instruction>() };
    if let Some(recorder) = recorder().as_mut() {
        recorder.executes(cpu as u16, instruction.pc, instruction.kind);
    }
}

extern "C" fn accessed(cpu: c_uint, access: u32, at: u64, data: *mut c_void) {
    let mut recorder = recorder();
    let Some(recorder) = recorder.as_mut() else { return };
    let pc = data.addr() as u64;
    // SAFETY: a question about the value that QEMU passed to this call.
    let store = unsafe { api::qemu_plugin_mem_is_store(access) };
    let from = Access { cpu: cpu as u16, pc, at, store };
    if at < recorder.setup().arch.kernel_start() {
        if recorder.setup().accesses {
            recorder.accessed(from);
        }
        return;
    }
    if !store {
        return;
    }
    // SAFETY: as above; the place is good until this call ends.
    let (phys, size) = unsafe {
        let place = api::qemu_plugin_get_hwaddr(access, at);
        if place.is_null() || api::qemu_plugin_hwaddr_is_io(place) {
            return;
        }
        (api::qemu_plugin_hwaddr_phys_addr(place), 1 << api::qemu_plugin_mem_size_shift(access))
    };
    recorder.stored(from, phys, size);
}

extern "C" fn translated(_: Id, block: *mut Block) {
    let Some((arch, accesses)) = recorder().as_ref().map(|r| (r.setup().arch, r.setup().accesses)) else {
        return;
    };
    // SAFETY: the block is QEMU's and is good during this call, its instructions too. The functions
    // that are registered are the plugin's own, which stays loaded; `executed` gets the argument
    // that it expects.
    unsafe {
        for (instruction, pc, bytes) in api::instructions(block) {
            let which = if accesses { LOADS_AND_STORES } else { STORES };
            let data = core::ptr::without_provenance_mut(pc as usize);
            if pc < arch.kernel_start() {
                if accesses {
                    api::qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, which, data);
                }
                continue;
            }
            api::qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, which, data);
            if let Some(kind) = RecordedArch::kind(arch, bytes) {
                let data = Box::into_raw(Box::new(Instruction { pc, kind }));
                api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, NO_REGISTERS, data.cast());
            }
        }
    }
}

extern "C" fn ends(_: Id, _: *mut c_void) {
    if let Some(Err(e)) = recorder().take().map(|mut recorder| recorder.end()) {
        eprintln!("kernel-recorder: {e}");
    }
}

/// Called by QEMU when it loads the plugin.
///
/// # Safety
///
/// 1. `arguments` leads to `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _: *const Machine,
    count: c_int,
    arguments: *const Argument,
) -> c_int {
    // SAFETY: 1. Point 1 of the caller's.
    let texts = unsafe { api::texts(count, arguments) };
    match Setup::read(&texts).and_then(Recorder::new) {
        Ok(made) => *recorder() = Some(made),
        Err(e) => {
            eprintln!("kernel-recorder: {e}");
            return 1;
        }
    }
    // SAFETY: the functions are the plugin's own, which stays loaded.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_atexit_cb(id, ends, core::ptr::null_mut());
    }
    0
}
