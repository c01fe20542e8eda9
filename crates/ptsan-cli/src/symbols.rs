//! Names of functions in the image of a kernel.
use crate::failure::Failure;
use ptsan::TraceFrame;
use std::path::Path;

/// The image of a kernel, asked for names.
pub(crate) struct Symbols {
    image: Option<addr2line::Loader>,
    whole_paths: bool,
}

impl Symbols {
    /// Opens an image with symbols or debug information. Without a path, no address has a name.
    /// Source files have their `whole_paths`, or the last parts of these.
    pub(crate) fn open(path: Option<&Path>, whole_paths: bool) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self { image: None, whole_paths }) };
        let image = addr2line::Loader::new(path).map_err(|e| {
            Failure::new(format!("--symbols {}: {e}; give the ELF image of the kernel", path.display()))
        })?;
        Ok(Self { image: Some(image), whole_paths })
    }

    /// Returns the functions at an address, innermost first, each with its place in the source if
    /// that is known.
    pub(crate) fn frames(&self, pc: u64) -> Vec<TraceFrame> {
        let Some(image) = &self.image else { return Vec::new() };
        let mut found = Vec::new();
        if let Ok(mut frames) = image.find_frames(pc) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(function) =
                    frame.function.as_ref().and_then(|f| Some(f.demangle().ok()?.into_owned()))
                else {
                    continue;
                };
                let place = frame.location.as_ref().and_then(|l| Some((l.file?, l.line?)));
                let shown = |file| if self.whole_paths { file } else { short(file) };
                let at = place.map(|(file, line)| format!("{}:{line}", shown(file)));
                found.push(TraceFrame { symbol: without_hash(&function), at });
            }
        }
        if found.is_empty()
            && let Some(symbol) = image.find_symbol(pc)
        {
            let name = addr2line::demangle_auto(symbol.into(), None);
            found.push(TraceFrame { symbol: without_hash(&name), at: None });
        }
        // The runtime works for its caller.
        if found.iter().any(|frame| !is_runtime(&frame.symbol)) {
            found.retain(|frame| !is_runtime(&frame.symbol));
        }
        found
    }

    /// Returns the function that the image has at an address, in a line. Reports also name
    /// functions inlined into it.
    pub(crate) fn outermost(&self, pc: u64) -> Option<String> {
        let frame = self.frames(pc).pop()?;
        Some(match frame.at {
            Some(at) => format!("{} ({at})", frame.symbol),
            None => frame.symbol,
        })
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
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            path.to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_hash_and_paths_all_but_their_end() {
        assert_eq!(without_hash("a::b::h0123456789abcdef"), "a::b");
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
        let missing = Symbols::open(Some(Path::new("/nonexistent/kernel")), false);
        assert!(missing.is_err_and(|e| format!("{e:?}").contains("--symbols")));
        assert!(Symbols::open(None, false).is_ok_and(|s| s.frames(0x1000).is_empty()));
    }
}
