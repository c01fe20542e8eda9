//! Reads `/proc` of a stopped task.
use super::sys;
use crate::linux::object::MappedObject;
use ptarmigan_trace::{AreaKind, HugePages, Prot};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Binary logarithm of the page size. The recorder runs on x86-64 only.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// End of the user addresses. The kernel and the vsyscall page lie above.
pub(crate) const USER_END: u64 = 1 << 47;

/// An area of an address space, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    pub(crate) prot: Prot,
    pub(crate) kind: AreaKind,
    pub(crate) shared: bool,
    /// Where in its file the area begins, in pages.
    pub(crate) offset: u64,
    /// The number of its file on its device, 0 without a file.
    pub(crate) inode: u64,
}

impl Default for Area {
    fn default() -> Self {
        let kind = AreaKind::Anon;
        Self { start: 0, pages: 0, prot: Prot(0), kind, shared: false, offset: 0, inode: 0 }
    }
}

/// Returns the limit of a task's stack (`RLIMIT_STACK`), in pages.
pub(crate) fn stack_limit(pid: i32) -> Option<u64> {
    Some(sys::stack_limit(pid).ok()? >> PAGE_SHIFT)
}

/// Returns where this machine uses huge pages for anonymous memory.
pub(crate) fn huge_pages() -> HugePages {
    let chosen = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    match chosen.split(['[', ']']).nth(1) {
        Some("always") => HugePages::Always,
        Some("madvise") => HugePages::Advised,
        Some("never") => HugePages::Never,
        _ => HugePages::Unknown,
    }
}

/// Reads a file of a task, without asking for its size first, which is 0 in /proc. `usual` bytes
/// are more than it has in most cases. If `whole`, the kernel returns the file in one piece.
fn read(pid: i32, name: &str, usual: usize, whole: bool) -> Option<Vec<u8>> {
    let mut file = File::open(format!("/proc/{pid}/{name}")).ok()?;
    let (mut bytes, mut len) = (vec![0; usual], 0);
    loop {
        let n = file.read(&mut bytes[len..]).ok()?;
        len += n;
        if n == 0 || whole && len < bytes.len() {
            bytes.truncate(len);
            return Some(bytes);
        }
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
    }
}

/// Counts of a task with an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Page-table pages below the root (`VmPTE`).
    pub(crate) tables: u32,
    /// Present pages (`VmRSS`).
    pub(crate) resident: u64,
    pub(crate) group: i32,
    /// Threads of the group.
    pub(crate) threads: u32,
    /// Context switches of the task: because it waited, and because others came first.
    pub(crate) switches: (u64, u64),
}

