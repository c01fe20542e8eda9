//! Sums of times.
use ptarmigan_trace::Call;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Times of the calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// Number of calls.
    pub calls: u64,
    /// Nanoseconds in which they ran; for vfork also the wait for the child.
    pub nanos: u64,
    /// Nanoseconds in which they did not run.
    pub away: u64,
    /// Nanoseconds in which the longest of them ran.
    pub longest: u64,
    /// Nanoseconds from start to end of the longest of them by the clock.
    pub longest_by_clock: u64,
}

/// Calls that are told together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Forks.
    Forks,
    /// Vforks, with the time of the child up to its execve.
    Vforks,
    /// Clones of threads.
    Threads,
    /// Execves.
    Execs,
    /// Exits.
    Exits,
    /// `mmap` and all other calls that change mappings.
    Mappings,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 6] =
        [Self::Forks, Self::Vforks, Self::Threads, Self::Execs, Self::Exits, Self::Mappings];

    /// Returns the family of a call.
    pub fn of(call: Call) -> Self {
        match call {
            Call::Fork => Self::Forks,
            Call::Vfork => Self::Vforks,
            Call::Clone => Self::Threads,
            Call::Exec => Self::Execs,
            Call::Exit => Self::Exits,
            _ => Self::Mappings,
        }
    }

    /// Returns one call of it, in words.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Forks => "fork",
            Self::Vforks => "vfork",
            Self::Threads => "thread",
            Self::Execs => "exec",
            Self::Exits => "exit",
            Self::Mappings => "call on mappings",
        }
    }
}

/// Times and counts of processes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Times {
    /// Processes that were made: the children of a program's processes.
    pub processes: u64,
    /// Processes whose CPU time is known: all but those that a signal has ended, in recordings with
    /// tracepoints, and those that go on after a command's recording.
    pub ended: u64,
    /// CPU time in user mode, in microseconds.
    pub user: u64,
    /// CPU time in the kernel, in microseconds.
    pub kernel: u64,
    /// Page faults that the recording has.
    pub faults: u64,
    /// Faults that needed no device, as the kernel counts them.
    pub minor: u64,
    /// Faults that waited for a device.
    pub major: u64,
    /// Switches to other tasks because of a wait.
    pub waits: u64,
    /// Switches to other tasks without a wait.
    pub preempted: u64,
    pub(super) calls: [CallTime; Call::ALL.len()],
}

/// CPU time in microseconds from which on the time of faults is told: the ticks that divide it
/// between kernel and user mode are too few for less.
const ENOUGH: u64 = 400_000;

/// Microseconds above which a fault cannot be all that the kernel did.
pub(super) const DEAREST: u64 = 10;

impl Times {
    pub(super) fn took(&mut self, call: Call, nanos: u64, away: u64) {
        let time = &mut self.calls[call as usize];
        let longest_by_clock = nanos.saturating_add(away);
        *time = time.plus(CallTime { calls: 1, nanos, away, longest: nanos, longest_by_clock });
    }

