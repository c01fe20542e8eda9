//! The hooks of devices that walk tables: an IOMMU's, or those of a process.
use crate::error::Refusal;
use crate::handles::{Ptsan, answer, call, hook};
use ptsan::{DeviceEntry, Flush};

/// In place of the address of a device's entry: all of its entries.
pub const PTSAN_ALL_ENTRIES: u64 = u64::MAX;

/// Returns the number by which other functions name device `device`, counted from 0
/// (`ptsan_options.devices`), in place of a CPU. Negative: a `ptsan_error`.
///
/// `ptsan_switch` attaches a device to the tables at a root, under the number of a domain or a
/// PASID, and `ptsan_leave` detaches it; its caches survive both. `ptsan_access` is an
/// access of the device. `ptsan_flush_page` and its like are invalidations that are over when they
/// return. `PTSAN_EVERY_CPU` is no device.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_device(san: *mut Ptsan, device: u32) -> i32 {
    answer(call("ptsan_device", san, |machine| {
        let number = machine.check(|s, _| {
            let number = s.device(device as usize);
            s.cpu_state(number).map(|_| number)
        });
        let number = number.and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| Refusal::argument(format!("device {device}; see ptsan_options.devices")))
    }))
}

/// Tells that an invalidation of `start`, `start + stride` and so on below `end` in a domain was
/// put into the queue of a device. It helps when `ptsan_queue_completed` says that it was waited
/// for, and only against earlier stores.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_queue_range(
    san: *mut Ptsan,
    device: i32,
    space: u64,
    start: u64,
    end: u64,
    stride: u64,
    leaf_only: bool,
) -> i32 {
    queue("ptsan_queue_range", san, device, Flush { leaf_only, ..Flush::range(space, start, end, stride) })
}

/// Tells that an invalidation of a range that names the level of its pages was put into the queue
/// of a device (SMMUv3 commands with TTL): see `ptsan_queue_range` and `ptsan_flush_level`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_queue_level(
    san: *mut Ptsan,
    device: i32,
    space: u64,
    start: u64,
    end: u64,
    stride: u64,
    level: u8,
) -> i32 {
    queue("ptsan_queue_level", san, device, Flush::range(space, start, end, stride).level(level))
}

/// Tells that an invalidation of a domain was put into the queue of a device: see
/// `ptsan_queue_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_queue_space(san: *mut Ptsan, device: i32, space: u64) -> i32 {
    queue("ptsan_queue_space", san, device, Flush::space(space))
}

/// Tells that an invalidation of everything was put into the queue of a device: see
/// `ptsan_queue_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_queue_all(san: *mut Ptsan, device: i32) -> i32 {
    queue("ptsan_queue_all", san, device, Flush::all())
}

fn queue(name: &str, san: *mut Ptsan, device: i32, flush: Flush) -> i32 {
    hook(name, san, |machine| {
        let device = machine.cpu(device)?;
        machine.check(|s, _| s.flush_queued(device, flush));
        Ok(())
    })
}

/// Tells that the kernel has waited until a device carried out all of its queue: a wait
/// descriptor's status was written (VT-d), `COMPLETION_WAIT` has stored (AMD), `CMD_SYNC` is
/// consumed (SMMU).
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_queue_completed(san: *mut Ptsan, device: i32) -> i32 {
    hook("ptsan_queue_completed", san, |machine| {
        let device = machine.cpu(device)?;
        machine.check(|s, memory| s.queue_completed(memory, device));
        Ok(())
    })
}

/// Tells that a device reads the entry of `bytes` bytes (8, 16, 32, 64) at `phys` from now on: a
/// context entry, a PASID entry, a device-table entry, a stream-table entry. It is valid if any bit
/// of `valid_bits` is set in its word `valid_word`, of 8 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_device_entry(
    san: *mut Ptsan,
    device: i32,
    phys: u64,
    bytes: u8,
    valid_word: u8,
    valid_bits: u64,
) -> i32 {
    hook("ptsan_device_entry", san, |machine| {
        let device = machine.cpu(device)?;
        let shape = DeviceEntry { bytes, valid: (valid_word, valid_bits) };
        machine.check(|s, memory| s.device_entry(memory, device, phys, shape));
        Ok(())
    })
}

/// Tells that bytes of such an entry were stored to at `phys`, by one instruction: call it once for
/// each. A valid entry that is changed in pieces is torn.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_device_entry_written(san: *mut Ptsan, phys: u64) -> i32 {
    hook("ptsan_device_entry_written", san, |machine| {
        machine.check(|s, memory| s.device_entry_written(memory, phys));
        Ok(())
    })
}

/// Tells that a device forgot the entry at `phys`, or with `PTSAN_ALL_ENTRIES` all of its entries.
/// Its cached tables are another matter.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_device_entries_flushed(san: *mut Ptsan, device: i32, phys: u64) -> i32 {
    hook("ptsan_device_entries_flushed", san, |machine| {
        let device = machine.cpu(device)?;
        let phys = Some(phys).filter(|phys| *phys != PTSAN_ALL_ENTRIES);
        machine.check(|s, _| s.device_entries_flushed(device, phys));
        Ok(())
    })
}
