//! Carries recorded calls out on an address space.
use super::step::CallError;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::space::{Access, Advice, AreaFlags, SpaceMachine, SpaceMut};
use ptarmigan_trace::{AreaKind, Kind, MapFlags, Prot};

/// Binary logarithm of the recorded page size.
pub const PAGE: u32 = 12;

fn range(start: u64, pages: u64) -> VirtRange {
    VirtRange { start: start << PAGE, end: start.saturating_add(pages) << PAGE }
}

fn permissions(prot: Prot) -> AreaFlags {
    // Both use the same bits.
    AreaFlags(u16::from(prot.0) & AreaFlags::PERMISSIONS.0)
}

/// Makes a call that changes areas or tables of one space; others do nothing.
///
/// # Errors
/// [`CallError`] if there was no memory or the call makes no sense in this space.
pub fn call<F: Format, M: SpaceMachine>(space: &mut SpaceMut<'_, F, M>, kind: Kind) -> Result<(), CallError> {
    match kind {
        Kind::Area { start, pages, prot, kind } => {
            let range = range(start, pages);
            let flags = permissions(prot);
            match kind {
                AreaKind::Stack => space.move_stack(range, flags)?,
                AreaKind::Anon => space.mmap(range, flags, 0)?,
                AreaKind::File => space.mmap(range, flags.with(AreaFlags::BACKED), 1)?,
                AreaKind::Special => {
                    let flags = flags.with(AreaFlags::BACKED).with(AreaFlags::SPECIAL);
                    space.mmap(range, flags, 1)?;
                }
            }
        }
        Kind::Mmap { start, pages, prot, flags } => {
            let area = range(start, pages);
            let mut kind = permissions(prot);
            for (bit, to) in
                [(MapFlags::SHARED, AreaFlags::SHARED), (MapFlags::GROWSDOWN, AreaFlags::GROWS_DOWN)]
            {
                if flags.0 & bit != 0 {
                    kind = kind.with(to);
                }
            }
            if flags.0 & MapFlags::ANON == 0 {
                kind = kind.with(AreaFlags::BACKED);
            }
            let object = u32::from(kind.has(AreaFlags::BACKED) || kind.has(AreaFlags::SHARED));
            space.mmap(area, kind, object)?;
            if flags.0 & MapFlags::POPULATE != 0 {
                let write = kind.has(AreaFlags::WRITE) && !kind.has(AreaFlags::SHARED);
                space.populate(area, if write { Access::Write } else { Access::Read })?;
            }
        }
        Kind::Munmap { start, pages } => space.munmap(range(start, pages))?,
        Kind::Brk { end } => space.brk(VirtAddr(end << PAGE))?,
        Kind::Mremap { from, old_pages, to, new_pages, keep } => {
            space.mremap(range(from, old_pages), range(to, new_pages), keep)?;
        }
        Kind::Mprotect { start, pages, prot } => {
            space.mprotect(range(start, pages), permissions(prot))?;
        }
        Kind::Madvise { start, pages, advice } => {
            if let Some(advice) = advice_of(advice) {
                space.madvise(range(start, pages), advice)?;
            }
        }
        Kind::Fault { .. }
        | Kind::Clone { .. }
        | Kind::Exec { .. }
        | Kind::Exit { .. }
        | Kind::Idle
        | Kind::TlbFlush { .. }
        | Kind::Truth { .. } => {}
    }
    Ok(())
}

/// Returns what Linux's advice means for tables, or `None` if it means nothing.
fn advice_of(number: u16) -> Option<Advice> {
    Some(match number {
        4 | 24 => Advice::DontNeed,
        10 => Advice::DontFork(true),
        11 => Advice::DontFork(false),
        18 => Advice::WipeOnFork(true),
        19 => Advice::WipeOnFork(false),
        22 => Advice::Populate(Access::Read),
        23 => Advice::Populate(Access::Write),
        _ => return None,
    })
}
