//! The pages of a policy, reported to the sanitizer.
use crate::mmu::SoftMmu;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan_hosted::test::MmuTraits;
use ptsan::Content;

fn bytes<F: Format>(level: Level) -> u64 {
    1 << F::LAYOUT.table_shift[level.at()]
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<F: Format, T: MmuTraits, P: Policy> Layer<P> for &SoftMmu<'_, F, T> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.host().frames())
    }

    fn alloc(
        &self,
        _: &P,
        _: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        // Root tables hold the kernel's entries already, if there are any.
        let is_mixed = level == F::LAYOUT.root() && F::USER_ROOT_ENTRIES < F::entries(level);
        let content = if is_mixed { Content::Unchecked } else { Content::Zero };
        self.with(|sanitizer, memory| {
            sanitizer.table_allocated(memory, page.addr().0, bytes::<F>(level), Some(level.0), content);
        });
        Ok(page)
    }

    fn adopted(&self, _: &P, _: &Pinned<'_>, page: &Clean) {
        let (at, level) = (page.addr().0, page.level());
        self.with(|sanitizer, memory| {
            sanitizer.table_allocated(memory, at, bytes::<F>(level), Some(level.0), Content::Zero);
        });
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.table_freed(level, at, bytes::<F>(level));
    }
}
