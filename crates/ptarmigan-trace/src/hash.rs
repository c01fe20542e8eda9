//! Checksums of the bytes on disk. Any changed bit is noticed, even one that the decompressor would
//! ignore.
use std::io::{self, BufRead, Read, Write};
use xxhash_rust::xxh3::Xxh3Default;

/// Returns the XXH3 (64 bits) of a byte string.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A writer that hashes the bytes it passes on.
pub(crate) struct HashWriter<W> {
    pub(crate) inner: W,
    pub(crate) hash: Xxh3Default,
}

impl<W: Write> Write for HashWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(buf.get(..n).unwrap_or(buf));
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader that hashes the bytes consumed from it, not those merely buffered.
pub(crate) struct HashReader<R> {
    pub(crate) inner: R,
    pub(crate) hash: Xxh3Default,
    /// Whether the inner reader failed. An error from the decompressor is then the operating
    /// system's.
    pub(crate) failed: bool,
}

impl<R: BufRead> BufRead for HashReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let failed = &mut self.failed;
        self.inner.fill_buf().inspect_err(|_| *failed = true)
    }
    fn consume(&mut self, n: usize) {
        // The buffer is not empty here, so this returns it and reads nothing.
        if let Ok(buf) = self.inner.fill_buf() {
            self.hash.update(buf.get(..n).unwrap_or(buf));
        }
        self.inner.consume(n);
    }
}

impl<R: BufRead> Read for HashReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let buf = self.fill_buf()?;
        let n = buf.len().min(out.len());
        out[..n].copy_from_slice(&buf[..n]);
        if n > 0 {
            self.consume(n);
        }
        Ok(n)
    }
}
