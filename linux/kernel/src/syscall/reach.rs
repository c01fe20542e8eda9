//! The areas that a call reaches, and the places that it finds.

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::Access;
use ptarmigan::machine::On;
use ptarmigan::space::{Area, AreaFlags, FaultError, SpaceMut};

use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::Machine;

const PAGE: u64 = FRAME_SIZE as u64;
/// The gap between the highest mapping and the stack: its largest size, and more.
pub(crate) const BELOW_STACK: u64 = 16 << 20;

/// A space that a call changes.
pub(crate) type Edit<'e, A> = SpaceMut<'e, <A as Arch>::Format, Machine<A>>;

/// The part of a range that a call reaches, from its start up to the first address where it has to
/// stop, and why it stops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub end: u64,
    pub stops: Option<Errno>,
}

impl Reach {
    /// Begins at `start`.
    pub fn new(start: u64) -> Self {
        Reach { end: start, stops: None }
    }

    /// Goes on to an area. `allows` says if the call may change it.
    pub fn visit(&mut self, area: &Area, allows: Result<(), Errno>) {
        if self.stops.is_some() {
            return;
        }
        if area.start > self.end {
            self.stops = Some(Errno::ENOMEM);
        } else if let Err(e) = allows {
            self.stops = Some(e);
        } else {
            self.end = area.end;
        }
    }

    /// Ends at `end`: at a hole before it, the call stops.
    pub fn up_to(self, end: u64) -> Self {
        let stops = if self.end < end { self.stops.or(Some(Errno::ENOMEM)) } else { None };
        Reach { end: self.end.min(end), stops }
    }
}

/// Finds a gap of `len` bytes below the stack.
pub(crate) fn gap<A: Arch>(edit: &Edit<'_, A>, len: u64) -> Result<VirtRange, Errno> {
    let gap = edit.find_gap(len, A::STACK_END - BELOW_STACK);
    gap.filter(|gap| gap.start >= PAGE).ok_or(Errno::ENOMEM)
}

/// Touches all pages of a range, up to the first hole, or the first page that cannot be touched. As
/// under Linux, no page is read of an area that may be written alone, although MMUs allow that.
pub(super) fn populate<A: Arch>(
    on: On<'_, Machine<A>>,
    edit: &mut Edit<'_, A>,
    range: VirtRange,
    access: Access,
) -> Result<u64, Errno> {
    let mut reach = Reach::new(range.start);
    let visited = edit.areas().each(on, range, |area| {
        let denied = access == Access::Read && !area.flags.has(AreaFlags::READ);
        reach.visit(area, Errno::EINVAL.when(denied));
    });
    visited.map_err(|_| Errno::EFAULT)?;
    let reach = reach.up_to(range.end);
    let mut at = range.start;
    while at < reach.end {
        edit.fault(VirtAddr(at), access).map_err(|e| match e {
            FaultError::NoFrame(_) | FaultError::NoArea(_) => Errno::ENOMEM,
            FaultError::BeyondObject(_) => Errno::EFAULT,
            _ => Errno::EINVAL,
        })?;
        at += PAGE;
    }
    reach.stops.map_or(Ok(0), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64) -> Area {
        Area::new(VirtRange::new(start * PAGE, end * PAGE).expect("in order"), AreaFlags::READ, 0)
    }

    fn reach(start: u64, end: u64, areas: &[(u64, u64, bool)]) -> (u64, Option<Errno>) {
        let mut reach = Reach::new(start * PAGE);
        for (first, last, allowed) in areas {
            reach.visit(&area(*first, *last), if *allowed { Ok(()) } else { Err(Errno::EACCES) });
        }
        let reach = reach.up_to(end * PAGE);
        (reach.end / PAGE, reach.stops)
    }

    #[test]
    fn a_call_reaches_to_the_first_hole_or_unchangeable_area() {
        assert_eq!(reach(2, 4, &[(0, 9, true)]), (4, None));
        assert_eq!(reach(2, 8, &[(0, 4, true), (4, 8, true)]), (8, None));
        assert_eq!(reach(2, 8, &[(0, 4, true), (5, 8, true)]), (4, Some(Errno::ENOMEM)));
        assert_eq!(reach(2, 8, &[(3, 8, true)]), (2, Some(Errno::ENOMEM)));
        assert_eq!(reach(2, 8, &[(0, 7, true)]), (7, Some(Errno::ENOMEM)));
        assert_eq!(reach(2, 8, &[]), (2, Some(Errno::ENOMEM)));
        assert_eq!(reach(2, 8, &[(0, 4, true), (4, 9, false)]), (4, Some(Errno::EACCES)));
        assert_eq!(reach(2, 8, &[(0, 4, false), (5, 9, true)]), (2, Some(Errno::EACCES)));
        // The first reason is the one that counts.
        assert_eq!(reach(2, 8, &[(0, 3, true), (4, 5, false)]), (3, Some(Errno::ENOMEM)));
    }
}
