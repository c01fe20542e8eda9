//! The processes that a recording attaches to: those that were named, and their descendants.
use crate::linux::system::proc;
use crate::linux::watchdog;
use ptarmigan_term::Failure;
use rustix::process::geteuid;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Set in the flags of the kernel's own threads (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: u8,
    parent: i32,
    flags: u64,
    threads: u64,
    /// Addresses that an execve chooses: the program's code, stack and arguments.
    program: [u64; 3],
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain anything.
        let (before, after) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            flags: field(9)?,
            threads: field(20)?,
            program: [field(26)?, field(28)?, field(48)?],
        })
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// Whether it has an address space. The first thread may end before the others.
    fn is_alive(&self) -> bool {
        let ended = matches!(self.state, b'Z' | b'X' | b'x');
        self.flags & KERNEL_THREAD == 0 && (!ended || self.threads > 1)
    }
}

/// A process, as a step to the next program: an execve changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessImage {
    pub(crate) process: i32,
    program: [u64; 3],
}

impl ProcessImage {
    /// Returns whether both have the same program, as after a fork.
    pub(crate) fn same_program(self, other: Self) -> bool {
        self.program == other.program
    }
}

/// Returns the image of a process that is alive.
pub(crate) fn image(process: i32) -> Option<ProcessImage> {
    let stat = Stat::read(process).filter(Stat::is_alive)?;
    Some(ProcessImage { process, program: stat.program })
}

/// Returns the name of a process's program, as the kernel keeps it.
pub(crate) fn name(process: i32) -> Option<String> {
    Some(Stat::read(process)?.name)
}

/// Returns the named processes and all their descendants that are alive. A parent comes before its
/// children. `more` are processes that count although their parents may have ended.
pub(crate) fn images(named: &[i32], more: &[i32]) -> Vec<ProcessImage> {
    let mut all: HashMap<i32, Stat> = HashMap::new();
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::read(pid)?))) else { continue };
        children.entry(stat.parent).or_default().push(pid);
        all.insert(pid, stat);
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut next: Vec<i32> = named.iter().chain(more).rev().copied().collect();
    while let Some(process) = next.pop() {
        if !seen.insert(process) {
            continue;
        }
        if let Some(stat) = all.get(&process).filter(|stat| stat.is_alive()) {
            found.push(ProcessImage { process, program: stat.program });
        }
        next.extend(children.get(&process).into_iter().flatten());
    }
    found
}

/// Checks that a recording can attach to these processes.
///
/// # Errors
/// The first that it cannot attach to, and why.
pub(crate) fn check(named: &[i32]) -> Result<(), Failure> {
    let own = ancestors(std::process::id() as i32);
    for (n, &pid) in named.iter().enumerate() {
        if named[..n].contains(&pid) {
            return Err(Failure::new(format!("process {pid} is named twice")));
        }
        check_one(pid, &own)?;
    }
    Ok(())
}

fn check_one(pid: i32, own: &[i32]) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::new(format!("process {pid}{why}")));
    let Some(stat) = Stat::read(pid) else { return refused(": there is no such process") };
    let name = &stat.name;
    if own.contains(&pid) {
        return if own.first() == Some(&pid) || pid == watchdog::number() as i32 {
            refused(" is this recorder")
        } else {
            refused(&format!(" ({name}) is an ancestor of this recorder, which would record itself"))
        };
    }
    if stat.flags & KERNEL_THREAD != 0 {
        return refused(&format!(" ({name}) is a thread of the kernel and has no address space"));
    }
    match proc::group(pid) {
        Some(group) if group != pid => {
            return refused(&format!(" is a thread of process {group}; name that"));
        }
        None => return refused(": there is no such process"),
        _ => {}
    }
    if !stat.is_alive() {
        return refused(&format!(" ({name}) has ended, and its parent has not asked for its status yet"));
    }
    let owner = fs::metadata(format!("/proc/{pid}")).map(|data| data.uid());
    let (own, status) = (geteuid(), proc::status(&pid.to_string(), "Uid").unwrap_or_default());
    let users = status.split_ascii_whitespace().filter_map(|user| user.parse::<u32>().ok());
    if !own.is_root() && users.clone().any(|user| user != own.as_raw()) {
        return refused(&format!(" ({name}) belongs to another user; root can attach to it"));
    }
    // The kernel gives the files of such a process to root.
    if !own.is_root() && owner.is_ok_and(|user| user != own.as_raw()) {
        return refused(&format!(" ({name}) has more privileges than this user; root can attach to it"));
    }
    if proc::is_32_bit_file(Path::new(&format!("/proc/{pid}/exe"))) {
        return refused(&format!(" ({name}) is a 32-bit program, whose system calls cannot be recorded"));
    }
    Ok(())
}

/// Returns a process and its ancestors, itself first.
fn ancestors(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    while let Some(stat) = Stat::read(all[all.len() - 1])
        && stat.parent > 0
        && !all.contains(&stat.parent)
    {
        all.push(stat.parent);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_stat() {
        let rest = (9..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = Stat::parse(&format!("7 (a) b) S 3 4 5 6 7 {rest}")).expect("a line");
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b", b'S', 3));
        assert_eq!((stat.flags, stat.program), (9, [26, 28, 48]));
        assert!(stat.is_alive() && Stat::parse("7 (x) S 3").is_none() && Stat::parse("").is_none());
    }

    #[test]
    fn a_recorder_does_not_attach_to_itself() {
        let own = ancestors(std::process::id() as i32);
        assert!(own.len() > 1);
        let why = |pid| check(&[pid]).err().map(|failure| failure.message().to_owned()).unwrap_or_default();
        assert!(why(own[0]).ends_with("is this recorder"));
        assert!(why(own[1]).contains("is an ancestor of this recorder"));
        assert!(why(i32::MAX).ends_with(": there is no such process"));
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.expect("sleep is there");
        let pid = child.id() as i32;
        assert!(images(&[own[0]], &[]).iter().any(|image| image.process == pid));
        assert!(check(&[pid]).is_ok());
        let twice = check(&[pid, pid]).expect_err("it is named twice").message().to_owned();
        assert!(twice.ends_with("is named twice"), "{twice}");
        child.kill().expect("our child");
        let ended = || Stat::read(pid).is_none_or(|stat| !stat.is_alive());
        while !ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(why(pid).contains("has ended, and its parent"));
        child.wait().expect("our child");
    }
}
