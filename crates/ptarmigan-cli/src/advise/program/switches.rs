//! Names the switch for huge pages that the allocator of a mapping has.
//!
//! Runtimes are told by the recording (`Note::Runtime`). Memory that `brk` grows is the C
//! library's; the other allocators here map theirs. Without a runtime that is known to own the
//! memory no switch is named. docs/advise.md has the versions and their sources.
use ptarmigan_trace::Runtime;
use std::collections::BTreeSet;

const GLIBC: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (glibc 2.35 and later)";

/// Returns the owner of anonymous memory of a process with such runtimes. `heap`: `brk` made it.
pub fn owner(runtimes: &BTreeSet<Runtime>, heap: bool) -> Option<Runtime> {
    use Runtime::{Glibc, Go, Jemalloc, Jvm, Mimalloc, Musl, Python, Tcmalloc, V8};
    // The runtimes that map memory of their own, the most specific first: all but Go's stand beside
    // a C library.
    let maps: &[Runtime] = &[Jvm, Go, V8, Jemalloc, Tcmalloc, Mimalloc, Python, Glibc, Musl];
    let grows: &[Runtime] = &[Tcmalloc, Glibc, Musl];
    let order = if heap { grows } else { maps };
    order.iter().copied().find(|runtime| runtimes.contains(runtime))
}

/// Returns whether a switch makes the heap of a process with such runtimes grow in whole 2 MiB.
/// Without a known runtime the C library is most likely glibc.
pub fn grows(runtimes: &BTreeSet<Runtime>) -> bool {
    runtimes.is_empty() || owner(runtimes, true) == Some(Runtime::Glibc)
}

/// Returns the switch for a heap of an unknown owner.
pub fn unknown_heap() -> String {
    format!("if the heap is glibc's: {GLIBC}, with which it grows in whole 2 MiB")
}

/// Returns the runtime or allocator that maps the memory of a program and decides where it is, as a
/// part of a sentence. Ruby and Mono have no note in a recording and are known by their names.
pub fn lays_out(name: &str, runtimes: &BTreeSet<Runtime>) -> Option<&'static str> {
    match name {
        "ruby" => return Some("Ruby's collector"),
        "mono" | "mono-sgen" => return Some("Mono's collector"),
        _ => {}
    }
    let known = [
        (Runtime::Jvm, "the Java virtual machine"),
        (Runtime::Go, "Go's runtime"),
        (Runtime::V8, "V8"),
        (Runtime::Jemalloc, "jemalloc"),
        (Runtime::Tcmalloc, "tcmalloc"),
        (Runtime::Mimalloc, "mimalloc"),
    ];
    known.into_iter().find_map(|(runtime, name)| runtimes.contains(&runtime).then_some(name))
}

/// Returns how memory of an owner gets huge pages, as a part of a sentence. `heap`: `brk` made it.
pub fn switch(owner: Runtime, heap: bool) -> String {
    match owner {
        Runtime::Glibc if heap => format!("glibc's malloc: {GLIBC}"),
        // Programs with an allocator of their own, such as compilers, map theirs beside malloc's.
        Runtime::Glibc => format!("if glibc's malloc maps it: {GLIBC}"),
        Runtime::Jemalloc => "jemalloc: MALLOC_CONF=thp:always (5.1 and later; JE_MALLOC_CONF where its \
                              functions have the prefix je_)"
            .to_owned(),
        Runtime::Mimalloc => "mimalloc: MIMALLOC_ALLOW_LARGE_OS_PAGES=1 (older versions: \
                              MIMALLOC_LARGE_OS_PAGES=1)"
            .to_owned(),
        Runtime::Jvm => "the Java virtual machine: -XX:+UseTransparentHugePages".to_owned(),
        Runtime::Python => format!(
            "Python maps its small objects itself: 3.15 and later, configured with \
             --with-pymalloc-hugepages, PYTHON_PYMALLOC_HUGEPAGES=1, with reserved huge pages, and not for \
             programs that fork. Large objects are of glibc's malloc: {GLIBC}"
        ),
        Runtime::Go => "Go's runtime has no switch that asks for them; \
                        transparent_hugepage/enabled = always gives them"
            .to_owned(),
        Runtime::V8 => "V8 asks for them only if it was built for it (node: configure \
                        --v8-enable-hugepage; --use-largepages is for code alone); \
                        transparent_hugepage/enabled = always gives them"
            .to_owned(),
        Runtime::Tcmalloc => "tcmalloc: no switch of all its versions is known; \
                              transparent_hugepage/enabled = always gives them"
            .to_owned(),
        Runtime::Musl => {
            "musl's malloc has no switch; transparent_hugepage/enabled = always gives them".to_owned()
        }
        _ => "no switch is known for this allocator".to_owned(),
    }
}