    /// Returns the sum of two accounts.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.processes += other.processes;
        self.ended += other.ended;
        self.user += other.user;
        self.kernel += other.kernel;
        self.faults += other.faults;
        self.minor += other.minor;
        self.major += other.major;
        self.waits += other.waits;
        self.preempted += other.preempted;
        for (sum, part) in self.calls.iter_mut().zip(&other.calls) {
            *sum = sum.plus(*part);
        }
        self
    }

    /// Returns the times of a call.
    pub fn call(&self, call: Call) -> CallTime {
        self.calls[call as usize]
    }

    /// Returns the times of the calls of a family.
    pub fn family(&self, family: Family) -> CallTime {
        let of = |call: &&Call| Family::of(**call) == family;
        Call::ALL.iter().filter(of).fold(CallTime::default(), |sum, call| sum.plus(self.call(*call)))
    }

    /// Returns the calls that were made, the dearest by CPU time first.
    pub fn dearest(&self) -> Vec<(Call, CallTime)> {
        let all = Call::ALL.into_iter().map(|call| (call, self.call(call)));
        let mut made: Vec<_> = all.filter(|(_, time)| time.calls > 0).collect();
        made.sort_by_key(|(_, time)| std::cmp::Reverse(time.nanos));
        made
    }

    /// Returns the nanoseconds in which calls ran, without vforks: these are the child's time.
    fn in_calls(&self) -> u64 {
        let timed = Call::ALL.iter().filter(|call| **call != Call::Vfork);
        timed.map(|call| self.call(*call).nanos).sum()
    }

    /// Returns whether the CPU time is known of most processes, those that made the calls among
    /// them. Otherwise shares of it say nothing of the recording.
    pub fn is_measured(&self) -> bool {
        2 * self.ended > self.processes && self.kernel >= self.in_calls() / 1000
    }

    /// Returns the CPU time, in microseconds.
    pub fn cpu(&self) -> u64 {
        self.user + self.kernel
    }

    /// Returns about how many microseconds page faults took: the time in the kernel less that of
    /// the timed calls. Other system calls are in it. `None` with less than 0.4 s of CPU time.
    pub fn faults_about(&self) -> Option<u64> {
        let nanos = self.in_calls();
        (self.cpu() >= ENOUGH && self.faults > 0).then(|| self.kernel.saturating_sub(nanos / 1000))
    }

    /// Returns the same, but no more than so many faults can take.
    pub fn faults_at_most(&self) -> Option<u64> {
        self.faults_about().map(|micros| micros.min(self.faults.saturating_mul(DEAREST)))
    }

    /// Returns how many microseconds of CPU time page tables took at most: the timed calls, and all
    /// that faults can have taken.
    pub fn page_tables_at_most(&self) -> u64 {
        let faults = self.faults.saturating_mul(DEAREST);
        self.in_calls() / 1000 + self.faults_at_most().unwrap_or_else(|| faults.min(self.kernel))
    }
}

impl CallTime {
    fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            nanos: self.nanos.saturating_add(other.nanos),
            away: self.away.saturating_add(other.away),
            longest: self.longest.max(other.longest),
            longest_by_clock: self.longest_by_clock.max(other.longest_by_clock),
        }
    }

    /// Returns the nanoseconds from start to end, which they ran or did not.
    pub fn by_clock(&self) -> u64 {
        self.nanos.saturating_add(self.away)
    }

    /// Returns the time in which the calls ran, in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

impl Serialize for CallTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mut map = to.serialize_map(Some(6))?;
        map.serialize_entry("calls", &self.calls)?;
        map.serialize_entry("seconds", &self.seconds())?;
        map.serialize_entry("away_seconds", &seconds(self.away))?;
        map.serialize_entry("clock_seconds", &seconds(self.by_clock()))?;
        map.serialize_entry("longest_seconds", &seconds(self.longest))?;
        map.serialize_entry("longest_clock_seconds", &seconds(self.longest_by_clock))?;
        map.end()
    }
}

/// The calls of [`Times`] that were made, by name.
struct Calls<'a>(&'a Times);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let made = |call: &&Call| self.0.call(**call).calls > 0;
        to.collect_map(Call::ALL.iter().filter(made).map(|call| (call.name(), self.0.call(*call))))
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("processes", &self.processes)?;
        map.serialize_entry("processes_timed", &self.ended)?;
        map.serialize_entry("user_seconds", &seconds(self.user))?;
        map.serialize_entry("kernel_seconds", &seconds(self.kernel))?;
        map.serialize_entry("calls", &Calls(self))?;
        map.serialize_entry("faults", &self.faults)?;
        map.serialize_entry("faults_about_seconds", &self.faults_about().map(seconds))?;
        map.serialize_entry("minor_faults", &self.minor)?;
        map.serialize_entry("major_faults", &self.major)?;
        map.serialize_entry("waits", &self.waits)?;
        map.serialize_entry("preemptions", &self.preempted)?;
        map.end()
    }
}
