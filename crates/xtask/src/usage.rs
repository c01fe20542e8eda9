//! The time, faults and memory of commands, as the kernel counts them.
use std::process::{Command, Stdio};
use std::time::Duration;

/// Of a command with all of its children that were waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time in the program.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Page faults that read no file.
    pub faults: u64,
    /// The most memory of one of the processes, in bytes.
    pub most_memory: u64,
}

impl Usage {
    /// Returns the time of all commands that have ended.
    pub fn of_ended() -> Self {
        let mut usage = none();
        // SAFETY: `usage` has room for the structure, which is written by the call alone.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
        usage.into()
    }

    /// Runs a command to its end, silently.
    ///
    /// # Errors
    /// If it cannot be started, or does not succeed.
    pub fn of(command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().display().to_string();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
        let (mut status, mut usage) = (0, none());
        // SAFETY: the child is ours and not waited for yet, and both results have room.
        let ended = unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut usage) };
        match (ended, status) {
            (-1, _) => Err(format!("{name}: {}", std::io::Error::last_os_error())),
            (_, 0) => Ok(usage.into()),
            _ => Err(format!("{name} has not succeeded: wait status {status}")),
        }
    }

    /// Processor time.
    pub fn processor(&self) -> Duration {
        self.user + self.system
    }
}

fn none() -> libc::rusage {
    // SAFETY: integers alone, of which zero is a value.
    unsafe { std::mem::zeroed() }
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Self {
        let time =
            |time: libc::timeval| Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
        Usage {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            faults: usage.ru_minflt as u64,
            most_memory: usage.ru_maxrss as u64 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_counted_with_its_children() {
        let mut shell = Command::new("bash");
        let used = Usage::of(shell.args(["-c", "/bin/true; /bin/true"])).expect("it runs");
        assert!(used.faults > 100 && used.most_memory > 1 << 20, "{used:?}");
        assert!(Usage::of_ended().processor() >= used.processor());
        let failed = Usage::of(Command::new("bash").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.contains("wait status 768"), "{failed}");
    }
}
