//! Checks which recording methods this machine allows, and reports why one is refused.
use super::system::proc::status;
use ptarmigan_term::Failure;
use std::fs;
use std::io;
use std::path::Path;

/// Returns a number that a file of /proc/sys holds.
fn setting(name: &str) -> Option<i64> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?.trim().parse().ok()
}

/// Returns whether this process may set a filter of system calls without giving up privileges
/// (`CAP_SYS_ADMIN`).
pub(crate) fn may_filter() -> bool {
    let mask = status("self", "CapEff").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    mask.is_some_and(|mask| mask >> 21 & 1 != 0)
}

/// Returns the tracer of a task: its name and number. `None` if the task has no tracer, or the
/// tracer is outside of this pid namespace.
fn tracer(pid: i32) -> Option<(String, i32)> {
    let number = status(&pid.to_string(), "TracerPid")?.parse::<i32>().ok().filter(|number| *number > 0)?;
    Some((status(&number.to_string(), "Name").unwrap_or_default(), number))
}

/// Returns why a task cannot be traced, which every recording needs.
pub(crate) fn untraceable(pid: i32, e: &io::Error) -> Failure {
    Failure::new(why_untraceable(tracer(pid), setting("kernel/yama/ptrace_scope"), e))
}

/// Returns why a running process cannot be traced.
pub(crate) fn unattachable(pid: i32, e: &io::Error) -> Failure {
    let root = rustix::process::geteuid().is_root();
    Failure::new(why_unattachable(pid, tracer(pid), setting("kernel/yama/ptrace_scope"), root, e))
}

fn why_unattachable(
    pid: i32,
    tracer: Option<(String, i32)>,
    yama: Option<i64>,
    root: bool,
    e: &io::Error,
) -> String {
    let why = match (tracer, yama) {
        (Some((name, number)), _) => format!("{name} ({number}) traces it already"),
        (None, Some(3)) => "kernel.yama.ptrace_scope is 3, which forbids it until the next boot".to_owned(),
        (None, Some(scope @ 1..)) if !root => format!(
            "kernel.yama.ptrace_scope is {scope}; attach as root, or set it to 0 (sysctl \
             kernel.yama.ptrace_scope=0), or start the program with ptarmigan record"
        ),
        _ => format!("{e}: it has more privileges, or a seccomp filter or a security module forbids it"),
    };
    format!("process {pid}: ptrace is refused: {why}")
}

fn why_untraceable(tracer: Option<(String, i32)>, yama: Option<i64>, e: &io::Error) -> String {
    let why = match (tracer, yama) {
        (Some((name, number)), _) => {
            format!("{name} ({number}) traces the command already; record without it")
        }
        (None, Some(scope @ 2..)) => {
            format!("kernel.yama.ptrace_scope is {scope}; 0 or 1 allows it, and 2 allows it to root")
        }
        _ => format!("{e}: a seccomp filter or a security module forbids it, or a tracer out of sight"),
    };
    format!("ptrace is refused: {why}")
}

/// Returns why the kernel does not give out perf events.
pub(crate) fn no_perf_events(e: &io::Error) -> Failure {
    Failure::new(why_no_perf_events(e, setting("kernel/perf_event_paranoid")))
}

fn why_no_perf_events(e: &io::Error, paranoid: Option<i64>) -> String {
    let why = match (e.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(n)) if n > 2 => {
            format!("kernel.perf_event_paranoid is {n} and must be 2 or less for users without privileges")
        }
        (Some(libc::EACCES | libc::EPERM | libc::ENOSYS), None) => {
            "this kernel has no perf events".to_owned()
        }
        (Some(libc::EACCES | libc::EPERM | libc::ENOSYS), Some(_)) => {
            format!("{e}: a seccomp filter or a security module forbids perf_event_open, as in containers")
        }
        _ => e.to_string(),
    };
    format!("perf: page faults cannot be recorded: {why}; root can use --method tracefs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_their_reason() {
        let perf = |errno, paranoid| why_no_perf_events(&io::Error::from_raw_os_error(errno), paranoid);
        assert!(perf(libc::EACCES, Some(3)).contains("perf_event_paranoid is 3 and must be 2 or less"));
        assert!(perf(libc::EPERM, Some(4)).contains("perf_event_paranoid is 4"));
        assert!(perf(libc::EPERM, Some(2)).contains("a seccomp filter or a security module"));
        assert!(perf(libc::ENOSYS, None).contains("no perf events"));
        assert!(perf(libc::EMFILE, Some(3)).contains("Too many open files"));
        let e = io::Error::from_raw_os_error(libc::EPERM);
        let ptrace = |tracer, yama| why_untraceable(tracer, yama, &e);
        assert!(ptrace(Some(("strace".to_owned(), 7)), Some(3)).contains("strace (7) traces the command"));
        assert!(ptrace(None, Some(3)).contains("kernel.yama.ptrace_scope is 3"));
        assert!(ptrace(None, Some(1)).contains("a seccomp filter"));
        assert!(ptrace(None, None).starts_with("ptrace is refused: Operation not permitted"));
        let attach = |tracer, yama, root| why_unattachable(9, tracer, yama, root, &e);
        assert!(attach(Some(("gdb".to_owned(), 7)), None, false).ends_with("gdb (7) traces it already"));
        let user = attach(None, Some(1), false);
        assert!(user.contains("process 9: ") && user.contains("sysctl kernel.yama.ptrace_scope=0"));
        assert!(attach(None, Some(1), true).contains("Operation not permitted"));
        assert!(attach(None, Some(3), true).contains("ptrace_scope is 3"));
    }

    #[test]
    fn nobody_traces_this_process() {
        assert_eq!(tracer(0), None);
        assert!(status("self", "CapEff").is_some_and(|mask| mask.len() == 16));
    }
}
