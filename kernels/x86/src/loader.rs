//! Reads the information of boot loaders, as bytes: the places of all that they pass, and their
//! maps of memory, by multiboot 1 and by PVH. Both name kinds of memory as the BIOS does (ACPI
//! specification, "Address Range Types").

use core::fmt;

use ptarmigan_kernel_base::number;

use crate::memory_map::{Entry, Span};

/// Memory that is nobody's.
const RAM: u64 = 1;

/// The places where a boot loader has put things; an empty span, or 0, where it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The information itself.
    pub information: Span,
    /// The list of modules.
    pub modules: Span,
    /// The first module.
    pub module: Span,
    /// The command line, which ends with a zero.
    pub command_line: u64,
    /// The map of memory.
    pub map: Span,
    /// The firmware's root pointer.
    pub firmware: u64,
}

/// Why the loader's information cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderError {
    /// There is none at its address, or none of the protocol.
    Information,
    /// The list of modules is out of reach.
    Modules,
}

impl fmt::Display for LoaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoaderError::Information => "the boot loader passed no information of the kernel's protocol",
            LoaderError::Modules => "the boot loader's list of modules lies beyond what the kernel reaches",
        })
    }
}

/// Reads the information of a PVH loader, version 1 or above, at `at`. `memory` returns bytes of
/// physical memory, or `None` where it cannot reach them.
///
/// # Errors
///
/// [`LoaderError`].
pub fn pvh_places<'a>(at: u64, memory: impl Fn(u64, u64) -> Option<&'a [u8]>) -> Result<Places, LoaderError> {
    const MAGIC: u64 = 0x336e_c578;
    let information = Span::new(at, 56);
    let bytes = memory(at, information.bytes()).ok_or(LoaderError::Information)?;
    let field = |at, len| number(bytes, at, len).ok_or(LoaderError::Information);
    // Version 0 has no map of memory.
    if field(0, 4)? != MAGIC || field(4, 4)? == 0 {
        return Err(LoaderError::Information);
    }
    let modules = Span::new(field(16, 8)?, field(12, 4)? * 32);
    let module = first_module(modules, &memory, |entry| Span::new(entry(0, 8), entry(8, 8)))?;
    let map = Span::new(field(40, 8)?, field(48, 4)? * PVH_ENTRY);
    Ok(Places { information, modules, module, command_line: field(24, 8)?, map, firmware: field(32, 8)? })
}

/// Reads the information of a multiboot loader at `at`, as [`pvh_places`] does.
///
/// # Errors
///
/// [`LoaderError`].
pub fn multiboot_places<'a>(
    at: u64,
    memory: impl Fn(u64, u64) -> Option<&'a [u8]>,
) -> Result<Places, LoaderError> {
    const HAS_COMMAND_LINE: u64 = 1 << 2;
    const HAS_MODULES: u64 = 1 << 3;
    const HAS_MAP: u64 = 1 << 6;
    let information = Span::new(at, 52);
    let bytes = memory(at, information.bytes()).ok_or(LoaderError::Information)?;
    let flags = number(bytes, 0, 4).unwrap_or_default();
    // A field that the flags leave out is 0.
    let field = |flag, at| if flags & flag == 0 { 0 } else { number(bytes, at, 4).unwrap_or_default() };
    let modules = Span::new(field(HAS_MODULES, 24), field(HAS_MODULES, 20) * 16);
    let module = first_module(modules, &memory, |entry| Span { start: entry(0, 4), end: entry(4, 4) })?;
    let map = Span::new(field(HAS_MAP, 48), field(HAS_MAP, 44));
    Ok(Places { information, modules, module, command_line: field(HAS_COMMAND_LINE, 16), map, firmware: 0 })
}

/// Reads the first entry of a list of modules by `span`, which takes a function that reads a number
/// of the entry.
fn first_module<'a>(
    modules: Span,
    memory: impl Fn(u64, u64) -> Option<&'a [u8]>,
    span: impl Fn(&dyn Fn(usize, usize) -> u64) -> Span,
) -> Result<Span, LoaderError> {
    if modules.bytes() == 0 {
        return Ok(Span::default());
    }
    let entry = memory(modules.start, 16).ok_or(LoaderError::Modules)?;
    Ok(span(&|at, len| number(entry, at, len).unwrap_or_default()))
}

/// Returns the entries of a multiboot map. Each has a number of bytes, which counts itself out, a
/// start, a length and a kind. One that is cut, or too short for these, ends the map.
pub fn multiboot(map: &[u8]) -> impl Iterator<Item = Entry> + Clone + '_ {
    let mut rest = map;
    core::iter::from_fn(move || {
        let size = number(rest, 0, 4)? as usize;
        let entry = rest.get(4..size.checked_add(4)?)?;
        let found = entry_at(entry, 0)?;
        rest = rest.get(size + 4..)?;
        Some(found)
    })
}

/// Bytes of an entry of a PVH map.
const PVH_ENTRY: u64 = 24;

