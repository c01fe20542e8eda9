//! The functions that QEMU calls.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kernel_plugin::{self as api, ADD, Argument, Block, Id, LOADS_AND_STORES, Machine, NO_REGISTERS};

use crate::caches::{self, LINE};
use crate::groups;
use crate::pages::By;
use crate::{
    BEGUN, CASES, COUNTER, FORGOTTEN, IS_A64, InstructionKind, KERNEL, KERNEL_START, OUT, PROFILED, PROGRAMS,
    ROOTS, ZEROED, count_of, kind_a64, kind_x86,
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

/// An access, for the model of caches.
extern "C" fn cached(_: c_uint, access: u32, at: u64, _: *mut c_void) {
    if !BEGUN.load(Relaxed) {
        return;
    }
    // SAFETY: questions about the access that QEMU has just made; the place is good during this
    // call.
    let place = unsafe {
        let place = api::qemu_plugin_get_hwaddr(access, at);
        (!place.is_null() && !api::qemu_plugin_hwaddr_is_io(place))
            .then(|| api::qemu_plugin_hwaddr_phys_addr(place))
    };
    if let Some(place) = place {
        COUNTER.with_borrow_mut(|counter| counter.caches.access(place));
    }
}

/// The first instruction of a line, for the model of caches.
extern "C" fn fetched(_: c_uint, line: *mut c_void) {
    if BEGUN.load(Relaxed) {
        COUNTER.with_borrow_mut(|counter| counter.caches.execute(line.addr() as u64));
    }
}

/// Has the model of caches told of the lines of a block and of its accesses.
///
/// # Safety
///
/// 1. QEMU has passed the block to a call that has not returned.
unsafe fn model(block: *mut Block) {
    let mut last = 0;
    // SAFETY: 1. The block and its instructions are good (point 1). The functions that are
    // registered are the plugin's own, which stays loaded.
    unsafe {
        for (instruction, ..) in api::instructions(block) {
            // Where the guest's memory is in QEMU: a physical address by another name.
            let line = api::qemu_plugin_insn_haddr(instruction).addr() as u64 / LINE;
            if line != last && line != 0 {
                let data = core::ptr::without_provenance_mut(line as usize);
                api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, fetched, NO_REGISTERS, data);
            }
            last = line;
            let data = core::ptr::null_mut();
            api::qemu_plugin_register_vcpu_mem_cb(instruction, cached, NO_REGISTERS, LOADS_AND_STORES, data);
        }
    }
}

extern "C" fn translated(_: Id, block: *mut Block) {
    if caches::are_modelled() {
        // SAFETY: 1. It is QEMU's block of this call.
        unsafe { model(block) };
    }
    // SAFETY: the block is QEMU's and is good during this call, its instructions too. The counters
    // are statics. The functions that are registered are the plugin's own, which stays loaded.
    unsafe {
        for (instruction, at, bytes) in api::instructions(block) {
            let counts = |count: &'static AtomicU64| {
                let place = count.as_ptr().cast::<c_void>();
                api::qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, place, 1);
            };
            let kind = if IS_A64.load(Relaxed) { kind_a64(bytes) } else { kind_x86(bytes) };
            if at < KERNEL_START.load(Relaxed) {
                counts(&PROGRAMS);
                if let InstructionKind::Mark(mark) = kind {
                    let mark = core::ptr::without_provenance_mut(mark);
                    api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, mark);
                }
                continue;
            }
            counts(&KERNEL);
            if PROFILED.get().is_some() {
                counts(count_of(at));
            }
            if let Some(count) = groups::count_of(at) {
                counts(count);
            }
            let by = match kind {
                InstructionKind::RepStos => By::RepStos,
                InstructionKind::RepMovs => By::RepMovs,
                _ => By::Stores,
            };
            let (which, data) = (LOADS_AND_STORES, core::ptr::without_provenance_mut(by as usize));
            api::qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, which, data);
            match kind {
                InstructionKind::ForgetsPage => counts(&FORGOTTEN),
                InstructionKind::LoadsRoot => counts(&ROOTS),
                InstructionKind::Zeroes => counts(&ZEROED),
                _ => {}
            }
        }
    }
}

/// Takes the plugin's arguments: the instruction set, where the kernel begins, where counts go, and
/// a case whose instructions are counted one by one.
fn read(texts: &[String]) -> Result<(), String> {
    for text in texts {
        match text.split_once('=') {
            Some(("kernel", start)) => {
                let number = u64::from_str_radix(start.trim_start_matches("0x"), 16);
                KERNEL_START.store(number.map_err(|e| format!("kernel={start}: {e}"))?, Relaxed);
            }
            Some(("isa", isa @ ("x86" | "aarch64"))) => IS_A64.store(isa == "aarch64", Relaxed),
            Some(("profile", case)) => {
                PROFILED.set(case.parse().map_err(|e| format!("profile={case}: {e}"))?).ok();
            }
            Some(("caches", on @ ("on" | "off"))) => caches::MODELLED.store(on == "on", Relaxed),
            Some(("groups", path)) => groups::read(path)?,
            Some(("out", path)) => _ = OUT.set(path.to_owned()),
            _ => {
                return Err(format!(
                    "argument {text} is not known: there are isa=, kernel=, profile=, groups=, caches= and out="
                ));
            }
        }
    }
    OUT.get().map(|_| ()).ok_or("where to? out= is missing".into())
}

/// Called by QEMU when it loads the plugin, with the arguments `isa=`, `kernel=` and `out=`.
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
    if let Err(e) = read(&unsafe { api::texts(count, arguments) }) {
        eprintln!("kernel-counter: {e}");
        return 1;
    }
    // SAFETY: the function is the plugin's own, which stays loaded.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}
