//! Opens a log, and shows the progress of reading it.
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use ptsan_log::Reader;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

/// Logs of fewer bytes are read before a bar could be looked at.
const WORTH_A_BAR: u64 = 4 << 20;

/// A file that has been opened, and not been read.
pub(crate) struct Source {
    pub(crate) from: Box<dyn BufRead>,
    /// How the file is called in messages.
    pub(crate) name: String,
    /// The progress of reading it.
    pub(crate) bar: ProgressBar,
}

impl Source {
    /// Opens a file. `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let (name, from, bar): (_, Box<dyn Read>, _) = if path == Path::new("-") {
            ("standard input".to_owned(), Box::new(io::stdin()), ProgressBar::hidden())
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|e| Failure::at(&name, e))?;
            let bytes = file.metadata().map(|m| m.len()).unwrap_or(0);
            let bar = bar(bytes);
            (name, Box::new(bar.wrap_read(file)), bar)
        };
        Ok(Self { from: Box::new(BufReader::with_capacity(1 << 16, from)), name, bar })
    }

    /// Returns the first bytes, without taking them.
    pub(crate) fn first_bytes(&mut self) -> Result<&[u8], Failure> {
        let name = &self.name;
        self.from.fill_buf().map_err(|e| Failure::at(name, e))
    }
}

/// A log that has been opened.
pub(crate) struct Input {
    pub(crate) reader: Reader<Box<dyn BufRead>>,
    /// How the log is called in messages.
    pub(crate) name: String,
    bar: ProgressBar,
}

impl Input {
    /// Opens a log and reads its header. `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Self::of(Source::open(path)?)
    }

    /// Reads the header of a log.
    pub(crate) fn of(source: Source) -> Result<Self, Failure> {
        let Source { from, name, bar } = source;
        let reader = Reader::new(from).map_err(|e| Failure::at(&name, e))?;
        Ok(Self { reader, name, bar })
    }

    /// Takes the bar away, before anything is printed.
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns a bar on standard error, hidden where it is no terminal or not worth it.
fn bar(bytes: u64) -> ProgressBar {
    if bytes < WORTH_A_BAR || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    match ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
