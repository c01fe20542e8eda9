//! Finds the pages for static hooks.
use crate::Pages;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::WithPin;
use ptarmigan::quicklist::Policy;

/// Leads hooks that have no argument to carry [`Pages`] to theirs.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. [`pages`](Self::pages) returns pages of one policy each time, on every thread. Either all of
///    them are given back [at once](Pages::at_once), or no page is.
/// 2. Only the page-table crate calls the crate's hooks for this type, and it gives each page back
///    once. The hooks are safe functions of the crate's trait, so the compiler does not keep others
///    from it; a type that is private to its module does.
/// 3. [`pointer`](Self::pointer) must return the result of [`Pages::pointer`] of these pages.
pub unsafe trait Home: Copy + Send + Sync + 'static {
    /// The policy that the pages are of.
    type Policy: Policy + 'static;
    /// How a hook learns where it runs.
    type Pin: WithPin + 'static;

    /// Returns the pages.
    fn pages() -> &'static Pages<'static, Self::Policy, Self::Pin>;

    /// Returns where the byte at `at` is in the direct map, as [`Pages::pointer`] does.
    ///
    /// The crates call it at each level of each walk. A kernel whose direct map lies at a constant
    /// address adds that, instead of a look into the pages: then the compiler can inline the walk.
    #[inline]
    fn pointer(at: PhysAddr) -> *mut u8 {
        Self::pages().pointer(at)
    }
}
