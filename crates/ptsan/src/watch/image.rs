//! Finds the address of an instruction in the file from which it was loaded.
use std::fs;
use std::io::Read;

/// The type of an ELF file whose addresses are those in memory.
const FIXED: u16 = 2;

/// Returns an address as the file has it from which it was loaded, for `addr2line` and `objdump`:
/// `0x1cb3 of program`. Programs are loaded elsewhere in each run. Returns the address in memory if
/// the system does not tell.
pub(super) fn address(rip: usize) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let located = located(&maps, rip).map(|(file, start)| {
        let name = file.rsplit('/').next().unwrap_or(file);
        let address = if is_fixed(file) { rip } else { rip - start };
        format!("{address:#x} of {name}")
    });
    located.unwrap_or_else(|| format!("{rip:#x}"))
}

/// Returns the file from which the address was loaded, and the start of its first byte in memory.
fn located(maps: &str, rip: usize) -> Option<(&str, usize)> {
    let mappings = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let file = &rest[rest.find('/')?..];
        Some((number(start)?..number(end)?, file))
    });
    let (_, file) = mappings.clone().find(|(range, _)| range.contains(&rip))?;
    let start = mappings.filter(|(_, of)| *of == file).map(|(range, _)| range.start).min()?;
    Some((file, start))
}

fn is_fixed(file: &str) -> bool {
    let mut header = [0; 18];
    let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && u16::from_le_bytes([header[16], header[17]]) == FIXED
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "555000-556000 r--p 00000000 08:01 7  /bin/my kernel\n\
        556000-558000 r-xp 00001000 08:01 7  /bin/my kernel\n\
        7f000-80000 rw-p 00000000 00:00 0\n\
        700000-701000 r-xp 00000000 08:01 9  /lib/libc.so\n";

    #[test]
    fn an_address_is_counted_from_the_start_of_its_file() {
        assert_eq!(located(MAPS, 0x55_6010), Some(("/bin/my kernel", 0x55_5000)));
        assert_eq!(located(MAPS, 0x70_0fff), Some(("/lib/libc.so", 0x70_0000)));
        assert_eq!(located(MAPS, 0x7_f010), None, "memory of no file");
        assert_eq!(located("nonsense\n-\n", 0), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_function_of_the_program_is_found_in_its_file() {
        let here = an_address_is_counted_from_the_start_of_its_file as *const () as usize;
        let text = address(here);
        let program = std::env::current_exe().unwrap();
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        assert!(text.starts_with("0x") && text.ends_with(&format!(" of {name}")), "{text}");
        assert_eq!(address(8), "0x8");
    }
}
