//! The part of a format around another one that is the other's.

/// Defines what entries of the format `$format` are, but for links, frames and attributes, in an
/// `impl` of [`Format`](super::Format).
macro_rules! around {
    ($format:ty) => {
        type Slot = Slot64;
        const LAYOUT: Layout = <$format>::LAYOUT;
        const LEVEL_NAMES: &'static [&'static str] = <$format>::LEVEL_NAMES;
        const PAGE_SHIFT: u32 = <$format>::PAGE_SHIFT;
        const INDEX_BITS: [u8; MAX_LEVELS] = <$format>::INDEX_BITS;
        const USER_END: u64 = <$format>::USER_END;
        const KERNEL_START: u64 = <$format>::KERNEL_START;
        const USER_ROOT_ENTRIES: usize = <$format>::USER_ROOT_ENTRIES;
        const LEAF_LEVELS: u8 = <$format>::LEAF_LEVELS;

        #[inline]
        fn is_present(level: Level, raw: u64) -> bool {
            <$format>::is_present(level, raw)
        }
        #[inline]
        fn allows(level: Level, raw: u64, access: Access) -> bool {
            <$format>::allows(level, raw, access)
        }
        #[inline]
        fn write_protected(level: Level, raw: u64) -> u64 {
            <$format>::write_protected(level, raw)
        }
        #[inline]
        fn is_special(level: Level, raw: u64) -> bool {
            <$format>::is_special(level, raw)
        }
    };
}
pub(super) use around;