/// Returns the counts of a task, or `None` for one without an address space.
pub(crate) fn counts(pid: i32) -> Option<Counts> {
    let status = read(pid, "status", 4096, true)?;
    let mut lines = status.split(|&b| b == b'\n');
    // The fields in the order in which the kernel writes them.
    let mut field = |name: &[u8]| {
        let line = lines.find_map(|l| l.strip_prefix(name))?;
        str::from_utf8(line).ok()?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let group = field(b"Tgid:")? as i32;
    let resident = field(b"VmRSS:")? >> (PAGE_SHIFT - 10);
    let tables = (field(b"VmPTE:")? >> (PAGE_SHIFT - 10)) as u32;
    let threads = field(b"Threads:")? as u32;
    let switches = (field(b"voluntary_ctxt_switches:")?, field(b"nonvoluntary_ctxt_switches:")?);
    Some(Counts { tables, resident, group, threads, switches })
}

/// Returns how many faults of a process needed no device, and how many waited for one. Its threads
/// count, its children do not.
pub(crate) fn faults(group: i32) -> Option<(u64, u64)> {
    let stat = read(group, "stat", 1024, true)?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(10 - 3);
    let minor = fields.next()?.parse().ok()?;
    Some((minor, fields.nth(1)?.parse().ok()?))
}

/// Returns the CPU time of one task, in nanoseconds. `None` if the task is gone, or the kernel does
/// not tell (`CONFIG_SCHED_INFO`).
pub(crate) fn scheduled_time_of_task(pid: i32) -> Option<u64> {
    let times = read(pid, "schedstat", 128, true)?;
    str::from_utf8(&times).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the threads of a process.
pub(crate) fn threads(group: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{group}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Returns whether a task waits in the kernel for a clone: for the child of a vfork, in most cases.
pub(crate) fn waits_for_child(pid: i32) -> bool {
    let call = read(pid, "syscall", 256, true).unwrap_or_default();
    let number = call.split(|b| *b == b' ').next().and_then(|n| str::from_utf8(n).ok()?.parse().ok());
    matches!(number, Some(libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3))
}

/// Returns how many bytes a process has mapped.
pub(crate) fn mapped(pid: i32) -> u64 {
    let statm = read(pid, "statm", 128, true).unwrap_or_default();
    let pages = statm.split(|b| *b == b' ').next().and_then(|n| str::from_utf8(n).ok()?.parse().ok());
    pages.unwrap_or(0_u64) << PAGE_SHIFT
}

/// Whether a stopped task runs a 32-bit program.
pub(crate) fn is_32_bit(pid: i32) -> bool {
    // The kernel's code segment for such programs (`__USER32_CS`).
    sys::registers(pid).is_ok_and(|registers| registers.cs == 0x23)
}

/// Whether a file is a 32-bit program. A script is not.
pub(crate) fn is_32_bit_file(path: &Path) -> bool {
    let mut start = [0; 5];
    // The fifth byte is the class of an ELF file.
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"\x7fELF\x01"
}

/// Whether this process counts processes as the kernel does: it is in no pid namespace of its own.
pub(crate) fn in_first_pid_namespace() -> bool {
    // The kernel gives the first one this number.
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

/// Returns the words of a task's stack from an address on, at most so many.
pub(crate) fn stack(pid: i32, at: u64, words: usize) -> Vec<u64> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut bytes = vec![0; words * 8];
    let mut len = 0;
    // A read ends where the mapping does.
    while let Ok(n) = memory.read_at(&mut bytes[len..], at.wrapping_add(len as u64))
        && n > 0
    {
        len += n;
    }
    let (words, _) = bytes[..len].as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the ranges of an array of `iovec` in a task's memory, as address and bytes.
pub(crate) fn ranges(pid: i32, at: u64, count: u64) -> Vec<(u64, u64)> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut entry = [0; 16];
    // The kernel takes no more of them either.
    let entries = (0..count.min(1024)).map(|n| at.wrapping_add(n * 16));
    entries
        .map_while(|at| {
            memory.read_exact_at(&mut entry, at).ok()?;
            let half = |b: &[u8]| b.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
            Some((half(&entry[..8]), half(&entry[8..])))
        })
        .collect()
}

/// Returns the process that a descriptor of a task stands for (`pidfd_open`).
pub(crate) fn of_pidfd(pid: i32, fd: u64) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    info.lines().find_map(|l| l.strip_prefix("Pid:"))?.trim().parse().ok().filter(|&pid| pid > 0)
}

/// Returns a field of a task's `status`. `task` is a number, or `self`.
pub(crate) fn status(task: &str, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let field = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(field.trim().to_owned())
}

/// Returns the thread group of a task.
pub(crate) fn group(pid: i32) -> Option<i32> {
    status(&pid.to_string(), "Tgid")?.parse().ok()
}

/// Returns all areas, in order.
pub(crate) fn areas(pid: i32) -> Vec<Area> {
    mappings(pid).0
}

/// Returns all areas, in order, and the objects of areas that have one.
pub(crate) fn mappings(pid: i32) -> (Vec<Area>, Vec<MappedObject>) {
    let maps = read(pid, "maps", 1 << 14, false).unwrap_or_default();
    let (mut areas, mut objects) = (Vec::new(), Vec::new());
    for line in maps.split(|&b| b == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some(area) = area(&line) else { continue };
        areas.push(area);
        objects.extend(object(&line, &area));
    }
    (areas, objects)
}

/// Returns the object of an area, by its line of /proc/PID/maps. `None` for memory without a name.
pub(crate) fn object(line: &str, area: &Area) -> Option<MappedObject> {
    let object = MappedObject {
        start: area.start,
        pages: area.pages,
        offset: area.offset << PAGE_SHIFT,
        executable: area.prot.0 & Prot::EXEC != 0,
        shared: area.shared,
        inode: area.inode,
        build: Vec::new(),
        path: path(line).to_owned(),
    };
    (!object.is_nameless()).then_some(object)
}

/// Returns the page that a thread's stack pointer is in. `None` if it is running, or is hidden from
/// this process.
pub(crate) fn stack_page(process: i32, thread: i32) -> Option<u64> {
    stack_in(&fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?)
}

/// Returns the page of the stack pointer, the last but one word of /proc/PID/syscall.
fn stack_in(line: &str) -> Option<u64> {
    let pointer = line.split_ascii_whitespace().rev().nth(1)?.strip_prefix("0x")?;
    Some(u64::from_str_radix(pointer, 16).ok()? >> PAGE_SHIFT).filter(|page| *page > 0)
}

/// Returns the path of the program of a task, empty if it is unknown.
pub(crate) fn program_path(pid: i32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.to_string_lossy().into_owned()
}

/// Returns the sixth field of a line of /proc/PID/maps, which may have blanks.
fn path(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..5 {
        let (_, behind) = rest.trim_start().split_once(' ').unwrap_or_default();
        rest = behind;
    }
    rest.trim_start()
}

/// Returns how many pages of a mapping of `len` bytes a file backs, from `offset` bytes on.
pub(crate) fn backed(pid: i32, fd: u64, offset: u64, len: u64) -> u64 {
    let size = fs::metadata(format!("/proc/{pid}/fd/{fd}")).map_or(0, |file| file.len());
    size.saturating_sub(offset).min(len).div_ceil(1 << PAGE_SHIFT)
}

/// Returns the parts of the System V segment that is attached at page `at`, as `shmdt` finds them:
/// from there on, where the segment's start would be `at`. Each has its first page and length.
pub(crate) fn segment(pid: i32, at: u64) -> Vec<(u64, u64)> {
    let all = areas(pid);
    let part = |a: &&Area| a.shared && a.start >= at && a.start - at == a.offset;
    let Some(first) = all.iter().find(part) else { return Vec::new() };
    all.iter().filter(part).filter(|a| a.inode == first.inode).map(|a| (a.start, a.pages)).collect()
}

/// Parses a line of /proc/PID/maps: `start-end perms offset device inode   name`.
pub(crate) fn area(line: &str) -> Option<Area> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    if end > USER_END || start >= end {
        return None;
    }
    let perms = words.next()?.as_bytes();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(1)?;
    let kind = match words.next().unwrap_or("") {
        "[stack]" => AreaKind::Stack,
        name if name.starts_with("[vdso") || name.starts_with("[vvar") => AreaKind::Special,
        _ if inode != "0" => AreaKind::File,
        _ => AreaKind::Anon,
    };
    let bit = |at: usize, letter: u8, bit: u8| if perms.get(at) == Some(&letter) { bit } else { 0 };
    Some(Area {
        start: start >> PAGE_SHIFT,
        pages: (end - start) >> PAGE_SHIFT,
        prot: Prot(bit(0, b'r', Prot::READ) | bit(1, b'w', Prot::WRITE) | bit(2, b'x', Prot::EXEC)),
        kind,
        shared: perms.get(3) == Some(&b's'),
        offset: offset >> PAGE_SHIFT,
        inode: inode.parse().unwrap_or(0),
    })
}

/// Returns the pages that are present in a program before its first instruction. Of large areas
/// only the ends are read.
pub(crate) fn present(pid: i32, areas: &[Area]) -> Vec<u64> {
    const LOOK: u64 = 512;
    let Ok(map) = File::open(format!("/proc/{pid}/pagemap")) else { return Vec::new() };
    let mut found = Vec::new();
    for a in areas.iter().filter(|a| a.kind != AreaKind::Special && a.prot.0 & Prot::WRITE != 0) {
        let first = a.start + a.pages.saturating_sub(LOOK);
        let mut words = vec![0; (a.start + a.pages - first) as usize * 8];
        let n = map.read_at(&mut words, first * 8).unwrap_or(0);
        // The highest bit of a page's little-endian word says that the page is present.
        let here = words[..n].chunks_exact(8).zip(first..).filter(|(w, _)| w[7] & 0x80 != 0);
        found.extend(here.map(|(_, page)| page));
    }
    found
}

/// The parts of a new program outside the listed areas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewProgram {
    /// Its name, as the kernel keeps it.
    pub(crate) name: String,
    /// The address of the lowest argument byte.
    pub(crate) arguments: u64,
    /// The address of the start of the heap.
    pub(crate) heap: u64,
}

