//! The kernel's ring-buffer pages, as `trace_pipe_raw` delivers them (`events/header_page`,
//! `events/header_event`).
use super::format::TracepointFormat;

/// Entry types above the lengths: padding, a longer time step, an absolute time.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The layout of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLayout {
    /// Bytes of a page.
    pub(super) size: usize,
    time: usize,
    commit: usize,
    data: usize,
}

impl PageLayout {
    /// Parses `events/header_page`; `size` is that of a sub-buffer in bytes.
    pub(super) fn new(header_page: &str, size: usize) -> Option<Self> {
        let f = TracepointFormat::parse(header_page);
        let at = |name| f.field(name).map(|f| f.offset());
        let layout = Self { size, time: at("timestamp")?, commit: at("commit")?, data: at("data")? };
        (layout.data + 8 <= size).then_some(layout)
    }

    /// Calls `f` with the time and the bytes of each record in a page. Returns whether the page
    /// ends with the last record.
    pub(super) fn records(self, page: &[u8], mut f: impl FnMut(u64, &[u8])) -> bool {
        let word =
            |at: usize| page.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let mut time = u64::from(word(self.time)) | u64::from(word(self.time + 4)) << 32;
        // The upper bits of the length report missed events, which are counted elsewhere.
        let wanted = self.data + (word(self.commit) & 0xf_ffff) as usize;
        let end = wanted.min(page.len());
        let mut at = self.data;
        while at + 4 <= end {
            let head = word(at);
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let long = delta | u64::from(word(at + 4)) << 27;
            match kind {
                PADDING if delta == 0 => return true,
                PADDING => {
                    time = time.wrapping_add(delta);
                    at += 4 + word(at + 4) as usize;
                }
                TIME_EXTEND => {
                    time = time.wrapping_add(long);
                    at += 8;
                }
                TIME_STAMP => {
                    time = (time & !((1 << 59) - 1)) | long;
                    at += 8;
                }
                _ => {
                    time = time.wrapping_add(delta);
                    let (start, len) = if kind == 0 {
                        (at + 8, (word(at + 4) as usize).saturating_sub(4))
                    } else {
                        (at + 4, kind as usize * 4)
                    };
                    let Some(record) = page.get(start..(start + len).min(end)) else { return false };
                    f(time, record);
                    at = start + len.max(4);
                }
            }
        }
        wanted <= page.len() && at <= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    #[test]
    fn a_page_by_hand() {
        let layout = PageLayout::new(HEADER, 4096).expect("a layout");
        let mut page = 1000u64.to_le_bytes().to_vec();
        let mut data: Vec<u8> = Vec::new();
        data.extend((2u32 | 5 << 5).to_le_bytes());
        data.extend([1; 8]);
        data.extend((TIME_EXTEND | 3 << 5).to_le_bytes());
        data.extend(1u32.to_le_bytes());
        data.extend((1u32 << 5).to_le_bytes());
        data.extend(8u32.to_le_bytes());
        data.extend([2; 4]);
        page.extend((data.len() as u64).to_le_bytes());
        page.extend(data);
        let mut seen = Vec::new();
        assert!(layout.records(&page, |t, r| seen.push((t, r.to_vec()))));
        assert_eq!(seen, [(1005, vec![1; 8]), (1005 + 3 + (1 << 27) + 1, vec![2; 4])]);
        // No content of a page leads outside it.
        for n in 0..page.len() {
            assert!(!layout.records(&page[..n], |_, _| {}), "{n} bytes are a part of a page");
            let mut bad = page.clone();
            bad[n] = !bad[n];
            layout.records(&bad, |_, _| {});
        }
    }
}
