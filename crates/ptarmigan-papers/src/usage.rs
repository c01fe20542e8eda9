//! Reads the host's counts of this process.
use std::mem::MaybeUninit;

/// How often threads of this process have lost their processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    /// Because others were to run: involuntary switches, `%c` of `time`.
    pub taken: u64,
    /// Because they waited for something: voluntary switches, `%w` of `time`.
    pub slept: u64,
}

impl Switches {
    /// Returns the counts since the process began, those of threads that have ended included.
    /// `None` if the host does not say.
    pub(crate) fn now() -> Option<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` has room for the structure, which the call fills, and all-zero is valid.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
                return None;
            }
            usage.assume_init()
        };
        Some(Switches {
            taken: u64::try_from(usage.ru_nivcsw).ok()?,
            slept: u64::try_from(usage.ru_nvcsw).ok()?,
        })
    }

    /// Returns the counts since `before`.
    pub(crate) fn since(self, before: Switches) -> Self {
        Switches {
            taken: self.taken.saturating_sub(before.taken),
            slept: self.slept.saturating_sub(before.slept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_counted() {
        let before = Switches::now().expect("counts");
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(Switches::now().expect("counts").since(before).slept >= 3);
    }
}
