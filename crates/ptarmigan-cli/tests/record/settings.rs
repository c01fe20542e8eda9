//! Changes settings of the whole machine, and puts them back.
//!
//! # The protocol
//!
//! 1. One process at a time changes settings: it holds a lock on [`LOCK`], so that nobody takes a
//!    changed value for the former one, or measures under the settings of another.
//! 2. A process of its own, the keeper, waits for the end of a pipe from this one, and then writes
//!    the former values back. So they come back even if this process is killed by `SIGKILL`.
//! 3. The keeper has the lock as its standard error. The lock is free once it has ended.
//! 4. The keeper is in a process group of its own, so that signals to a group do not end it.
//!
//! ```text
//!  tests ── pipe ──> keeper: read; echo madvise > .../enabled
//!    └───── lock ──────┘  free after both have ended
//! ```
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The locked directory. It is there on each machine, and needs no clean-up.
const LOCK: &str = "/sys/kernel";

/// The settings of huge pages. A directory for each size has the file `enabled`, if anonymous
/// memory can have it.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";

/// Takes pairs of a file and a value. Writes the values when its standard input ends, the last one
/// first, whatever signals come.
const KEEPER: &str = r#"trap "" INT TERM HUP; echo; read -r line; status=0
while [ $# -gt 0 ]; do echo "$2" > "$1" || status=1; shift 2; done; exit $status"#;

/// Changed settings of this machine, until this is dropped.
pub struct Settings {
    keeper: Child,
    /// The files, for the message of a failure.
    names: String,
    _lock: File,
}

impl Settings {
    /// Writes a value to each of the files, in order, once no other process changes settings.
    ///
    /// # Errors
    /// A text that names the file, if it cannot be read or written: most take root. Settings that
    /// are already changed are put back.
    pub fn change(new: &[(&str, &str)]) -> Result<Self, String> {
        let lock = locked().map_err(|e| format!("{LOCK}: {e}"))?;
        let mut former = Vec::new();
        for (file, _) in new.iter().rev() {
            let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            former.extend([(*file).to_owned(), chosen(&text).to_owned()]);
        }
        let held = lock.try_clone().map_err(|e| format!("{LOCK}: {e}"))?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .args(former)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(held)
            .spawn()
            .map_err(|e| format!("sh: {e}"))?;
        let ready = keeper.stdout.take().map(|out| BufReader::new(out).read_line(&mut String::new()));
        let names: Vec<&str> = new.iter().map(|(file, _)| *file).collect();
        let changed = Settings { keeper, names: names.join(", "), _lock: lock };
        if !matches!(ready, Some(Ok(1))) {
            return Err("sh: it does not begin".to_owned());
        }
        for (file, value) in new {
            fs::write(file, value).map_err(|e| format!("{file}: {e}"))?;
        }
        Ok(changed)
    }

    /// Sets blocks of `kib` KiB for anonymous memory to `value`, and all other sizes to `never`.
    ///
    /// # Errors
    /// As [`change`](Self::change), and if this kernel has no such size.
    pub fn only_blocks(kib: u64, value: &str) -> Result<Self, String> {
        let entries = fs::read_dir(HUGE).map_err(|e| format!("{HUGE}: {e}"))?;
        let sizes = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("hugepages-"));
        let files: Vec<PathBuf> =
            sizes.map(|size| size.path().join("enabled")).filter(|file| file.exists()).collect();
        let wanted = Path::new(HUGE).join(format!("hugepages-{kib}kB/enabled"));
        if !files.contains(&wanted) {
            return Err(format!("{}: there is no such file", wanted.display()));
        }
        let new = files.iter().map(|file| (file.to_str(), if *file == wanted { value } else { "never" }));
        let new: Vec<(&str, &str)> = new.filter_map(|(file, value)| Some((file?, value))).collect();
        Self::change(&new)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            eprintln!("{}: the former values could not be written back", self.names);
        }
    }
}

/// Waits for the lock.
fn locked() -> std::io::Result<File> {
    let lock = File::open(LOCK)?;
    // SAFETY: the descriptor is open for as long as `lock` lives.
    while unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let err = std::io::Error::last_os_error();
        if err.kind() != std::io::ErrorKind::Interrupted {
            return Err(err);
        }
    }
    Ok(lock)
}

/// Returns the value of a setting: the one in brackets, or the whole text.
fn chosen(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(chosen, _)| chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    /// The file that the child process changes.
    const CHANGED: &str = "SETTINGS_TEST_FILE";

    fn value(file: &Path) -> String {
        chosen(&fs::read_to_string(file).expect("the setting is there")).to_owned()
    }

    /// A file that looks like a setting.
    fn made(name: &str) -> PathBuf {
        let file = std::env::temp_dir().join(format!("ptarmigan-{name}-{}", std::process::id()));
        fs::write(&file, "always [madvise] never\n").expect("a temporary file");
        file
    }

    #[test]
    fn the_value_in_brackets_is_chosen() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("128\n"), "128");
    }

    #[test]
    fn the_former_value_comes_back_also_after_a_signal() {
        let before = fs::read_to_string(ENABLED).unwrap_or_default();
        let changed = match Settings::change(&[(ENABLED, "always")]) {
            Ok(changed) => changed,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        assert_eq!(value(Path::new(ENABLED)), "always");
        // SAFETY: the keeper is our child and has not been waited for.
        unsafe { libc::kill(changed.keeper.id() as libc::pid_t, libc::SIGTERM) };
        assert_eq!(value(Path::new(ENABLED)), "always");
        drop(changed);
        assert_eq!(value(Path::new(ENABLED)), chosen(&before));
    }

    #[test]
    fn a_failure_puts_back_settings_that_are_changed() {
        let file = made("half");
        let name = file.to_str().expect("UTF-8");
        // The kernel's version can be read, not written.
        let refused = Settings::change(&[(name, "always"), ("/proc/version", "7")]).err();
        let why = refused.expect("the second cannot be written");
        assert!(why.starts_with("/proc/version: "), "{why}");
        assert_eq!(value(&file), "madvise");
        fs::remove_file(&file).expect("ours");
    }

    /// Changes a setting and waits, in a process of its own.
    #[test]
    #[ignore = "is the child of another test"]
    fn a_child_that_waits() {
        let Ok(file) = std::env::var(CHANGED) else { return };
        let _changed = Settings::change(&[(&file, "always")]).expect("our file");
        println!("changed");
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn a_killed_process_leaves_no_changed_setting() {
        let file = made("killed");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["a_child_that_waits", "--ignored", "--nocapture"])
            .env(CHANGED, &file)
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be run");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.expect("text").ends_with("changed")));
        assert_eq!(value(&file), "always");
        // SAFETY: the child leads a group of its own, and has not been waited for.
        unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
        child.wait().expect("our child");
        let start = Instant::now();
        while value(&file) != "madvise" {
            assert!(start.elapsed() < Duration::from_secs(1), "{}", value(&file));
            std::thread::sleep(Duration::from_millis(5));
        }
        // The lock is free again.
        drop(Settings::change(&[(file.to_str().expect("UTF-8"), "never")]).expect("it is ours"));
        fs::remove_file(&file).expect("ours");
    }
}
