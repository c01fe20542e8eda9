//! Tells at once that programs start, so that a short one is read while it lives.
//!
//! A perf event on each CPU counts the tracepoint `sched_process_exec`, at the end of an execve,
//! and wakes the recorder. It is of all tasks: an event that tasks inherit would cost at every
//! fork, and processes that ran already have no common ancestor that could pass it on.
use super::ring::{PerfRing, Record, cpus, software};
use perf_event_open_sys::bindings as b;
use ptarmigan_term::Failure;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Bytes of a ring: some thousand execves.
const BYTES: usize = 64 << 10;
/// The bytes of a sample before its numbers of process and task.
const HEADER: usize = 8;

/// The running events.
pub(crate) struct Execs {
    rings: Vec<PerfRing>,
}

impl Execs {
    /// Starts to tell execves.
    ///
    /// # Errors
    /// If the kernel has no such tracepoint, or refuses perf events.
    pub(crate) fn start() -> Result<Self, Failure> {
        let number = || -> io::Result<u64> {
            let id = fs::read_to_string("/sys/kernel/tracing/events/sched/sched_process_exec/id")?;
            id.trim().parse().map_err(io::Error::other)
        };
        let number = number().map_err(|e| Failure::new(format!("sched_process_exec: {e}")))?;
        let open = |cpu| {
            let mut attr = software(0, b::PERF_SAMPLE_TID);
            (attr.type_, attr.config) = (b::PERF_TYPE_TRACEPOINT, number);
            attr.set_exclude_kernel(0);
            attr.__bindgen_anon_1.sample_period = 1;
            PerfRing::waking(&mut attr, -1, cpu, BYTES)
        };
        Ok(Self { rings: cpus("online").into_iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Returns the descriptors that become readable at an execve.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.rings.iter().map(|ring| ring.as_fd().as_raw_fd()).collect()
    }

    /// Returns the processes that have started a program since the last call.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        let mut processes = Vec::new();
        for ring in &mut self.rings {
            // `each` does not fail.
            let _ = ring.drain(|record| {
                match record {
                    Record::Sample(r) => processes.extend(process(r)),
                    // Programs that are not told are found at the looks.
                    Record::Mapping(_) | Record::Lost(_) | Record::Unknown => {}
                    Record::Fork(_) | Record::Exec(_) | Record::OfTask => {}
                }
                Ok(())
            });
        }
        processes
    }
}

/// Returns the process of a sample.
fn process(record: &[u8]) -> Option<i32> {
    let bytes = record.get(HEADER..HEADER + 4)?.try_into().ok()?;
    Some(i32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn an_execve_is_told_with_its_process() {
        let mut execs = match Execs::start() {
            Ok(execs) => execs,
            Err(e) => return eprintln!("skipped: {}", e.message()),
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it is there");
        let until = Instant::now() + Duration::from_secs(20);
        let mut told = false;
        while !told && Instant::now() < until {
            told = execs.take().contains(&(child.id() as i32));
        }
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(told);
        assert_eq!((process(&[0; 11]), process(&[1; 12])), (None, Some(0x0101_0101)));
    }
}
