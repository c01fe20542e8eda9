//! The functions that QEMU calls.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kernel_plugin::{self as api, ADD, Argument, Block, Id, LOADS_AND_STORES, Machine, NO_REGISTERS};

use crate::pages::By;
use crate::{
    BEGUN, CASES, COUNTER, FORGOTTEN, KERNEL, KERNEL_START, Kind, OUT, PROFILED, PROGRAMS, ROOTS, count_of,
    kind,
};

/// The version of the interface that this plugin is written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

extern "C" fn marked(_: c_uint, data: *mut c_void) {
    let mark = data.addr();
    COUNTER.with_borrow_mut(|counter| counter.mark((mark / 2) % CASES, mark % 2 == 1));
}

extern "C" fn accessed(_: c_uint, access: u32, at: u64, data: *mut c_void) {
    if !BEGUN.load(Relaxed) {
        return;
    }
    // SAFETY: questions about the value that QEMU passed to this call.
    let (size, is_store) =
        unsafe { (1 << api::qemu_plugin_mem_size_shift(access), api::qemu_plugin_mem_is_store(access)) };
    let by = match data.addr() {
        0 => By::RepStos,
        1 => By::RepMovs,
        _ => By::Stores,
    };
    let now = KERNEL.load(Relaxed);
    COUNTER.with_borrow_mut(|counter| {
        if is_store {
            counter.pages.store(at, size, by, now, &mut counter.written);
        } else {
            counter.pages.load(at, size, now);
        }
    });
}

extern "C" fn translated(_: Id, block: *mut Block) {
    let place = |count: &'static AtomicU64| count.as_ptr().cast::<c_void>();
    // SAFETY: the block is QEMU's and is good during this call, its instructions too; each has as
    // many bytes as it says. The counters are statics. The functions that are registered are the
    // plugin's own, which stays loaded.
    unsafe {
        for index in 0..api::qemu_plugin_tb_n_insns(block) {
            let instruction = api::qemu_plugin_tb_get_insn(block, index);
            let bytes = api::qemu_plugin_insn_data(instruction);
            let bytes = core::slice::from_raw_parts(bytes, api::qemu_plugin_insn_size(instruction));
            let kind = kind(bytes);
            if api::qemu_plugin_insn_vaddr(instruction) < KERNEL_START.load(Relaxed) {
                api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, place(&PROGRAMS), 1);
                if let Kind::Mark(mark) = kind {
                    let mark = core::ptr::without_provenance_mut(mark);
                    api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, mark);
                }
                continue;
            }
            api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, place(&KERNEL), 1);
            if PROFILED.get().is_some() {
                let count = place(count_of(api::qemu_plugin_insn_vaddr(instruction)));
                api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, count, 1);
            }
            let by = match kind {
                Kind::RepStos => By::RepStos,
                Kind::RepMovs => By::RepMovs,
                _ => By::Stores,
            };
            let data = core::ptr::without_provenance_mut(by as usize);
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                NO_REGISTERS,
                LOADS_AND_STORES,
                data,
            );
            match kind {
                Kind::ForgetsPage => {
                    api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, place(&FORGOTTEN), 1);
                }
                Kind::LoadsRoot => {
                    api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, place(&ROOTS), 1);
                }
                _ => {}
            }
        }
    }
}

/// Called by QEMU when it loads the plugin, with the arguments `kernel=` and `out=`.
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
    let mut out = None;
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: 1. Point 1 of the caller's: the text is there, and ends with a zero.
        let text = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy();
        match text.split_once('=') {
            Some(("kernel", start)) => match u64::from_str_radix(start.trim_start_matches("0x"), 16) {
                Ok(start) => KERNEL_START.store(start, Relaxed),
                Err(e) => {
                    eprintln!("kernel-counter: kernel={start}: {e}");
                    return 1;
                }
            },
            Some(("profile", case)) => match case.parse() {
                Ok(case) => _ = PROFILED.set(case),
                Err(e) => {
                    eprintln!("kernel-counter: profile={case}: {e}");
                    return 1;
                }
            },
            Some(("out", path)) => out = Some(path.to_owned()),
            _ => {
                eprintln!(
                    "kernel-counter: argument {text} is not known: there are kernel=, profile= and out="
                );
                return 1;
            }
        }
    }
    let Some(out) = out else {
        eprintln!("kernel-counter: where to? out= is missing");
        return 1;
    };
    OUT.set(out).ok();
    // SAFETY: the function is the plugin's own, which stays loaded.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}
