//! Marks the files and functions of a test that are not under test.
use crate::state::Sanitizer;

impl Sanitizer {
    /// Marks files or functions as harness, for findings that are made from now on: see
    /// [`Config::harness`](crate::Config::harness).
    /// ```
    /// use ptsan::{Arch, Config, Format, Sanitizer, Trace, TraceFrame};
    ///
    /// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
    /// san.mark_harness("hooks.rs");
    /// let frame = |symbol: &str, at: &str| TraceFrame { symbol: symbol.into(), at: Some(at.into()) };
    /// let callers = vec![frame("tests::free", "tests/hooks.rs:9:5"), frame("kernel::unmap", "src/mm.rs:70:9")];
    /// san.called_from(Some(Trace::new(callers)));
    /// san.table_freed(&vec![0u8; 1 << 16], 0x1000, 4096); // nobody announced it
    /// assert!(san.report_as(Format::Short).to_string().contains(" mm.rs:70 "));
    /// ```
    pub fn mark_harness(&mut self, pattern: &str) {
        self.reports.mark_harness(pattern);
    }
}
