//! Pairs of alloc and free in Rust, on the machine of a `pt_cpu`: the baseline for the same in C.
use crate::arch::Entries;
use crate::cpu::{Cpu, PtCpu};
use crate::object::Arg;
use core::hint::black_box;
use core::ptr::NonNull;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::format::Format;
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::{Level, NoConstruct};
use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, PolicyOn, Quicklists, Source};
use ptarmigan::window::DirectMap;

/// Takes a leaf table and gives it back, `n` times.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn pt_yardstick_pairs(cpu: Arg<'_, PtCpu>, n: u64) {
    let Ok(cpu) = Cpu::find(&cpu) else { return };
    let on = cpu.on();
    for _ in 0..n {
        if let Ok(page) = on.alloc(black_box(Level::PTE), AllocFlags::NORMAL) {
            // SAFETY: 1. taken just now.
            unsafe { on.free_unlinked(black_box(page)) };
        }
    }
}

/// The same on lists that look after their pages, as the functions for C do: [`Checked`]. They are
/// made in `memory`, of the machine's frames, and take a small part of the time.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU; `memory` has `bytes` bytes
/// that are the call's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_yardstick_checked(cpu: Arg<'_, PtCpu>, memory: *mut u8, bytes: usize, n: u64) {
    let (Ok(cpu), Some(memory)) = (Cpu::find(&cpu), NonNull::new(memory)) else { return };
    let parts = cpu.parts();
    // SAFETY: 1. by the caller: the lists end with this call.
    let boot = &mut unsafe { BootMemory::new(memory, bytes) };
    let Ok(checked) = Checked::new(boot, parts.frames(), CheckConfig::new(|_| {})) else { return };
    // SAFETY: 1. the direct map reaches all low frames. 2. no page is constructed. 3. and 4. as for
    // the machine's own lists.
    let source = unsafe { Source::new(parts.frames(), *parts.window(), NoConstruct, Entries::LAYOUT) };
    let Ok(lists) = Quicklists::with_check(boot, ListsConfig::new(1), source, checked) else { return };
    let Some(on) = PolicyOn::new(&lists, cpu.on().pin()) else { return };
    pt_yardstick_checked_pairs(on, n);
    on.drain();
    on.reclaim(cpu.on().node(), u32::MAX);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn pt_yardstick_checked_pairs(on: PolicyOn<'_, Quicklists<'_, DirectMap, NoConstruct, Checked>>, n: u64) {
    for _ in 0..n {
        if let Ok(page) = on.alloc(black_box(Level::PTE), AllocFlags::NORMAL) {
            // SAFETY: 1. taken just now.
            unsafe { on.free_unlinked(black_box(page)) };
        }
    }
}
