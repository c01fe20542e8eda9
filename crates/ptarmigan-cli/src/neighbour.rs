//! A thread on the second CPU that runs a busy loop, so that flushes have to reach that CPU.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ptarmigan_bench::affinity::AffinityGuard;

/// State that both threads share.
#[derive(Default)]
struct NeighbourState {
    /// Goes up as long as the neighbour runs.
    beats: AtomicU64,
    stop: AtomicBool,
}

/// A thread that runs on the second CPU until this is dropped.
pub(crate) struct Neighbour {
    shared: Arc<NeighbourState>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Neighbour {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(NeighbourState::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().spawn(move || {
            let _there = AffinityGuard::on(1)?;
            // Only the counter is handed over.
            while !theirs.stop.load(Ordering::Relaxed) {
                theirs.beats.store(theirs.beats.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                std::hint::spin_loop();
            }
            Ok(())
        })?;
        Ok(Neighbour { shared, thread: Some(thread) })
    }

    /// Returns how far the neighbour has come.
    #[inline]
    pub(crate) fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Waits until the neighbour runs, as something else may have its CPU.
    ///
    /// # Errors
    ///
    /// If it does not run within two seconds.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let (before, start) = (self.beats(), Instant::now());
        while self.beats() == before {
            if start.elapsed() > Duration::from_secs(2) {
                return Err(Self::absent());
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// The error of a neighbour that does not run.
    pub(crate) fn absent() -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, "something else has the second CPU all the time")
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
