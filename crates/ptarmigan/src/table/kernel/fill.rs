//! Maps frames that come one after another.
use super::range::KernelRange;
use crate::addr::{Pfn, VirtAddr};
use crate::format::{Attr, Format};
use crate::frames::AllocFlags;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::map_error::MapError;
use crate::table::node::Use;
use crate::window::OpenWindow;

impl<F: Format, W: OpenWindow> KernelRange<'_, F, W> {
    /// Maps `pages` pages from `at` on to frames that `next` gives, one for each. No CPU reaches
    /// any of them before all are there. If `next` fails, `back` gets the frames that it has given,
    /// and no page stays mapped; tables that were made stay for later.
    ///
    /// If `next` or `back` unwinds, the remaining entries allow no access; the next
    /// [`unmap`](Self::unmap) of the pages names their frames.
    ///
    /// # Errors
    ///
    /// [`MapError`] before the first frame is asked for, and the error of `next`.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each frame that `next` gives.
    #[allow(clippy::too_many_arguments, reason = "a page range, its attributes, and two callbacks")]
    pub unsafe fn map_each<M: Machine, E: From<MapError>>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
        mut next: impl FnMut() -> Result<Pfn, E>,
        mut back: impl FnMut(Pfn),
    ) -> Result<(), E> {
        self.accept_mapping(on, at, pages)?;
        F::expresses(attr).map_err(MapError::from)?;
        self.prepare(on, at, pages, flags)?;
        let absent = attr.without_access();
        let (mut failed, mut put) = (None, 0);
        self.map_of().each_table(on, at, pages, |node, _, low, high| {
            for index in low..=high {
                if failed.is_some() {
                    return;
                }
                match next() {
                    Ok(pfn) => node.put(index, F::leaf(Level::PTE, pfn, absent)),
                    Err(e) => {
                        failed = Some(e);
                        return;
                    }
                }
                put += 1;
            }
        });
        if let Some(e) = failed {
            // No MMU has found, or writes to, entries that are not present.
            self.map_of().each_table(on, at, put, |node, _, low, high| {
                node.clear(low, high, Use::Private, |_, old| back(F::frame(Level::PTE, old)));
            });
            return Err(e);
        }
        self.map_of().each_table(on, at, pages, |node, base, low, high| {
            for index in low..=high {
                on.before_mapped::<F>(attr, F::frame(Level::PTE, node.load(index)), 1);
                node.replace(index, Use::Private, |raw| F::map_attr(Level::PTE, raw, |_| attr));
            }
            let first = base + low as u64 * (1 << F::PAGE_SHIFT);
            on.became_valid(None, first, F::PAGE_SHIFT, (high - low + 1) as u64, 0, node.load(low));
        });
        Ok(())
    }
}
