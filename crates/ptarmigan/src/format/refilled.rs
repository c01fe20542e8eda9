//! Shares the tree of formats whose TLBs software fills: three levels of tables as large as a page,
//! all of the root the user's, links that bits of their own tell from leaves, no large pages.

/// Defines the shape of a format with pages of 2^`page` bytes, and the functions that ask for
/// `address`, the bits of an address, and for single bits. A link has the bits `link` besides the
/// address, and no other.
macro_rules! refilled_tree {
    (page: $page:expr, address: $address:expr, link: $link:expr, present: $present:expr, special: $special:expr) => {
        const LAYOUT: Layout = Layout { levels: 3, table_shift: [$page, $page, $page, 0, 0] };
        const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pgd"];
        const PAGE_SHIFT: u32 = $page;
        const INDEX_BITS: [u8; MAX_LEVELS] = [$page - 3, $page - 3, $page - 3, 0, 0];
        const USER_END: u64 = 1 << ($page + 3 * ($page - 3));
        const KERNEL_START: u64 = u64::MAX << ($page + 3 * ($page - 3));
        const USER_ROOT_ENTRIES: usize = 1 << ($page - 3);

        #[inline]
        fn link(_: Level, at: PhysAddr) -> u64 {
            at.0 | $link
        }

        #[inline]
        fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
            (raw & !$address == $link).then_some(PhysAddr(raw & $address))
        }

        #[inline]
        fn frame(_: Level, raw: u64) -> Pfn {
            PhysAddr(raw & $address).pfn()
        }

        #[inline]
        fn is_present(_: Level, raw: u64) -> bool {
            raw & $present != 0
        }

        #[inline]
        fn is_special(_: Level, raw: u64) -> bool {
            raw & $special != 0
        }
    };
}
pub(super) use refilled_tree;
