//! Dumps a tree as runs, for people to read.
use super::tree::TreeRef;
use crate::addr::{Pfn, VirtRange};
use crate::format::{Attr, Format};
use crate::machine::{Machine, On};
use crate::page::Level;
use core::cell::Cell;
use core::fmt;

/// Prints a tree, a line for each run of pages with ascending frames and the same attributes.
pub struct Dump<'a, F: Format, M: Machine> {
    tree: TreeRef<'a, F>,
    on: On<'a, M>,
}

impl<'a, F: Format> TreeRef<'a, F> {
    /// Something to print; see [`Dump`].
    pub fn dump<M: Machine>(self, on: On<'a, M>) -> Dump<'a, F, M> {
        Dump { tree: self, on }
    }
}

#[derive(Clone, Copy)]
struct DumpRun {
    start: u64,
    pages: u64,
    pfn: Pfn,
    /// Frames from one page to the next: 0 where a special frame stands behind all of them.
    step: u64,
    attr: Attr,
}

impl<F: Format, M: Machine> fmt::Display for Dump<'_, F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |level: u8| F::LEVEL_NAMES[level as usize];
        write!(f, "{} tree at {}:", F::NAME, self.tree.root())?;
        for level in (0..F::LAYOUT.levels).rev() {
            write!(f, " {} {}", self.tree.count(Level(level)), name(level))?;
        }
        writeln!(f)?;
        let run: Cell<Option<DumpRun>> = Cell::new(None);
        let mut result = Ok(());
        let all = VirtRange::up_to(F::USER_END);
        let walked = self.tree.walk(self.on, all, |va, pfn, attr| {
            if let Some(mut last) = run.get() {
                let next = last.start + (last.pages << F::PAGE_SHIFT);
                // The second page of a run says whether it repeats one special frame.
                if last.pages == 1 {
                    last.step = u64::from(pfn != last.pfn || !attr.has(Attr::SPECIAL)) << F::PAGE_ORDER;
                }
                let follows = pfn.0 as u64 == last.pfn.0 as u64 + last.pages * last.step;
                if va.0 == next && attr == last.attr && follows {
                    last.pages += 1;
                    run.set(Some(last));
                    return;
                }
                result = result.and(line::<F>(f, last));
            }
            run.set(Some(DumpRun { start: va.0, pages: 1, pfn, step: 1 << F::PAGE_ORDER, attr }));
        });
        result?;
        if let Err(e) = walked {
            return writeln!(f, "  {e}");
        }
        run.get().map_or(Ok(()), |last| line::<F>(f, last))
    }
}

fn line<F: Format>(f: &mut fmt::Formatter<'_>, run: DumpRun) -> fmt::Result {
    let end = run.start + (run.pages << F::PAGE_SHIFT);
    writeln!(f, "  {:#014x}..{end:#014x} {:>6} page(s) -> {} {}", run.start, run.pages, run.pfn, run.attr)
}