/// Returns these parts for the program that a task's `execve` made.
pub(crate) fn program(pid: i32) -> Option<NewProgram> {
    let stat = read(pid, "stat", 1024, true)?;
    let stat = String::from_utf8_lossy(&stat);
    // The second field is the program's name in parentheses, which may contain anything.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    Some(NewProgram { name: name.to_owned(), arguments: field(48)?, heap: field(47)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let a = area("55d0a000-55d0c000 r-xp 00002000 fe:00 1234    /usr/bin/a name").expect("an area");
        assert_eq!((a.start, a.pages, a.prot, a.kind), (0x55d0a, 2, Prot(5), AreaKind::File));
        let a = area("7ffc0000-7ffe1000 rw-p 00000000 00:00 0    [stack]").expect("an area");
        assert_eq!((a.pages, a.prot, a.kind), (33, Prot(3), AreaKind::Stack));
        assert_eq!(area("1000-2000 r--p 0 00:00 0 [vvar_vclock]").map(|a| a.kind), Some(AreaKind::Special));
        assert_eq!(
            area("1000-2000 rw-s 0 00:00 0").map(|a| (a.kind, a.shared)),
            Some((AreaKind::Anon, true))
        );
        assert_eq!(area("ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]"), None);
        assert_eq!(path("55d0a000-55d0c000 r-xp 00002000 fe:00 1234    /usr/bin/a name"), "/usr/bin/a name");
        assert_eq!(path("1000-2000 rw-s 0 00:00 0"), "");
        for bad in ["", "x", "2000-1000 r--p 0 0:0 0", "1000-2000", "1000-2000 r--p 0"] {
            assert_eq!(area(bad), None);
        }
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id() as i32;
        assert!(
            counts(pid)
                .is_some_and(|n| n.tables >= 3 && n.threads >= 1 && n.resident > 10 && n.switches.0 > 0)
        );
        assert!(faults(pid).is_some_and(|(minor, _)| minor > 10));
        assert!(areas(pid).iter().any(|a| a.kind == AreaKind::Stack));
        let own = program(pid).expect("our own");
        assert!(own.arguments > own.heap && !own.name.is_empty());
        assert!(stack_limit(pid).is_some_and(|pages| pages > 0));
    }
}
