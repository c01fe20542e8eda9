//! A program or library in memory: its tables to unwind stacks, its symbols, its lines.
use super::file::{Files, Unknown, build_of};
use super::frames::Frame;
use super::runtime;
use crate::linux::object::{MappedObject, fit, plain};
use crate::linux::system::proc::PAGE_SHIFT;
use addr2line::gimli::{self, EndianSlice, LittleEndian};
use addr2line::{Context, demangle_auto};
use framehop::ExplicitModuleSectionInfo;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use std::borrow::Cow;
use std::path::PathBuf;
use std::rc::Rc;

type Slice<'f> = EndianSlice<'f, LittleEndian>;

/// A program or library.
pub(super) struct Image<'f> {
    pub(super) sections: ExplicitModuleSectionInfo<&'f [u8]>,
    base: Rc<str>,
    is_runtime: bool,
    /// Where the parts of the file are: place and bytes in the file, address.
    segments: Vec<(u64, u64, u64)>,
    /// Functions by their addresses: address, first address behind, name.
    symbols: Vec<(u64, u64, &'f str)>,
    lines: Option<Context<Slice<'f>>>,
}

impl<'f> Image<'f> {
    /// Reads the tables of a file.
    pub(super) fn new(files: &'f Files, bytes: Vec<u8>, object: &MappedObject) -> Result<Self, Unknown> {
        let build = build_of(&bytes);
        let bytes: &'f [u8] = files.alloc(bytes);
        let file = object::File::parse(bytes).map_err(|_| Unknown::NoProgram)?;
        if !file.is_64() || !file.is_little_endian() {
            return Err(Unknown::NoProgram);
        }
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let address = section.address();
            Some((address..address.checked_add(section.size())?, section.data().ok()?))
        };
        let range = |name| section(name).map(|(range, _)| range);
        let data = |name| section(name).map(|(_, data)| data);
        let sections = ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            text: data(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            ..ExplicitModuleSectionInfo::default()
        };
        let segments = file.segments().map(|segment| {
            let (at, len) = segment.file_range();
            (at, len, segment.address())
        });
        // A distribution has the debug information of its programs apart.
        let apart = build.and_then(|build| {
            let bytes = std::fs::read(debug_file(&build)?).ok()?;
            (build_of(&bytes)? == build).then_some(())?;
            object::File::parse(&**files.alloc(bytes)).ok()
        });
        let mut symbols = symbols_of(&file);
        if let Some(apart) = &apart {
            symbols.extend(symbols_of(apart));
        }
        symbols.sort_unstable();
        symbols.dedup_by_key(|(start, ..)| *start);
        let base = plain(object.base()).unwrap_or_default();
        Ok(Self {
            sections,
            is_runtime: runtime::is_library(&base),
            base: base.into(),
            segments: segments.collect(),
            symbols,
            lines: lines_of(files, apart.as_ref().unwrap_or(&file)),
        })
    }

    /// Returns the difference between addresses in memory and in the file, for a mapping of it.
    pub(super) fn bias(&self, object: &MappedObject) -> Option<u64> {
        let of_page = |at: u64| at & !0xfff;
        let (at, _, address) = *self
            .segments
            .iter()
            .find(|(at, len, _)| (of_page(*at)..at.saturating_add(*len)).contains(&object.offset))?;
        Some((object.start << PAGE_SHIFT).wrapping_sub(object.offset).wrapping_add(at).wrapping_sub(address))
    }

    /// Returns the functions at an address in the file: those that are inlined there first.
    pub(super) fn frames(&self, address: u64) -> Rc<[Frame]> {
        let symbol = self.symbol(address);
        let mut frames = self.inlined(address, symbol);
        if frames.is_empty() {
            frames.push(self.frame(symbol.map(|name| demangle_auto(name.into(), None)), None));
        }
        frames.into()
    }

    fn inlined(&self, address: u64, symbol: Option<&'f str>) -> Vec<Frame> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let Ok(mut found) = lines.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|function| {
                let raw = function.raw_name().ok()?.into_owned();
                Some(demangle_auto(Cow::Owned(raw), function.language))
            });
            // The outermost function is that of the symbol.
            let name = name.or_else(|| symbol.map(|name| demangle_auto(name.into(), None)));
            let at = frame.location.and_then(|at| Some((at.file?, at.line.unwrap_or(0))));
            frames.push(self.frame(name, at));
        }
        frames
    }

    fn frame(&self, name: Option<Cow<'_, str>>, at: Option<(&str, u32)>) -> Frame {
        let function = name.as_deref().and_then(shown);
        let file = at.and_then(|(file, _)| plain(file));
        Frame {
            runtime: self.is_runtime || function.as_deref().is_some_and(runtime::is_function),
            function: function.map(Into::into),
            module: Rc::clone(&self.base),
            line: if file.is_some() { at.map_or(0, |(_, line)| line) } else { 0 },
            file: file.map(Into::into),
        }
    }

    /// Returns the name of the function that an address is in, as the file has it.
    fn symbol(&self, address: u64) -> Option<&'f str> {
        let behind = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.symbols.get(behind.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

/// Returns a readable name of a function as a trace may have it. Compilers call some functions by
/// the path of their source: `(lambda at /home/u/a.cc:1:2)`; the name has no directories.
fn shown(name: &str) -> Option<String> {
    // Rust's older names end with a hash.
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => name,
    };
    let parts = name.split_inclusive([' ', '(', ')', '<', '>', ',', '\'', '"', '{', '}']);
    let parts = parts.map(|part| match part.rsplit_once('/') {
        Some((before, rest)) if !before.ends_with("operator") => rest,
        _ => part,
    });
    fit(&parts.collect::<String>())
}

