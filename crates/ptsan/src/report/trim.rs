//! Reduces a trace to the frames of the code under test.
use super::caller::TraceFrame;

/// Crates that run the code under test: harnesses, and the libraries that start their threads.
const HARNESSES: [&str; 13] = [
    "test",
    "proptest",
    "quickcheck",
    "loom",
    "shuttle",
    "shuttle_engine",
    "shuttle_schedulers",
    "shuttle_std",
    "generator",
    "corosensei",
    "criterion",
    "libtest_mimic",
    "rusty_fork",
];

/// Directories of the standard library's sources, as it was built and as `rust-src` installs it,
/// and of the C library's `memset` and its like.
const LIBRARY: [&str; 3] = ["/rustc/", "/rustlib/src/rust/library/", "/sysdeps/"];

/// Returns the frames of the code under test, innermost first. Frames of the standard library, of
/// the sanitizer and of harnesses go wherever they stand. At the function with which the runtime
/// begins a thread, or a scheduler a task, the trace ends.
pub(super) fn trimmed(frames: Vec<TraceFrame>) -> Vec<TraceFrame> {
    let begins_thread = |f: &TraceFrame| {
        f.symbol.contains("__rust_begin_short_backtrace") || f.symbol == "stack_init_trampoline"
    };
    let in_thread = frames.into_iter().take_while(|f| !begins_thread(f));
    let mut own: Vec<_> = in_thread.filter(|f| !is_foreign(f)).collect();
    // The frames below `main`, and the entry of a thread that the runtime did not start.
    while own.last().is_some_and(|f| is_entry(&f.symbol)) {
        own.pop();
    }
    // The closure of `#[test]` has the name of the function that it calls.
    if let [.., called, last] = &own[..]
        && last.symbol.strip_prefix(&called.symbol).is_some_and(|rest| rest.starts_with("::{"))
    {
        own.pop();
    }
    own
}

fn is_foreign(frame: &TraceFrame) -> bool {
    let krate = krate(&frame.symbol);
    matches!(krate, "ptsan" | "ptsan_c" | "core" | "std" | "alloc" | "compiler_builtins")
        || is_c_face(&frame.symbol)
        || HARNESSES.contains(&krate)
        || is_glue(&frame.symbol)
        || frame.symbol.starts_with("__mem")
        // Between a handler of signals and the instruction that was interrupted; in `catch_unwind`.
        || matches!(frame.symbol.as_str(), "<unknown>" | "__restore_rt" | "__rust_try")
        || frame.at.as_deref().is_some_and(|at| LIBRARY.iter().any(|path| at.contains(path)))
}

/// Returns whether the function is one that the compiler makes to call a function or a closure.
fn is_glue(symbol: &str) -> bool {
    let called = [">::call_once", ">::call_mut", ">::call"].iter().any(|call| symbol.ends_with(call));
    called && symbol.contains(" as core::ops::function::Fn")
}

/// Returns whether the function is one that the sanitizer has for C, which no path names.
fn is_c_face(symbol: &str) -> bool {
    symbol.starts_with("ptsan_") && !symbol.contains("::")
}

fn is_entry(symbol: &str) -> bool {
    symbol.starts_with("__") || matches!(symbol, "main" | "_start" | "start_thread" | "clone3")
}

