//! Turns system calls that change an address space into events.
use crate::linux::raw::MmCall;
use crate::linux::system::proc::PAGE_SHIFT;
use ptarmigan_trace::{FailedCall, FaultFlags, Kind, Locking, MapFlags, Prot};
use std::sync::OnceLock;

/// Flag of `mlock2`.
const MLOCK_ONFAULT: u64 = 1;

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(1 << PAGE_SHIFT)
}

/// Whether this kernel moves several areas with one `mremap` (Linux 6.17).
fn moves_several() -> bool {
    static ONCE: OnceLock<bool> = OnceLock::new();
    *ONCE.get_or_init(|| {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let mut parts = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
        (parts.next(), parts.next()) >= (Some(6), Some(17))
    })
}

/// Errors that calls end with after they have taken effect on a part of their range.
const HALF_WAY: [i64; 4] =
    [libc::ENOMEM as i64, libc::EINVAL as i64, libc::EFAULT as i64, libc::EAGAIN as i64];

/// Returns the event of a system call, or `None` if the call made no change.
pub(crate) fn event_of(call: MmCall, args: [u64; 5], result: i64) -> Option<Kind> {
    let kind = done(call, args, result)?;
    if !(-4095..0).contains(&result) {
        return Some(kind);
    }
    let whole_pages = args[0].is_multiple_of(1 << PAGE_SHIFT);
    let call = match kind {
        Kind::Mprotect { start, pages, prot } if result == -i64::from(libc::ENOMEM) => {
            FailedCall::Mprotect { start, pages, prot }
        }
        Kind::Madvise { start, pages, advice } => FailedCall::Madvise { start, pages, advice },
        Kind::Lock { start, pages, how } => FailedCall::Lock { start, pages, how },
        Kind::Mremap { from, old_pages, new_pages, keep, .. } => {
            let fixed = args[3] & libc::MREMAP_FIXED as u64 != 0;
            if result != -i64::from(libc::EFAULT) || !fixed || old_pages != new_pages || !moves_several() {
                return None;
            }
            FailedCall::Mremap { start: from, pages: old_pages, to: args[4] >> PAGE_SHIFT, keep }
        }
        // The reservation of huge pages fails after the old mapping is gone.
        Kind::Mmap { pages, flags, .. }
            if flags.0 & MapFlags::HUGE_ONLY != 0
                && flags.0 & MapFlags::FIXED != 0
                && result == -i64::from(libc::ENOMEM) =>
        {
            return Some(Kind::Munmap { start: args[0] >> PAGE_SHIFT, pages });
        }
        _ => return None,
    };
    let errno = u8::try_from(-result).ok()?;
    let aligned = whole_pages || matches!(call, FailedCall::Lock { .. });
    (aligned && HALF_WAY.contains(&-result)).then_some(Kind::Failed { errno, call })
}

/// Makes an event of `mmap` or `mlock` one that makes no pages present, and returns the event that
/// does so later. `None` for other events.
pub(super) fn populated_later(event: &mut Kind) -> Option<Kind> {
    let (start, pages) = match event {
        Kind::Mmap { start, pages, flags, .. } => {
            flags.0 |= MapFlags::LATER;
            (*start, *pages)
        }
        Kind::Lock { start, pages, how } if how.0 & Locking::NOW != 0 => {
            how.0 |= Locking::LATER;
            (*start, *pages)
        }
        _ => return None,
    };
    Some(Kind::Touched { start, pages, flags: FaultFlags::POPULATED })
}

/// Returns the effect of a system call that succeeds.
fn done(call: MmCall, args: [u64; 5], result: i64) -> Option<Kind> {
    let [a, b, c, d, _] = args;
    let (start, end) = (a >> PAGE_SHIFT, pages(a.saturating_add(b)));
    let len = end.saturating_sub(start);
    let prot = |bits: u64| Prot((bits & 7) as u8);
    let kind = match call {
        MmCall::Mmap => {
            let has = |flag: i32, bit: u16| if d & flag as u64 != 0 { bit } else { 0 };
            // The populated part of a file depends on where it ends: the tracer looks.
            let anon = d & libc::MAP_ANONYMOUS as u64 != 0;
            let populate = d & libc::MAP_POPULATE as u64 != 0 && d & libc::MAP_NONBLOCK as u64 == 0 && anon;
            let locked = if anon { MapFlags::POPULATE } else { 0 } | MapFlags::LOCKED;
            let flags = has(libc::MAP_ANONYMOUS, MapFlags::ANON)
                | has(libc::MAP_GROWSDOWN, MapFlags::GROWSDOWN)
                | has(libc::MAP_FIXED, MapFlags::FIXED)
                | has(libc::MAP_LOCKED, locked)
                | has(libc::MAP_NORESERVE, MapFlags::NORESERVE)
                | has(libc::MAP_HUGETLB, MapFlags::HUGE_ONLY)
                | has(libc::MAP_STACK, MapFlags::NO_HUGE)
                | if populate { MapFlags::POPULATE } else { 0 }
                // MAP_SHARED is 1, MAP_PRIVATE is 2, MAP_SHARED_VALIDATE is 3, MAP_DROPPABLE is 8.
                | if d & 1 != 0 { MapFlags::SHARED } else { 0 }
                | if d & 15 == 8 { MapFlags::DROPPABLE } else { 0 };
            Kind::Mmap {
                start: result as u64 >> PAGE_SHIFT,
                pages: pages(b),
                prot: prot(c),
                flags: MapFlags(flags),
            }
        }
        MmCall::Munmap => Kind::Munmap { start, pages: len },
        MmCall::Brk => Kind::Brk { end: pages(result as u64) },
        MmCall::Mremap => Kind::Mremap {
            from: start,
            old_pages: pages(b),
            to: result as u64 >> PAGE_SHIFT,
            new_pages: pages(c),
            keep: d & libc::MREMAP_DONTUNMAP as u64 != 0,
        },
        MmCall::Mprotect => Kind::Mprotect { start, pages: len, prot: prot(c) },
        MmCall::Madvise => Kind::Madvise { start, pages: len, advice: u16::try_from(c).ok()? },
        MmCall::Mlock => {
            let on_fault = if c & MLOCK_ONFAULT != 0 { Locking::ON_FAULT } else { 0 };
            Kind::Lock { start, pages: len, how: Locking(Locking::NOW | on_fault) }
        }
        MmCall::Munlock => Kind::Lock { start, pages: len, how: Locking(0) },
        // Linux's flags are the format's.
        MmCall::Mlockall => Kind::LockAll { how: Locking((a & 7) as u8) },
        MmCall::Munlockall => Kind::LockAll { how: Locking(0) },
    };
    match kind {
        Kind::Munmap { pages: 0, .. }
        | Kind::Mprotect { pages: 0, .. }
        | Kind::Madvise { pages: 0, .. }
        | Kind::Lock { pages: 0, .. } => None,
        kind => Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_mmap() {
        let kind = event_of(MmCall::Mmap, [0, 4097, 5, 0x8000 | 0x100 | 0x10 | 3, 0], 0x7000);
        let flags = MapFlags::GROWSDOWN | MapFlags::FIXED | MapFlags::SHARED;
        assert_eq!(kind, Some(Kind::Mmap { start: 7, pages: 2, prot: Prot(5), flags: MapFlags(flags) }));
        assert_eq!(event_of(MmCall::Mprotect, [0x1000, 0, 1, 0, 0], 0), None);
        assert_eq!(event_of(MmCall::Madvise, [u64::MAX - 4095, u64::MAX, 70_000, 0, 0], 0), None);
    }
}