/// Returns whether a program turns huge pages off for its process: Ruby does, and is known by its
/// name.
pub fn turns_huge_pages_off(name: &str) -> bool {
    name.starts_with("ruby")
}

/// Returns how memory that a program without a note in a recording maps itself gets huge pages: the
/// start of its name tells.
pub fn huge_by_name(name: &str) -> Option<&'static str> {
    name.starts_with("php").then_some("USE_ZEND_ALLOC_HUGE_PAGES=1")
}

/// The highest `mmap_threshold` that each glibc takes, in bytes.
const MOST_THRESHOLD: u64 = 32 << 20;
/// A `trim_threshold` that keeps all that a heap has.
const MOST_TRIM: u64 = 16 << 30;
/// The most bytes of one arena of a thread.
const LONGEST_OF_ARENA: u64 = 64 << 20;
/// More bytes than the stacks that glibc keeps without a switch: 40 MiB.
const STACK_CACHE: u64 = 64 << 20;

/// The function of a Java virtual machine that frees a direct buffer, which is malloc's.
pub const JAVA_FREE: &str = "Unsafe_FreeMemory";
/// How direct buffers are kept.
pub const KEEP_BUFFERS: &str = "Java: ByteBuffer.allocateDirect takes memory of malloc, not of the heap: keep direct \
                                buffers and use them again, instead of one for each request";
/// Functions of GHC's runtime that ask for memory, fill it in a collection, or give it back.
pub const GHC_RUNTIME: &[&str] =
    &["hs_init_ghc", "evacuate", "evacuate1", "osDecommitMemory", "osFreeMBlocks"];
/// How the runtime of GHC keeps its memory.
pub const KEEP_GHC: &str = "GHC's runtime: +RTS -A64m (a larger allocation area), -H with the size of the heap, \
                            or -I0 (no collection when idle); the program is linked with -rtsopts";

const POOL: &str = "keep mappings in a pool and hand them out again instead of munmap and mmap";

/// Returns how a program keeps memory that it maps itself and that has a runtime without a note in
/// a recording: the start of its name tells.
pub fn keep_by_name(name: &str) -> Option<&'static str> {
    let known = [
        // None of the variables of its collector changes the faults.
        (
            "mono",
            "Mono maps objects of more than 8,000 bytes itself, and unmaps them after a collection: use \
             arrays again (System.Buffers.ArrayPool)",
        ),
        (
            "php",
            "PHP maps values of 2 MiB and more itself, and unmaps each: work in smaller pieces, or leave memory \
             to malloc, which keeps it (USE_ZEND_ALLOC=0 and \
             GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=134217728)",
        ),
    ];
    known.into_iter().find_map(|(start, words)| name.starts_with(start).then_some(words))
}

/// Memory that a program gives back and takes again.
#[derive(Clone, Copy, Debug)]
pub struct Returning {
    /// `brk` shrinks the heap by it.
    pub heap: bool,
    /// Stacks.
    pub stacks: bool,
    /// The program starts threads.
    pub threads: bool,
    /// It starts more threads than a runtime has for itself.
    pub workers: bool,
    /// The program reserves it and opens parts of it.
    pub own: bool,
    /// `madvise` gives most of it back.
    pub advised: bool,
    /// The longest range that is given back, in bytes.
    pub longest: u64,
    /// The most bytes that would be kept.
    pub kept: u64,
}

