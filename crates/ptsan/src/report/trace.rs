//! Where in the code under test a hook was called.
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::sync::Arc;

/// The callers of a hook, without the sanitizer's own functions, the runtime's and those of the
/// test harness.
///
/// Names are looked up on demand: taking a trace costs microseconds, reading it milliseconds.
#[derive(Clone)]
pub struct Trace(Arc<Backtrace>);

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// The path of the function.
    pub symbol: String,
    /// File, line and column, if there is debug information.
    pub at: Option<String>,
}

impl Trace {
    pub(crate) fn capture() -> Self {
        Self(Arc::new(Backtrace::force_capture()))
    }

    /// Returns the callers, innermost first. The list is empty where the platform has no
    /// backtraces.
    #[must_use]
    pub fn frames(&self) -> Vec<TraceFrame> {
        match self.0.status() {
            BacktraceStatus::Captured => trimmed(parse(&self.0.to_string())),
            _ => Vec::new(),
        }
    }
}

/// Two findings do not differ by their traces: a trace says where a finding was made, not what it
/// is.
impl PartialEq for Trace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Trace {}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

/// Reads what [`Backtrace`] prints: lines `12: symbol`, each with or without a line
/// `at file:line:column` behind it.
fn parse(printed: &str) -> Vec<TraceFrame> {
    let mut frames: Vec<TraceFrame> = Vec::new();
    for line in printed.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                last.at = Some(at.to_owned());
            }
        } else if let Some((number, symbol)) = line.split_once(": ")
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            frames.push(TraceFrame { symbol: symbol.to_owned(), at: None });
        }
    }
    frames
}

/// Returns the crate in which a symbol begins: `core` for `<core::X as Y>::f` and for `core::X::f`.
fn krate(symbol: &str) -> &str {
    let path = symbol.trim_start_matches(['<', '&', '*', '(', '_']);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    path.split_once("::").map_or(path, |(first, _)| first)
}

fn is_runtime(symbol: &str) -> bool {
    matches!(krate(symbol), "core" | "std" | "alloc")
}

fn is_harness(symbol: &str) -> bool {
    symbol.contains("__rust_begin_short_backtrace") || matches!(krate(symbol), "test" | "proptest")
}

fn trimmed(mut frames: Vec<TraceFrame>) -> Vec<TraceFrame> {
    let own = |f: &TraceFrame| krate(&f.symbol) == "ptsan" || is_runtime(&f.symbol);
    let first = frames.iter().position(|f| !own(f)).unwrap_or(frames.len());
    frames.drain(..first);
    let end = frames.iter().position(|f| is_harness(&f.symbol)).unwrap_or(frames.len());
    frames.truncate(end);
    // The callers of the test function or `main`, and the glue that calls closures.
    while frames.last().is_some_and(|f| {
        is_runtime(&f.symbol)
            || f.symbol.starts_with("<fn() ")
            || f.symbol.starts_with("__")
            || matches!(f.symbol.as_str(), "main" | "_start" | "<unknown>")
    }) {
        frames.pop();
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "   0: std::backtrace::Backtrace::create
   1: ptsan::report::trace::Trace::capture
             at ./src/report/trace.rs:20:18
   2: <ptsan::sanitizer::Sanitizer>::report::<ptsan::tables::X>
   3: core::ops::function::FnOnce::call_once
   4: <kernel::map::Mapper as kernel::Unmap>::unmap
             at /src/kernel/map.rs:12:9
   5: core::iter::traits::iterator::Iterator::for_each
   6: kernel_tests::unmaps::{closure#0}
             at /src/kernel/tests.rs:3:1
   7: <kernel_tests::unmaps as core::ops::function::FnOnce<()>>::call_once
   8: core::ops::function::FnOnce::call_once
   9: test::__rust_begin_short_backtrace
  10: test::run_test
  11: std::sys::thread_start
";

    #[test]
    fn a_trace_begins_at_the_caller_of_the_hook_and_ends_at_the_test() {
        let frames = trimmed(parse(PRINTED));
        let symbols: Vec<_> = frames.iter().map(|f| f.symbol.as_str()).collect();
        assert_eq!(symbols[0], "<kernel::map::Mapper as kernel::Unmap>::unmap");
        assert_eq!(frames[0].at.as_deref(), Some("/src/kernel/map.rs:12:9"));
        assert_eq!(symbols[2], "kernel_tests::unmaps::{closure#0}");
        assert!(symbols.len() == 4 && symbols[3].starts_with("<kernel_tests::unmaps"), "{symbols:?}");
    }

    #[test]
    fn a_program_without_a_harness_ends_at_its_main() {
        let printed = "0: ptsan::f\n1: shop::main\n2: core::ops::function::FnOnce::call_once\n\
            3: std::sys::backtrace::__rust_begin_short_backtrace\n4: main\n5: __libc_start_main\n6: _start\n";
        assert_eq!(trimmed(parse(printed)), [TraceFrame { symbol: "shop::main".to_owned(), at: None }]);
        assert_eq!(trimmed(parse("disabled backtrace")), []);
    }
}
