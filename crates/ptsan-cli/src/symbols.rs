//! Names of functions in the image of a kernel.
use crate::failure::Failure;
use std::path::Path;

/// The image of a kernel, asked for names.
pub(crate) struct Symbols(Option<addr2line::Loader>);

impl Symbols {
    /// Opens an image with symbols or debug information. Without a path, nothing has a name.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        let loader = addr2line::Loader::new(path).map_err(|e| {
            Failure::new(format!("--symbols {}: {e}; give the ELF image of the kernel", path.display()))
        })?;
        Ok(Self(Some(loader)))
    }

    /// Returns the functions at an address, innermost first, each with its place in the source if
    /// that is known.
    pub(crate) fn names(&self, pc: u64) -> Vec<String> {
        let Some(loader) = &self.0 else { return Vec::new() };
        let mut names = Vec::new();
        if let Ok(mut frames) = loader.find_frames(pc) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(function) =
                    frame.function.as_ref().and_then(|f| Some(f.demangle().ok()?.into_owned()))
                else {
                    continue;
                };
                let place = frame.location.as_ref().and_then(|l| Some((l.file?, l.line?)));
                names.push(match place {
                    Some((file, line)) => format!("{function} ({}:{line})", short(file)),
                    None => function,
                });
            }
        }
        if names.is_empty()
            && let Some(symbol) = loader.find_symbol(pc)
        {
            names.push(addr2line::demangle_auto(symbol.into(), None).into_owned());
        }
        names.iter_mut().for_each(|name| *name = without_hash(name));
        // What the runtime does is done for its caller.
        if names.iter().any(|name| !is_runtime(name)) {
            names.retain(|name| !is_runtime(name));
        }
        names
    }
}

/// Returns whether a function is one of Rust's own crates.
fn is_runtime(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '*', '(']);
    ["core::", "alloc::", "std::", "compiler_builtins::"].iter().any(|runtime| path.starts_with(runtime))
}

/// Returns the last parts of a path.
fn short(file: &str) -> &str {
    match file.match_indices('/').rev().nth(2) {
        Some((at, _)) => &file[at + 1..],
        None => file,
    }
}

/// Returns a name without the hash at its end that tells instances of a crate apart.
fn without_hash(name: &str) -> String {
    let (path, place) = name.split_once(" (").map_or((name, ""), |(path, _)| (path, &name[path.len()..]));
    match path.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            format!("{path}{place}")
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_hash_and_paths_all_but_their_end() {
        assert_eq!(without_hash("a::b::h0123456789abcdef (x.rs:1)"), "a::b (x.rs:1)");
        assert_eq!(without_hash("a::hello"), "a::hello");
        assert_eq!(short("/x/y/kernels/x86/src/table.rs"), "x86/src/table.rs");
        assert_eq!(short("table.rs"), "table.rs");
    }

    #[test]
    fn functions_of_the_runtime_are_told_from_others() {
        for name in [
            "core::sync::atomic::atomic_store (x.rs:1)",
            "<core::sync::atomic::AtomicU64>::store",
            "alloc::vec::f",
        ] {
            assert!(is_runtime(name), "{name}");
        }
        for name in ["kernel::unmap", "<kernel::Tree as core::ops::Drop>::drop", "corelib::f", "memset"] {
            assert!(!is_runtime(name), "{name}");
        }
    }

    #[test]
    fn an_image_that_is_none_is_refused_with_advice() {
        let missing = Symbols::open(Some(Path::new("/nonexistent/kernel")));
        assert!(missing.is_err_and(|e| format!("{e:?}").contains("--symbols")));
        assert!(Symbols::open(None).is_ok_and(|s| s.names(0x1000).is_empty()));
    }
}
