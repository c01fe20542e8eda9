//! The serial port's registers, mapped as a device's memory: by an area of the kernel's half, and
//! by an area of a space.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::format::{Aarch64, Aarch64Upper, Attr, MemoryType};
use ptarmigan::frames::AllocFlags;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::vmalloc::Vmalloc;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::{fail, fail_if, must, say};

use super::machine::tree;
use crate::machine::{on, pin};

/// The PL011 of the board, and the last four of its registers, which say what kind of device it is.
const PORT: u64 = 0x0900_0000;
const KIND: u64 = 0xff0;
const IS_CELL: [u32; 4] = [0x0d, 0xf0, 0x05, 0xb1];
/// Where the kernel has its areas, and the bytes that a leaf table maps.
const AREAS: VirtAddr = VirtAddr(0xffff_ffff_8000_0000);
const LEN: u64 = 2 << 20;
/// Where the space shows the port.
const AT: u64 = 0x40_0000;
const PAGE: u64 = 4096;

type Areas = Vmalloc<'static, Aarch64Upper, DirectMap>;

/// Reads the registers by both ways.
pub fn check() {
    let seen = [kernel(), user()];
    fail_if(seen != [IS_CELL; 2], format_args!("the serial port's registers read {seen:x?}"));
    say!("the serial port's registers are mapped as a device's");
}

/// Reads them by an area of the kernel's.
fn kernel() -> [u32; 4] {
    let pin = pin();
    let on = on(&pin);
    let range = must("a claim of the serial port", tree().claim(on, AREAS, LEN));
    let mut memory = [MaybeUninit::<u64>::uninit(); Areas::bytes(LEN).div_ceil(8)];
    // SAFETY: 1. The bytes are this call's, and the areas have ended when it returns.
    let mut boot = unsafe { BootMemory::new(NonNull::from(&mut memory).cast(), size_of_val(&memory)) };
    let Ok(mut areas) = Areas::new(&mut boot, range) else { fail(format_args!("no room for areas")) };
    let attr = (Attr::READ | Attr::ACCESSED | Attr::GLOBAL).with_memory(MemoryType::Device);
    let at = PhysAddr(PORT + KIND);
    // SAFETY: 1. Reads of these registers change nothing.
    let mapped = unsafe { areas.map_memory(on, at, 16, attr, AllocFlags::NORMAL) };
    let (area, first) = must("an area of the serial port", mapped);
    let found = areas.range().query(on, first).map(|(_, attr)| attr.memory());
    fail_if(found != Some(MemoryType::Device), format_args!("the serial port is mapped as {found:?}"));
    let read = [0, 4, 8, 12].map(|n| {
        let register: *const u32 = core::ptr::with_exposed_provenance((first.0 + n) as usize);
        // SAFETY: A register that has just been mapped; it touches no memory.
        unsafe { register.read_volatile() }
    });
    must("the end of the serial port", areas.free(on, area).map_err(|refused| refused.error));
    let Ok(range) = areas.into_range() else { fail(format_args!("an area is left")) };
    must("the release of the serial port", range.release(on, |_, _| {}).map_err(|(e, _)| e));
    read
}

/// Reads them by a space, as a program would.
fn user() -> [u32; 4] {
    let pin = pin();
    let on = on(&pin);
    let mut space = must("a space of the serial port", Space::<Aarch64>::new(on));
    let range = VirtRange::fixed::<AT, { AT + PAGE }>();
    let mut edit = must("a space of the serial port", space.edit(on));
    // SAFETY: 1. No program runs in the space, and reads of these registers change nothing.
    let mapped = unsafe { edit.map_physical(range, AreaFlags::READ, PhysAddr(PORT), MemoryType::Device) };
    must("an area of the serial port", mapped);
    must("a fault of the serial port", space.fault(on, VirtAddr(AT + KIND), Access::Read));
    must("a switch of the serial port", space.activate(on));
    let read = [0, 4, 8, 12].map(|n| {
        let value: u32;
        // SAFETY: a load as of a program, from the page that has just been mapped.
        unsafe { asm!("ldtr {0:w}, [{1}]", out(reg) value, in(reg) AT + KIND + n, options(nostack)) };
        value
    });
    must("a switch of the serial port", space.deactivate(on));
    must("the end of the serial port", space.end(on).map_err(|refused| refused.error));
    read
}
