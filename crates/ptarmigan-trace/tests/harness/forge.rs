//! Traces in parts, put together again with correct checksums, as only a forger writes them.
use ptarmigan_trace::{Header, Summary};
use xxhash_rust::xxh3::xxh3_64;

/// Length of the trailer.
const TRAILER: usize = 184;

/// The parts of a trace, without its checksums.
#[derive(Clone)]
pub struct Parts {
    /// The header as far as the end of the name.
    pub header: Vec<u8>,
    /// The rows before compression.
    pub rows: Vec<u8>,
    /// The trailer's counts.
    pub counts: Summary,
}

fn sealed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &xxh3_64(bytes).to_le_bytes()].concat()
}

/// Returns the parts of a trace that can be read.
pub fn parts(trace: &[u8], counts: &Summary) -> Parts {
    let end = 12 + usize::from(u16::from_le_bytes([trace[10], trace[11]]));
    let rows = zstd::decode_all(&trace[end + 8..trace.len() - TRAILER]).expect("one frame");
    Parts { header: trace[..end].to_vec(), rows, counts: *counts }
}

impl Parts {
    /// Makes a trace of `header` and `rows`, whose counts may be wrong.
    pub fn new(header: &Header, rows: &[u8]) -> Self {
        let empty = ptarmigan_trace::Writer::new(Vec::new(), header, 1).expect("a good header");
        let (trace, counts) = empty.finish(0).expect("memory takes everything");
        let mut made = parts(&trace, &counts);
        made.rows = rows.to_vec();
        made.counts.row_bytes = rows.len() as u64;
        made
    }

    /// Changes the version of the format.
    pub fn version(mut self, version: u16) -> Self {
        self.header[8..10].copy_from_slice(&version.to_le_bytes());
        self
    }

    /// Puts the parts together. `counts` gives the number of rows' bytes.
    pub fn trace(&self) -> Vec<u8> {
        self.with_frame(&zstd::encode_all(&self.rows[..], 1).expect("memory takes everything"))
    }

    /// Puts the parts together, with another frame than that of the rows.
    pub fn with_frame(&self, frame: &[u8]) -> Vec<u8> {
        let body = [&sealed(&self.header)[..], frame].concat();
        let Summary { events, lost, tasks, unrecorded, by_kind, row_bytes, .. } = self.counts;
        let tasks = u64::from(unrecorded) << 32 | u64::from(tasks);
        let mut tail = b"PTRTAIL\n".to_vec();
        for word in [events, lost, tasks].into_iter().chain(by_kind).chain([row_bytes]) {
            tail.extend(word.to_le_bytes());
        }
        tail.extend(xxh3_64(&body).to_le_bytes());
        [body, sealed(&tail)].concat()
    }
}