/// Returns the entries of a PVH map.
pub fn pvh(map: &[u8]) -> impl Iterator<Item = Entry> + Clone + '_ {
    map.chunks_exact(PVH_ENTRY as usize).filter_map(|entry| entry_at(entry, 0))
}

fn entry_at(bytes: &[u8], at: usize) -> Option<Entry> {
    let (start, len) = (number(bytes, at, 8)?, number(bytes, at + 8, 8)?);
    Some(Entry { start, len, is_memory: number(bytes, at + 16, 4)? == RAM })
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn bytes(start: u64, len: u64, kind: u32) -> Vec<u8> {
        [&start.to_le_bytes()[..], &len.to_le_bytes(), &kind.to_le_bytes()].concat()
    }

    fn multiboot_entry(size: u32, start: u64, len: u64, kind: u32) -> Vec<u8> {
        [&size.to_le_bytes()[..], &bytes(start, len, kind)].concat()
    }

    #[test]
    fn entries_are_read_as_they_stand() {
        let two = [Entry { start: 1, len: 2, is_memory: true }, Entry { start: 3, len: 4, is_memory: false }];
        let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(20, 3, 4, 2)].concat();
        assert!(multiboot(&map).eq(two));
        let longer = [multiboot_entry(24, 1, 2, 1), vec![0; 4], multiboot_entry(20, 3, 4, 7)].concat();
        assert!(multiboot(&longer).eq(two));
        let map = [bytes(1, 2, 1), vec![0; 4], bytes(3, 4, 2), vec![0; 4]].concat();
        assert!(pvh(&map).eq(two));
    }

    /// Puts numbers of four or eight bytes at their places in `bytes`.
    fn put(bytes: &mut [u8], numbers: &[(usize, usize, u64)]) {
        numbers
            .iter()
            .for_each(|(at, len, n)| bytes[*at..][..*len].copy_from_slice(&n.to_le_bytes()[..*len]));
    }

    #[test]
    fn places_are_read_as_the_protocols_have_them() {
        const HERE: u64 = 0x100;
        const LIST: u64 = 0x200;
        let read = |all: &[u8], is_pvh| {
            let memory = |at, len| all.get(at as usize..)?.get(..len as usize);
            if is_pvh { pvh_places(HERE, memory) } else { multiboot_places(HERE, memory) }
        };
        let mut all = vec![0; 0x210];
        assert_eq!(read(&all, true), Err(LoaderError::Information));
        put(&mut all[HERE as usize..], &[(0, 4, 0x336e_c578), (4, 4, 1), (12, 4, 1), (16, 8, LIST)]);
        put(&mut all[HERE as usize..], &[(24, 8, 0x30), (32, 8, 0x40), (40, 8, 0x50), (48, 4, 2)]);
        put(&mut all[LIST as usize..], &[(0, 8, 0x60), (8, 8, 7)]);
        let module = Span::new(0x60, 7);
        let (information, modules, map) = (Span::new(HERE, 56), Span::new(LIST, 32), Span::new(0x50, 48));
        let places = Places { information, modules, module, command_line: 0x30, map, firmware: 0x40 };
        assert_eq!(read(&all, true), Ok(places));
        assert_eq!(read(&all[..LIST as usize], true), Err(LoaderError::Modules));
        put(&mut all[HERE as usize..], &[(4, 4, 0)]);
        assert_eq!(read(&all, true), Err(LoaderError::Information), "version 0");

        let mut all = vec![0; 0x210];
        let information = Span::new(HERE, 52);
        assert_eq!(read(&all, false), Ok(Places { information, ..Places::default() }));
        put(&mut all[HERE as usize..], &[(0, 4, 0x4c), (16, 4, 0x30), (20, 4, 1), (24, 4, LIST)]);
        put(&mut all[HERE as usize..], &[(44, 4, 48), (48, 4, 0x50)]);
        put(&mut all[LIST as usize..], &[(0, 4, 0x60), (4, 4, 0x67)]);
        let modules = Span::new(LIST, 16);
        let places = Places { information, modules, module, command_line: 0x30, map, firmware: 0 };
        assert_eq!(read(&all, false), Ok(places));
        assert_eq!(read(&all[..LIST as usize], false), Err(LoaderError::Modules));
        assert_eq!(read(&all[..HERE as usize], false), Err(LoaderError::Information));
    }

    #[test]
    fn a_map_that_is_cut_or_lies_about_sizes_ends_there() {
        let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(20, 3, 4, 2)].concat();
        for len in 0..map.len() {
            assert_eq!(multiboot(&map[..len]).count(), len / 24);
        }
        for size in [0, 1, 19, 21, 0x7fff_ffff, u32::MAX - 4, u32::MAX] {
            let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(size, 3, 4, 1)].concat();
            assert_eq!(multiboot(&map).count(), 1, "{size}");
        }
        let map = [bytes(1, 2, 1), vec![0; 4]].concat();
        assert!((0..24).all(|len| pvh(&map[..len]).count() == 0));
    }
}
