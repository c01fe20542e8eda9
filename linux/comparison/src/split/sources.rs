//! The group of each source file.

/// The groups: first those of the small kernel, then the library's, then the rest.
///
/// | group | functions |
/// |---|---|
/// | entry | traps, system calls and their arguments |
/// | tasks | tasks, switches, signals, locks, time |
/// | files | files, pipes, the console, `exec` |
/// | tables | entries, tables and their pages, TLBs |
/// | areas | areas, and calls of the `mmap` family |
/// | data pages | faults, frames and their content |
/// | policy | lists of table pages, and how long pages wait in them |
/// | other | functions of the compiler, such as `memcpy` |
pub const GROUPS: [&str; 8] = ["entry", "tasks", "files", "tables", "areas", "data pages", "policy", "other"];

const ENTRY: usize = 0;
const TASKS: usize = 1;
const FILES: usize = 2;
pub const TABLES: usize = 3;
const AREAS: usize = 4;
const DATA: usize = 5;
const POLICY: usize = 6;
const OTHER: usize = 7;

/// Files and directories, and their groups. The first that fits counts.
const SOURCES: &[(&str, usize)] = &[
    ("crates/ptarmigan/src/space/areas/", AREAS),
    ("crates/ptarmigan/src/space/area.rs", AREAS),
    ("crates/ptarmigan/src/space/mmap.rs", AREAS),
    ("crates/ptarmigan/src/space/exec.rs", AREAS),
    ("crates/ptarmigan/src/space/physical.rs", AREAS),
    ("crates/ptarmigan/src/space/protect.rs", AREAS),
    ("crates/ptarmigan/src/space/mod.rs", AREAS),
    ("crates/ptarmigan/src/space/state.rs", AREAS),
    ("crates/ptarmigan/src/space/empty.rs", AREAS),
    ("crates/ptarmigan/src/space/unmapping.rs", AREAS),
    ("crates/ptarmigan/src/space/space_ref.rs", AREAS),
    ("crates/ptarmigan/src/space/shared.rs", AREAS),
    ("crates/ptarmigan/src/space/lock.rs", AREAS),
    ("crates/ptarmigan/src/vmalloc/", AREAS),
    ("crates/ptarmigan/src/space/fork.rs", TABLES),
    ("crates/ptarmigan/src/space/fault.rs", DATA),
    ("crates/ptarmigan/src/space/around.rs", DATA),
    ("crates/ptarmigan/src/space/large.rs", DATA),
    ("crates/ptarmigan/src/space/zero_block.rs", DATA),
    ("crates/ptarmigan/src/space/dirty.rs", DATA),
    ("crates/ptarmigan/src/frames/prezero.rs", POLICY),
    ("crates/ptarmigan/src/frames/demand.rs", POLICY),
    ("crates/ptarmigan/src/frames/", DATA),
    ("crates/ptarmigan/src/highmem/", DATA),
    ("crates/ptarmigan/src/window/", DATA),
    ("crates/ptarmigan/src/bootmem.rs", DATA),
    ("crates/ptarmigan/src/quicklist/", POLICY),
    ("crates/ptarmigan/src/params.rs", POLICY),
    ("crates/ptarmigan/src/parking.rs", POLICY),
    ("crates/ptarmigan/src/setup/", POLICY),
    ("crates/ptarmigan/src/table/", TABLES),
    ("crates/ptarmigan/src/page/", TABLES),
    ("crates/ptarmigan/src/format/", TABLES),
    ("crates/ptarmigan/src/gather/", TABLES),
    ("crates/ptarmigan/src/tlb/", TABLES),
    ("crates/ptarmigan/src/arch/", TABLES),
    ("crates/ptarmigan/src/addr.rs", TABLES),
    ("crates/ptarmigan/src/bits.rs", TABLES),
    // Of all parts: a lock, a CPU's own value, the machine.
    ("crates/ptarmigan/src/sync/", TABLES),
    ("crates/ptarmigan/src/cpu/", TABLES),
    ("crates/ptarmigan/src/machine.rs", TABLES),
    ("crates/ptarmigan/src/error.rs", TABLES),
    ("crates/ptarmigan/src/any_error.rs", TABLES),
    ("crates/ptarmigan/src/lib.rs", TABLES),
    ("linux/kernel/src/memory/space.rs", ENTRY),
    ("linux/kernel/src/memory/user.rs", ENTRY),
    ("linux/kernel/src/memory/", DATA),
    ("linux/kernel/src/exec/", FILES),
    ("linux/kernel/src/fs/", FILES),
    ("linux/kernel/src/syscall/attributes.rs", FILES),
    ("linux/kernel/src/syscall/contents.rs", FILES),
    ("linux/kernel/src/syscall/directories.rs", FILES),
    ("linux/kernel/src/syscall/files.rs", FILES),
    ("linux/kernel/src/syscall/locks.rs", FILES),
    ("linux/kernel/src/syscall/poll.rs", FILES),
    ("linux/kernel/src/syscall/stat.rs", FILES),
    ("linux/kernel/src/syscall/terminal.rs", FILES),
    ("linux/kernel/src/task/run.rs", ENTRY),
    ("linux/kernel/src/task/", TASKS),
    ("linux/kernel/src/signal/", TASKS),
    ("linux/kernel/src/lock.rs", TASKS),
    ("linux/kernel/src/pointers.rs", TASKS),
    ("linux/kernel/src/timer.rs", TASKS),
    ("linux/kernel/src/", ENTRY),
    ("linux/x86/src/mmu.rs", TABLES),
    ("linux/x86/src/context.rs", TASKS),
    ("linux/x86/src/", ENTRY),
    ("kernels/x86/src/hardware.rs", TABLES),
    ("kernels/x86/src/", ENTRY),
    ("kernels/base/src/", ENTRY),
];