/// Returns the crate in which a symbol begins: `core` for `<core::X as Y>::f` and for `core::X::f`.
/// It is empty for a name without a path: a function in C may be called `test`.
fn krate(symbol: &str) -> &str {
    let path = symbol.trim_start_matches(['<', '&', '*', '(', '_']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    path.split_once("::").map_or("", |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::super::caller::parse;
    use super::*;

    const PRINTED: &str = "   0: std::backtrace::Backtrace::create
   1: ptsan::report::trace::Trace::capture
             at ./src/report/trace.rs:20:18
   2: <ptsan::sanitizer::Sanitizer>::report::<ptsan::tables::X>
   2: <unknown>
   3: core::ops::function::FnOnce::call_once
   3: __memset_avx512_unaligned_erms
   3: memcpy
             at ./string/../sysdeps/x86_64/multiarch/memmove.S:252:0
   4: <kernel::map::Mapper as kernel::Unmap>::unmap
             at /src/kernel/map.rs:12:9
   5: core::iter::traits::iterator::Iterator::for_each
   6: <core::iter::adapters::map::Map<I,F> as core::iter::traits::iterator::Iterator>::fold
   7: <I as vendored::Blanket>::each
             at /rustc/0123/library/core/src/iter.rs:1:1
   8: kernel_tests::unmaps::{closure#0}
             at /src/kernel/tests.rs:3:1
   9: <&mut F as core::ops::function::FnOnce<A>>::call_once
  10: loom::rt::scheduler::Scheduler::run
  11: <ptsan::adapters::machine::Machine>::run
  12: <kernel_tests::Guard as core::ops::drop::Drop>::drop
  13: kernel_tests::unmaps
  13: kernel_tests::unmaps::{closure#0}
  14: <kernel_tests::unmaps as core::ops::function::FnOnce<()>>::call_once
  15: core::ops::function::FnOnce::call_once
  16: test::__rust_begin_short_backtrace
  17: someone::elses
  18: std::sys::thread_start
";

    fn symbols(printed: &str) -> Vec<String> {
        trimmed(parse(printed)).into_iter().map(|f| f.symbol).collect()
    }

    #[test]
    fn foreign_frames_go_at_both_ends_and_between() {
        assert_eq!(
            symbols(PRINTED),
            [
                "<kernel::map::Mapper as kernel::Unmap>::unmap",
                "kernel_tests::unmaps::{closure#0}",
                "<kernel_tests::Guard as core::ops::drop::Drop>::drop",
                "kernel_tests::unmaps",
            ]
        );
        assert_eq!(trimmed(parse(PRINTED))[0].at.as_deref(), Some("/src/kernel/map.rs:12:9"));
    }

    #[test]
    fn a_program_in_c_does_not_see_the_interface_for_c() {
        let printed = "0: <ptsan_c::machine::Machine>::check::<()>\n1: std::panicking::catch_unwind\n\
            2: __rust_try\n3: ptsan_table_freed\n4: unmap\n5: ptsan_c::face::watch::ptsan_watch_run::{{closure}}\n\
            6: ptsan_watch_run\n7: test\n8: main\n9: __libc_start_main\n10: _start\n";
        assert_eq!(symbols(printed), ["unmap", "test"]);
    }

    #[test]
    fn a_task_of_a_scheduler_ends_where_the_scheduler_begins_it() {
        let printed = "0: ptsan::f\n1: kernel::unmap\n2: shuttle_std::thread::spawn::{{closure}}\n\
            3: shuttle_engine::thread_support::thread_fn\n4: stack_init_trampoline\n\
            5: shuttle_engine::runtime::execution::Execution::run\n6: kernel::some_other_task\n";
        assert_eq!(symbols(printed), ["kernel::unmap"]);
    }

    #[test]
    fn a_crate_whose_name_begins_like_a_foreign_one_stays() {
        for symbol in ["ptsan_kernel::f", "<core_map::X as core::clone::Clone>::clone", "tests::f", "stdx::f"]
        {
            assert_eq!(symbols(&format!("0: {symbol}")), [symbol]);
        }
    }

    #[test]
    fn a_program_without_a_harness_ends_at_its_main() {
        let printed = "0: ptsan::f\n1: shop::main\n2: core::ops::function::FnOnce::call_once\n\
            3: std::sys::backtrace::__rust_begin_short_backtrace\n4: main\n5: __libc_start_main\n6: _start\n";
        assert_eq!(symbols(printed), ["shop::main"]);
        let without_library = "0: ptsan::f\n1: shop::main\n2: main\n3: __libc_start_main\n4: _start\n";
        assert_eq!(symbols(without_library), ["shop::main"]);
        assert_eq!(trimmed(parse("disabled backtrace")), []);
    }
}