/// Returns how an owner keeps memory that the program frees, as a part of a sentence.
pub fn keep(owner: Option<Runtime>, memory: Returning) -> String {
    let Returning { heap, stacks, threads, workers, own, advised, longest, kept } = memory;
    // malloc maps memory that is longer than the threshold.
    let threshold = longest.saturating_mul(2).next_power_of_two().max(MOST_THRESHOLD);
    let trim = kept.saturating_mul(2).next_power_of_two().min(MOST_TRIM).max(threshold);
    let versions = match threshold > MOST_THRESHOLD {
        true => "glibc 2.36; older ones may refuse a threshold above 33554432",
        false => "glibc 2.26 and later",
    };
    // What is longer than an arena of a thread is mapped all the same.
    let one = if threads && longest > LONGEST_OF_ARENA { ":glibc.malloc.arena_max=1" } else { "" };
    let malloc = format!(
        "GLIBC_TUNABLES=glibc.malloc.mmap_threshold={threshold}:glibc.malloc.trim_threshold={trim}{one} \
         ({versions}{})",
        if one.is_empty() { "" } else { "; an arena of a thread holds 64 MiB at most" }
    );
    match owner {
        _ if stacks && !threads => {
            "stacks of coroutines: keep them in a list, and use them again instead of munmap and mmap"
                .to_owned()
        }
        // The C library empties the stack of a thread that ends, cached or not.
        _ if stacks && advised => "stacks of threads: a pool of threads".to_owned(),
        _ if stacks => format!(
            "stacks of threads: a pool of threads, or GLIBC_TUNABLES=glibc.pthread.stack_cache_size={} (glibc \
             2.34 and later)",
            kept.saturating_mul(2).next_power_of_two().max(STACK_CACHE)
        ),
        Some(Runtime::Glibc | Runtime::Musl) | None if own => POOL.to_owned(),
        // free() does it for the arenas of threads alone.
        Some(Runtime::Glibc) if advised && !heap && !threads => {
            "the program gives it back itself: fewer calls of madvise, for what is kept beyond a limit alone"
                .to_owned()
        }
        Some(Runtime::Glibc) if advised && heap => "call malloc_trim less often".to_owned(),
        Some(Runtime::Glibc) if heap => format!("glibc's malloc: {malloc}"),
        Some(Runtime::Glibc | Runtime::Python) => format!("if glibc's malloc maps it: {malloc}"),
        Some(Runtime::Jemalloc) => {
            "jemalloc: MALLOC_CONF=dirty_decay_ms:10000,muzzy_decay_ms:10000 or longer times (5.0 and later); \
             if faults stay, lg_extent_max_active_fit:10, too, so that long free ranges are cut (5.1 and \
             later)"
                .to_owned()
        }
        Some(Runtime::Go) => {
            "Go: no debug.FreeOSMemory in code that runs often; GOGC and GOMEMLIMIT (1.19 and later) \
                              say how much the runtime keeps"
                .to_owned()
        }
        Some(Runtime::Musl) => "musl's malloc has no switch: another allocator".to_owned(),
        Some(Runtime::Jvm) => {
            "the Java virtual machine: -Xms as large as -Xmx, so that the heap keeps its size".to_owned()
        }
        Some(Runtime::V8) if !workers => {
            "Node.js: --max-semi-space-size=64 (MiB), so that the space for new objects does not shrink and grow"
                .to_owned()
        }
        Some(Runtime::V8) => {
            "Node.js: worker_threads that take one task after the other, instead of a new one for each"
                .to_owned()
        }
        _ => POOL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_runtime_that_maps_such_memory() {
        let of = |runtimes: &[Runtime], heap| owner(&runtimes.iter().copied().collect(), heap);
        use Runtime::{Glibc, Go, Jemalloc, Jvm, Python, V8};
        assert_eq!(of(&[Glibc], true), Some(Glibc));
        assert_eq!(of(&[Glibc, Jemalloc], false), Some(Jemalloc));
        assert_eq!(of(&[Glibc, Jemalloc], true), Some(Glibc), "jemalloc maps its memory");
        assert_eq!(of(&[Glibc, Jvm], false), Some(Jvm));
        assert_eq!(of(&[Glibc, V8], false), Some(V8));
        assert_eq!(of(&[Glibc, Python], true), Some(Glibc));
        assert_eq!(of(&[Go], false), Some(Go));
        assert_eq!(of(&[Go], true), None);
        assert_eq!(of(&[], false), None, "no switch is named without an owner");
    }

    #[test]
    fn only_a_heap_of_glibc_grows_in_whole_huge_pages() {
        let of = |runtimes: &[Runtime]| grows(&runtimes.iter().copied().collect());
        assert!(of(&[Runtime::Glibc, Runtime::Jemalloc]) && of(&[]));
        assert!(!of(&[Runtime::Musl]) && !of(&[Runtime::Go]) && !of(&[Runtime::Glibc, Runtime::Tcmalloc]));
    }

    #[test]
    fn mapped_memory_is_not_said_to_be_of_glibc() {
        let words = "glibc's malloc: GLIBC_TUNABLES";
        assert!(switch(Runtime::Glibc, true).starts_with(words));
        assert!(switch(Runtime::Glibc, false).starts_with("if glibc's malloc maps it: GLIBC_TUNABLES"));
    }

    #[test]
    fn no_switch_of_another_allocator_is_named() {
        for owner in [Runtime::Jemalloc, Runtime::Jvm, Runtime::Go, Runtime::V8, Runtime::Tcmalloc] {
            assert!(!switch(owner, false).contains("GLIBC"), "{owner:?}");
        }
        assert!(switch(Runtime::Jvm, false).contains("-XX:+UseTransparentHugePages"));
        assert!(switch(Runtime::Jemalloc, false).contains("thp:always"));
    }
}
