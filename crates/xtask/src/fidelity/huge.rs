//! Sets `transparent_hugepage=always` while a command is recorded.
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

/// Where Linux uses huge pages for anonymous memory.
const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Writes the second argument to the first when its standard input ends, whatever signals come.
const KEEPER: &str = r#"trap "" INT TERM HUP; echo; read -r line; echo "$1" > "$0""#;

/// Huge pages in all anonymous memory of this machine, until this is dropped.
///
/// A process of its own writes the former value back. It waits for the end of a pipe from this one,
/// so it also does so if this process is ended by a signal.
pub struct AlwaysHuge {
    keeper: Child,
    /// The file, locked: nobody else takes `always` for the former value.
    _locked: File,
}

impl AlwaysHuge {
    /// Sets the value, once no other process of this kind has set it.
    ///
    /// # Errors
    /// If it cannot be set: that takes root, and a kernel with transparent huge pages.
    pub fn set() -> Result<Self, String> {
        let error = |e: std::io::Error| format!("{FILE}: {e}");
        let locked = File::options().write(true).open(FILE).map_err(error)?;
        // SAFETY: the descriptor is open for as long as `locked` lives.
        if unsafe { libc::flock(locked.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(error(std::io::Error::last_os_error()));
        }
        let text = fs::read_to_string(FILE).map_err(error)?;
        let before = chosen(&text).ok_or_else(|| format!("{FILE}: no value is chosen: {text}"))?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, FILE, before])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("sh: {e}"))?;
        let ready = keeper.stdout.take().map(|out| BufReader::new(out).read_line(&mut String::new()));
        let always = AlwaysHuge { keeper, _locked: locked };
        if !matches!(ready, Some(Ok(1))) {
            return Err("sh: it does not begin".to_owned());
        }
        fs::write(FILE, "always").map_err(error)?;
        Ok(always)
    }
}

impl Drop for AlwaysHuge {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            eprintln!("suite: {FILE}: its former value could not be written back");
        }
    }
}

/// Returns the value in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Option<String> {
        chosen(&fs::read_to_string(FILE).ok()?).map(str::to_owned)
    }

    #[test]
    fn the_value_in_brackets_is_chosen() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise never"), None);
    }

    #[test]
    fn the_former_value_comes_back_also_after_a_signal() {
        let before = value();
        let always = match AlwaysHuge::set() {
            Ok(always) => always,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        assert_eq!(value().as_deref(), Some("always"));
        // SAFETY: the keeper is our child and has not been waited for.
        unsafe { libc::kill(always.keeper.id() as libc::pid_t, libc::SIGTERM) };
        assert_eq!(value().as_deref(), Some("always"));
        drop(always);
        assert_eq!(value(), before);
    }
}