/// Functions of the kernel that belong to another group than their file.
const FUNCTIONS: [(&str, usize); 2] = [("::clear_page", DATA), ("::copy_page", DATA)];

/// Returns the group of a function of a source file. `None` if it is neither the library's nor the
/// kernel's.
pub fn group_of(path: &str, function: &str) -> Option<usize> {
    let group = group_of_file(path)?;
    let named = FUNCTIONS.iter().find(|(name, _)| function.ends_with(name));
    Some(named.map_or(group, |(_, group)| *group))
}

/// Returns the group of a source file. `None` if it is neither the library's nor the kernel's.
fn group_of_file(path: &str) -> Option<usize> {
    // Paths begin where the repository is, and may go up: `/x/linux/../crates/…`.
    let parts = ["crates/ptarmigan/src/", "kernels/", "linux/"];
    let place = parts.into_iter().filter_map(|part| path.rfind(part)).max()?;
    let path = &path[place..];
    SOURCES.iter().find(|(start, _)| path.starts_with(start)).map(|(_, group)| *group)
}

/// Returns the group of code whose source is not known.
pub fn group_of_symbol(symbol: &str) -> usize {
    // Functions of assembly have plain names, those of Rust and of the compiler's library do not.
    let is_plain = !symbol.contains("::") && !symbol.starts_with("mem") && !symbol.starts_with("__");
    if is_plain { ENTRY } else { OTHER }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Source files below a directory of the repository, as paths from its root.
    fn sources(root: &Path, directory: &str, files: &mut Vec<String>) {
        for entry in fs::read_dir(root.join(directory)).expect("a directory").flatten() {
            let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                sources(root, &name, files);
            } else if name.ends_with(".rs") {
                files.push(name);
            }
        }
    }

    #[test]
    fn every_source_has_a_group_and_every_line_a_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for directory in [
            "crates/ptarmigan/src",
            "linux/kernel/src",
            "linux/x86/src",
            "kernels/x86/src",
            "kernels/base/src",
        ] {
            sources(&root, directory, &mut files);
        }
        let without: Vec<&String> = files.iter().filter(|file| group_of_file(file).is_none()).collect();
        assert!(without.is_empty(), "no group: {without:?}");
        let used = |line: &str| {
            files.iter().any(|file| {
                SOURCES.iter().find(|(start, _)| file.starts_with(start)).is_some_and(|l| l.0 == line)
            })
        };
        let unused: Vec<&str> = SOURCES.iter().map(|line| line.0).filter(|line| !used(line)).collect();
        assert!(unused.is_empty(), "no file: {unused:?}");
    }

    #[test]
    fn files_are_found_wherever_the_repository_is() {
        for (path, group) in [
            ("/x/linux/../crates/ptarmigan/src/table/unmap.rs", Some(TABLES)),
            ("/x/linux/kernels/x86/src/hardware.rs", Some(TABLES)),
            ("/x/kernels/linux/kernel/src/lock.rs", Some(TASKS)),
            ("/x/linux/kernel/src/fs/pipe.rs", Some(FILES)),
            ("kernel/src/task/run.rs", None),
            ("/rustc/1/library/core/src/ptr/mod.rs", None),
        ] {
            assert_eq!(group_of_file(path), group, "{path}");
        }
        let image = "/x/linux/x86/src/x86_64/mod.rs";
        assert_eq!(group_of(image, "kernel_linux_x86::arch::clear_page"), Some(DATA));
        assert_eq!(group_of(image, "kernel_linux_x86::arch::save"), Some(ENTRY));
        assert_eq!(group_of("/rustc/1/library/core/src/ptr/mod.rs", "x::clear_page"), None);
        assert_eq!(group_of_symbol("syscall_entry"), ENTRY);
        assert_eq!([group_of_symbol("memcpy"), group_of_symbol("core::fmt::write")], [OTHER; 2]);
    }
}
