//! Functions and libraries that act for their callers.

/// Libraries by the beginning of their names.
const LIBRARIES: [&str; 12] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "ld-musl-",
    "libc.musl-",
    "libpthread",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libstdc++.so",
    "libgcc_s.so",
];

/// Returns whether a library acts for its callers.
pub(super) fn is_library(base: &str) -> bool {
    LIBRARIES.iter().any(|start| base.starts_with(start))
}

/// The beginnings of names of functions, in programs that such libraries are linked into.
const BEGINNINGS: [&str; 31] = [
    "core::",
    "alloc::",
    "std::",
    "<core::",
    "<alloc::",
    "<std::",
    "__rust_",
    "__rdl_",
    "__rg_",
    "__rustc",
    "_rjem_",
    "rust_begin_unwind",
    "operator new",
    "operator delete",
    "__gnu_cxx::",
    "void std::",
    "__libc_",
    "_int_",
    "__GI_",
    "je_",
    "tc_",
    "mi_",
    "runtime.",
    "runtime/internal",
    "internal/runtime",
    "__memset",
    "__memcpy",
    "__memmove",
    "__mem",
    "__str",
    "__new_sem",
];

/// Names of functions.
const FUNCTIONS: [&str; 33] = [
    "_start",
    "start_thread",
    "clone",
    "__clone",
    "__clone3",
    "clone3",
    "fork",
    "__fork",
    "vfork",
    "__vfork",
    "mmap",
    "mmap64",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "brk",
    "sbrk",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "sysmalloc",
    "malloc_consolidate",
    "malloc_hook_ini",
    "systrim",
    "memset",
    "memcpy",
    "memmove",
    "posix_spawn",
];

/// Returns whether a function acts for its callers, by its readable name.
pub(super) fn is_function(name: &str) -> bool {
    // A Rust trait's method: `<alloc::vec::Vec<T> as core::ops::Drop>::drop`.
    let name = name.strip_prefix("<").filter(|n| n.starts_with('[') || n.starts_with('&')).unwrap_or(name);
    let plain = name.trim_start_matches(['&', '[']);
    BEGINNINGS.iter().any(|start| plain.starts_with(start)) || FUNCTIONS.contains(&name)
}
