//! Moves the kernel's buffers to files, and reads the events from there.
use super::decoder::Decoder;
use crate::linux::raw::{Raw, RawKind};
use crate::linux::sources::ring::StrangeRecords;
use crate::linux::sources::spill::{Consumed, Room};
use ptarmigan_trace::FaultFlags;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a buffer is emptied.
const POLL: Duration = Duration::from_millis(50);

/// Starts a thread that moves the buffer of one CPU to a file, page by page. Without room for a
/// page it switches the tracing off.
pub(super) fn start(
    from: &Path,
    to: &Path,
    size: usize,
    room: Arc<Room>,
    switch: PathBuf,
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
    let mut from = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(from)?;
    let mut to = BufWriter::with_capacity(1 << 18, File::create(to)?);
    std::thread::Builder::new().name("reader".into()).spawn(move || {
        let mut page = vec![0; size];
        let mut on = true;
        loop {
            // Loaded before reading, so everything is read once more after the stop.
            let last = stop.load(Ordering::SeqCst);
            loop {
                match from.read(&mut page) {
                    Ok(0) => break,
                    Ok(n) => {
                        page[n..].fill(0);
                        room.write(&mut to, &page)?;
                        bytes.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            if on && room.ended().is_some() {
                on = false;
                // Otherwise the kernel drops and counts the events that have no room.
                let _ = OpenOptions::new().write(true).open(&switch).and_then(|mut f| f.write_all(b"0"));
            }
            if last {
                return room.flush(&mut to);
            }
            std::thread::sleep(POLL);
        }
    })
}

/// The raw events of one CPU, in order of time.
pub(super) struct CpuEvents {
    file: BufReader<Consumed>,
    cpu: u16,
    decoder: Decoder,
    page: Vec<u8>,
    ready: std::vec::IntoIter<Raw>,
    /// The next events, which have been looked at already.
    peeked: VecDeque<Raw>,
    strange: StrangeRecords,
}

impl Iterator for CpuEvents {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let mut raw = self.peeked.pop_front().or_else(|| self.read())?;
        if let RawKind::Fault { address, code } = raw.what
            && self.is_refused(raw.pid, address, code)
        {
            raw.what = RawKind::Fault { address, code: code | u64::from(FaultFlags::REFUSED) };
        }
        Some(raw)
    }
}

impl CpuEvents {
    /// Reads the events of `cpu` from a file that [`start`] has filled.
    /// Records that are not as the kernel has described them are counted.
    pub(super) fn new(
        file: BufReader<Consumed>,
        cpu: u16,
        decoder: Decoder,
        strange: StrangeRecords,
    ) -> Self {
        let page = vec![0; decoder.layout.size];
        let (ready, peeked) = (Vec::new().into_iter(), VecDeque::new());
        Self { file, cpu, decoder, page, ready, peeked, strange }
    }

    /// Whether the fault that has just been read was refused: a signal, or the failure of the
    /// system call, comes next on the same CPU. Between them the lock may be taken to look for a
    /// stack, and the kernel may try again.
    fn is_refused(&mut self, pid: i32, address: u64, code: u64) -> bool {
        let by_kernel = code & u64::from(FaultFlags::USER) == 0;
        for at in 0..16 {
            if at == self.peeked.len() {
                let Some(next) = self.read() else { return false };
                self.peeked.push_back(next);
            }
            let next = &self.peeked[at];
            match next.what {
                // The task may have slept, and have run again on this CPU.
                RawKind::Switch { next, .. } if next == pid => continue,
                RawKind::Wake { .. } => continue,
                _ if next.pid != pid => return false,
                RawKind::Switch { .. } => {}
                RawKind::Refused => {
                    self.peeked.remove(at);
                    return true;
                }
                RawKind::BadAddress => return by_kernel,
                RawKind::Locked | RawKind::Released | RawKind::End { .. } => {}
                RawKind::LockedToRead | RawKind::NotLocked => {}
                RawKind::Fault { address: again, .. } if by_kernel && again >> 12 == address >> 12 => {}
                _ => return false,
            }
        }
        false
    }

    fn read(&mut self) -> Option<Raw> {
        loop {
            if let Some(raw) = self.ready.next() {
                return Some(raw);
            }
            self.file.read_exact(&mut self.page).ok()?;
            let (mut found, strange) = (Vec::new(), &self.strange);
            let whole = self.decoder.layout.records(&self.page, |time, record| {
                match self.decoder.record(time, self.cpu, record) {
                    Some(raw) => found.push(raw),
                    None => strange.add(),
                }
            });
            if !whole {
                strange.add();
            }
            self.ready = found.into_iter();
        }
    }
}
