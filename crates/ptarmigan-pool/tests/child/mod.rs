//! Tests that need a process of their own: it ends in a fault, forks, or is refused calls.
#![allow(dead_code, reason = "each test uses a part of it")]
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};

const VARIABLE: &str = "PTARMIGAN_TEST_CHILD";

/// Runs the test of this name in a process of its own. Returns its output, `None` in that process.
pub fn of(test: &str) -> Option<Output> {
    if std::env::var_os(VARIABLE).is_some() {
        return None;
    }
    let itself = std::env::current_exe().expect("a test has a file");
    let mut command = Command::new(itself);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
    Some(command.output().expect("a test can be run again"))
}

/// Runs the test of this name in a process of its own, and is false there; panics if it failed.
pub fn passes(test: &str) -> bool {
    let Some(output) = of(test) else { return false };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    true
}

/// From now on the host answers a call of this thread with `errno`, if its third argument is
/// `third`, or whatever it is.
pub fn deny(call: libc::c_long, third: Option<u32>, errno: i32) {
    let filter = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (load, equal, result) = (0x20, 0x15, 0x06);
    let errno = libc::SECCOMP_RET_ERRNO | errno as u32;
    // Offsets are those of the lower halves in `seccomp_data`, on machines that are little-endian.
    let mut program = vec![filter(load, 0, 0, 0), filter(equal, 0, 3, call as u32)];
    match third {
        Some(third) => program.extend([filter(load, 0, 0, 32), filter(equal, 0, 1, third)]),
        None => program[1].jf = 1,
    }
    program.extend([filter(result, 0, 0, errno), filter(result, 0, 0, libc::SECCOMP_RET_ALLOW)]);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is well-formed and lives until the calls are over.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "calls cannot be denied here: {}", std::io::Error::last_os_error());
}

/// Whether the host has memory behind the byte at `at`, as `/proc` says it.
pub fn is_resident(at: usize) -> bool {
    let file = std::fs::File::open("/proc/self/pagemap").expect("proc is mounted");
    let mut entry = [0; 8];
    file.read_exact_at(&mut entry, (at as u64 / 4096) * 8).expect("one entry a page");
    u64::from_le_bytes(entry) >> 63 == 1
}

/// Whether the byte at `at` can be read. A fault is the host's, and only said.
pub fn is_readable(at: usize) -> bool {
    let mut pipe = [0; 2];
    // SAFETY: there is room for two descriptors; the host answers `EFAULT` where there is no
    // memory.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0, "a pipe can be made");
        let written = libc::write(pipe[1], std::ptr::without_provenance(at), 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        written == 1
    }
}
