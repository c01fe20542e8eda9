//! Tells runtimes and allocators of a program by its name, its libraries and its file.
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use ptarmigan_trace::Runtime;
use std::path::Path;

/// A file of more bytes is not looked into.
const LARGEST: u64 = 512 << 20;

/// Libraries by the beginning of their names. `libc.so.6` is the name since version 2.34 of the GNU
/// C library, `libc-` the one before.
const LIBRARIES: [(&str, Runtime); 14] = [
    ("libc.so.6", Runtime::Glibc),
    ("libc-2.", Runtime::Glibc),
    ("ld-musl-", Runtime::Musl),
    ("libc.musl-", Runtime::Musl),
    ("libjemalloc.", Runtime::Jemalloc),
    ("libjemalloc_", Runtime::Jemalloc),
    ("libtcmalloc.", Runtime::Tcmalloc),
    ("libtcmalloc_", Runtime::Tcmalloc),
    ("libmimalloc.", Runtime::Mimalloc),
    ("libmimalloc-", Runtime::Mimalloc),
    ("libjvm.", Runtime::Jvm),
    ("libpython", Runtime::Python),
    ("libnode.", Runtime::V8),
    ("libv8.", Runtime::V8),
];

/// Returns the runtime that a library is, by its path.
pub(crate) fn of_library(path: &str) -> Option<Runtime> {
    let (dirs, base) = path.rsplit_once('/').unwrap_or(("", path));
    // Debian has musl in a directory of its own, without a version.
    if base == "libc.so" && dirs.contains("musl") {
        return Some(Runtime::Musl);
    }
    let is_library = base.contains(".so");
    LIBRARIES.iter().find(|(start, _)| is_library && base.starts_with(start)).map(|(_, runtime)| *runtime)
}

/// Returns the runtime that a program has by its name.
pub(crate) fn of_program(base: &str) -> Option<Runtime> {
    // `python3.11`, but no `python-config`.
    let python = base.strip_prefix("python").is_some_and(|version| {
        version.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 't' || c == 'd')
    });
    match base {
        _ if python => Some(Runtime::Python),
        "node" | "nodejs" | "chrome" | "chromium" | "electron" | "deno" => Some(Runtime::V8),
        _ => None,
    }
}

/// Sections that only one runtime has.
const SECTIONS: [(&str, Runtime); 5] = [
    (".go.buildinfo", Runtime::Go),
    (".note.go.buildid", Runtime::Go),
    // The GNU C library in a program without libraries.
    ("__libc_freeres_fn", Runtime::Glibc),
    ("__libc_IO_vtables", Runtime::Glibc),
    ("__libc_atexit", Runtime::Glibc),
];

/// Functions that only one runtime has. Rust's package of jemalloc has a prefix of its own.
const FUNCTIONS: [(&str, Runtime); 7] = [
    ("mallctl", Runtime::Jemalloc),
    ("je_mallctl", Runtime::Jemalloc),
    ("_rjem_mallctl", Runtime::Jemalloc),
    ("tc_malloc", Runtime::Tcmalloc),
    ("mi_malloc", Runtime::Mimalloc),
    ("__init_libc", Runtime::Musl),
    ("_ZN2v87Isolate3NewERKNS0_12CreateParamsE", Runtime::V8),
];

/// Returns the runtimes that are linked into a program. A file that cannot be read, or that is no
/// program of this machine, has none.
pub(crate) fn of_file(path: &Path) -> Vec<Runtime> {
    let short = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST);
    let Some(bytes) = short.then(|| std::fs::read(path).ok()).flatten() else { return Vec::new() };
    of_bytes(&bytes)
}

fn of_bytes(bytes: &[u8]) -> Vec<Runtime> {
    let Ok(file) = ElfFile64::<object::Endianness>::parse(bytes) else { return Vec::new() };
    let sections = file.sections().filter_map(|section| {
        let name = section.name().ok()?;
        SECTIONS.iter().find(|(known, _)| name == *known).map(|(_, runtime)| *runtime)
    });
    let symbols = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
        let name = symbol.name().ok().filter(|_| symbol.is_definition())?;
        FUNCTIONS.iter().find(|(known, _)| name == *known).map(|(_, runtime)| *runtime)
    });
    let mut found: Vec<Runtime> = sections.chain(symbols).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_runtimes() {
        assert_eq!(of_library("libc.so.6"), Some(Runtime::Glibc));
        assert_eq!(of_library("libc-2.31.so"), Some(Runtime::Glibc));
        assert_eq!(of_library("ld-musl-x86_64.so.1"), Some(Runtime::Musl));
        assert_eq!(of_library("libjemalloc.so.2"), Some(Runtime::Jemalloc));
        assert_eq!(of_library("libtcmalloc_minimal.so.4"), Some(Runtime::Tcmalloc));
        assert_eq!(of_library("libpython3.11.so.1.0"), Some(Runtime::Python));
        assert_eq!(of_library("libjvm.so"), Some(Runtime::Jvm));
        assert_eq!(of_library("/usr/lib/x86_64-linux-musl/libc.so"), Some(Runtime::Musl));
        assert_eq!(of_library("/opt/libjemalloc.d/libc.so.6"), Some(Runtime::Glibc));
        for other in [
            "libcap.so.2",
            "/usr/lib/libc.so",
            "/opt/libjemalloc.so/x",
            "libc.so.7",
            "libpython.txt",
            "",
            "libm.so.6",
        ] {
            assert_eq!(of_library(other), None, "{other}");
        }
    }

    #[test]
    fn programs_tell_runtimes() {
        assert_eq!(of_program("python3.11"), Some(Runtime::Python));
        assert_eq!(of_program("python"), Some(Runtime::Python));
        assert_eq!(of_program("python3-config"), None);
        assert_eq!(of_program("node"), Some(Runtime::V8));
        assert_eq!(of_program("cat"), None);
    }

    #[test]
    fn a_file_that_is_no_program_has_no_runtime() {
        assert_eq!(of_file(Path::new("/proc/self/status")), []);
        assert_eq!(of_file(Path::new("/no such file")), []);
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(of_bytes(&own), []);
        // Cut anywhere in its headers, it is no program, or one without names.
        for len in (0..4096).step_by(7) {
            assert_eq!(of_bytes(&own[..len]), []);
        }
    }
}
