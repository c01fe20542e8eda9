//! A thread that writes the records of several rings to their files.
//!
//! ```text
//!  reader     last = stop? ── drain each ring ── settle(until) ── sleep 20 ms ──┐
//!               ^───────────────────────────────────────────────────────────────┘
//!  end        stop = true ──> last is true: drain once more, flush ──> join: records lost
//! ```
//!
//! # Why
//!
//! The flag is read before the rings are, not after: a record that came before `stop` would be left
//! in the ring otherwise. Records are settled up to a time that was taken before the rings were
//! read, so that a record of another CPU from before that time has been seen. One thread for all
//! rings is enough, because it copies and does not decode.
use super::described::Described;
use super::ring::PerfRing;
use crate::linux::system::sys;
use ptarmigan_term::{Context, Failure};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks at the rings.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// The running thread. Dropping it ends it.
pub(crate) struct RingReader {
    name: &'static str,
    thread: Option<JoinHandle<io::Result<u64>>>,
    stop: Arc<AtomicBool>,
}

impl RingReader {
    /// Starts to read. `name` says which records they are.
    pub(crate) fn start(name: &'static str, mut rings: Vec<(PerfRing, Described)>) -> Result<Self, Failure> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut lost = 0;
            loop {
                // Loaded before reading, so everything is read once more after the stop.
                let last = stopped.load(Ordering::SeqCst);
                let until = if last { u64::MAX } else { sys::now() };
                for (ring, described) in &mut rings {
                    described.look();
                    ring.drain(|record| described.write(record, &mut lost))?;
                }
                for (_, described) in &mut rings {
                    described.settle(until)?;
                    if last {
                        described.flush()?;
                    }
                }
                if last {
                    return Ok(lost);
                }
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run).context("a thread")?;
        Ok(Self { name, thread: Some(thread), stop })
    }

    fn join(&mut self) -> std::thread::Result<io::Result<u64>> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map_or(Ok(Ok(0)), JoinHandle::join)
    }

    /// Ends the thread, once it has read the rings a last time. Returns how many records the kernel
    /// had no room for.
    pub(crate) fn end(&mut self) -> Result<u64, Failure> {
        let done = self.join().map_err(|_| Failure::new(format!("the reader of {} failed", self.name)))?;
        // Without room on the disk the recording has ended, and the readers of events say so.
        Ok(done.unwrap_or(0))
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