/// Functions of a file: address, first address behind, name.
fn symbols_of<'f>(file: &object::File<'f>) -> Vec<(u64, u64, &'f str)> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let functions = all.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    let named = functions.filter_map(|symbol| {
        let end = symbol.address().checked_add(symbol.size()).filter(|_| symbol.size() > 0)?;
        Some((symbol.address(), end, symbol.name().ok().filter(|name| !name.is_empty())?))
    });
    named.collect()
}

/// Reads the debug information of a file, if it has any.
fn lines_of<'f>(files: &'f Files, file: &object::File<'f>) -> Option<Context<Slice<'f>>> {
    file.section_by_name(".debug_info").or_else(|| file.section_by_name(".zdebug_info"))?;
    let load = |id: gimli::SectionId| -> Result<Slice<'f>, gimli::Error> {
        let data = file.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
        let data: &'f [u8] = match data {
            None => &[],
            Some(Cow::Borrowed(data)) => data,
            Some(Cow::Owned(data)) => files.alloc(data),
        };
        Ok(EndianSlice::new(data, LittleEndian))
    };
    Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}

/// Returns the file that has the debug information of a build, where the distributions have it.
fn debug_file(build: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_have_no_directories() {
        let name = |name| shown(name).expect("a name");
        assert_eq!(name("(lambda at /home/u/a.cc:1:2)::operator()"), "(lambda at a.cc:1:2)::operator()");
        assert_eq!(name("github.com/a/b.(*T).f"), "b.(*T).f");
        assert_eq!(name("v::operator/(v)"), "v::operator/(v)");
        assert_eq!(name("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(name("a::b::hello"), "a::b::hello");
        assert_eq!(shown("\u{1}"), None);
    }

    #[test]
    fn functions_of_languages_libraries_act_for_their_callers() {
        for name in [
            "malloc",
            "core::ptr::write",
            "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
            "runtime.mallocgc",
        ] {
            assert!(runtime::is_function(name), "{name}");
        }
        for name in ["main", "allocate", "mallocs", "<a::B as core::ops::Drop>::drop", "fork_workers"] {
            assert!(!runtime::is_function(name), "{name}");
        }
    }
}
