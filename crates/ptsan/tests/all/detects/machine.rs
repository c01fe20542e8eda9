//! The memory that the kernel's tables lie in, with the sanitizer that sees it.
use ptsan::{Memory, Sanitizer};

/// Memory whose stores are told, not told, or watched.
pub trait Machine {
    /// Calls a hook.
    fn hook(&mut self, body: &mut dyn FnMut(&mut Sanitizer, &dyn Memory));
    fn get(&self, at: u64) -> u64;
    /// Stores to an entry of a table.
    fn put(&mut self, at: u64, raw: u64);
    /// Exchanges an entry of a table.
    fn exchange(&mut self, at: u64, raw: u64);
    /// Stores to an entry as a walker does: no store of the code under test.
    fn hardware(&mut self, at: u64, raw: u64);
    /// Clears a table.
    fn clear(&mut self, at: u64, bytes: u64);
    /// Puts something into a frame that belongs to nobody.
    fn fill(&mut self, at: u64, bytes: u64, with: u64);
}
