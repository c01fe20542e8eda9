//! Changes groups, whose entries belong to a tree or to a range of the kernel's half.
use super::broken::Broken;
use super::group::Group;
use super::node::{Node, Use};
use crate::format::Format;
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::TlbRefusal;

/// Collects pages that CPUs have to forget: the gather of a tree, or the stale pages of a kernel
/// range.
pub(super) trait Changes<'a, F: Format, M: Machine + 'a> {
    /// The CPU that changes the entries.
    fn cpu(&self) -> On<'a, M>;

    /// How others use the entries.
    fn users(&self) -> Use;

    /// Refuses if this CPU cannot flush now.
    fn check_flush(&self) -> Result<(), TlbRefusal>;

    /// Notes that all of a group changes.
    fn note_group(&mut self, group: &Group<'_, '_, F, M::Window>);

    /// Has CPUs forget the pages that are noted so far; the last flush is still to come.
    fn flush_noted(&mut self) -> Result<(), TlbRefusal>;

    /// Tells the machine of a leaf of a table of `level` that has become valid.
    fn valid(&mut self, level: Level, va: u64, raw: u64);
}

impl<'a, F: Format, M: Machine> Changes<'a, F, M> for Gather<'a, M> {
    fn cpu(&self) -> On<'a, M> {
        self.on()
    }

    fn users(&self) -> Use {
        Use::private(self.is_private())
    }

    fn check_flush(&self) -> Result<(), TlbRefusal> {
        self.on().tlb().may_flush(self.on().pin())
    }

    fn note_group(&mut self, group: &Group<'_, '_, F, M::Window>) {
        let (start, end) = (group.va(), group.va() + group.bytes());
        if group.level() == Level::PTE {
            self.changed_pages(start, end);
        } else {
            self.changed_large(start, end, F::shift(group.level()));
        }
    }

    fn flush_noted(&mut self) -> Result<(), TlbRefusal> {
        self.flush_so_far()
    }

    #[inline(never)]
    fn valid(&mut self, level: Level, va: u64, raw: u64) {
        self.became_valid_leaf(va, F::shift(level), 0, raw);
    }
}

/// Flushes, and makes the entries that are broken off.
///
/// # Errors
///
/// [`TlbRefusal`] if this CPU cannot flush now; the old entries are in their places then.
pub(super) fn make_broken<'a, 'w, F: Format, M: Machine + 'a, C, T, const N: usize>(
    broken: &mut Broken<'w, F, M::Window, T, N>,
    changes: &mut C,
    change: &impl Fn(Level, u64, u64) -> u64,
) -> Result<(), TlbRefusal>
where
    C: Changes<'a, F, M>,
    M::Window: 'w,
    T: Fn(Level, u64) -> Option<Node<'w, F, M::Window>>,
{
    if broken.is_empty() {
        return Ok(());
    }
    broken.make_by(changes, C::flush_noted, change, |changes, level, va, raw| changes.valid(level, va, raw))
}

/// Changes the group to what `change(level, address, leaf)` makes of its [leaf](Group::leaf), with
/// the hint or without. If that needs a break, it waits in `broken`.
///
/// # Errors
///
/// [`TlbRefusal`] if that needs a break and this CPU cannot flush now; it is unchanged then.
pub(super) fn change_group<'a, 'w, F: Format, M: Machine + 'a, C, T, const N: usize>(
    group: &Group<'_, '_, F, M::Window>,
    hint: bool,
    broken: &mut Broken<'w, F, M::Window, T, N>,
    changes: &mut C,
    change: &impl Fn(Level, u64, u64) -> u64,
) -> Result<(), TlbRefusal>
where
    C: Changes<'a, F, M>,
    M::Window: 'w,
    T: Fn(Level, u64) -> Option<Node<'w, F, M::Window>>,
{
    let (others, level, old) = (changes.users(), group.level(), group.leaf());
    let new = change(level, group.va(), old);
    if new == old && group.is(new, hint) {
        return Ok(());
    }
    group.before_changed(changes.cpu(), old, new);
    if others == Use::Walked && group.breaks(new, hint) {
        changes.check_flush()?;
        if broken.is_full() {
            make_broken(broken, changes, change)?;
        }
        changes.note_group(group);
        broken.add_group(group);
        return Ok(());
    }
    changes.note_group(group);
    group.write(old, new, hint, others);
    Ok(())
}

/// Gives the leaves of tables of `level` around `va`, as many as a group has, the hint, or takes it
/// from them. `find` finds the table of a level for an address.
///
/// # Errors
///
/// [`TlbRefusal`] if that needs a break and this CPU cannot flush now; they are unchanged then.
#[cold]
pub(super) fn rehint<'a, 'w, F: Format, M: Machine + 'a, C: Changes<'a, F, M>>(
    find: impl Fn(Level, u64) -> Option<Node<'w, F, M::Window>>,
    (va, level): (u64, Level),
    hint: bool,
    changes: &mut C,
) -> Result<(), TlbRefusal>
where
    M::Window: 'w,
{
    let Some(node) = find(level, va) else { return Ok(()) };
    let group = Group::around(&node, va);
    if group.is_hinted() == hint {
        return Ok(());
    }
    let mut broken = Broken::<_, _, _, 1>::new(&find).with_hints(hint);
    change_group(&group, hint, &mut broken, changes, &|_, _, raw| raw)?;
    make_broken(&mut broken, changes, &|_, _, raw| raw)
}
